"""Logs of the parts, for `artimon logs`: the last lines, and new lines as they come."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

TAIL_BYTES = 1024 * 1024
POLL_S = 0.3


def tail(path: Path, lines: int) -> list[str]:
    """Return the last `lines` lines of a log, at most TAIL_BYTES of it; [] if the file does not exist."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    return text.splitlines()[-lines:] if lines > 0 else []


class LogFollower:
    """Reads new complete lines of one log, starting at its current end; a truncated log is read from its start."""

    def __init__(self, path: Path) -> None:
        self._path, self._rest = path, b""
        self._offset = path.stat().st_size if path.exists() else 0

    def lines(self) -> list[str]:
        """Return the lines since the last call."""
        try:
            if self._path.stat().st_size < self._offset:
                self._offset, self._rest = 0, b""
            with self._path.open("rb") as file:
                file.seek(self._offset)
                fresh = file.read(TAIL_BYTES)
        except OSError:
            return []
        self._offset += len(fresh)
        *lines, self._rest = (self._rest + fresh).split(b"\n")
        return [line.decode("utf-8", "replace") for line in lines]


def follow(paths: dict[str, Path], stop: threading.Event) -> Iterator[tuple[str, str]]:
    """Yield (part, line) as lines come, until `stop`."""
    followers = {part: LogFollower(path) for part, path in paths.items()}
    while not stop.wait(POLL_S):
        for part, follower in followers.items():
            for line in follower.lines():
                yield part, line
