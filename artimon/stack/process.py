"""One child process of the stack: started in a session of its own, killed with everything it forked."""

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
from artimon.stack import guard, launch

LOG_LIMIT = 8 * 1024 * 1024
LOG_KEPT = 2
SAME_START_S = 2.0


@dataclass(frozen=True, slots=True)
class Command:
    """What to run: program and arguments, and what to add to the environment."""

    argv: list[str]
    env: Mapping[str, str] = field(default_factory=dict)


class Child:
    """A started command. Create it in a thread that lives as long as the stack: the child dies with that thread."""

    def __init__(self, command: Command, log: Path, cwd: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        wrapper = [sys.executable, "-I", "-S", launch.__file__, str(os.getpid())]
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*wrapper, *command.argv],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=child_environment(command.env),
                start_new_session=True,
            )
        self.pid = self._process.pid
        self.started = start_time(self.pid)

    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal."""
        return self._process.poll()

    def send(self, number: int) -> None:
        """Send a signal to the process itself, not to what it forked."""
        with contextlib.suppress(OSError):
            self._process.send_signal(number)

    def terminate(self) -> None:
        """Ask it to stop. Continues it first, so that a stopped process hears."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)

    def destroy(self) -> None:
        """Kill it and all that it forked, and collect it. Idempotent; bounded."""
        self.send(signal.SIGKILL)
        guard.kill_sessions({self.pid})
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)


class Guard:
    """The supervisor's side of `guard.py`. Used by the supervisor's thread only."""

    def __init__(self) -> None:
        self._sessions: set[int] = set()
        self._process = self._spawn()

    @property
    def pid(self) -> int:
        """Process id of the guard now."""
        return self._process.pid

    def ensure(self) -> None:
        """Start another guard if somebody killed it."""
        if self._process.poll() is not None:
            self._process = self._spawn()
            for session in self._sessions:
                self._tell(f"{session}")

    def watch(self, session: int) -> None:
        """Kill this session if the supervisor dies."""
        self._sessions.add(session)
        self._tell(f"{session}")

    def forget(self, session: int) -> None:
        """The session has ended; its number may be used by others."""
        self._sessions.discard(session)
        self._tell(f"-{session}")

    def close(self) -> None:
        """A clean end: nothing is left to kill."""
        self._tell("bye")
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

    def _tell(self, line: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            if self._process.stdin:
                self._process.stdin.write(line.encode() + b"\n")
                self._process.stdin.flush()


def start_time(pid: int) -> float:
    """Epoch seconds at which `pid` started, 0.0 if there is no such process."""
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return 0.0


def same_process(pid: int, started: float) -> bool:
    """True if `pid` is still the process that started at `started`, and not a later one with its number."""
    now = start_time(pid)
    return now > 0 and abs(now - started) < SAME_START_S and not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return True


def session_rss(sessions: Iterable[int]) -> dict[int, int]:
    """Resident bytes of each session: a part and all that it forked."""
    total = dict.fromkeys(sessions, 0)
    for pid in psutil.pids():
        try:
            session = os.getsid(pid)
            if session in total:
                total[session] += psutil.Process(pid).memory_info().rss
        except (OSError, psutil.Error):
            continue
    return total


def rotate_log(log: Path, limit: int = LOG_LIMIT, kept: int = LOG_KEPT) -> bool:
    """Copy `log` aside and cut it to nothing when it is longer than `limit` bytes; True if it was.

    The writer holds it open for appending, so it goes on at the new end. Lines written between copy and cut
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
