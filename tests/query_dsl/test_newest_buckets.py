"""The newest buckets of a query are those of its whole answer, or differ from it where they begin, so that a client
that holds the rest sees it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from query_dsl import QueryError, parse
from query_dsl.evaluation.evaluator import prepare, require_matrix
from query_dsl.results.matrix import Matrix
from query_dsl.stores.query_limits import make_budget
from tests.query_dsl import asking, worlds
from tests.query_dsl.plain_store import MINUTE, PlainStore
from tests.query_dsl.plainly import World

NEWEST = 6
NONE = ("", [None] * NEWEST)
Rows = dict[Any, tuple[str, list[Any]]]


def answered(text: str, store: Any, newest: int | None = None) -> tuple[Matrix, bool] | None:
    """Answer and whether it was cut; None if the query is refused."""
    try:
        evaluator = prepare(parse(text), store, asking.NOW, make_budget(None, None, None), newest=newest)
        return require_matrix(evaluator.answer()), evaluator.plan.is_cut
    except QueryError:
        return None


def rows(found: Matrix) -> Rows:
    """Type and newest values by series."""
    described = enumerate(found.to_dict()["series"])
    return {
        (one["name"], *sorted(one["labels"].items())): (one["type"], found.tolist(i)[-NEWEST:]) for i, one in described
    }


def is_equal(a: Any, b: Any) -> bool:
    return (a is None and b is None) or asking.agree(a, b)


def check(world: World, text: str) -> bool:
    """Compare both answers; True if the newest buckets were cut."""
    store = worlds.plain_store(world)
    whole, newest = answered(text, store), answered(text, store, NEWEST)
    if whole is None or newest is None:
        return False
    assert newest[0].grid.n == (NEWEST if newest[1] else whole[0].grid.n)
    both, cut = rows(whole[0]), rows(newest[0])
    pairs = [(both.get(key, NONE), cut.get(key, NONE)) for key in {*both, *cut}]
    if all(is_equal(a[1][0], b[1][0]) and (NONE in (a, b) or a[0] == b[0]) for a, b in pairs):
        differ = [(a, b) for a, b in pairs if not all(map(is_equal, a[1], b[1]))]
        assert not differ, (text, differ[:3])
    return newest[1]


QUERIES = asking.of_series(3) | asking.reduced() | asking.combined()


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(asking.worlds(), QUERIES, st.sampled_from(["10m", "20m"]))
def test_newest_buckets_are_those_of_the_whole(world: World, text: str, length: str) -> None:
    check(world, f"({text}).range('{length}')")


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(asking.worlds(), QUERIES, st.sampled_from(["10m", "20m"]))
def test_newest_buckets_are_those_of_the_whole_at_length(world: World, text: str, length: str) -> None:
    check(world, f"({text}).range('{length}')")


@pytest.mark.parametrize(
    ("text", "is_cut"),
    [
        ("fetch('m')", True),
        ("fetch('m').rate('5m').sum(by=['rack'])", True),
        ("fetch('m').topk(2, rank='each', by=[])", True),
        ("fetch('m').topk(2, by=[])", False),
        ("fetch('m').share(by=[], nulls='propagate')", False),
        ("fetch('m').topk(2, rank='max', by=[])", False),
        ("fetch('m') / fetch('m').sum(by=[])", True),
        ("time() - fetch('m')", True),
        ("now() - fetch('m')", False),
        ("fetch('m').fill('value', 0)", False),
        ("fetch('m').or_(0)", False),
        ("fetch('m', default=0)", False),
        ("fetch('m').fill('linear')", False),
        ("fetch('m').integrate()", False),
        ("fetch('m').map('mean', '2m', after='2m')", False),
        ("fetch('m').bucketize('max', '1d', zone='Europe/Paris')", False),
    ],
)
def test_only_values_of_near_samples_are_cut(text: str, is_cut: bool) -> None:
    points = [(asking.T - at * MINUTE - 1, float(at)) for at in range(59, -1, -1)]
    store = PlainStore().add("m", {"rack": "r1"}, points).add("m", {"rack": "r2"}, points)
    found = answered(f"{text}.range('40m')" if "1d" not in text else f"{text}.range('3d')", store, NEWEST)
    assert found is not None
    assert found[1] == is_cut


def test_a_member_that_ended_before_the_newest_buckets_keeps_its_rank() -> None:
    store = (
        PlainStore().add("m", {"host": "a"}, [(asking.T - 9 * MINUTE, 2.0)]).add("m", {"host": "b"}, [(asking.T, 1.0)])
    )
    found = answered("fetch('m').topk(1, by=[]).range('10m')", store, NEWEST)
    assert found is not None
    assert [one["labels"] for one in found[0].to_dict()["series"]] == [{"host": "a"}]


def test_newest_buckets_have_the_step_of_the_range_and_no_note_on_it() -> None:
    points = [(asking.T - at * MINUTE - 1, float(at)) for at in range(59, -1, -1)]
    old = [(asking.T - at * MINUTE - 1, 1.0) for at in range(59, 50, -1)]
    store = PlainStore().add("m", {"host": "a"}, points).add("m", {"host": "b"}, old)
    whole, newest = answered("fetch('m').range('3h')", store), answered("fetch('m').range('3h')", store, NEWEST)
    assert whole
    assert newest
    assert (newest[0].grid.end_ms, newest[0].grid.step_ms) == (whole[0].grid.end_ms, 5 * MINUTE)
    assert newest[0].notes == whole[0].notes == ()
