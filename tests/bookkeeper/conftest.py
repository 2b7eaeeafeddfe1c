"""Fixtures of the tests of registration: a ZooKeeper client and a context."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from tests.zookeepers import connected


@pytest.fixture
def zk(zookeeper: str) -> Iterator[KazooClient]:
    """A client of the tests' own; its session outlives a server that stands still for a while."""
    with connected(zookeeper, timeout=30) as client:
        yield client


@pytest.fixture
def context() -> str:
    """A context that no other test uses."""
    return f"test-{uuid.uuid4().hex[:8]}"
