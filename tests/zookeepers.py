"""Clients of ZooKeeper for tests, and trees that no other test uses."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NotEmptyError

from tests.waiting import LIMIT_S


@contextmanager
def connected(hosts: str, **options: Any) -> Iterator[KazooClient]:
    """A client with a session; `options` are those of kazoo."""
    client = KazooClient(hosts, **options)
    client.start(LIMIT_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@contextmanager
def own_tree(zookeeper: str, **options: Any) -> Iterator[str]:
    """Hosts with a path that is somebody's own; all below it goes in the end."""
    path = f"/t{uuid.uuid4().hex[:12]}"
    with connected(zookeeper, **options) as client:
        client.ensure_path(path)
        try:
            yield zookeeper + path
        finally:
            with suppress(NotEmptyError):  # who was left behind makes its node again
                client.delete(path, recursive=True)
