"""Hooks for gunicorn. Add to its configuration:

    from bookkeeper.integrations.gunicorn import post_fork, worker_exit

Every worker is a separate endpoint even without them. With them a worker is one from its start, not from its first
write, and hands over its last values whenever it ends in order.

A worker's `instance` is the lowest number free at its start: the replacement of an ended worker gets its number. A
reload (SIGHUP) starts new workers before the old ones end, so they get higher numbers. The master is an endpoint only
if it counts something. Avoid that: it could take the number of a worker that has just ended.
"""

from __future__ import annotations

from typing import Any

import bookkeeper


def post_fork(_server: Any, _worker: Any) -> None:
    """In a new worker: makes it pollable before its first write."""
    bookkeeper.default().start()


def worker_exit(_server: Any, _worker: Any) -> None:
    """In a worker that ends: unregisters from ZooKeeper and serves one more poll, within 5 s."""
    bookkeeper.default().close()
