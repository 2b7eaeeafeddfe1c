"""Reducers against plain loops, numpy, pandas, on random series."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from query_dsl import Matrix, QueryError
from query_dsl.results.result_cells import DOUBLE, INTEGER, STRING, SeriesKey, doubles
from query_dsl.tree.selector import series_text
from tests.query_dsl.reducing import SMALL, VALUES, all_near, key, matrices, matrix, near, reduce_, table
from tests.seeds import fixed_and_drawn

NUMBERS = {kind: strategy for kind, strategy in VALUES.items() if kind is not str}
PROFILE = settings(max_examples=120, deadline=None)
BY = st.sampled_from([(), ("a",), ("a", "b"), ("b", "a"), ("__name__",), ("c", "__name__")])


def classes(found: Matrix, by: tuple[str, ...]) -> dict[str, list[int]]:
    """Text of a class -> rows, one series after another."""
    out: dict[str, list[int]] = {}
    for row, one in enumerate(found.keys):
        labels = {label: one.get(label) for label in by if label != "__name__" and one.get(label)}
        out.setdefault(series_text(one.name if "__name__" in by else "", labels), []).append(row)
    return out


def usable(found: Matrix, by: tuple[str, ...]) -> bool:
    """True if every label is on some series."""
    return all(any(one.get(label) for one in found.keys) for label in by)


def columns(found: Matrix, rows: list[int]) -> list[list[Any]]:
    """For each bucket the values of the rows that have one, in order."""
    values = [found.tolist(row) for row in rows]
    return [[v[i] for v in values if v[i] is not None] for i in range(found.grid.n)]


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def poisoned(values: list[Any], run: Any) -> Any:
    if not values:
        return None
    return math.nan if any(map(is_nan, values)) else run([float(v) for v in values])


def plain_var(values: list[Any], ddof: int) -> float | None:
    if len(values) <= ddof:
        return None
    floats = [float(v) for v in values]
    mean = math.fsum(floats) / len(floats) if all(map(math.isfinite, floats)) else math.nan
    return math.fsum((v - mean) ** 2 for v in floats) / (len(floats) - ddof) if mean == mean else math.nan


@PROFILE
@given(matrices(SMALL), BY, st.integers(0, 2))
def test_spread_of_any_classes(found: Matrix, by: tuple[str, ...], ddof: int) -> None:
    if not usable(found, by):
        return
    got = table(reduce_(found, "var", by, ddof=ddof))
    deviations = table(reduce_(found, "sd", by, ddof=ddof))
    assert set(got) == set(classes(found, by))
    for text, rows in classes(found, by).items():
        expect = [plain_var(values, ddof) for values in columns(found, rows)]
        assert all_near(got[text], expect)
        assert all_near(deviations[text], [None if v is None else math.sqrt(v) for v in expect])


@PROFILE
@given(matrices(SMALL), BY)
def test_medians(found: Matrix, by: tuple[str, ...]) -> None:
    if not usable(found, by):
        return
    got, off = table(reduce_(found, "median", by)), table(reduce_(found, "mad", by))

    def mad(values: list[float]) -> float:
        middle = statistics.median(values)
        return statistics.median([abs(v - middle) for v in values])

    for text, rows in classes(found, by).items():
        assert all_near(got[text], [poisoned(values, statistics.median) for values in columns(found, rows)])
        assert all_near(off[text], [poisoned(values, mad) for values in columns(found, rows)])


METHODS = (
    "inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull",
    "linear", "median_unbiased", "normal_unbiased", "lower", "higher", "midpoint", "nearest",
)  # fmt: skip


@PROFILE
@given(matrices(SMALL), BY, st.sampled_from(METHODS), st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0]))
def test_quantiles_are_those_of_numpy(found: Matrix, by: tuple[str, ...], method: str, q: float) -> None:
    if not usable(found, by):
        return
    got = table(reduce_(found, "quantile", by, q=q, method=method))
    for text, rows in classes(found, by).items():
        expect = [
            poisoned(values, lambda v: float(np.quantile(v, q, method=method)))  # type: ignore[call-overload]
            for values in columns(found, rows)
        ]
        assert all_near(got[text], expect), (method, q)


def exactly(values: list[Any]) -> list[Any]:
    """Python compares int and float exactly, whatever their size."""
    return [v for v in values if not is_nan(v)]


@PROFILE
@given(matrices(NUMBERS), BY)
def test_first_last_range_group(found: Matrix, by: tuple[str, ...]) -> None:
    if not usable(found, by):
        return
    for text, rows in classes(found, by).items():
        kinds = {int(found.types[row]) for row in rows}
        kind = kinds.pop() if len(kinds) == 1 else DOUBLE
        in_columns = columns(found, rows)
        for name, at in (("first", 0), ("last", -1)):
            reduced = reduce_(found, name, by)
            row = reduced.series.index(text)
            assert reduced.types[row] == kind
            expect = [(float(v[at]) if kind == DOUBLE else v[at]) if v else None for v in in_columns]
            assert all_near(reduced.tolist(row), expect, 0)
        reduced = reduce_(found, "range", by)
        row = reduced.series.index(text)
        assert reduced.types[row] == (INTEGER if kind == INTEGER else DOUBLE)
        assert all_near(reduced.tolist(row), [plain_range(v, kind) for v in in_columns], 0)
        assert table(reduce_(found, "group", by))[text] == [1 if v else None for v in in_columns]


def plain_range(values: list[Any], kind: int) -> Any:
    if not values:
        return None
    if any(map(is_nan, values)):
        return math.nan
    if kind == INTEGER:
        found = max(values) - min(values)
        return found if found < 2**63 else None
    return max(map(float, values)) - min(map(float, values))


@PROFILE
@given(matrices(NUMBERS), BY, st.sampled_from(["a", "b", "__name__"]), st.booleans())
def test_label_of_the_extreme(found: Matrix, by: tuple[str, ...], label: str, greatest: bool) -> None:
    if not usable(found, (*by, label)):
        return
    reduced = reduce_(found, "argmax" if greatest else "argmin", by, label=label)
    assert set(reduced.types.tolist()) == {STRING}
    for text, rows in classes(found, by).items():
        expect = []
        for i in range(found.grid.n):
            present: list[tuple[Any, str]] = [(found.tolist(row)[i], found.keys[row].get(label)) for row in rows]
            present = [(v, name) for v, name in present if v is not None]
            numbers = [(v, name) for v, name in present if not is_nan(v)] or present[:1]
            best = (max if greatest else min)(numbers, key=lambda pair: pair[0], default=None)
            expect.append(best[1] if best is not None else None)
        assert table(reduced)[text] == expect


def plain_best(candidates: list[tuple[int, Any]], k: int, greatest: bool) -> set[int]:
    """Rows of the k best; candidates in canonical order."""
    numbers = [(row, v) for row, v in candidates if v is not None and not is_nan(v)]
    chosen = [row for row, _ in sorted(numbers, key=lambda pair: pair[1], reverse=greatest)]
    return set((chosen + [row for row, v in candidates if is_nan(v)])[:k])


def judged(values: list[Any], rank: str) -> Any:
    present = [v for v in values if v is not None]
    if not present:
        return None
    if rank == "last":
        return present[-1]
    if rank == "mean":
        return float(np.sum(np.array(present, np.float64)) / len(present))
    return math.nan if any(map(is_nan, present)) else (max if rank == "max" else min)(present)


@PROFILE
@given(matrices(NUMBERS), BY, st.integers(1, 4), st.sampled_from(["last", "mean", "max", "min", "each"]), st.booleans())
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numpy, for infinity less infinity
def test_the_k_best(found: Matrix, by: tuple[str, ...], k: int, rank: str, greatest: bool) -> None:
    if not usable(found, by):
        return
    got = reduce_(found, "topk" if greatest else "bottomk", by, k=k, rank=rank)
    expect: dict[int, list[Any]] = {}
    for rows in classes(found, by).values():
        if rank != "each":
            chosen = plain_best([(row, judged(found.tolist(row), rank)) for row in rows], k, greatest)
            expect |= {row: found.tolist(row) for row in chosen}
            continue
        for i in range(found.grid.n):
            for row in plain_best([(row, found.tolist(row)[i]) for row in rows], k, greatest):
                expect.setdefault(row, [None] * found.grid.n)[i] = found.tolist(row)[i]
    assert list(got.keys) == [found.keys[row] for row in sorted(expect)]
    for i, row in enumerate(sorted(expect)):
        assert got.types[i] == found.types[row]
        assert all_near(got.tolist(i), expect[row], 0)


def as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value + 0.0) if isinstance(value, float) else str(value)


@PROFILE
@given(matrices(VALUES), BY)
def test_count_of_each_value(found: Matrix, by: tuple[str, ...]) -> None:
    if not usable(found, by):
        return
    got = reduce_(found, "count_values", by, label="value")
    expect: dict[SeriesKey, list[int | None]] = {}
    for rows in classes(found, by).values():
        labels = {label: found.keys[rows[0]].get(label) for label in by if label != "__name__"}
        name = found.keys[rows[0]].name if "__name__" in by else ""
        for i, values in enumerate(columns(found, rows)):
            for text, times in Counter(map(as_text, values)).items():
                expect.setdefault(key(name, **labels, value=text), [None] * found.grid.n)[i] = times
    assert list(got.keys) == sorted(expect)
    assert [got.tolist(i) for i in range(len(got))] == [expect[one] for one in got.keys]
    assert set(got.types.tolist()) <= {INTEGER}


@PROFILE
@given(matrices(NUMBERS), BY, st.sampled_from(["skip", "propagate"]), st.sampled_from([None, 0, 1, 2, 3]))
def test_min_count_and_nulls(found: Matrix, by: tuple[str, ...], nulls: str, least: int | None) -> None:
    """Positions of present results, for reducers of every kind."""
    if not usable(found, by):
        return
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("median", {}),
        ("first", {}),
        ("argmax", {"label": "__name__"}),
        ("group", {}),
        ("mean", {}),
    ]
    for name, args in kinds:
        got = table(reduce_(found, name, by, nulls=nulls, min_count=least, **args))
        for text, rows in classes(found, by).items():
            wanted = len(rows) if nulls == "propagate" else 1
            expect = [len(v) >= max(wanted, 1 if least is None else least) for v in columns(found, rows)]
            assert [v is not None for v in got[text]] == expect


@pytest.mark.parametrize("seed", fixed_and_drawn([7], "many series"))
@pytest.mark.parametrize("name", ["mean", "median", "sd", "var", "quantile"])
def test_many_series_as_pandas_has_them(name: str, seed: int) -> None:
    """3,000 series in classes of unlike sizes, a tenth missing."""
    rng = np.random.default_rng(seed)
    codes = np.sort((rng.zipf(1.5, 3000) % 40).astype(int))
    keys = tuple(key("x", c=f"{c:03d}", i=f"{i:05d}") for i, c in enumerate(codes))
    values, present = rng.normal(size=(3000, 5)), rng.random((3000, 5)) < 0.9
    small = matrix([(keys[0], float, [0.0] * 5)])
    found = Matrix(keys, small.grid, doubles(values, present))
    args: dict[str, Any] = {"q": 0.9} if name == "quantile" else {}
    got = reduce_(found, name, ("c",), **args)
    groups = pd.DataFrame(np.where(present, values, np.nan)).groupby([f"{c:03d}" for c in codes])
    expect = {"sd": groups.std, "quantile": lambda: groups.quantile(0.9)}.get(name, getattr(groups, name, None))
    assert expect is not None
    assert [dict(one.labels)["c"] for one in got.keys] == list(expect().index)
    np.testing.assert_allclose(got.values.filled(np.nan), expect().to_numpy(), rtol=1e-12)


def plain_histogram(q: float, buckets: list[tuple[float, float]]) -> float:
    """Quantile of (bound, cumulative count) pairs, step by step."""
    if not 0 <= q <= 1:
        return math.copysign(math.inf, q)
    together: dict[float, float] = {}
    for bound, count in sorted(buckets):
        together[bound] = together.get(bound, 0.0) + count
    bounds, counts = list(together), list[float]()
    for count in together.values():
        counts.append(max([count, *counts[-1:]]))
    if bounds[-1] != math.inf or len(bounds) < 2 or counts[-1] == 0:
        return math.nan
    rank = q * counts[-1]
    place = next((i for i, count in enumerate(counts[:-1]) if count >= rank), len(counts) - 1)
    if place == len(counts) - 1:
        return bounds[-2]
    if place == 0 and bounds[0] <= 0:
        return bounds[0]
    low, below = (bounds[place - 1], counts[place - 1]) if place else (0.0, 0.0)
    inside = counts[place] - below
    return low + (bounds[place] - low) * ((rank - below) / inside) if inside else math.nan


LE = st.sampled_from(["-1", "0", "0.5", "1", "1.0", "2.5", "10", "1e2", "+Inf", "+Inf", "Inf", "x", ""])


@PROFILE
@given(
    st.lists(st.tuples(st.sampled_from("12"), st.sampled_from("uv"), LE), min_size=1, max_size=14, unique=True),
    st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
    st.booleans(),
    st.data(),
)
def test_quantiles_of_histograms(series: list[tuple[str, str, str]], q: float, by_host: bool, data: Any) -> None:
    values = [data.draw(st.lists(st.none() | st.integers(0, 30), min_size=2, max_size=2)) for _ in series]
    rows = [(key("b", host=h, i=i, le=le), float, v) for (h, i, le), v in zip(series, values, strict=True)]
    if not any(le for _, _, le in series):
        return
    found = matrix(rows)
    got = reduce_(found, "histogram_quantile", q=q, **({"by": ("host",)} if by_host else {"without": ()}))
    for text, members in _histograms(rows, by_host).items():
        assert all_near(table(got)[text], [_of_step(members, q, i) for i in range(2)]), (text, members)
    assert set(table(got)) == set(_histograms(rows, by_host))


def plain_fraction(lower: float, upper: float, buckets: list[tuple[float, float]]) -> float:
    """Share of (lower, upper] of (bound, cumulative count) pairs: each bucket's own count, spread evenly."""
    together: dict[float, float] = {}
    for bound, count in sorted(buckets):
        together[bound] = together.get(bound, 0.0) + count
    low, below, inside = min(next(iter(together)), 0.0), 0.0, 0.0
    for bound, count in together.items():
        own = max(count, below) - below
        begin, end = max(low, lower), min(bound, upper)
        if bound == math.inf:  # it lies at no place: only all of it is asked for
            inside += own if upper == math.inf and lower < math.inf else 0.0
        elif bound <= low:  # the first one, up to 0 or less: all of it lies at its bound
            inside += own if lower < bound <= upper else 0.0
        elif end > begin:
            inside += own * (end - begin) / (bound - low)
        low, below = bound, max(count, below)
    return inside / below if below and max(together) == math.inf else math.nan


EDGES = st.sampled_from([-math.inf, -1.0, 0.0, 0.3, 1.0, 4.0, 100.0, math.inf])


@PROFILE
@given(st.dictionaries(LE, st.lists(st.none() | st.integers(0, 30), min_size=2, max_size=2)), EDGES, EDGES)
def test_fractions_of_histograms(series: dict[str, list[int | None]], lower: float, upper: float) -> None:
    rows = [(key("b", le=le), float, values) for le, values in series.items()]
    if not any(series):
        return
    got = table(reduce_(matrix(rows), "histogram_fraction", without=(), lower=lower, upper=upper))
    for i in range(2):
        held = [(float(le), float(v[i])) for le, v in series.items() if le not in ("x", "") and v[i] is not None]  # type: ignore[arg-type]
        expect = plain_fraction(lower, upper, held) if held else None
        for values in got.values():
            assert near(values[i], expect), (held, values[i], expect)


@PROFILE
@given(matrices(VALUES), BY)
def test_distinct_values(found: Matrix, by: tuple[str, ...]) -> None:
    if not usable(found, by):
        return
    got = table(reduce_(found, "count_distinct", by))
    for text, rows in classes(found, by).items():
        if any(found.types[row] != STRING for row in rows):
            rows = [row for row in rows if found.types[row] != STRING]
        expect = [len({"NaN" if is_nan(v) else v for v in values}) for values in columns(found, rows)]
        assert got[text] == expect


@PROFILE
@given(matrices({bool: st.booleans()}), BY)
def test_any_and_all(found: Matrix, by: tuple[str, ...]) -> None:
    if not usable(found, by):
        return
    got_any, got_all = table(reduce_(found, "any", by)), table(reduce_(found, "all", by))
    for text, rows in classes(found, by).items():
        held = columns(found, rows)
        assert got_any[text] == [any(values) if values else None for values in held]
        assert got_all[text] == [all(values) if values else None for values in held]


@PROFILE
@given(matrices({str: VALUES[str]}), BY, st.sampled_from(["", ", "]))
def test_joined_texts(found: Matrix, by: tuple[str, ...], separator: str) -> None:
    if not usable(found, by):
        return
    got = table(reduce_(found, "join", by, separator=separator))
    for text, rows in classes(found, by).items():
        assert got[text] == [separator.join(values) if values else None for values in columns(found, rows)]


def test_what_truths_and_joins_refuse() -> None:
    rows = [(key("x", a="1"), bool, [True]), (key("x", a="2"), int, [1])]
    for name in ("any", "all"):
        with pytest.raises(QueryError, match=rf'{name} needs BOOLEAN, but x{{a="2"}} is not: compare first'):
            reduce_(matrix(rows), name)
    with pytest.raises(QueryError, match=r'join takes STRING, but x{a="1"} is not: use to_string'):
        reduce_(matrix(rows), "join", separator=", ")
    long = [(key("x", a=str(i)), str, ["y" * 40_000]) for i in range(2)]
    with pytest.raises(QueryError, match="join would make a text of 80002 characters from 2 members: at most 65536"):
        reduce_(matrix(long), "join", separator=", ")


def _histograms(rows: list[Any], by_host: bool) -> dict[str, list[tuple[str, list[Any]]]]:
    out: dict[str, list[tuple[str, list[Any]]]] = {}
    for one, _, values in rows:
        labels = {label: v for label, v in one.labels if label != "le" and (label == "host" or not by_host)}
        out.setdefault(series_text("", labels), []).append((one.get("le"), values))
    return out


def _of_step(members: list[tuple[str, list[Any]]], q: float, step: int) -> float | None:
    buckets = [(float(le), float(v[step])) for le, v in members if le not in ("x", "") and v[step] is not None]
    return plain_histogram(q, buckets) if buckets else None


def test_numbers_that_only_look_like_one() -> None:
    """Bounds that Python reads as a number but histograms do not use."""
    rows = [(key("b", le=le), float, [float(i)]) for i, le in enumerate(["1_0", " 1", "0x1", "nan", "1", "+Inf"])]
    assert table(reduce_(matrix(rows), "histogram_quantile", q=0.5)) == {"{}": [0.625]}


def test_plain_errors_are_those_of_python() -> None:
    """The checks above can fail: they tell a wrong number from a right one."""
    assert not near(1.0, 1.5)
    assert not near(None, 1.0)
    assert not near(1, True)
    with pytest.raises(QueryError, match="count_values"):
        reduce_(matrix([(key("x", a="1"), int, [1])]), "count_values", ("a",), label="a")
