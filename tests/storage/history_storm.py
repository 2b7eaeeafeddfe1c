"""Stream of appends and files to import, with their ledger, for a history whose programs are killed.

A round has hosts of its own: in round 1 r1h0 to r1h3 are imported and r1a is appended. In round 2 samples of r1h1 and
r1a are deleted, those of r1h2 get another host, and r1h0 gets late samples."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from artimon.model.batch import SeriesBlock, SeriesInfo
from artimon.model.values import Kind, Value, ValueType
from artimon.rawtable.schema import DAY_MS
from query_dsl.stores.history.result import Sample
from tests.history.world import HOUR_MS, Given, HistoryWorld
from tests.storage.history_ledger import Ledger

BEGIN_MS = 19_000 * DAY_MS
DAYS = 3
END_MS = BEGIN_MS + DAYS * DAY_MS
"""Times of imported and of late samples: (BEGIN_MS, END_MS]."""
STREAM_MS = 19_300 * DAY_MS
"""Append time of the first append."""
HOUR_S = 1.0
"""Seconds between two hours of the stream, whatever an hour takes: the commits of an hour follow each other without a
pause."""
STEP_MS = 240_000
RESETS = 50
MAX_ROUNDS = 200
SOURCE = "plc/a"
TYPES = {
    "flow": ValueType.INTEGER,
    "level": ValueType.DOUBLE,
    "on": ValueType.BOOLEAN,
    "state": ValueType.STRING,
}
"""Appended series of each host."""


class Storm:
    """A history and its ledger. While `lock` is held nothing is appended."""

    def __init__(self, hdfs: str, chance: random.Random) -> None:
        self.ledger, self.lock = Ledger(), threading.Lock()
        self._world, self._chance, self._round, self._hours = HistoryWorld(hdfs), chance, 0, 0
        infos = [SeriesInfo(text(name, f"r{n}a"), TYPES[name], Kind.GAUGE) for n in range(MAX_ROUNDS) for name in TYPES]
        self._world.announce([SeriesBlock(SOURCE, 0, 1, tuple(infos))])

    def begin_round(self, number: int) -> None:
        """Append samples of the hosts of this round from now on."""
        assert number < MAX_ROUNDS
        with self.lock:
            self._round = number

    def make_file(self, file: Path) -> None:
        """Write what this round imports; enter it into the ledger."""
        number = self._round
        made = [one for n in range(4) for one in _polls(f"r{number}h{n}", n)]
        if number:
            made += [_late(f"r{number - 1}h0", n) for n in range(1, DAYS * DAY_MS // STEP_MS, 7)]
        file.write_text("".join(map(_line, made)))
        self.ledger.samples += made

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Append an hour after another as long as the context lasts; then close the last day."""
        stop, failed = threading.Event(), list[BaseException]()

        def append() -> None:
            try:
                while not stop.wait(HOUR_S):
                    with self.lock:
                        self._append_hour()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=append)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(120)
        assert not failed, failed
        assert not thread.is_alive()
        self._world.builder.settle(STREAM_MS + (self._hours // 24 + 2) * DAY_MS)

    def _append_hour(self) -> None:
        """Append four files, each with samples of its time and late ones, and close the hour."""
        begin = STREAM_MS + self._hours * HOUR_MS
        for part in range(4):
            at = begin + part * 60_000 + 1
            late = BEGIN_MS + self._chance.randrange(DAYS * DAY_MS) + 1
            rows: list[Given] = [
                (SOURCE, text(name, f"r{self._round}a"), moment, self._value(type_))
                for name, type_ in TYPES.items()
                for moment in (at, late)
            ]
            self._world.append(at + 5, rows)
        self._hours += 1
        self._world.builder.settle(begin + HOUR_MS)
        self.ledger.samples += self._world.samples
        self._world.samples.clear()

    def _value(self, type_: ValueType) -> Value:
        number = self._chance.randrange(1000)
        match type_:
            case ValueType.INTEGER:
                return number
            case ValueType.BOOLEAN:
                return number % 2 == 0
            case ValueType.STRING:
                return f"state {number % 5}"
        return number / 8


def text(name: str, host: str) -> str:
    """Return the canonical text of a series."""
    return f'{name}{{host="{host}"}}'


def _line(one: Sample) -> str:
    """Return a sample in the form of `promtool tsdb dump`."""
    name, _, labels = one.series.partition("{")
    return f'{{__name__="{name}", {labels} {one.value} {one.time_ms}\n'


def _polls(host: str, n: int) -> list[Sample]:
    """Return the polls of a gauge and of a counter, which is reset every RESETS polls."""
    made, birth = list[Sample](), 1
    for poll in range(DAYS * DAY_MS // STEP_MS):
        at = BEGIN_MS + poll * STEP_MS + 1 + n
        if poll and not poll % RESETS:
            birth = at - STEP_MS  # the poll before
        made.append(Sample(text("load", host), "import", at, 1, "double", float(poll * poll % 997 - 300)))
        made.append(Sample(text("req_total", host), "import", at, birth, "double", float(poll % RESETS * (n + 1))))
    return made


def _late(host: str, poll: int) -> Sample:
    """Return a sample between two polls of a gauge."""
    return Sample(text("load", host), "import", BEGIN_MS + poll * STEP_MS - STEP_MS // 2, 1, "double", 2000.0 + poll)
