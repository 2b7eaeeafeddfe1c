"""`stack.json`: processes and addresses of a stack, for `artimon status`, `down`, `env` and cleanup after a crash."""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from artimon.stack import orphan_reaper as guard
from artimon.stack.child_process import same_process
from artimon.stack.stack_errors import AlreadyRunningError, NotRunningError, UnusableFolderError

STATE_FILE = "stack.json"
STATE_FORMAT = 1


@dataclass(slots=True)
class PartState:
    """One part as the supervisor sees it. `started` is in epoch seconds; `pid` is 0 if no process runs."""

    name: str
    state: str
    pid: int = 0
    started: float = 0.0
    restarts: int = 0
    problem: str = ""
    ports: dict[str, int] = field(default_factory=dict)
    memory_mb: int = 0


@dataclass(slots=True)
class StackState:
    """State of a stack: its supervisor, ports, addresses and parts."""

    pid: int
    started: float
    ports: dict[str, int]
    addresses: dict[str, str]
    parts: list[PartState]
    guard_pid: int = 0

    def alive(self) -> bool:
        """True while the supervisor that wrote this state runs."""
        return same_process(self.pid, self.started)


def write_state(data: Path, state: StackState) -> None:
    """Replace the file atomically."""
    fresh = data / f"{STATE_FILE}.new"
    fresh.write_text(json.dumps({"format": STATE_FORMAT, **asdict(state)}, indent=1))
    fresh.replace(data / STATE_FILE)


def read_state(data: Path) -> StackState | None:
    """Read the state that the last supervisor wrote, None if the file is missing or unreadable."""
    try:
        raw = json.loads((data / STATE_FILE).read_text())
        if raw.pop("format", None) != STATE_FORMAT:
            return None
        parts = [PartState(**part) for part in raw.pop("parts")]
        return StackState(parts=parts, **raw)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def running_state(data: Path) -> StackState:
    """Return the state of the stack that runs on `data`. Raises NotRunningError."""
    state = read_state(data)
    if state is None or not state.alive():
        raise NotRunningError(data)
    return state


class DataLock:
    """Exclusive lock on `<data>/lock`, at most one stack per folder. Raises UnusableFolderError,
    AlreadyRunningError."""

    def __init__(self, data: Path) -> None:
        try:
            data.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(data / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as problem:
            raise UnusableFolderError(data, problem) from None
        self._data = data
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            state = read_state(data)
            raise AlreadyRunningError(data, state.pid if state else None) from None

    def release(self) -> None:
        """Release the lock."""
        os.close(self._file)


def kill_stale(data: Path) -> list[str]:
    """Kill the processes that a crashed supervisor left, by process id, start time and session; returns part names.

    The caller holds the data folder's lock."""
    state = read_state(data)
    if state is None:
        return []
    # A session outlives its leader, so the leader's pid is not reused before the session is empty.
    stale = [part for part in state.parts if part.pid and same_process(part.pid, part.started)]
    guard.kill_sessions({part.pid for part in stale})
    return [part.name for part in stale]
