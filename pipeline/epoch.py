"""The epoch of a log: a random 64-bit number that, with agent, lane and sequence, names a batch for ever.

Two different batches must never get one identity: the stores would drop the second as a repeat. So whenever the log
cannot be sure which sequences it gave away, it begins a new epoch.
"""

from __future__ import annotations

import json
import secrets
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.files import Files, write_whole

_FILE = "epoch"
_FAILED = "failed"


@dataclass(frozen=True, slots=True)
class EpochFile:
    """What the folder says of itself. `inode` is that of the file itself: a restored copy of the folder has another."""

    epoch: str
    agent: str
    host: str
    lanes: int
    inode: int

    @property
    def number(self) -> int:
        return int(self.epoch, 16)


@dataclass(frozen=True, slots=True)
class Failure:
    """An fsync failed: what stands in `segment` from byte `synced` on was never accepted."""

    segment: int
    synced: int


def this_host() -> str:
    """A name of this machine: its id where it has one, and its host name."""
    try:
        machine = Path("/etc/machine-id").read_text().strip()
    except OSError:
        machine = ""
    return f"{machine}/{socket.gethostname()}"


def read_epoch(folder: Path) -> EpochFile | None:
    """The epoch file, None if it is missing or unreadable."""
    try:
        found = EpochFile(**json.loads((folder / _FILE).read_text()))
        return found if found.number < 2**64 and (folder / _FILE).stat().st_ino else None
    except (OSError, ValueError, TypeError):
        return None


def why_new(folder: Path, found: EpochFile | None, agent: str, host: str, lanes: int) -> str:
    """Why the epoch in `found` cannot go on, "" if it can. (What recovery found is judged elsewhere.)"""
    if found is None:
        return "the epoch file is missing or unreadable"
    if found.host != host:
        return f"the folder came from host {found.host}"
    if found.inode != (folder / _FILE).stat().st_ino:
        return "the folder is a copy"
    if found.agent != agent:
        return f"the agent was called {found.agent}"
    if found.lanes != lanes:
        return f"the agent had {found.lanes} lanes"
    return ""


def begin_epoch(files: Files, folder: Path, agent: str, host: str, lanes: int) -> int:
    """Make a new epoch; durable when this returns, and a failure noted before is then settled."""
    epoch = secrets.randbits(64)
    fresh = folder / (_FILE + ".new")
    fresh.unlink(missing_ok=True)
    fresh.touch()  # its inode is known before its content is, and the rename keeps it
    made = EpochFile(f"{epoch:016x}", agent, host, lanes, fresh.stat().st_ino)
    descriptor = files.open(fresh)
    try:
        files.write(descriptor, 0, json.dumps(asdict(made)).encode())
        files.fsync(descriptor)
    finally:
        files.close(descriptor)
    fresh.replace(folder / _FILE)
    files.fsync_folder(folder)
    return epoch


def note_failure(files: Files, folder: Path, failure: Failure) -> None:
    """Leave word of a failed fsync for the next start; raises OSError when even that cannot be written."""
    write_whole(files, folder / _FAILED, json.dumps(asdict(failure)).encode())


def read_failure(folder: Path) -> Failure | None:
    """The failure that was noted, None if there is none. An unreadable note still counts, and cuts nothing."""
    try:
        return Failure(**json.loads((folder / _FAILED).read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError):
        return Failure(-1, 0)


def settle_failure(files: Files, folder: Path) -> None:
    """Forget the note once the log was cut and the new epoch is durable."""
    if (folder / _FAILED).exists():
        files.unlink(folder / _FAILED)
        files.fsync_folder(folder)
