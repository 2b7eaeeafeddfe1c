"""Failpoints: named points of a process at which a test may stop, fail or kill it."""

from __future__ import annotations

from collections.abc import Callable

Probe = Callable[[str], None]
"""Callback with the name of the failpoint that was reached."""


def no_probe(_point: str) -> None:
    """Probe of production: does nothing."""
