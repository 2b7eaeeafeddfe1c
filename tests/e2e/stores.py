"""Reads back what the stores hold, and recomputes what they should hold, in plain Python."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from artimon.compute.statistics import STATISTICS
from artimon.model.fingerprint import signed, unsigned
from artimon.model.grid import Grid
from artimon.model.select import Matcher, SelectRequest, Store
from artimon.model.values import ValueType, cell_to_double
from artimon.rawtable.schema import raw_uri
from artimon.rawtable.table_reader import read_raw
from tests.e2e.ledger import Sample, comparable

COLUMNS = ("integer", "double", "boolean", "string")


def raw_samples(hdfs: str, fingerprints: Collection[int] | None = None) -> Counter[Sample]:
    """Rows of the raw table as the multiset they are: all, or those of some series."""
    chosen = None if fingerprints is None else pc.field("series").isin([signed(one) for one in fingerprints])
    table = read_raw(raw_uri(hdfs), filter=chosen)
    keys = [table.column(name).cast(pa.int64()).to_pylist() for name in ("series", "time", "birth")]
    values = [table.column(name).to_pylist() for name in COLUMNS]
    stored: Counter[Sample] = Counter()
    for series, time_us, birth_us, *given in zip(*keys, *values, strict=True):
        value = next((one for one in given if one is not None), None)
        time_ms, birth_ms = ((at_us + 500) // 1000 for at_us in (time_us, birth_us))
        stored[Sample(unsigned(series), time_ms, birth_ms, *comparable(value))] += 1
    return stored


class Bucket(NamedTuple):
    """Comparable statistics of one series in one step."""

    last: str
    last_time: int
    samples: int
    least: str
    greatest: str
    total: str


def recompute(samples: Counter[Sample], step_ms: int) -> dict[tuple[int, int], Bucket]:
    """(fingerprint, bucket end) -> bucket, from samples one by one."""
    groups: dict[tuple[int, int], list[Sample]] = defaultdict(list)
    for sample in samples.elements():
        if sample.type != "ended":
            groups[sample.fingerprint, -(-sample.time_ms // step_ms) * step_ms].append(sample)
    return {key: _bucket(sorted(group, key=lambda s: s.time_ms)) for key, group in groups.items()}


def _bucket(group: list[Sample]) -> Bucket:
    last = group[-1]
    if last.type == "string":
        return Bucket(last.value, last.time_ms, len(group), "", "", "")
    values = [_number(sample) for sample in group]
    poisoned = any(isinstance(v, float) and math.isnan(v) for v in values)
    if poisoned:
        return Bucket(last.value, last.time_ms, len(group), "nan", "nan", "nan")
    least, greatest = min(values), max(values)
    total: int | float = sum(values) if last.type != "double" else math.fsum(values)
    return Bucket(last.value, last.time_ms, len(group), _text(least), _text(greatest), _rounded(total))


def _number(sample: Sample) -> int | float:
    match sample.type:
        case "boolean":
            return int(sample.value == "True")
        case "integer":
            return int(sample.value)
        case _:
            return float.fromhex(sample.value)


def _text(value: int | float) -> str:
    return value.hex() if isinstance(value, float) else str(value)


def _rounded(total: int | float) -> str:
    """Sums of doubles depend on their order in the last bits; integers are exact."""
    return f"{total:.9e}" if isinstance(total, float) else str(total)


def held(store: Store, name: str, grid: Grid) -> dict[tuple[int, int], Bucket]:
    """(fingerprint, bucket end) -> bucket of every series of a name, as the shards hold it."""
    answer = store.select(SelectRequest((Matcher("__name__", "=", name),), grid, STATISTICS))
    assert not answer.partial, answer.notes
    found = {}
    for row, series in enumerate(answer.series):
        for column in range(grid.n):
            cells = {key: int(matrix[row, column]) for key, matrix in answer.statistics.items()}
            if cells["count"]:
                end = grid.start_ms + (column + 1) * grid.step_ms
                found[series.fingerprint, end] = _shown(series.type, cells, answer.strings)
    return found


def _shown(type_: ValueType, cells: dict[str, int], strings: tuple[str, ...]) -> Bucket:
    last, when, count = _value(type_, cells["last"], strings), cells["last_time"], cells["count"]
    text = comparable(last)[1]
    if type_ == ValueType.STRING:
        return Bucket(text, when, count, "", "", "")
    least, greatest, total = (_plain(type_, cells[key]) for key in ("min", "max", "sum"))
    if any(isinstance(v, float) and math.isnan(v) for v in (least, greatest, total)):
        return Bucket(text, when, count, *("nan" if math.isnan(v) else _text(v) for v in (least, greatest, total)))
    return Bucket(text, when, count, _text(least), _text(greatest), _rounded(total))


def _value(type_: ValueType, cell: int, strings: tuple[str, ...]) -> Any:
    match type_:
        case ValueType.STRING:
            return strings[cell]
        case ValueType.BOOLEAN:
            return bool(cell)
        case _:
            return _plain(type_, cell)


def _plain(type_: ValueType, cell: int) -> int | float:
    return cell_to_double(cell) if type_ == ValueType.DOUBLE else cell
