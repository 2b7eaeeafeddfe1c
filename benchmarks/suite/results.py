"""Results of a run as lines of JSON: appended one by one, read to resume a run or to make the page."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Record = dict[str, Any]
RUN = "benchmark."
"""Prefix of the record that ends a benchmark: duration, arguments, load averages, failure."""


class ResultsError(ValueError):
    """Unusable file of results, or wrong choice of benchmarks."""


def read(path: Path) -> list[Record]:
    """Read all records; an incomplete last line is ignored. Raises ResultsError."""
    records: list[Record] = []
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        record = parse(line)
        if record is not None:
            records.append(record)
        elif number < len(lines):
            raise ResultsError(f"{path}, line {number}: not a record of a benchmark: {line[:80]!r}")
    return records


def parse(line: str) -> Record | None:
    """Parse a line; return None if it is not a record."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and isinstance(record.get("name"), str) else None


def failed(record: Record) -> str:
    """Return the reason of a failure; empty if the record is a figure."""
    return str(record.get("failed") or "")


class Results:
    """Records of a run, in memory and, if there is a path, in a file, where other benchmarks may be of earlier runs.
    Names are unique."""

    def __init__(self, path: Path | None, machine: Record) -> None:
        self._path, self.records = path, [machine]
        self.run: Record = {key: machine[key] for key in ("date", "commit", "dirty", "machine") if key in machine}
        """Fields of the record that ends each benchmark of this run."""

    def resume(self) -> None:
        """Load the file's records of the same commit, without benchmarks that failed or did not end. Raises
        ResultsError."""
        if self._path is None or not self._path.is_file():
            return
        held = read(self._path)
        if not held or held[0]["name"] != "machine":
            raise ResultsError(f"{self._path} does not begin with a machine line: use another file")
        if (old := _origin(held[0])) != (new := _origin(self.records[0])):
            raise ResultsError(f"{self._path} is {old}, this is {new}: use another file")
        done = whole(held)
        self.records = [held[0], *(record for record in held[1:] if record.get("benchmark") in done)]

    def renew(self, benchmarks: Iterable[str]) -> None:
        """Load the file's records of any commit, without the named benchmarks, which run anew."""
        if self._path is not None and self._path.is_file():
            named = set(benchmarks)
            self.records = [record for record in read(self._path) if record.get("benchmark") not in named]

    def begin(self) -> None:
        """Write all records; an interrupted write leaves the old file."""
        if self._path is not None:
            temporary = self._path.with_name(f".{self._path.name}.new")
            temporary.write_text("".join(map(_text, self.records)), encoding="utf-8")
            os.replace(temporary, self._path)

    def add(self, record: Record) -> None:
        """Append one record. Raises ResultsError if its name exists."""
        if any(one["name"] == record["name"] for one in self.records):
            raise ResultsError(f"the line {record['name']} was printed before")
        self.records.append(record)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(_text(record))

    def of(self, benchmark: str) -> list[Record]:
        """Return the records of one benchmark."""
        return [record for record in self.records if record.get("benchmark") == benchmark]


def _origin(machine: Record) -> str:
    state = "with" if machine["dirty"] else "without"
    return f"of commit {machine['commit'][:12]} {state} changes, form {machine['form']}"


def whole(records: Iterable[Record]) -> set[str]:
    """Return the benchmarks that ended without a failed line."""
    records = list(records)
    ended = {record["benchmark"] for record in records if record["name"].startswith(RUN)}
    return ended - {record.get("benchmark") for record in records if failed(record)}


def _text(record: Record) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"
