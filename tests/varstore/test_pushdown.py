"""Push-down in one shard: limits, deadlines, the cache between queries, and the encoding of partial results."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.compute.aggregate import (
    Aggregate,
    AggregateRequest,
    NotPushed,
    check_aggregate,
    decode_aggregate,
    encode_aggregate,
    merge_aggregates,
)
from artimon.compute.exact_sums import ExactSums, float_sums, integer_sums
from artimon.compute.partials import Partial
from artimon.compute.reduction import SeriesCounts, WindowPlan
from artimon.model.batch import BatchId
from artimon.model.grid import Grid
from artimon.model.select import NAME, Matcher, SelectError, SelectRequest, decode_buckets, encode_buckets
from artimon.model.values import Kind, ValueType
from tests.varstore.worlds import TestBatch, announce, print_of, range_of
from varstore.index.label_index import LabelIndex
from varstore.query import pushdown
from varstore.query.pushdown import DeadlinePassed
from varstore.query.selection import ranks_of_slots
from varstore.shard.shard import Shard

NOW = 1_800_000_000_000
MINUTE = 60_000
ALL = (Matcher(NAME, "prefix", "test."),)
GRID = Grid(NOW + 3 * MINUTE, MINUTE, 3)


def batch(number: int, values: list[float], source: str = "s0", first: int = 0) -> TestBatch:
    """Return minute `number` of the series from `first` on."""
    time = NOW + number * MINUTE + 500
    rows = [(print_of(first + i), time + i, NOW, value) for i, value in enumerate(values)]
    return TestBatch(BatchId("agent", 1, 0, number), source, time + 1_000, rows)


def asked(**changes: object) -> AggregateRequest:
    request = AggregateRequest(ALL, GRID, WindowPlan("last", GRID.n), "sum", ("part",))
    return replace(request, **changes)  # type: ignore[arg-type]


def sums(found: Aggregate) -> dict[str, list[float]]:
    assert found.values.sums is not None
    return {dict(c)["part"]: found.values.sums.high[i].tolist() for i, c in enumerate(found.classes)}


@pytest.fixture
def shard() -> Shard:
    """Six series in three parts, with three minutes of samples."""
    made = Shard(capacity=1_000)
    announce(made, range(6))
    log = [batch(n, [float(n + 1)] * 6) for n in range(3)]
    made.feed(range_of(log, 0, 3))
    return made


def test_sums_are_grouped_by_a_label(shard: Shard) -> None:
    found = shard.aggregate(asked())
    assert sums(found) == {part: [2.0, 4.0, 6.0] for part in ("0", "1", "2")}
    assert found.counts == SeriesCounts(selected=6, sampled=6)
    assert found.values.members.tolist() == [2, 2, 2]


def test_a_row_that_changes_is_reduced_again(shard: Shard) -> None:
    """Unchanged rows may be cached; changed types and ends show as well."""
    first = shard.aggregate(asked())
    log = [batch(n, [1.0] * 6) for n in range(3)] + [
        replace(batch(3, [10.0]), rows=[(print_of(0), NOW + 900, NOW, 7.0)])
    ]
    shard.feed(range_of(log, 3, 4))
    again = shard.aggregate(asked())
    assert sums(first)["0"] == [2.0, 4.0, 6.0]
    assert sums(again) == {"0": [8.0, 4.0, 6.0], "1": [2.0, 4.0, 6.0], "2": [2.0, 4.0, 6.0]}


def test_a_new_series_is_seen_at_once(shard: Shard) -> None:
    shard.aggregate(asked())
    announce(shard, [6], "s0", 2)
    log = [batch(n, [1.0] * 6) for n in range(3)]
    log.append(replace(batch(3, []), rows=[(print_of(6), NOW + 100, NOW, 5.0)]))
    shard.feed(range_of(log, 3, 4))
    assert sums(shard.aggregate(asked()))["0"] == [7.0, 4.0, 6.0]


def test_an_ended_series_is_left_out_of_last(shard: Shard) -> None:
    shard.aggregate(asked())
    log = [batch(n, [1.0] * 6) for n in range(3)]
    log.append(replace(batch(3, []), rows=[(print_of(0), NOW + 3 * MINUTE - 1_000, NOW, None)]))
    shard.feed(range_of(log, 3, 4))
    found = shard.aggregate(asked())
    assert found.values.count[[dict(c)["part"] for c in found.classes].index("0")].tolist() == [2, 2, 1]


@pytest.mark.parametrize(("reducer", "rank"), [("topk", "last"), ("topk", "each"), ("bottomk", "max")])
@pytest.mark.parametrize("value", [0, 0.0])
def test_of_equal_series_the_first_are_candidates(reducer: str, rank: str, value: float) -> None:
    """Thousands of equal values, as of counters of errors where none occurs, with one that is greater."""
    made = Shard(capacity=9_000)
    announce(made, range(6_000))
    values = [value] * 6_000
    log = [batch(0, values), batch(1, [*values[:4_000], value + 1, *values[4_001:]])]
    made.feed(range_of(log, 0, 2))
    found = made.aggregate(asked(reducer=reducer, by=(), args=(("k", 3), ("rank", rank))))
    equal = sorted(f"test.v{i}" for i in range(6_000) if i != 4_000 or rank == "each")
    first = {"topk": ["test.v4000", *equal[:3]], "bottomk": equal[:3]}[reducer]
    assert {print_of(int(name.removeprefix("test.v"))) for name in first[: 3 + (rank == "each")]} == set(
        found.candidates.tolist()
    )


LABEL_SETS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "1!", '1"', "2"]))


@given(st.lists(st.tuples(st.sampled_from(["m", "m.a"]), LABEL_SETS), max_size=12))
def test_ranks_of_series_are_those_of_their_names_and_labels(series: list[tuple[str, dict[str, str]]]) -> None:
    index = LabelIndex()
    for slot, (name, labels) in enumerate(series):
        index.add(slot, name, labels, ValueType.INTEGER, Kind.GAUGE, 1)
    keys = [(name, sorted(labels.items())) for name, labels in series]
    ranks = ranks_of_slots(index, np.arange(len(series))).tolist()
    assert ranks == np.argsort(sorted(range(len(keys)), key=keys.__getitem__)).tolist()


def test_too_many_series_are_refused(shard: Shard) -> None:
    with pytest.raises(SelectError, match="6 series fit, at most 5 are allowed"):
        shard.aggregate(asked(limit=5))


def test_work_ends_when_the_deadline_has_passed(shard: Shard) -> None:
    with pytest.raises(DeadlinePassed, match="deadline of 0 ms"):
        shard.aggregate(asked(deadline_ms=0))
    with pytest.raises(DeadlinePassed):
        shard.aggregate(asked(deadline_ms=0, windows=WindowPlan("increase", 3, max_gap_ms=1_000)))


def test_a_request_beyond_the_memory_limit_is_refused_before_allocation(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushdown, "MEMORY_BYTES", 1_000)
    with pytest.raises(SelectError, match="at most 1000 are allowed"):
        shard.aggregate(asked())


def test_classes_of_few_series_are_not_pushed_down(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pushdown, "NO_REDUCTION_CLASSES", 2)
    with pytest.raises(NotPushed, match="6 series make 6 classes"):
        shard.aggregate(asked(by=(NAME,)))


@pytest.mark.parametrize(
    "changes",
    [
        {"reducer": "quantile"},
        {"reducer": "quantile", "args": (("q", 2),)},
        {"reducer": "topk", "args": (("k", 3), ("rank", "mean"))},
        {"by": None},
        {"without": ("part",)},
        {"windows": WindowPlan("last", 4)},
        {"windows": WindowPlan("last", 3, width=2)},
        {"windows": WindowPlan("last", 3, left=-1)},
        {"windows": WindowPlan("last", 10**9, right=10**9)},
    ],
)
def test_invalid_requests_are_refused_by_check_aggregate(changes: dict[str, object]) -> None:
    with pytest.raises(SelectError):
        check_aggregate(asked(**changes))


@pytest.mark.parametrize("changes", [{"reducer": "no"}, {"windows": WindowPlan("no", 3)}])
def test_names_of_a_newer_asker_are_not_pushed_down(changes: dict[str, Any]) -> None:
    with pytest.raises(NotPushed, match="unknown"):
        check_aggregate(asked(**changes))


def test_excluded_fingerprints_are_left_out(shard: Shard) -> None:
    found = shard.aggregate(asked(exclude=(print_of(0), print_of(3), print_of(1)), with_fingerprints=True))
    assert sums(found) == {"1": [1.0, 2.0, 3.0], "2": [2.0, 4.0, 6.0]}
    assert found.fingerprints.tolist() == sorted(print_of(i) for i in (2, 4, 5))


def test_only_some_fingerprints_can_be_selected(shard: Shard) -> None:
    found = shard.select(SelectRequest(ALL, GRID, only=(print_of(2), 12345)))
    assert [series.fingerprint for series in found.series] == [print_of(2)]


def test_answers_stay_consistent_while_rows_are_applied(shard: Shard) -> None:
    """Every answer holds whole rows while other rows are applied."""
    stop, wrong = threading.Event(), list[str]()

    def ask() -> None:
        while not stop.is_set():
            for values in sums(shard.aggregate(asked())).values():
                if values != [2.0, 4.0, 6.0]:
                    wrong.append(str(values))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    log = [batch(n, [1.0] * 6) for n in range(60)]
    for start in range(3, 60):
        shard.feed(range_of(log, start, start + 1))
    stop.set()
    for thread in threads:
        thread.join(20)
    assert not wrong


FLOATS = st.floats(-1e12, 1e12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(FLOATS, min_size=1, max_size=12), min_size=1, max_size=5), st.randoms())
def test_sums_of_parts_do_not_depend_on_the_parts(rows: list[list[float]], random: object) -> None:
    """The sum does not depend on the split and order of the members: it is the exact one, rounded once."""
    flat = [value for row in rows for value in row]
    whole = float_sums(np.array(flat)[:, None], np.array([0]))
    parts = ExactSums(np.zeros((1, 1)), np.zeros((1, 1)))
    for row in rows:
        parts = parts.add(float_sums(np.array(row)[:, None], np.array([0])))
    exact = math.fsum(flat)
    assert abs(float(whole.high[0, 0]) - exact) <= np.spacing(abs(exact)) + 1e-16 * max(map(abs, flat))
    assert abs(float(parts.high[0, 0]) - exact) <= np.spacing(abs(exact)) + 1e-16 * max(map(abs, flat))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=40))
def test_sums_of_integers_are_exact(cells: list[int]) -> None:
    found = integer_sums(np.array(cells, np.int64), np.array([0]))
    assert int(found.high[0]) + int(found.low[0]) == sum(cells)


def test_infinities_and_nan_stay_in_their_class() -> None:
    values = np.array([[np.inf, 1.0], [1.0, np.nan], [2.0, 3.0], [-np.inf, 4.0]])
    found = float_sums(values, np.array([0, 2]))
    assert found.high[:, 0].tolist() == [np.inf, -np.inf]
    assert np.isnan(found.high[0, 1])
    assert found.high[1, 1] == 7.0


@pytest.mark.parametrize("reducer", ["sum", "mean", "min", "max", "count"])
@pytest.mark.parametrize("classes", [0, 1, 3])
def test_partial_results_survive_encoding(reducer: str, classes: int) -> None:
    shape = (classes, 2)
    values = Partial(
        reducer,
        np.arange(classes) + 1,
        np.arange(classes) % 2 == 0,
        np.ones(shape, np.int64),
        ExactSums(np.full(shape, 0.1), np.full(shape, 1e-20)) if reducer in ("sum", "mean") else None,
        np.full(shape, -(2**63)) if reducer in ("min", "max") else None,
    )
    names = tuple(((NAME, "a"), ("rack", f'r"{i}ü')) for i in range(classes))
    prints = np.array([1, 2**64 - 1], np.uint64)
    sent = Aggregate(names, values, SeriesCounts(5, 4, 3, 2, 1, 7), ((NAME, "g"),), 9, prints, ("a note",), True)
    got = decode_aggregate(encode_aggregate(sent))
    assert (got.classes, got.counts, got.gauge, got.newest_ms, got.notes, got.partial) == (
        sent.classes, sent.counts, sent.gauge, 9, ("a note",), True,
    )  # fmt: skip
    assert got.fingerprints.tolist() == [1, 2**64 - 1]
    for name in ("members", "double", "count", "extreme"):
        assert np.array_equal(getattr(got.values, name), getattr(values, name)) or getattr(values, name) is None
    if values.sums is not None:
        assert got.values.sums is not None
        assert [a.tolist() for a in got.values.sums] == [a.tolist() for a in values.sums]


def test_partial_results_of_different_classes_are_merged() -> None:
    """Integers of one part and doubles of another give doubles."""

    def part(class_: str, double: bool, cell: float) -> Aggregate:
        cells = np.array([[cell]]).view(np.int64) if double else np.array([[int(cell)]], np.int64)
        values = Partial("max", np.array([1]), np.array([double]), np.ones((1, 1), np.int64), None, cells)
        return Aggregate(((("rack", class_),),), values, SeriesCounts(1, 1))

    found = merge_aggregates([part("a", False, 3), part("b", False, 7), part("a", True, 2.5)])
    assert found.classes == ((("rack", "a"),), (("rack", "b"),))
    assert found.values.double.tolist() == [True, False]
    assert found.values.extreme is not None
    assert found.values.extreme[0].view(np.float64).tolist() == [3.0]
    assert found.values.extreme[1].tolist() == [7]


def test_series_survive_encoding_in_columns(shard: Shard) -> None:
    found = shard.select(SelectRequest(ALL, GRID, ("last", "count")))
    got = decode_buckets(encode_buckets(found))
    assert list(got.series) == list(found.series)
    assert got.series[0].labels == {"part": got.series[0].name[-1]}
    assert len(got.series) == 6
