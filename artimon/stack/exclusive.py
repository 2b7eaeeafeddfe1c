"""One process at a time, by a lock on a file: two runs that begin at once never fetch the same twice."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone(file: Path) -> Iterator[None]:
    """Waits for the lock on `file`, whose folder is made, and holds it; a process that ends gives it back."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
