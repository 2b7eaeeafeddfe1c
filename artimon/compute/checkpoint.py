"""Checkpoints of long kernels, at which the running query enforces its limits of time and memory.

The evaluation sets its budget for the thread (`enforced`); kernels call `checkpoint` in their loops. Without a budget,
as in shards and tests, a checkpoint does nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Budget(Protocol):
    """Limits of the running query. Both methods raise to end it."""

    def check(self) -> None:
        """Raise if the query was cancelled or its time is over."""
        ...

    def charge_text(self, bytes_: int) -> None:
        """Count a new text of `bytes_` bytes; raise beyond the limit."""
        ...


_BUDGET: ContextVar[Budget | None] = ContextVar("budget", default=None)


@contextmanager
def enforced(budget: Budget) -> Iterator[None]:
    """Enforce `budget` at the checkpoints of this thread until the block ends."""
    token = _BUDGET.set(budget)
    try:
        yield
    finally:
        _BUDGET.reset(token)


def checkpoint() -> None:
    """Raise if the running query must end. Takes about a microsecond: call it at least every 50 ms of work."""
    budget = _BUDGET.get()
    if budget is not None:
        budget.check()


def charge_text(bytes_: int) -> None:
    """Charge a new text to the running query. Raises if it must end."""
    budget = _BUDGET.get()
    if budget is not None:
        budget.charge_text(bytes_)
