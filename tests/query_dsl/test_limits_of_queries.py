"""Cost limits of a query, each by itself, soft and hard, and cancellation from outside."""

from __future__ import annotations

import threading
from time import monotonic
from typing import Any

import pytest

from artimon.compute.aggregate import Aggregate, AggregateRequest
from artimon.model.select import Buckets, SelectRequest
from query_dsl import QueryError, evaluate, parse
from query_dsl.evaluation.offline import offline
from query_dsl.stores.history.sample_query import LEAST_SAMPLES, max_samples, parse_sample_query
from query_dsl.stores.levels import SETTLE_MS
from query_dsl.stores.query_limits import LEAST_MEMORY, LimitExceeded, Limits, QueryBudget, QueryCancelled
from tests.query_dsl.plain_store import MINUTE, PlainStore

NOW = 60 * MINUTE + SETTLE_MS


def numbered(series: int = 10) -> PlainStore:
    made = PlainStore()
    for i in range(series):
        made.add("x", {"i": str(i)}, [(t * MINUTE, t + i) for t in range(1, 61)])
    return made


def limited(text: str, limits: Limits, **more: Any) -> Any:
    return evaluate(parse(text), numbered(), NOW, limits=limits, **more)


def test_too_many_series_name_limit_figure_and_what_to_do() -> None:
    with pytest.raises(LimitExceeded) as refused:
        evaluate(
            parse("fetch('x').range('10m')"),
            offline({f"x{{i='{i}'}}": [] for i in range(11)}),
            NOW,
            limits=Limits(series=10),
        )
    text = refused.value.message
    assert "11 series fit" in text
    assert "limit of 10 series (series)" in text
    assert "add matchers" in text


def test_memory_is_refused_before_it_is_asked_for() -> None:
    given = offline({f"x{{i='{i}'}}": [(MINUTE, 1)] for i in range(11)})
    with pytest.raises(LimitExceeded, match=r"10 buckets x 2 statistics are 160 bytes a series, so that 6 fit"):
        evaluate(parse("fetch('x').range('10m')"), given, NOW, limits=Limits(memory_bytes=1_000))


def test_memory_of_several_fetches_adds_up() -> None:
    one = 10 * 10 * 2 * 8
    assert len(limited("fetch('x').range('10m')", Limits(memory_bytes=one))) == 10
    with pytest.raises(LimitExceeded, match="memory_bytes"):
        limited("fetch('x').range('10m') + fetch('x').offset('1m')", Limits(memory_bytes=one + 100))


def test_near_a_limit_the_answer_says_so() -> None:
    found = limited("fetch('x').range('10m')", Limits(series=12))
    assert found.notes == ("near a limit: series 10 of 12",)
    assert limited("fetch('x').range('10m')", Limits(series=21)).notes == ()
    assert limited("fetch('x').range('10m')", Limits(series=12, soft=0.9)).notes == ()


@pytest.mark.parametrize("name", ["series", "samples", "memory_bytes", "seconds", "soft"])
def test_a_limit_of_nothing_is_refused(name: str) -> None:
    with pytest.raises(QueryError, match=name):
        Limits(**{name: 0})


class Slow(PlainStore):
    """Answers once it is let go."""

    def __init__(self) -> None:
        super().__init__(series=numbered().series)
        self.go = threading.Event()
        self.asked = threading.Event()

    def select(self, request: SelectRequest) -> Buckets:
        self.asked.set()
        assert self.go.wait(20)
        return super().select(request)


def test_time_is_over_while_the_store_still_works() -> None:
    slow = Slow()
    began = monotonic()
    with pytest.raises(LimitExceeded, match=r"longer than its limit of 0.2 s \(seconds\)"):
        evaluate(parse("fetch('x')"), slow, NOW, limits=Limits(seconds=0.2))
    assert monotonic() - began < 15
    slow.go.set()


def test_an_event_ends_a_question_that_is_under_way() -> None:
    slow, stop = Slow(), threading.Event()

    def later() -> None:
        slow.asked.wait(60)
        stop.set()

    threading.Thread(target=later, daemon=True).start()
    with pytest.raises(QueryCancelled, match="cancelled"):
        evaluate(parse("fetch('x')"), slow, NOW, stop=stop)
    slow.go.set()


def test_a_check_ends_a_question_that_is_under_way() -> None:
    class Enough(Exception):
        pass

    slow = Slow()

    def check() -> None:
        if slow.asked.is_set():
            raise Enough

    with pytest.raises(Enough):
        evaluate(parse("fetch('x')"), slow, NOW, check)
    slow.go.set()


def test_the_deadline_goes_with_what_a_store_aggregates() -> None:
    seen: list[int | None] = []

    class Aggregates(PlainStore):
        def aggregate(self, request: AggregateRequest) -> Aggregate:
            seen.append(request.deadline_ms)
            raise AssertionError("seen")

    view: Any = Aggregates().watching(QueryBudget(Limits(seconds=3)))
    with pytest.raises(AssertionError, match="seen"):
        view.aggregate(_request())
    assert seen[0] is not None
    assert 0 < seen[0] <= 3_000


def _request() -> AggregateRequest:
    from artimon.compute.reduction import WindowPlan
    from artimon.model.grid import Grid

    windows = WindowPlan("last", 1, 1, 0, 1, 0, 0, 0, None, False)
    return AggregateRequest((), Grid(MINUTE, MINUTE, 1), windows, "sum", ())


def test_an_empty_budget_needs_no_wrapper() -> None:
    plain = numbered()
    assert plain.watching(QueryBudget()) is plain


def test_seconds_left_are_told() -> None:
    given = offline({"x": [(MINUTE, 1)]})
    watch = QueryBudget(Limits(seconds=50))
    assert 40 < (watch.seconds_left() or 0) <= 50
    assert QueryBudget().seconds_left() is None
    assert len(given.query("fetch('x')", limits=Limits(seconds=50))) == 1


def test_limits_of_one_user_follow_from_the_memory() -> None:
    """At least the default series and samples; on a small machine less memory than the default."""
    assert Limits.of_machine(2 << 30) == Limits(memory_bytes=LEAST_MEMORY)
    large = Limits.of_machine(1 << 38, seconds=5)
    assert (large.series, large.memory_bytes, large.seconds) == ((1 << 36) // 8_192, 1 << 36, 5)
    assert (max_samples(1 << 29), max_samples(1 << 38)) == (LEAST_SAMPLES, (1 << 36) // 256)
    asked = parse_sample_query("x", "now-1h", "now", NOW)
    assert (asked.samples, asked.series) == (max_samples(), Limits.of_machine().series)
