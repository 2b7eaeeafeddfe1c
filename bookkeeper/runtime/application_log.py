"""Messages to the application's log: few, and never at the cost of an exception."""

from __future__ import annotations

import logging

LOG_EVERY_S = 60.0
"""Of one kind of problem no more often."""
log = logging.getLogger("bookkeeper")


def keep_silent() -> None:
    """Nothing is written anywhere unless the application configures logging."""
    if not log.handlers:
        log.addHandler(logging.NullHandler())


def tell(text: str) -> None:
    """A warning. Handlers of the application that raise do not reach the caller."""
    try:
        log.warning(text)
    except Exception:
        pass
