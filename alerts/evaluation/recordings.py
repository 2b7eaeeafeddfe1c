"""Results of recording rules: a drop-in file of the agent of this host, which carries them with the times of their
evaluations. docs/decisions/0028-recorded-series-go-through-a-drop-in-file.md."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path

FILE = "alert-rules.artimon"
MAX_LINES = 150_000
"""Limit of the lines, below that of an agent."""
HOST_LABELS = ("context", "dc", "rack", "module", "host", "environment", "instance")
"""Labels that the agent would add: an empty value keeps it from doing so."""
RecordedSeries = tuple[Mapping[str, str], float]
"""Labels with `__name__`, and value."""


class RecordingFile:
    """Drop-in file with the results of the last evaluations. The engines of a pair that share it replace it whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._counts: dict[int, int] | None = None
        """Number of lines in the file by time."""

    def write(self, recorded: Mapping[int, Sequence[str]]) -> None:
        """Replace the file if it lacks results. If it would be too large, the oldest are left out. Raises OSError."""
        if self._counts is None:
            self._counts = self._read_counts()
        counts = {time_ms: len(lines) for time_ms, lines in recorded.items()}
        if counts.items() <= self._counts.items():
            return
        kept, left = dict[int, Sequence[str]](), MAX_LINES
        for time_ms in sorted(recorded, reverse=True):
            left -= len(recorded[time_ms])
            if left < 0:
                break
            kept[time_ms] = recorded[time_ms]
        fresh = self._path.with_suffix(f".{os.getpid()}.new")
        with fresh.open("w", encoding="utf-8") as file:
            file.writelines(line for time_ms in sorted(kept) for line in kept[time_ms])
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self._path)
        self._counts = counts

    def _read_counts(self) -> dict[int, int]:
        """Read the file of the last run."""
        try:
            with self._path.open(encoding="utf-8", errors="replace") as file:
                times = Counter(line.partition(" ")[0] for line in file if line.endswith("\n"))
        except FileNotFoundError:
            return {}
        return {int(time): count for time, count in times.items() if time.isdecimal()}


def recorded_lines(time_ms: int, found: Iterable[RecordedSeries]) -> tuple[str, ...]:
    """Return the lines of results, without those beyond the limit."""
    lines = (line_of(time_ms, labels, value) for labels, value in found)
    return tuple(islice(lines, MAX_LINES))


def line_of(time_ms: int, labels: Mapping[str, str], value: float) -> str:
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
