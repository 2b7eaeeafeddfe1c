"""Results of recording rules in the database, from which a drop-in file is written."""

from __future__ import annotations

import sqlite3
import zlib
from base64 import b64decode, b64encode
from dataclasses import dataclass, replace

RECORDED_MS = 600_000
"""Time for which results are kept: an agent that is away for so long loses none."""
SCHEMA = """
CREATE TABLE recorded (
    time_ms INTEGER NOT NULL, place TEXT NOT NULL, lines TEXT NOT NULL, PRIMARY KEY (time_ms, place)) STRICT;
"""
"""Step of the schema of the database."""


@dataclass(frozen=True, slots=True)
class RecordedLines:
    """Lines of the results of one evaluation. Each ends with a line break. `place`: host and folder where it was made,
    whose agent carries them."""

    time_ms: int
    place: str
    lines: tuple[str, ...]


RecordedByKey = dict[tuple[int, str], RecordedLines]
"""Results by time and place."""


def add_recorded(db: sqlite3.Connection, made: RecordedLines) -> None:
    """Store results, and delete old ones. The compressed lines have a checksum of their own (Adler-32)."""
    packed = b64encode(zlib.compress("".join(made.lines).encode(), 1)).decode()
    db.execute("DELETE FROM recorded WHERE time_ms <= ?", (made.time_ms - RECORDED_MS,))
    db.execute("INSERT OR REPLACE INTO recorded VALUES (?, ?, ?)", (made.time_ms, made.place, packed))


def read_recorded(db: sqlite3.Connection) -> RecordedByKey:
    """Return the results, oldest first. Raises ValueError if they are damaged."""
    found = {}
    for time_ms, place, packed in db.execute("SELECT time_ms, place, lines FROM recorded ORDER BY time_ms"):
        try:
            text = zlib.decompress(b64decode(packed)).decode()
        except zlib.error as error:
            raise ValueError(f"recorded series of {time_ms}: {error}") from error
        lines = tuple(f"{line}\n" for line in text.split("\n")[:-1])
        found[time_ms, place] = RecordedLines(time_ms, place, lines)
    return found


def keep_recorded(known: RecordedByKey, made: RecordedLines) -> RecordedByKey:
    """Return what the database holds after `add_recorded`."""
    kept = {key: one for key, one in known.items() if one.time_ms > made.time_ms - RECORDED_MS}
    return {**kept, (made.time_ms, made.place): made}


def with_known(known: RecordedByKey, made: RecordedLines) -> RecordedLines:
    """Return results together with those of another evaluation at the same time and place: one of a minute and one
    between minutes."""
    before = known.get((made.time_ms, made.place))
    return made if before is None else replace(made, lines=(*before.lines, *made.lines))
