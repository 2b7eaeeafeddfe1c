"""The answer's table against one that Arrow sorts row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from artimon.rawtable.schema import FILE_SCHEMA
from query_dsl.stores.history.answer_builder import build_answer
from query_dsl.stores.history.file_pruning import RowFilter
from query_dsl.stores.history.local_reader import COLUMNS
from query_dsl.stores.history.result import RESULT_SCHEMA
from query_dsl.stores.history.series_lookup import FoundSeries
from tests.seeds import fixed_and_drawn

SCHEMA = pa.schema([*(FILE_SCHEMA.field(name) for name in COLUMNS), ("pair", pa.int64())])
KINDS: list[list[Any]] = [
    [2**63 - 1, None, None, None],
    [None, -0.0, None, None],
    [None, None, True, None],
    [None, None, False, None],
    [None, None, None, ""],
    [None, None, None, "naïve ☃ 𝄞"],
    [None, None, None, None],
]
SERIES = 5


def found_and_wanted() -> tuple[FoundSeries, RowFilter]:
    """Series whose order by text is not that of their pairs."""
    texts = [f"s{n}{{}}" for n in range(SERIES)]
    series = pa.table({"text": texts, "source_name": ["a/0", "b/0", "a/0", "a/0", "b/0"]})
    return FoundSeries(series, ()), RowFilter(np.array([2, 1, 1, 2, 1]), np.array([5, 9, 3, -4, 1]), 0, 10_000)


def rows_of(random: np.random.Generator, rows: int, kinds: list[int], future: float, first: int = 0) -> Any:
    """Rows of the raw table in any order; births are distinct, from `first` on."""
    pairs, times = random.integers(0, SERIES, rows), random.permutation(rows) // 2
    order = np.lexsort((times, pairs)) if rows % 2 else np.arange(rows)
    values = [KINDS[kind] for kind in random.choice(kinds, rows)]
    columns = [
        pa.array(times[order] * 1000).view(SCHEMA.field("time").type),
        pa.array((random.permutation(rows) + first) * 1000).view(SCHEMA.field("birth").type),
        pa.array(random.random(rows) < future),
        *(pa.array([value[n] for value in values], SCHEMA.field(3 + n).type) for n in range(4)),
        pa.array(pairs[order]),
    ]
    return pa.table(columns, schema=SCHEMA)


def sorted_by_arrow(rows: Any, found: FoundSeries, wanted: RowFilter) -> Any:
    number = pa.array(wanted.order[rows.column("pair").to_numpy()])
    rows = rows.append_column("number", number)
    rows = rows.take(pa.compute.sort_indices(rows, [(name, "ascending") for name in ("number", "time", "birth")]))
    about = found.table.take(rows.column("number"))
    named = {"series": about.column("text"), "source": about.column("source_name")}
    columns = [named[name] if name in named else rows.column(name) for name in RESULT_SCHEMA.names]
    plain = [pa.utf8() if field.name in named else field.type for field in RESULT_SCHEMA]
    return pa.table([c.cast(t) for c, t in zip(columns, plain, strict=True)], names=RESULT_SCHEMA.names)


@pytest.mark.parametrize("seed", fixed_and_drawn([1], "assembling"))
@pytest.mark.parametrize("sizes", [[200], [1], [31, 0, 64], [7] * 30])
@pytest.mark.parametrize("kinds", [[0], [1], [2, 3], [3], [4, 5], [6], list(range(7)), [0, 6], [5, 6, 6, 6, 6]])
def test_order_equals_that_of_arrow(kinds: list[int], sizes: list[int], seed: int) -> None:
    """Samples of one type, of none, of all; batches with and without nulls in one column."""
    found, wanted = found_and_wanted()
    random = np.random.default_rng([len(kinds), seed])
    parts = [
        rows_of(random, rows, [kinds[n % len(kinds)]] if n % 3 else kinds, n % 2 * 0.3, 1000 * n)
        for n, rows in enumerate(sizes)
    ]
    rows = pa.concat_tables(parts)
    given = build_answer(rows, found, wanted)
    given.validate(full=True)
    assert given.schema == RESULT_SCHEMA
    assert plainly(given).equals(sorted_by_arrow(rows, found, wanted))
    assert all(column.num_chunks == 1 for column in given.columns)


def plainly(table: Any) -> Any:
    """The table without dictionary encoding."""
    columns = [c.cast(pa.utf8()) if pa.types.is_dictionary(c.type) else c for c in table.columns]
    return pa.table(columns, names=table.column_names)


def test_no_rows() -> None:
    given = build_answer(SCHEMA.empty_table(), *found_and_wanted())
    given.validate(full=True)
    assert (len(given), given.schema) == (0, RESULT_SCHEMA)


def test_a_time_that_is_no_whole_millisecond_is_not_cut() -> None:
    rows = rows_of(np.random.default_rng(1), 4, [0], 0.0)
    odd = pa.array([1, 2000, 3000, 4000]).view(SCHEMA.field("birth").type)
    with pytest.raises(pa.ArrowInvalid, match="lose data"):
        build_answer(rows.set_column(1, SCHEMA.field("birth"), odd), *found_and_wanted())
