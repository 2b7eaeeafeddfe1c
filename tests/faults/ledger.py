"""Ledger of accepted batches, written beside the log before and after it; survives kill -9 of its writer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.compaction.row_digest import RowDigest


@dataclass(frozen=True, slots=True)
class Noted:
    """One batch: its source, the time of its rows, what they are worth."""

    source: str
    time_ms: int
    digest: RowDigest


class LedgerWriter:
    """Appends to a file of its own. Used by one thread."""

    def __init__(self, path: Path, life: str) -> None:
        """`life`: tells this process's numbers from those of earlier ones on the same file."""
        self._file = path.open("a")
        self._life, self._number = life, 0

    def begin(self, noted: Noted) -> int:
        """To be called before the log gets the batch."""
        self._number += 1
        digest = [noted.digest.rows, noted.digest.total, noted.digest.parity]
        self._write([self._life, self._number, noted.source, noted.time_ms, *digest])
        return self._number

    def done(self, number: int) -> None:
        """The log has accepted it."""
        self._write([self._life, number])

    def _write(self, line: list[object]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()  # the page cache has it: enough for a killed process


@dataclass(slots=True)
class Ledger:
    """`accepted`: per source what must be stored. `unknown`: batches of which a kill leaves open whether they are."""

    accepted: dict[str, RowDigest] = field(default_factory=dict)
    unknown: list[Noted] = field(default_factory=list)

    def add(self, source: str, worth: RowDigest) -> None:
        self.accepted[source] = self.accepted.get(source, RowDigest()).plus(worth)

    @property
    def rows(self) -> int:
        return sum(digest.rows for digest in self.accepted.values())


def read_ledgers(folder: Path, into: Ledger) -> Ledger:
    """Add the files `*.ledger` of a folder to `into`."""
    for path in sorted(folder.glob("*.ledger")):
        begun: dict[tuple[str, int], Noted] = {}
        for line in _lines(path):
            life, number, *rest = line
            if rest:
                source, time_ms, rows, total, parity = rest
                begun[life, number] = Noted(source, time_ms, RowDigest(rows, total, parity))
            else:
                noted = begun.pop((life, number))
                into.add(noted.source, noted.digest)
        into.unknown += begun.values()
    return into


def _lines(path: Path) -> Iterator[list[Any]]:
    """Whole lines; a last one that a kill cut speaks of a batch that was not given on."""
    with path.open() as file:
        for text in file:
            try:
                yield json.loads(text)
            except ValueError:
                continue
