"""Counts the tasks of a Celery worker. Install it once, where the application is created:

    from bookkeeper.integrations import celery

    celery.install()

| variable | labels | kind |
| --- | --- | --- |
| `celery.tasks` | task, state (SUCCESS, FAILURE, RETRY, REVOKED, IGNORED, REJECTED, …) | counter |
| `celery.task.seconds` | task | histogram |
| `celery.tasks.active` | | gauge |

Each process of a pre-fork pool is a separate endpoint from its start, and hands over its last values when it ends in
order (`worker_process_shutdown`). A task that is not registered is `unknown`.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

import bookkeeper

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
UNKNOWN = "unknown"
_REQUEST = "_artimon_begun"


def install(book: bookkeeper.Bookkeeper | None = None, bounds: Sequence[float] = BOUNDS) -> TaskVariables:
    """Connects to Celery's signals until `remove` of the returned object. ImportError without Celery."""
    return TaskVariables(book, bounds)


class TaskVariables:
    """Receivers of Celery's signals. Signals hold receivers weakly, so `_INSTALLED` keeps a reference to this."""

    def __init__(self, book: bookkeeper.Bookkeeper | None, bounds: Sequence[float]) -> None:
        from celery import signals

        self._book, self._bounds = book, tuple(bounds)
        self._receivers = (
            (signals.worker_process_init, self.process_began),
            (signals.worker_process_shutdown, self.process_ends),
            (signals.task_prerun, self.began),
            (signals.task_postrun, self.ended),
            (signals.task_revoked, self.revoked),
            (signals.task_unknown, self.unknown),
            (signals.task_rejected, self.rejected),
        )
        for signal, receiver in self._receivers:
            signal.connect(receiver)
        _INSTALLED.append(self)

    def remove(self) -> None:
        """Stops counting."""
        for signal, receiver in self._receivers:
            signal.disconnect(receiver)
        _INSTALLED.remove(self)

    @property
    def book(self) -> bookkeeper.Bookkeeper:
        """Book that counts."""
        return self._book or bookkeeper.default()

    def process_began(self, **_: Any) -> None:
        """In a new process of the pool: makes it pollable before its first task."""
        self.book.start()

    def process_ends(self, **_: Any) -> None:
        """Hands over the last values, within 5 s: Celery's processes end without atexit."""
        self.book.close()

    def began(self, task: Any = None, **_: Any) -> None:
        """Counts the start of a task."""
        book = self.book
        book.describe("celery.tasks", "Tasks that ended, by state", kind="counter")
        book.describe("celery.task.seconds", "Time that tasks ran", "seconds")
        book.describe("celery.tasks.active", "Tasks that run now", kind="gauge")
        book.integer("celery.tasks.active").add(1)
        setattr(task.request, _REQUEST, perf_counter())

    def ended(self, task: Any = None, state: str | None = None, **_: Any) -> None:
        """Counts the end of a task, in any state."""
        begun = getattr(task.request, _REQUEST, None)
        if begun is None:  # signals were connected during the task
            return
        self.book.integer("celery.tasks.active").add(-1)
        self.book.histogram("celery.task.seconds", {"task": task.name}, self._bounds).observe(perf_counter() - begun)
        self._count(task.name, state or UNKNOWN)

    def revoked(self, request: Any = None, **_: Any) -> None:
        """Counts a task that was revoked or has expired."""
        name = getattr(request, "name", None) or getattr(request, "task", None)  # of a message, or of a running task
        self._count(name if isinstance(name, str) else UNKNOWN, "REVOKED")

    def unknown(self, **_: Any) -> None:
        """Counts a message for an unregistered task. Its name may be anything and is not used as a label."""
        self._count(UNKNOWN, "UNKNOWN")

    def rejected(self, **_: Any) -> None:
        """Counts a message that is not a task."""
        self._count(UNKNOWN, "REJECTED")

    def _count(self, task: str, state: str) -> None:
        self.book.integer("celery.tasks", {"task": task, "state": state}).add(1)


_INSTALLED: list[TaskVariables] = []
