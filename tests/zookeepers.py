"""ZooKeeper clients for tests, and trees that no other test uses."""

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
    """Client with a session; `options` are those of kazoo."""
    client = KazooClient(hosts, **options)
    client.start(LIMIT_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@contextmanager
def own_tree(zookeeper: str, **options: Any) -> Iterator[str]:
    """Hosts with a unique path; everything below it is deleted at the end."""
    path = f"/t{uuid.uuid4().hex[:12]}"
    with connected(zookeeper, **options) as client:
        client.ensure_path(path)
        try:
            yield zookeeper + path
        finally:
            with suppress(NotEmptyError):  # a client that is still running recreates its node
                client.delete(path, recursive=True)
