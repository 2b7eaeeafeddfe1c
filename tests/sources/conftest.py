"""One subtree of the real ZooKeeper for each test, so that agents of other tests do not poll its processes."""

from __future__ import annotations

import uuid

import pytest

from artimon.stack.stack import Stack
from tests.sources.helpers import registry


@pytest.fixture
def tree(zookeeper_stack: Stack) -> str:
    """host:port/path of an empty tree."""
    path = f"/sources-{uuid.uuid4().hex}"
    with registry(zookeeper_stack.zookeeper) as client:
        client.create(path)
    return zookeeper_stack.zookeeper + path
