"""Epoch of a log: a random 64-bit number that, with agent, lane and sequence, identifies a batch for ever.

Two different batches must never get one identity: the stores would drop the second as a repeat. So whenever the log
cannot be sure which sequences it gave away, it begins a new epoch.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.wal.file_system import LOCAL_FILE_SYSTEM, FileSystem, read_file, replace_file

EPOCH_FILE = "epoch"
"""File of a log folder that holds its epoch; without it the next start begins a new epoch."""
_FAILED = "failed"


@dataclass(frozen=True, slots=True)
class EpochFile:
    """Content of the epoch file. `inode` is that of the file itself: a restored copy of the folder has another one."""

    epoch: str
    agent: str
    host: str
    lanes: int
    inode: int

    @property
    def number(self) -> int:
        return int(self.epoch, 16)


@dataclass(frozen=True, slots=True)
class FsyncFailure:
    """Failed fsync: the bytes of `segment` from `synced` on were never accepted."""

    segment: int
    synced: int


def random_epoch() -> int:
    """Return 64 random bits."""
    return secrets.randbits(64)


def host_identity() -> str:
    """Return a name of this machine: its machine id, if any, and its host name."""
    try:
        machine = Path("/etc/machine-id").read_text().strip()
    except OSError:
        machine = ""
    return f"{machine}/{socket.gethostname()}"


def read_epoch(folder: Path, files: FileSystem = LOCAL_FILE_SYSTEM) -> EpochFile | None:
    """Return the epoch file; None if it is missing or unreadable."""
    try:
        found = EpochFile(**json.loads(read_file(files, folder / EPOCH_FILE)))
        return found if found.number < 2**64 and files.inode(folder / EPOCH_FILE) else None
    except (OSError, ValueError, TypeError):
        return None


def reason_for_new_epoch(
    folder: Path, found: EpochFile | None, agent: str, host: str, lanes: int, files: FileSystem = LOCAL_FILE_SYSTEM
) -> str:
    """Return the reason why the epoch in `found` cannot continue; "" if it can. Damage is judged by recovery."""
    if found is None:
        return "the epoch file is missing or unreadable"
    if found.host != host:
        return f"the folder came from host {found.host}"
    if found.inode != files.inode(folder / EPOCH_FILE):
        return "the folder is a copy"
    if found.agent != agent:
        return f"the agent was called {found.agent}"
    if found.lanes != lanes:
        return f"the agent had {found.lanes} lanes"
    return ""


def begin_epoch(
    files: FileSystem, folder: Path, agent: str, host: str, lanes: int, draw: Callable[[], int] = random_epoch
) -> int:
    """Create an epoch with a number from `draw`; durable when this returns."""
    epoch = draw()

    def content(inode: int) -> bytes:
        return json.dumps(asdict(EpochFile(f"{epoch:016x}", agent, host, lanes, inode))).encode()

    replace_file(files, folder / EPOCH_FILE, content)
    return epoch


def save_failure(files: FileSystem, folder: Path, failure: FsyncFailure) -> None:
    """Save a failed fsync for the next start; raises OSError when even that cannot be written."""
    replace_file(files, folder / _FAILED, json.dumps(asdict(failure)).encode())


def read_failure(folder: Path, files: FileSystem = LOCAL_FILE_SYSTEM) -> FsyncFailure | None:
    """Return the saved failure; None if there is none. An unreadable file counts as a failure and cuts nothing."""
    try:
        return FsyncFailure(**json.loads(read_file(files, folder / _FAILED)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError):
        return FsyncFailure(-1, 0)


def clear_failure(files: FileSystem, folder: Path) -> None:
    """Delete the saved failure once the log is cut and the new epoch durable; final with the next fsync of the
    folder."""
    if files.exists(folder / _FAILED):
        files.unlink(folder / _FAILED)
