"""The variables of the seed's question, as batches that a shard takes: two data centres, all types, exact numbers."""

from __future__ import annotations

from artimon.model.batch import BatchId, SeriesBlock, SeriesInfo
from artimon.model.fingerprint import fingerprint
from artimon.model.labels import canonical
from artimon.model.values import Kind, Value, ValueType, type_of
from tests.varstore.worlds import Row, TestBatch

MINUTE = 60_000
BIG = 2**62 + 1
ROWS: tuple[tuple[str, dict[str, str], Value], ...] = (
    ("memcached.items", {"dc": "jb", "host": "a"}, BIG),
    ("memcached.items", {"dc": "jb", "host": "b"}, -(2**53) - 1),
    ("memcached.items", {"dc": "sq", "host": "c"}, 5),
    ("memcached.hit.ratio", {"dc": "jb", "host": "a"}, 0.1 + 0.2),
    ("memcached.up", {"dc": "jb", "host": "a"}, True),
    ("memcached.version", {"dc": "jb", "host": "a"}, "1.6.18 é\t\\"),
    ("other.items", {"dc": "jb", "host": "a"}, 7),
)


def blocks(source: str) -> SeriesBlock:
    """The announcement of all of them."""
    infos = tuple(SeriesInfo(canonical(name, labels), type_of(value), Kind.GAUGE) for name, labels, value in ROWS)
    return SeriesBlock(source, 0, 1, infos)


def log(source: str, end_ms: int, minutes: int = 12) -> list[TestBatch]:
    """A batch a minute up to `end_ms`; numbers grow by 1 a minute, every fifth poll found nothing."""
    made = []
    for i in range(minutes):
        time_ms = end_ms - (minutes - 1 - i) * MINUTE - 1
        rows: list[Row] = [
            (fingerprint(canonical(name, labels)), time_ms, end_ms - 100 * MINUTE, _at(value, i))
            for name, labels, value in ROWS
        ]
        made.append(TestBatch(BatchId("agent", 1, 0, i), source, time_ms + 500, rows if i % 5 else []))
    return made


def _at(value: Value, i: int) -> Value:
    grows = type_of(value) is ValueType.INTEGER
    return int(value) + i if grows else value
