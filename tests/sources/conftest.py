"""A part of the real ZooKeeper for each test, so that the processes of one are not polled by another."""

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
