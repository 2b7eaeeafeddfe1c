"""Results of recording rules: a drop-in file of the agent of this host, which carries them with the times of their
evaluations. docs/decisions/0028-recorded-series-go-through-a-drop-in-file.md."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

FILE = "alert-rules.artimon"
KEPT_MS = 600_000
"""Time for which results stay in the file: an agent that is away for so long loses none."""
AHEAD_MS = 60_000
"""Results of rules with an interval below a minute may be newer than the minute that is evaluated."""
MAX_LINES = 150_000
"""Limit of the lines, below that of an agent."""
HOST_LABELS = ("context", "dc", "rack", "module", "host", "environment", "instance")
"""Labels that the agent would add: an empty value keeps it from doing so."""
RecordedSeries = tuple[Mapping[str, str], float]
"""Labels with `__name__`, and value."""


class RecordingFile:
    """Drop-in file with the results of the last evaluations; belongs to the engine's thread."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._lines: dict[int, list[str]] | None = None

    def write(self, time_ms: int, found: Iterable[RecordedSeries]) -> int:
        """Add the results of an evaluation, which replace those of the same time, and return the number of lines left
        out. Raises OSError."""
        if self._lines is None:
            self._lines = self._read()
        self._lines[time_ms] = [_line(time_ms, labels, value) for labels, value in found]
        kept = sorted(time for time in self._lines if time_ms - KEPT_MS < time <= time_ms + AHEAD_MS)
        self._lines = {time: self._lines[time] for time in kept}
        dropped = len(self._lines[time_ms][MAX_LINES:])
        del self._lines[time_ms][MAX_LINES:]
        while sum(map(len, self._lines.values())) > MAX_LINES:
            del self._lines[min(self._lines)]
        fresh = self._path.with_suffix(".new")
        with fresh.open("w", encoding="utf-8") as file:
            file.writelines(line for lines in self._lines.values() for line in lines)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        return dropped

    def _read(self) -> dict[int, list[str]]:
        """Return the lines of the file of the last run by time."""
        found: dict[int, list[str]] = {}
        try:
            with self._path.open(encoding="utf-8", errors="replace") as file:
                for line in file:
                    time = line.partition(" ")[0]
                    if time.isdecimal() and line.endswith("\n"):
                        found.setdefault(int(time), []).append(line)
        except FileNotFoundError:
            pass
        return found


def _line(time_ms: int, labels: Mapping[str, str], value: float) -> str:
    texts = {**dict.fromkeys(HOST_LABELS, ""), **labels}
    name = texts.pop("__name__")
    pairs = ",".join(f"{label}={_quoted(text)}" for label, text in sorted(texts.items()))
    shown = (
        repr(float(value)) if math.isfinite(value) else "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    )
    return f"{time_ms} {name}{{{pairs}}} {shown}\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
