"""The only place of this package that reads the wall clock."""

from __future__ import annotations

import time


def now_ms() -> int:
    """Current time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
