"""The agent's own count of what it accepted, by minute and source: the figure that a proof starts from.

Files `<folder>/<hour>.csv`, lines `minute_end_ms,source,samples` (samples with a value; the source quoted as csv does),
and lines `#,segment,offset` that say up to where in the log the lines above count. At start the rest is counted from
the log, so a kill between fsync and this file neither loses nor doubles a line.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from artimon.model.batch import Samples
from artimon.model.grid import bucket_ends
from artimon.model.values import ValueType
from pipeline.records import Place

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
KEEP_HOURS = 24
_POSITION = re.compile(rb"^#,(\d+),(\d+)\n", re.MULTILINE)

Minutes = tuple[tuple[int, int], ...]


def minutes_of(samples: Samples) -> Minutes:
    """(end of the minute in ms, samples with a value in it), ascending."""
    valued = samples.time_ms[samples.type != ValueType.ENDED]
    if not len(valued):
        return ()
    first, last = int(valued.min()), int(valued.max())
    if -(-first // MINUTE_MS) == -(-last // MINUTE_MS):  # what one poll yields stands in one minute, nearly always
        return ((-(-first // MINUTE_MS) * MINUTE_MS, len(valued)),)
    counts = Counter(bucket_ends(valued, MINUTE_MS).tolist())
    return tuple(sorted(counts.items()))


class Audit:
    """Appends to the files; used by one thread. Position: everything before it in the log has been counted."""

    def __init__(self, folder: Path, now_ms: int) -> None:
        """Cut half a line off the newest file and find the position."""
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.position = self._find_position()
        self._drop_old(now_ms)
        self._hour = -1

    def add(self, counted: Sequence[tuple[str, Minutes, Place]], now_ms: int) -> None:
        """Count entries (source, minutes, place), in log order."""
        lines = io.StringIO()
        writer = csv.writer(lines, lineterminator="\n")
        for source, minutes, place in counted:
            if (place.segment, place.offset) <= self.position:
                continue
            writer.writerows((minute, source, samples) for minute, samples in minutes)
            self.position = (place.segment, place.offset)
        text = lines.getvalue()
        if text:
            text += f"#,{self.position[0]},{self.position[1]}\n"
            with (self._folder / f"{now_ms // HOUR_MS * HOUR_MS}.csv").open("ab") as file:
                file.write(text.encode())  # one write: a kill leaves all of it or, at worst, a part that start cuts off
        if now_ms // HOUR_MS != self._hour:
            self._hour = now_ms // HOUR_MS
            self._drop_old(now_ms)

    def _find_position(self) -> tuple[int, int]:
        for path in reversed(_files(self._folder)):
            data = path.read_bytes()
            positions = list(_POSITION.finditer(data))
            last = positions[-1] if positions else None
            with path.open("r+b") as file:
                file.truncate(last.end() if last else 0)
            if last is not None:
                return int(last[1]), int(last[2])
        return (0, 0)

    def restart(self) -> None:
        """The log is another one than the position speaks of: count from its beginning."""
        self.position = (0, 0)

    def _drop_old(self, now_ms: int) -> None:
        for path in _files(self._folder)[:-1]:  # the newest holds the position
            if int(path.stem) < now_ms - (KEEP_HOURS + 1) * HOUR_MS:
                path.unlink(missing_ok=True)


def read_accepted(folder: Path) -> dict[tuple[int, str], int]:
    """Samples accepted, by (end of the minute in ms, source). A last line without its end is not counted."""
    total: Counter[tuple[int, str]] = Counter()
    for minute, source, samples in _lines(_files(folder)):
        total[(minute, source)] += samples
    return dict(total)


def _lines(paths: Iterable[Path]) -> Iterator[tuple[int, str, int]]:
    for path in paths:
        text = path.read_text()
        for row in csv.reader(text[: text.rfind("\n") + 1].split("\n")):
            if len(row) == 3 and row[0] != "#":
                yield int(row[0]), row[1], int(row[2])


def _files(folder: Path) -> list[Path]:
    return sorted((p for p in folder.glob("*.csv") if p.stem.isdigit()), key=lambda p: int(p.stem))
