"""Named points of a process at which a test may stop, fail or kill it."""

from __future__ import annotations

from collections.abc import Callable

Probe = Callable[[str], None]
"""Called with the name of the point that was reached."""


def no_probe(_point: str) -> None:
    """Probe of an ordinary run: does nothing."""
