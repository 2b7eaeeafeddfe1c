"""Child process of the stack: started in its own session, killed with all its descendants."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from artimon.runtime.settings import child_environment
from artimon.stack import launch
from artimon.stack import orphan_reaper as guard

LOG_LIMIT = 8 * 1024 * 1024
LOG_FILES = 2
START_TIME_TOLERANCE_S = 2.0


@dataclass(frozen=True, slots=True)
class ProcessCommand:
    """Command line of a process: program and arguments, and additions to the environment."""

    argv: list[str]
    env: Mapping[str, str] = field(default_factory=dict)


USUAL_ENVIRONMENT = {"MALLOC_ARENA_MAX": "2"}
"""For every process: glibc makes an arena for each thread otherwise, and JVMs have dozens."""


class ChildProcess:
    """A running command. Create it in a thread that lives as long as the stack: the child dies with that thread."""

    def __init__(self, command: ProcessCommand, log: Path, cwd: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        wrapper = [sys.executable, "-I", "-S", launch.__file__, str(os.getpid())]
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*wrapper, *command.argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=child_environment({**USUAL_ENVIRONMENT, **command.env}),
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.started = start_time(self.pid)

    def exit_code(self) -> int | None:
        """Return the exit code, None while the process runs, negative for a signal."""
        return self._process.poll()

    def send(self, number: int) -> None:
        """Send a signal to the process itself, not to its children."""
        with contextlib.suppress(OSError):
            self._process.send_signal(number)

    def terminate(self) -> None:
        """Send SIGTERM, then SIGCONT, so that a stopped process receives it."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)

    def destroy(self) -> None:
        """Kill the process and its session, and reap it. Idempotent; bounded in time."""
        self.send(signal.SIGKILL)
        guard.kill_sessions({self.pid})
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)


class OrphanReaper:
    """Supervisor's side of `guard.py`. Used by the supervisor's thread only."""

    def __init__(self) -> None:
        self._sessions: set[int] = set()
        self._process = self._spawn()

    @property
    def pid(self) -> int:
        """Current process id of the guard."""
        return self._process.pid

    def ensure(self) -> None:
        """Start another guard if the last one has ended."""
        if self._process.poll() is not None:
            self._process = self._spawn()
            for session in self._sessions:
                self._send(f"{session}")

    def watch(self, session: int) -> None:
        """Let the guard kill this session if the supervisor dies."""
        self._sessions.add(session)
        self._send(f"{session}")

    def forget(self, session: int) -> None:
        """Remove a session that has ended; other processes may reuse its number."""
        self._sessions.discard(session)
        self._send(f"-{session}")

    def close(self) -> None:
        """End the guard without killing anything."""
        self._send("bye")
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            if self._process.stdin:
                self._process.stdin.close()
            self._process.wait(timeout=5)

    def _spawn(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _send(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            if self._process.stdin:
                self._process.stdin.write(line.encode() + b"\n")
                self._process.stdin.flush()


def start_time(pid: int) -> float:
    """Return the start time of `pid` in epoch seconds, 0.0 if the process does not exist."""
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return 0.0


def same_process(pid: int, started: float) -> bool:
    """True if `pid` runs and is the process that started at `started`, not a later one with the same number."""
    now = start_time(pid)
    return now > 0 and abs(now - started) < START_TIME_TOLERANCE_S and not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return True


def session_rss(sessions: Iterable[int]) -> dict[int, int]:
    """Return the resident bytes of each session: a part with all its descendants."""
    total = dict.fromkeys(sessions, 0)
    for pid in psutil.pids():
        try:
            session = os.getsid(pid)
            if session in total:
                total[session] += psutil.Process(pid).memory_info().rss
        except (OSError, psutil.Error):
            continue
    return total


def rotate_log(log: Path, limit: int = LOG_LIMIT, kept: int = LOG_FILES) -> bool:
    """Copy `log` to `.log.1` and truncate it if it is longer than `limit` bytes; True if it was.

    The writer has it open for appending and continues at the new end. Lines written between copy and truncation
    are lost."""
    try:
        if log.stat().st_size <= limit:
            return False
    except OSError:
        return False
    for number in range(kept, 1, -1):
        older = log.with_suffix(f".log.{number - 1}")
        if older.exists():
            older.replace(log.with_suffix(f".log.{number}"))
    shutil.copyfile(log, log.with_suffix(".log.1"))
    os.truncate(log, 0)
    return True
