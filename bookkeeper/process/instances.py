"""Instance numbers: the lowest free number of a context on this host, held by a file lock until the process ends.

So a restarted worker gets its number back, and its series continue under the same labels.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from urllib.parse import quote

try:
    import fcntl
except ImportError:  # not on Unix
    fcntl = None  # type: ignore[assignment]

MAX_INSTANCES = 10_000


class InstanceError(OSError):
    """No number available; the text names the folder and the reason."""


class Instance:
    """Held number; `name` is its text. The lock belongs to an open file description, which a forked child shares: the
    child closes its copy with `close`, and the parent keeps the lock."""

    def __init__(self, name: str, descriptor: int | None) -> None:
        self.name, self._descriptor = name, descriptor

    def close(self) -> None:
        """Releases the number; in a forked child closes the child's copy only."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def lock_instance(run: str, context: str) -> Instance:
    """Lock the lowest number of `context` that no live process holds. InstanceError if the folder is unusable."""
    if fcntl is None:
        raise InstanceError("this system has no file locks: set ARTIMON_INSTANCE")
    folder = _folder(run, context)
    for number in range(MAX_INSTANCES):
        descriptor = _lock(folder / f"{number}.lock")
        if descriptor is not None:
            return Instance(str(number), descriptor)
    raise InstanceError(f"{folder}: all {MAX_INSTANCES} numbers are in use: set ARTIMON_INSTANCE")


def _folder(run: str, context: str) -> Path:
    top = Path(run)
    folder = top / "instances" / quote(context, safe=" ")
    try:
        top.mkdir(mode=0o700, parents=True, exist_ok=True)
        _refuse_foreign(top)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InstanceError(f"{folder}: {error}: set ARTIMON_RUN to a folder of this user") from error
    return folder


def _refuse_foreign(top: Path) -> None:
    """Refuse a folder of another user: in /tmp its owner could make this process open arbitrary files."""
    found = os.lstat(top)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (os.getuid(), 0):
        raise InstanceError(f"{top} is not a folder of this user: set ARTIMON_RUN to one")


def _lock(path: Path) -> int | None:
    """Open and lock the file; None if another process holds it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise InstanceError(f"{path}: {error}: set ARTIMON_RUN to a folder of this user") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError as error:
        os.close(descriptor)
        raise InstanceError(f"{path}: {error}: set ARTIMON_RUN to a folder on a local disk") from error
    return descriptor
