"""The test's own ledger: what the agent was given and when the log had it, written beside the log.

A file of JSON lines. `begin` names the rows of a poll before the log gets them, `done` follows once the log has
accepted them. A kill between the two leaves a poll of which nobody can say whether it was accepted: it may be stored
once or not at all. Everything `done` must be stored exactly once, and nothing else may be.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from artimon.model.batch import PollResult
from artimon.model.protocols import NewestPoll, Sink


class Sample(NamedTuple):
    """One sample, comparable: doubles by their hex form, so that NaN equals NaN and the last bit counts."""

    fingerprint: int
    time_ms: int
    birth_ms: int
    type: str
    value: str


def comparable(value: object) -> tuple[str, str]:
    """(type, text) of a value as Python sees it; None: the series ended."""
    match value:
        case None:
            return "ended", ""
        case bool():
            return "boolean", str(value)
        case int():
            return "integer", str(value)
        case float():
            return "double", value.hex()
        case _:
            return "string", str(value)


class LedgerSink:
    """A sink that notes what passes; the sink behind it does the work."""

    def __init__(self, behind: Sink, path: Path) -> None:
        self._behind = behind
        self._file = path.open("a")
        self._prefix = f"{os.getpid()}-"
        self._number = 0

    async def accept(self, polled: Sequence[PollResult]) -> None:
        """Note, pass on, note again."""
        self._number += 1
        number = f"{self._prefix}{self._number}"
        texts = {s.text for p in polled for block in p.blocks for s in block.series}
        rows = [
            [fingerprint, time_ms, birth_ms, *comparable(value)]
            for p in polled
            for fingerprint, time_ms, birth_ms, value in p.samples.rows()
        ]
        self._write({"op": "begin", "n": number, "rows": rows, "texts": sorted(texts)})
        await self._behind.accept(polled)
        self._write({"op": "done", "n": number})

    def replay(self, since: NewestPoll | None = None) -> Iterable[PollResult]:
        """Return the content of the log behind it."""
        return self._behind.replay(since)

    def _write(self, record: dict[str, Any]) -> None:
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()  # survives kill -9 of this process: the page cache has it


class Ledger(NamedTuple):
    """Content of a ledger file: samples certainly accepted, polls of unknown outcome, canonical texts seen."""

    accepted: Counter[Sample]
    unknown: list[Counter[Sample]]
    texts: frozenset[str]


def read_ledger(path: Path, fingerprints: Collection[int] | None = None) -> Ledger:
    """Read it all, or the samples of some series; a last line that a kill cut is a poll that was not given on."""
    begun: dict[str, Counter[Sample]] = {}
    accepted: Counter[Sample] = Counter()
    texts: set[str] = set()
    for line in path.read_text().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if record["op"] == "begin":
            rows = (row for row in record["rows"] if fingerprints is None or row[0] in fingerprints)
            begun[record["n"]] = Counter(Sample(*row) for row in rows)
            texts.update(record["texts"])
        else:
            accepted.update(begun.pop(record["n"]))
    return Ledger(accepted, list(begun.values()), frozenset(texts))


def reconcile(ledger: Ledger, stored: Counter[Sample]) -> Counter[Sample]:
    """Return the rows that must be stored: the accepted, and all of each unknown poll of which the store holds any."""
    expected = Counter(ledger.accepted)
    for poll in ledger.unknown:
        if poll <= stored - expected:
            expected.update(poll)
    return expected
