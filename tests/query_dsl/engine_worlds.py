"""The same samples for several engines, with their answers in one form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from artimon.compute.statistics import STATISTICS
from artimon.model.fingerprint import fingerprint
from artimon.model.labels import canonical
from artimon.model.select import Buckets, SelectRequest
from artimon.model.series_table import Series, SeriesTable
from artimon.model.values import Kind, Value, ValueType, cell_to_double, double_to_cell, type_of
from artimon.rawtable.value_columns import intern_texts
from query_dsl.stores.sample_rows import SampleRows
from tests.query_dsl.test_pushdown import MINUTE, T, Told
from tests.query_dsl.test_pushdown import type_of as told_type

__all__ = ["MINUTE", "T", "Told"]
SOURCES = ("s0", "s1")
Made = dict[str, Any]


def text_of(told: Told) -> str:
    return canonical(told.name, dict(told.labels))


def table_of(told: Sequence[Told]) -> SeriesTable:
    """One row a series, in the order in which they come first."""
    found: dict[str, Told] = {}
    for one in told:
        found.setdefault(text_of(one), one)
    return SeriesTable.from_series(
        [Series(fingerprint(text), one.name, dict(one.labels), told_type(one), one.kind) for text, one in found.items()]
    )


def rows_of(told: Sequence[Told]) -> tuple[SampleRows, Any]:
    """All samples as columns, and the source of each."""
    order = list(dict.fromkeys(text_of(one) for one in told))
    flat = [(order.index(text_of(one)), SOURCES.index(one.source), *sample) for one in told for sample in one.samples]
    strings, places = intern_texts([value for *_, value in flat if isinstance(value, str)])
    texts = iter(places)
    columns = [[], [], [], [], [], []]  # type: list[list[int]]
    for row, source, time, birth, value in flat:
        cell = next(texts) if isinstance(value, str) else cell_of(value)
        kind = ValueType.ENDED if value is None else type_of(value)
        for column, found in zip(columns, (row, source, time, birth, kind, cell), strict=True):
            column.append(int(found))
    row_, source_, time_, birth_, kind_, cell_ = (np.array(column, np.int64) for column in columns)
    return SampleRows(row_, time_, birth_, kind_.astype(np.uint8), cell_, strings), source_


def cell_of(value: Value | None) -> int:
    if isinstance(value, float):
        return double_to_cell(value)
    return int(value) if isinstance(value, int) else 0


def made_of(buckets: Buckets, lives: bool = True) -> dict[int, Made]:
    """By fingerprint: types, statistics where there are samples, lives, ends; strings as texts."""
    out: dict[int, Made] = {}
    table = SeriesTable.from_series(buckets.series)
    for row, one in enumerate(table):
        there = buckets.statistics["count"][row] > 0

        def shown(cell: int, one: Series = one) -> Any:
            if one.type == ValueType.STRING:
                return buckets.strings[cell]
            return repr(cell_to_double(cell)) if one.type == ValueType.DOUBLE else cell

        found: Made = {
            "type": one.type.name,
            "newest": int(buckets.newest_ms[row]),
            "at": np.flatnonzero(there).tolist(),
        }
        if not there.any() and not found["newest"]:
            continue  # a series without samples is of no type
        for name in STATISTICS:
            cells = buckets.statistics[name][row][there].tolist()
            plain = name in ("count", "last_time") or (one.type == ValueType.STRING and name != "last")
            found[name] = cells if plain else [shown(cell) for cell in cells]
        if one.type == ValueType.DOUBLE:  # the last bits of a sum depend on the order
            found["sum"] = [f"{float(total):.12g}" for total in found["sum"]]
        for name in ("min", "max", "sum"):  # min and max of zeros of both signs depend on their order
            found[name] = ["0" if str(cell) in ("-0.0", "0.0", "-0") else cell for cell in found[name]]
        if lives:
            mine = buckets.births[buckets.births["row"] == row]
            found["lives"] = [(*times, shown(cell)) for _, *times, cell in mine.tolist()]
            found["ended"] = int(buckets.ended_ms[row])
        out[one.fingerprint] = found
    return out


def request_of(names: Iterable[str], grid: Any, statistics: Sequence[str] = STATISTICS) -> SelectRequest:
    """All series whose name begins with one of `names`."""
    from artimon.model.select import NAME, Matcher

    return SelectRequest((Matcher(NAME, "=~", "|".join(names)),), grid, tuple(statistics))


VALUES: dict[ValueType, st.SearchStrategy[Value]] = {
    ValueType.INTEGER: st.one_of(st.integers(0, 50), st.sampled_from([2**53 + 1, -(2**63), 2**63 - 1])),
    ValueType.DOUBLE: st.sampled_from([0.0, -0.0, 1.5, 2.25, -7.0, float("nan"), float("inf"), float("-inf")]),
    ValueType.BOOLEAN: st.booleans(),
    ValueType.STRING: st.sampled_from(["", "a", "b", "ü", "z"]),
}


@st.composite
def series(draw: st.DrawFn, number: int, minutes: int = 30) -> list[Told]:
    """One series of one or two sources: several lives one after another, samples anywhere in the minutes, some at one
    time; INTEGER may become DOUBLE; it may end."""
    kind = draw(st.sampled_from(list(VALUES)))
    counter = draw(st.sampled_from(list(Kind)))
    turns = kind == ValueType.INTEGER and draw(st.booleans())
    whole = st.integers(0, 50) if turns else VALUES[ValueType.INTEGER]  # sums of large ones wrap, and turn to no number
    out: list[Told] = []
    for source in SOURCES[: draw(st.integers(1, 2))]:
        at, birth = T - minutes * MINUTE, T - 90 * MINUTE
        samples: list[tuple[int, int, Value | None]] = []
        now = kind
        for _ in range(draw(st.integers(0, 8))):
            at = min(at + draw(st.integers(0, 6 * MINUTE)), T - 1)
            if draw(st.integers(0, 5)) == 0 and samples:
                birth = max(birth + 1, at - draw(st.integers(0, 2 * MINUTE)))
            if turns and draw(st.integers(0, 9)) == 0 and samples and samples[-1][0] < at:
                now = ValueType.DOUBLE
            samples.append((at, birth, draw(whole if now == ValueType.INTEGER else VALUES[now])))
        if samples and draw(st.integers(0, 3)) == 0:
            samples.append((at + draw(st.integers(0, MINUTE)), 0, None))
        if samples or not out:  # an announced type without samples has no counterpart
            out.append(
                Told(f"v{number}", (("k", str(number)),), counter, tuple(samples), source, SOURCES.index(source))
            )
    return [one for one in out if one.samples] or out


@st.composite
def worlds(draw: st.DrawFn, most: int = 4) -> list[Told]:
    """Some series."""
    return [told for number in range(draw(st.integers(1, most))) for told in draw(series(number))]
