"""Hooks for gunicorn. In its configuration:

    from bookkeeper.integrations.gunicorn import post_fork, worker_exit

Every worker is an endpoint of its own even without them. With them it is one from its start, not from its first write,
and hands over its last values whenever it ends in order.

A worker's `instance` is the lowest number that is free when it starts: who replaces an ended worker gets its number. A
reload (SIGHUP) starts new workers before the old ones end, so these get the numbers above. The master is an endpoint
only if it counts something itself, and better does not: it could then take the number of a worker that has just ended.
"""

from __future__ import annotations

from typing import Any

import bookkeeper


def post_fork(_server: Any, _worker: Any) -> None:
    """In a new worker: it can be polled from now on, also while it counts nothing."""
    bookkeeper.default().start()


def worker_exit(_server: Any, _worker: Any) -> None:
    """In a worker that ends: leaves ZooKeeper and serves one more poll, at most 5 s."""
    bookkeeper.default().close()
