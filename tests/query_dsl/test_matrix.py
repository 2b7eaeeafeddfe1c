"""The matrix: exact values, NA beside NaN, immutability, and its export formats."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest

from query_dsl import Matrix, evaluate, parse, render_table
from query_dsl.stores.levels import SETTLE_MS
from tests.query_dsl.plain_store import PlainStore

BIG = 2**63 - 1


def mixed() -> Matrix:
    store = PlainStore(level_table=((10, 100),))
    store.add("v", {"t": "int"}, [(10, BIG), (30, -BIG)])
    store.add("v", {"t": "float"}, [(10, math.nan), (20, math.inf), (30, 1.5)])
    store.add("v", {"t": "bool"}, [(10, True), (20, False)])
    store.add("v", {"t": "text"}, [(20, "é\x1b[2J")])
    return evaluate(parse("fetch('v').between(0, 30)"), store, 30 + SETTLE_MS)


def test_json_is_exact_and_tells_na_from_nan() -> None:
    data = json.loads(mixed().to_json())
    values = {series["labels"]["t"]: (series["type"], series["values"]) for series in data["series"]}
    assert values == {
        "int": ("INTEGER", [BIG, None, -BIG]),
        "float": ("DOUBLE", ["NaN", "Infinity", 1.5]),
        "bool": ("BOOLEAN", [True, False, None]),
        "text": ("STRING", [None, "é\x1b[2J", None]),
    }
    assert data["grid"] == {"start_ms": 0, "end_ms": 30, "step_ms": 10, "n": 3}
    assert (data["complete"], data["partial"]) == (True, False)


def test_pandas_keeps_types_na_and_nan() -> None:
    frame = mixed().to_pandas()
    assert [str(t) for t in frame.dtypes] == ["boolean", "Float64", "Int64", "string"]
    assert frame['v{t="int"}'].tolist() == [BIG, pd.NA, -BIG]
    floats = frame['v{t="float"}'].array
    assert floats.isna().tolist() == [False, False, False]
    assert math.isnan(floats.to_numpy(dtype=float)[0])
    assert frame['v{t="text"}'].isna().tolist() == [True, False, True]
    assert frame.index.tolist() == [pd.Timestamp(ms, unit="ms", tz="UTC") for ms in (10, 20, 30)]


def test_rows_have_their_own_types() -> None:
    matrix = mixed()
    kinds = {matrix.labels[i]["t"]: matrix.row(i) for i in range(len(matrix))}
    assert kinds["int"].dtype == np.int64
    assert kinds["int"].tolist() == [BIG, None, -BIG]
    assert kinds["float"].dtype == np.float64
    assert kinds["bool"].tolist() == [True, False, None]
    assert kinds["text"].tolist() == [None, "é\x1b[2J", None]
    assert matrix.values.dtype == object
    assert matrix.find(t="int") == matrix.series.index('v{t="int"}')
    with pytest.raises(LookupError, match="0 series"):
        matrix.find(t="none")


def test_arrays_are_read_only() -> None:
    matrix = mixed()
    for array in (matrix.cells, matrix.present, matrix.types):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        matrix.row(0)[0] = 1


def test_equality_counts_values_types_and_labels() -> None:
    assert mixed() == mixed()
    store = PlainStore(level_table=((10, 100),)).add("v", {}, [(10, 1)])
    one = evaluate(parse("fetch('v').at(10)"), store, 10 + SETTLE_MS)
    assert one != evaluate(parse("fetch('v').map(mul, 1).at(10)"), store, 10 + SETTLE_MS)
    assert one != "something else"


def test_table_is_readable_and_cannot_move_the_cursor() -> None:
    text = render_table(mixed())
    lines = text.splitlines()
    assert lines[0].startswith("4 series x 3 buckets of 10ms (1970-01-01T00:00:00Z .. 1970-01-01T00:00:00.030Z]")
    assert len({len(line) for line in lines[1:6]}) == 1
    assert "NA" in text
    assert "NaN" in text
    assert "\x1b" not in text
    assert repr(mixed()) == render_table(mixed(), sparks=True)


def test_long_answers_are_cut_and_say_so() -> None:
    store = PlainStore(level_table=((10, 100),))
    for i in range(50):
        store.add("v", {"i": f"{i:02}"}, [(10, i)])
    text = render_table(evaluate(parse("fetch('v').at(10)"), store, 10 + SETTLE_MS), max_series=5)
    assert "... and 45 more series" in text
    assert 'v{i="04"}' in text
    assert 'v{i="05"}' not in text
