"""Messages to the application's log: few, and without exceptions to the caller."""

from __future__ import annotations

import logging

LOG_PERIOD_S = 60.0
"""Minimum time between two messages about one kind of problem, in seconds."""
log = logging.getLogger("bookkeeper")


def add_null_handler() -> None:
    """Suppress all output unless the application configures logging."""
    if not log.handlers:
        log.addHandler(logging.NullHandler())


def warn(text: str) -> None:
    """Log a warning. Exceptions of the application's handlers do not reach the caller."""
    try:
        log.warning(text)
    except Exception:
        pass
