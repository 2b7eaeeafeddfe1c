"""Messages to the application's log: few, and without exceptions to the caller."""

from __future__ import annotations

import logging

LOG_EVERY_S = 60.0
"""Minimum time between two messages about one kind of problem, in seconds."""
log = logging.getLogger("bookkeeper")


def keep_silent() -> None:
    """Suppress all output unless the application configures logging."""
    if not log.handlers:
        log.addHandler(logging.NullHandler())


def tell(text: str) -> None:
    """Log a warning. Exceptions of the application's handlers do not reach the caller."""
    try:
        log.warning(text)
    except Exception:
        pass
