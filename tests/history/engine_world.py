"""Random series, stored both in shards and in the tables on HDFS."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from artimon.model.batch import SeriesBlock, SeriesInfo
from artimon.model.fingerprint import fingerprint, signed
from artimon.model.labels import canonical
from artimon.model.values import Kind, Value, ValueType
from artimon.rawtable.schema import FILE_SCHEMA
from pipeline.compaction.row_order import sort_rows
from tests.history.world import HistoryWorld
from tests.query_dsl.test_pushdown import MINUTE, T, Told, type_of

COLUMNS: dict[type, str] = {bool: "boolean", int: "integer", float: "double", str: "string"}
Values = list[Value | None]


def some_series(seed: int, many: int = 40, minutes: int = 50) -> list[Told]:
    """Series of all types and kinds, of one source or two, with restarts, changes of type, ends, and gaps."""
    chance = random.Random(seed)
    out: list[Told] = []
    for number in range(many):
        values = _values(number % 5, chance)
        kind, labels = Kind(number % 3), (("k", str(number)), ("rack", f"r{number % 4}"))
        for source in ("s0", "s1")[: 1 + (number % 7 == 0)]:
            samples = _samples(values, chance, minutes)
            out.append(Told(f"v{number % 10}", labels, kind, tuple(samples), source, int(source == "s1")))
    return out


def _values(kind: int, chance: random.Random) -> Any:
    return [
        lambda _turned: chance.randint(0, 2**55),
        lambda _turned: chance.choice([chance.random() * 9 - 3, float("nan"), float("inf"), 0.5]),
        lambda _turned: chance.random() < 0.5,
        lambda _turned: chance.choice(["", "a", "b", "naïve ☃"]),
        lambda turned: chance.random() * 5 if turned else chance.randint(0, 9),
    ][kind]


def _samples(values: Any, chance: random.Random, minutes: int) -> list[tuple[int, int, Value | None]]:
    at, birth = T - minutes * MINUTE, T - 200 * MINUTE
    samples: list[tuple[int, int, Value | None]] = []
    turn = chance.randint(0, 3 * minutes)
    while True:
        at += chance.choice([0, 15_000, 30_000, 60_000, 60_000, 400_000]) + chance.randint(-20, 20)
        if at >= T:
            break
        if chance.random() < 0.06:
            birth = at - chance.randint(0, 20_000)
        if not samples or at > samples[-1][0]:
            samples.append((at, birth, values(len(samples) > turn)))
    if samples and chance.random() < 0.2:
        samples.append((samples[-1][0] + 5_000, 0, None))
    return samples


def put(world: HistoryWorld, told: Sequence[Told], files: int = 7) -> None:
    """Announce and append all of it, sample by sample into some files."""
    sources = sorted({one.source for one in told})
    for version, type_then in enumerate((type_of, type_at_last), 1):
        world.announce([block_of(source, version, told, type_then) for source in sources])
    ids = world.sources.assign(sources)
    rows = [
        (ids[one.source], signed(fingerprint(text_of(one))), time, birth, value)
        for one in told
        for time, birth, value in one.samples
    ]
    rows.sort(key=lambda row: row[2])
    size = -(-len(rows) // files)
    parts = [file_of(rows[start : start + size]) for start in range(0, len(rows), size)]
    world.builder.append_tables([(T - 1 + i % 2, "default", part) for i, part in enumerate(parts)])


def block_of(source: str, version: int, told: Sequence[Told], type_then: Callable[[Told], ValueType]) -> SeriesBlock:
    """Announcement of a source."""
    infos = [SeriesInfo(text_of(one), type_then(one), one.kind) for one in told if one.source == source]
    return SeriesBlock(source, 0, version, tuple(infos))


def type_at_last(told: Told) -> ValueType:
    """A source announces its series again when an INTEGER becomes DOUBLE."""
    return ValueType.DOUBLE if any(type(value) is float for *_, value in told.samples) else type_of(told)


def file_of(rows: Sequence[tuple[int, int, int, int, Value | None]], future: bool = False) -> Any:
    """A sorted table of FILE_SCHEMA."""
    columns: dict[str, Any] = {
        "source": [row[0] for row in rows],
        "series": [row[1] for row in rows],
        "time": pa.array([row[2] * 1000 for row in rows], pa.int64()).view(FILE_SCHEMA.field("time").type),
        "birth": pa.array([row[3] * 1000 for row in rows], pa.int64()).view(FILE_SCHEMA.field("birth").type),
        "future": [future] * len(rows),
    }
    for kind, name in COLUMNS.items():
        columns[name] = [row[4] if type(row[4]) is kind else None for row in rows]
    arrays = [pa.array(columns[field.name], field.type) for field in FILE_SCHEMA]
    return sort_rows(pa.table(arrays, schema=FILE_SCHEMA))


def text_of(told: Told) -> str:
    """Canonical text of the series."""
    return canonical(told.name, dict(told.labels))
