"""Rows of roll-ups: of any samples, split and merged in any order, they are those of all samples at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from artimon.compute.statistics import STATISTICS
from artimon.model.values import ValueType, cell_to_double
from artimon.rawtable.parquet_reader import GroupReader
from artimon.rawtable.rollup_rows import (
    ENDED,
    ROLLUP_FILE_SCHEMA,
    RollupRows,
    concat_rows,
    from_table,
    merge_rows,
    roll_up,
    to_table,
)
from artimon.rawtable.schema import FILE_SCHEMA
from pipeline.compaction.sorted_files import SortedFileWriter

FIVE, HOUR = 300_000, 3_600_000
START = 1_794_960_000_000
COLUMNS: dict[type, str] = {bool: "boolean", int: "integer", float: "double", str: "string"}
Sample = tuple[int, int, int, int, bool, Any]
"""(source, series, time, birth, future, value)."""

VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 9),
    st.sampled_from([0.0, -0.0, 0.5, -7.25, 2.0**60, float("nan"), float("inf"), float("-inf")]),
    st.booleans(),
    st.sampled_from(["", "a", "z", "naïve ☃"]),
    st.none(),
)
SAMPLES = st.lists(
    st.tuples(
        st.integers(1, 2),
        st.integers(-2, 1),
        st.integers(START - HOUR, START + 2 * HOUR) | st.sampled_from([START, START + 1, START + FIVE]),
        st.sampled_from([0, START - HOUR, START]),
        st.sampled_from([False] * 9 + [True]),
        VALUES,
    ),
    max_size=60,
)


def table_of(samples: Sequence[Sample]) -> Any:
    columns: dict[str, Any] = {
        "source": [one[0] for one in samples],
        "series": [one[1] for one in samples],
        "time": pa.array([one[2] * 1000 for one in samples], pa.int64()).view(FILE_SCHEMA.field("time").type),
        "birth": pa.array([one[3] * 1000 for one in samples], pa.int64()).view(FILE_SCHEMA.field("birth").type),
        "future": [one[4] for one in samples],
    }
    for kind, name in COLUMNS.items():
        columns[name] = [one[5] if type(one[5]) is kind else None for one in samples]
    return pa.table([pa.array(columns[field.name], field.type) for field in FILE_SCHEMA], schema=FILE_SCHEMA)


def plainly(samples: Sequence[Sample], step: int) -> dict[Any, Any]:
    """The buckets by loops over Python's values."""
    groups: dict[Any, list[tuple[int, Any]]] = {}
    for source, series, time, birth, future, value in samples:
        if not future:
            key = source, series, -(-time // step) * step, birth, "ended" if value is None else type(value).__name__
            groups.setdefault(key, []).append((time, value))
    return {key: _bucket(group, key[4]) for key, group in groups.items()}


def _bucket(group: list[tuple[int, Any]], kind: str) -> tuple[Any, ...]:
    times = [time for time, _ in group]
    if kind == "ended":
        return min(times), max(times)
    newest = [value for time, value in group if time == max(times)]
    last = max(newest, key=_order) if kind == "float" else max(newest)
    values = [value for _, value in group]
    told = min(times), max(times), len(values), repr(last)
    if kind == "str":
        return told
    if kind == "float":
        reals = np.array(values)
        with np.errstate(all="ignore"):
            return *told, *(_text(float(fold(reals))) for fold in (np.min, np.max, np.sum))
    total = (sum(values) + 2**63) % 2**64 - 2**63
    return *told, str(int(min(values))), str(int(max(values))), str(total)


def _order(value: float) -> tuple[bool, float, float]:
    """-0.0 comes before 0.0, NaN after all."""
    return (True, 0.0, 0.0) if np.isnan(value) else (False, value, np.copysign(1.0, value))


def _text(value: float) -> str:
    return "0" if value == 0 else f"{value:.12g}"


def shown(rows: RollupRows) -> dict[Any, Any]:
    """The rows by key, which must be distinct."""
    names = {0: "int", 1: "float", 2: "bool", 3: "str", ENDED: "ended"}
    out: dict[Any, Any] = {}
    for i in range(len(rows)):
        kind = names[int(rows.type[i])]
        stats = {name: int(column[i]) for name, column in rows.stats.items()}
        told: tuple[Any, ...] = int(rows.first_ms[i]), stats["last_time"]
        if kind != "ended":
            told += stats["count"], repr(_value(kind, stats["last"], rows.strings))
        if kind == "float":
            told += tuple(_text(cell_to_double(stats[name])) for name in ("min", "max", "sum"))
        elif kind in ("int", "bool"):
            told += tuple(str(stats[name]) for name in ("min", "max", "sum"))
        key = int(rows.source[i]), int(rows.series[i]), int(rows.end_ms[i]), int(rows.birth_ms[i]), kind
        assert key not in out
        out[key] = told
    return out


def _value(kind: str, cell: int, strings: tuple[str, ...]) -> Any:
    match kind:
        case "float":
            return cell_to_double(cell)
        case "bool":
            return bool(cell)
        case "str":
            return strings[cell]
    return cell


def read_back(rows: RollupRows) -> RollupRows:
    table = to_table(rows)
    keys = (table.column(name).cast(pa.int64()).to_numpy() for name in ("source", "series"))
    return from_table(table, *keys)


@given(SAMPLES)
def test_rows_of_samples_are_their_buckets(samples: list[Sample]) -> None:
    for step in (FIVE, HOUR):
        assert shown(roll_up(table_of(samples), step)) == plainly(samples, step)


@given(SAMPLES, st.lists(st.integers(0, 60), max_size=4), st.randoms())
def test_parts_in_any_order_merge_to_the_whole(samples: list[Sample], cuts: list[int], random: Any) -> None:
    """Files hold any samples: late ones, repeated ones, those of other days."""
    edges = [0, *sorted(cuts), len(samples)]
    parts = [roll_up(table_of(samples[a:b]), FIVE) for a, b in pairwise(edges)]
    random.shuffle(parts)
    fine = merge_rows(concat_rows(parts), FIVE)
    assert shown(fine) == plainly(samples, FIVE)
    assert shown(merge_rows(fine, HOUR)) == plainly(samples, HOUR)
    assert shown(merge_rows(concat_rows([merge_rows(part, HOUR) for part in parts]), HOUR)) == plainly(samples, HOUR)


@given(SAMPLES)
def test_a_table_gives_back_its_rows(samples: list[Sample]) -> None:
    rows = roll_up(table_of(samples), HOUR)
    assert shown(read_back(rows)) == shown(rows)


def test_what_follows_from_the_last_value_is_not_stored() -> None:
    """A constant series costs its last values; a counter that grows evenly has only its minimum beside it."""
    constant = [(1, 1, START + n * 60_000, 0, False, 7) for n in range(1, 6)]
    counter = [(1, 2, START + n * 60_000, 0, False, n) for n in range(1, 6)]
    table = to_table(roll_up(table_of([*constant, *counter]), FIVE))
    columns = {name: table.column(name).to_pylist() for name in ("integer", "below", "above", "rest")}
    assert columns == {"integer": [7, 5], "below": [None, 4], "above": [None, None], "rest": [None, None]}


def test_the_type_of_a_row_is_that_of_its_samples() -> None:
    """A series that changes its type within a bucket has a row of each."""
    rows = roll_up(table_of([(1, 1, START + 1, 0, False, 1), (1, 1, START + 2, 0, False, 1.5)]), FIVE)
    assert rows.type.tolist() == [ValueType.INTEGER, ValueType.DOUBLE]


def test_columns_of_nulls_are_read_without_their_bytes(tmp_path: Path) -> None:
    """Files tell by statistics that no series of them has texts, doubles or flags; those of older programs do not."""
    one = np.ones(2, np.int64)
    stats = {**dict.fromkeys(STATISTICS, np.array([3, 4])), "last_time": np.array([20, 300_020])}
    types = np.full(2, int(ValueType.INTEGER), np.uint8)
    rows = RollupRows(one, one, np.array([FIVE, 2 * FIVE]), one, types, np.array([10, 300_010]), stats)
    table = to_table(rows)
    writer = SortedFileWriter(f"file://{tmp_path}", "files", {"period": "2026-11-21"}, 1 << 20, prefix="day-x", level=3)
    writer.add(table)
    (file,) = writer.close()
    found = tmp_path / file.path
    told = pq.ParquetFile(found).metadata.row_group(0)
    chunks = {told.column(at).path_in_schema: told.column(at) for at in range(told.num_columns)}
    names = {name for name, chunk in chunks.items() if chunk.statistics is not None}
    assert {"double", "boolean", "string", "sum_double"} <= names
    assert "integer" not in names
    reader = GroupReader(f"file://{found}")
    assert reader.read(0, ROLLUP_FILE_SCHEMA.names).equals(table)
    assert reader.read(0, ["string"]).equals(table.select(["string"]))
    chosen = ["count", "string", "integer"]
    with found.open("r+b") as damaged:
        damaged.seek(chunks["string"].data_page_offset)
        damaged.write(b"\xff" * chunks["string"].total_compressed_size)
    assert GroupReader(f"file://{found}").read(0, chosen).equals(table.select(["count", "integer", "string"]))
    old = tmp_path / "old.parquet"
    pq.write_table(table, old, write_statistics=False)
    assert GroupReader(f"file://{old}").read(0, ROLLUP_FILE_SCHEMA.names).equals(table)
