"""Window functions with missing values, NaN, infinities, types, births and wrong arguments."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from artimon.compute import changes, panes
from artimon.compute.aggregate import Aggregate, AggregateRequest, aggregate_buckets, check_aggregate
from artimon.compute.cells import DOUBLE, INTEGER
from artimon.compute.functions import FUNCTIONS
from artimon.compute.params import ArgumentError, bind_params
from artimon.compute.reduction import WindowPlan
from artimon.model.grid import Grid
from artimon.model.select import INCARNATION_DTYPE, Buckets, Matcher, SelectError, SelectRequest
from artimon.model.values import INT64_MAX, INT64_MIN
from query_dsl import QueryError, evaluate, parse
from query_dsl.stores.levels import SETTLE_MS
from tests.query_dsl.plain_store import PlainStore, Sample
from tests.query_dsl.window_rows import arrays_of, mapped, random_rows, trailing, values

NAN, INF = math.nan, math.inf
OF_LAST: dict[str, dict[str, Any]] = {
    "quantile": {"q": 0.5}, "median": {}, "sd": {}, "var": {}, "mad": {}, "zscore": {}, "ewma": {"alpha": 0.5},
    "holt": {"alpha": 0.5, "beta": 0.5}, "derivative": {}, "predict_linear": {"horizon": 1_000},
}  # fmt: skip
BIG = 2**53


@pytest.mark.parametrize("name", OF_LAST)
def test_nan_poisons_its_windows_only(name: str) -> None:
    row = [1.0, 2.0, NAN, 4.0, 5.0, 7.0, 8.0]
    got = values(name, [row], 3, **OF_LAST[name])[0]
    assert [v is not None and math.isnan(v) for v in got] == [True, True, True, False, False]


@pytest.mark.parametrize("name", OF_LAST)
def test_windows_without_values_are_missing(name: str) -> None:
    assert values(name, [[None, None, None]], 3, **OF_LAST[name]) == [[None]]


@pytest.mark.parametrize("name", OF_LAST)
def test_gaps_are_no_values(name: str) -> None:
    """Values far to the left of the window, or missing, take no part."""
    thin = values(name, [[1e300, None, 3.0, None, 7.0, None, 4.0]], 6, **OF_LAST[name])[0][1]
    data = arrays_of([[3.0, 7.0, 4.0]], times=[[3_000, 5_000, 7_000]])
    dense = mapped(name, data, trailing(data, 3), **OF_LAST[name]).column
    shown = float(dense.cells.view(np.float64)[0, 0])
    if name == "predict_linear":
        shown += 4 * float(values("derivative", [[3.0, None, 7.0, None, 4.0]], 5)[0][0] or 0)  # shown at 3 s instead
    assert thin == pytest.approx(shown, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "expect"),
    [
        ("sd", math.sqrt(4 / 3)),
        ("var", 4 / 3),
        ("mad", 0.0),
        ("zscore", (2 - 2 / 3) / math.sqrt(4 / 3)),
        ("derivative", 1.0),
    ],
)
@pytest.mark.parametrize("base", [0, BIG, BIG * 5 + 1, -(2**62), INT64_MAX - 2])
def test_whole_numbers_differ_exactly(name: str, expect: float, base: int) -> None:
    """base, base, base + 2: the result does not depend on base."""
    assert values(name, [[base, base, base + 2]], 3) == [[pytest.approx(expect, rel=1e-15)]]


@pytest.mark.parametrize("name", OF_LAST)
def test_exact_rows_answer_like_others(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of the great whole numbers and that of all others give the same; so do chunks of any size."""
    rows = [[None if v is None else round(v) for v in row] for row in random_rows(5)]
    plain = values(name, rows, 6, **OF_LAST[name])
    monkeypatch.setattr(panes, "CHUNK_CELLS", 13)
    assert values(name, rows, 6, **OF_LAST[name]) == plain
    monkeypatch.setattr(panes, "EXACT", -1)
    exact = values(name, rows, 6, **OF_LAST[name])
    for a, b in zip(plain, exact, strict=True):
        assert [v is None for v in a] == [v is None for v in b]
        assert [v for v in a if v is not None] == pytest.approx([v for v in b if v is not None], rel=1e-9, abs=1e-6)


def test_the_range_of_int64_does_not_wrap() -> None:
    row = [INT64_MIN, INT64_MAX, 0]
    assert values("median", [row], 3) == [[0.0]]
    assert values("mad", [row], 3) == [[2.0**63]]
    assert values("sd", [row], 3)[0][0] == pytest.approx(2.0**63)
    assert values("derivative", [row[:2]], 2) == [[2.0**64]]


def test_equal_values_do_not_spread() -> None:
    row = [0.1] * 6
    assert values("sd", [row], 6) == values("mad", [row], 6) == values("derivative", [row], 6) == [[0.0]]
    assert math.isnan(values("zscore", [row], 6)[0][0] or 0)
    assert math.isnan(values("zscore", [row], 6, robust=True)[0][0] or 0)


def test_no_cancellation() -> None:
    row = [1e9 + v for v in (4.0, 7.0, 13.0, 16.0)]
    assert values("var", [row], 4) == [[30.0]]


def test_zscore_where_nothing_else_varies_is_infinite() -> None:
    assert values("zscore", [[1.0, 1.0, 1.0, 5.0]], 4, robust=True) == [[INF]]
    assert values("zscore", [[1.0, 1.0, 1.0, -5.0]], 4, robust=True) == [[-INF]]


def test_infinities() -> None:
    assert values("median", [[INF, INF, 1.0]], 3) == [[INF]]
    assert values("quantile", [[INF, INF, 1.0]], 3, q=0.75) == [[INF]]
    assert values("quantile", [[1.0, 2.0, INF]], 3, q=0.5) == [[2.0]]
    assert values("quantile", [[-INF, -INF, 2.0]], 3, q=0.25) == [[-INF]]
    assert math.isnan(values("sd", [[1.0, INF]], 2)[0][0] or 0)


def test_boolean_is_one_and_zero() -> None:
    row = [True, False, True, True]
    assert values("median", [row], 4) == [[1.0]]
    assert values("var", [row], 4, ddof=0) == [[0.1875]]
    assert values("changes", [row], 4) == [[2]]


def test_first_differences() -> None:
    """One value has no spread, no trend, but a median."""
    assert [values(n, [[5.0]], 1, **OF_LAST[n])[0][0] for n in ("sd", "var", "zscore", "holt", "derivative")] == [
        None
    ] * 5
    assert values("sd", [[5.0]], 1, ddof=0) == [[0.0]]
    assert [values(n, [[5.0]], 1, **OF_LAST[n])[0][0] for n in ("median", "mad", "ewma")] == [5.0, 0.0, 5.0]


def test_changes() -> None:
    row: list[Any] = [1.0, 1.0, 2.0, NAN, NAN, None, 2.0, None, None, 2.0]
    assert values("changes", [row], 3) == [[1, 2, 1, 0, 1, 0, 0, 0]]
    assert values("changes", [["a", "a", "b", None, "a", None]], 3) == [[1, 1, 1, 0]]
    assert values("changes", [[BIG, BIG + 1, BIG + 1]], 3) == [[1]]
    assert values("changes", [[0.0, -0.0, None]], 3) == [[0]]


def test_decreases_of_computed_values() -> None:
    data = arrays_of([[5.0, 1.0, None, 3.0, 2.0, NAN, 1.0]], stored=False)
    near = mapped("resets", data, trailing(data, 2))
    assert near.column.cells.tolist() == [[1, 1, 0, 1, 1, 0]]
    assert near.column.types.tolist() == [INTEGER]
    data = arrays_of([[5.0, None, 1.0]], stored=False)
    assert mapped("resets", data, trailing(data, 1, gap_ms=1_000)).column.cells.tolist() == [[0, 0, 1]]
    assert mapped("resets", data, trailing(data, 1, gap_ms=999)).column.cells.tolist() == [[0, 0, 0]]


def lives_of(*lives: tuple[int, int, int, int]) -> Any:
    """(birth, first, last, cell of last) of one series."""
    return np.array([(0, *life) for life in lives], INCARNATION_DTYPE)


def test_irate_counts_from_a_birth() -> None:
    data = arrays_of([[BIG + 1, BIG + 4, 7, 9]])
    lives = lives_of((0, 1_000, 2_000, BIG + 4), (2_500, 3_000, 4_000, 9))
    object.__setattr__(data, "lives", lives)
    column = mapped("irate", data, trailing(data, 2)).column
    assert column.cells.view(np.float64).tolist() == [[3.0, 7.0, 2.0]]
    assert column.types.tolist() == [DOUBLE]


def test_resets_follow_soon() -> None:
    data = arrays_of([[1, 2, None, 1, 2, None, None, None, 1]])
    lives = lives_of((500, 1_000, 2_000, 2), (3_500, 4_000, 5_000, 2), (8_500, 9_000, 9_000, 1))
    object.__setattr__(data, "lives", lives)
    soon = mapped("resets", data, trailing(data, 3, gap_ms=2_000)).column
    assert soon.cells.tolist() == [[0, 1, 1, 1, 0, 0, 0]]  # the third life comes 4 s after the second
    assert soon.present.tolist() == [[True, True, True, True, True, False, True]]
    late = mapped("resets", data, trailing(data, 3, gap_ms=4_000)).column
    assert late.cells.tolist() == [[0, 1, 1, 1, 0, 0, 1]]


def test_a_window_that_reaches_forward_predicts_from_its_point() -> None:
    data = arrays_of([[1.0, 2.0, 3.0, 4.0]])
    column = mapped("predict_linear", data, trailing(data, 3, after=1), horizon=2_000).column
    assert column.cells.view(np.float64).tolist() == [[pytest.approx(4.0), pytest.approx(5.0)]]


@pytest.mark.parametrize("name", ["changes", "irate", "resets"])
def test_parts_of_the_series_answer_like_all(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = arrays_of(random_rows(9))
    rows = np.arange(7)
    lives = np.array([(i, 500 * i, 1_000 * i + 1, 9_000 + i, 0) for i in rows], INCARNATION_DTYPE)
    object.__setattr__(data, "lives", np.sort(np.concatenate([lives, lives]), order=("row", "birth_ms")))
    whole = mapped(name, data, trailing(data, 4)).column
    monkeypatch.setattr(changes, "CHUNK_CELLS", 80)
    part = mapped(name, data, trailing(data, 4)).column
    assert part.cells[part.present].tolist() == whole.cells[whole.present].tolist()
    assert (part.present == whole.present).all()


@pytest.mark.parametrize("name", [*OF_LAST, "changes", "irate"])
def test_more_than_one_sample_in_a_bucket_is_approximate(name: str) -> None:
    data = arrays_of([[1.0, 2.0, 3.0, 4.0, 5.0]])
    data.stats["count"][0, 1] = 2
    assert mapped(name, data, trailing(data, 2), **OF_LAST.get(name, {})).approximate.tolist() == [  # type: ignore[union-attr]
        [True, True, False, False]
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("fetch('x').map('quantile', '20ms', 1.5)", "q=1.5: use a number that is at most 1"),
        ("fetch('x').map('quantile', '20ms')", "quantile needs q"),
        ("fetch('x').map('quantile', '20ms', 0.5, method='medin_unbiased')", "median_unbiased"),
        ("fetch('x').map('sd', '20ms', ddof=-1)", "ddof=-1: use a number that is at least 0"),
        ("fetch('x').map('sd', '20ms', ddof=0.5)", "ddof takes a whole number"),
        ("fetch('x').ewma('20ms', alpha=0)", "alpha=0: use a number that is more than 0"),
        ("fetch('x').ewma('20ms', alpha=1.01)", "at most 1"),
        ("fetch('x').holt('20ms', alpha=1, beta=0.5)", "alpha=1: use a number that is less than 1"),
        ("fetch('x').predict_linear('20ms', horizon=5)", "horizon"),
        ("fetch('x').zscore('20ms', robust=1)", "robust takes True or False"),
    ],
)
def test_wrong_arguments_are_named(text: str, problem: str) -> None:
    with pytest.raises(QueryError, match=problem.replace("(", r"\(")):
        parse(text)


@pytest.mark.parametrize(
    ("name", "given", "problem"),
    [
        ("quantile", {}, "quantile needs q: a number at least 0 and at most 1"),
        ("quantile", {"q": NAN}, "q=nan: use a number"),
        ("quantile", {"q": True}, "use a number"),
        ("quantile", {"q": 0.5, "method": "best"}, "use one of inverted_cdf"),
        ("holt", {"alpha": 0.5, "beta": 1}, "beta=1: use a number above 0 and below 1"),
        ("sd", {"ddof": 1.0}, "use a whole number at least 0"),
        ("zscore", {"robust": 0}, "use True or False"),
        ("mean", {"q": 1}, "mean has no argument 'q'; it takes no argument"),
        ("predict_linear", {"horizon": 2**60}, "horizon"),
    ],
)
def test_a_shard_refuses_what_does_not_fit(name: str, given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ArgumentError, match=problem):
        bind_params(name, FUNCTIONS[name].params, given.items())
    windows = WindowPlan(name, 3, args=tuple(given.items()))
    request = AggregateRequest((Matcher("__name__", "=", "x"),), Grid(30, 10, 3), windows, "sum", ())
    with pytest.raises(SelectError, match=problem):
        check_aggregate(request)


def test_arguments_travel() -> None:
    args = (("q", 0.25), ("method", "hazen"))
    windows = WindowPlan("quantile", 2, width=2, first_end=1, after=1, args=args)
    request = AggregateRequest((Matcher("__name__", "=", "x"),), Grid(30, 10, 3), windows, "sum", ())
    back = AggregateRequest.from_json(json.loads(json.dumps(request.to_json())))
    assert back == request
    check_aggregate(back)


class Reducing(PlainStore):
    """Reduces by itself what it is asked over the wire."""

    def aggregate(self, request: AggregateRequest) -> Aggregate:
        wired = AggregateRequest.from_json(json.loads(json.dumps(request.to_json())))
        check_aggregate(wired)
        return aggregate_buckets(self.select(wired.buckets()), wired)


@pytest.mark.parametrize("name", [*OF_LAST, "changes", "irate", "resets"])
def test_a_store_that_reduces_answers_the_same(name: str) -> None:
    def filled(store: PlainStore) -> PlainStore:
        store.level_table = ((10, 100),)
        for i in range(4):
            points = [Sample(t, float((t * (7 + i)) % 90), 0 if t < 60 else 58) for t in range(3 + i, 120, 5 + i)]
            store.add("x", {"i": str(i), "g": str(i % 2)}, points)
        return store

    args = [f"{k}={v!r}" if k != "horizon" else "horizon='20ms'" for k, v in OF_LAST.get(name, {}).items()]
    said = ", ".join(["'30ms'", *args])
    query = parse(f"fetch('x').map('{name}', {said}, after='10ms').sum(by=['g']).between(20, 100)")
    plain = evaluate(query, filled(PlainStore()), 120 + SETTLE_MS)
    pushed = evaluate(query, filled(Reducing()), 120 + SETTLE_MS)
    assert pushed.to_dict() == plain.to_dict()
    assert len(plain) == 2


def test_equal_texts_are_no_change() -> None:
    """A store may say the same text twice, as where memory and history meet."""

    class Stuttering(PlainStore):
        def select(self, request: SelectRequest) -> Buckets:
            found = super().select(request)
            cells = found.statistics["last"].copy()
            cells[:, ::2] += len(found.strings)
            return replace(found, strings=found.strings * 2, statistics={**found.statistics, "last": cells})

    store = Stuttering(level_table=((10, 100),)).add("x", {}, [(10, "a"), (20, "a"), (30, "b"), (50, "b"), (60, "a")])
    query = parse("fetch('x').map('changes', '30ms').between(0, 60)")
    assert evaluate(query, store, 60 + SETTLE_MS).tolist(0) == [0, 0, 1, 1, 0, 1]
    words = evaluate(parse("fetch('x').map('last', '20ms').between(0, 60)"), store, 60 + SETTLE_MS)
    assert words.tolist(0) == ["a", "a", "b", "b", "b", "a"]


ONE_STEP = ["map('sd')", "map('var')", "map('zscore')", "derivative()", "predict_linear(None, '1h')", "map('irate')"]


@pytest.mark.parametrize("call", ONE_STEP)
def test_a_note_says_that_one_value_has_no_result(call: str) -> None:
    store = PlainStore(level_table=((60_000, 60),)).add("x", {}, [(60_000 * i, float(i)) for i in range(1, 30)])
    found = evaluate(parse(f"fetch('x').{call}.range('3m')"), store, 29 * 60_000 + SETTLE_MS)
    assert found.tolist(0) == [None] * 3
    assert any("one value has no result: give a window" in note for note in found.notes)


def test_functions_that_need_two_values_are_marked() -> None:
    one = {name: values(name, [[5.0]], 1, **OF_LAST[name])[0] for name in OF_LAST}
    assert {name for name, row in one.items() if row == [None]} == {n for n in OF_LAST if FUNCTIONS[n].pair}
