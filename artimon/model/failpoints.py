"""Failpoints: named points of a process at which a test may stop, fail or kill it."""

from __future__ import annotations

from collections.abc import Callable

Failpoint = Callable[[str], None]
"""Callback with the name of the failpoint that was reached."""


def no_failpoint(_point: str) -> None:
    """Probe of production: does nothing."""
