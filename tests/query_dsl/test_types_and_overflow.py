"""Types, hints and integers beyond 64 bits: true numbers or an error, on every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from artimon.model.clock import ManualClock
from query_dsl import Matrix, QueryError
from query_dsl.evaluation.evaluator import evaluate
from query_dsl.stores.auto_store import AutoStore
from query_dsl.stores.levels import SETTLE_MS
from tests.alerts.worlds import World as RuleWorld
from tests.alerts.worlds import rule_text
from tests.query_dsl.past_lists import PastLists
from tests.query_dsl.plainly import Raw, Sample, World, answer
from tests.query_dsl.worlds import offline_store, plain_store, shards, told_of

MINUTE = 60_000
T = 1_800_000_000_000 // 3_600_000 * 3_600_000
NOW = T + SETTLE_MS
TOP = 2**61
BEYOND = 7 * TOP - 7
"""Growth over seven lives that each end at TOP - 1."""


def counter(labels: dict[str, str], lives: int = 7) -> Raw:
    """Incarnations of four minutes, the first of which begins `lives` times four minutes before T."""
    samples = []
    for life in range(lives):
        birth = T - (lives - life) * 4 * MINUTE
        values = (5, 10, TOP // 2, TOP - 1)
        samples += [Sample(birth + i * MINUTE + MINUTE // 2, v, birth) for i, v in enumerate(values)]
    return Raw("c", labels, "INTEGER", tuple(samples), "COUNTER", 0)


def gauge(kind: str, *values: Any, every_ms: int = MINUTE, name: str = "v") -> Raw:
    """The last value lies one second before T."""
    count = len(values)
    samples = [Sample(T - 1000 - (count - 1 - i) * every_ms, v, T - 200 * MINUTE) for i, v in enumerate(values)]
    return Raw(name, {}, kind, tuple(samples), "GAUGE", 0)


def past(world: World) -> PastLists:
    return PastLists(told_of(world), world.levels)


ENGINES = {
    "history": past,
    "auto": lambda world: AutoStore(shards(world, 2), lambda: past(world), ManualClock(NOW)),
    "memory": lambda world: shards(world, 1),
    "three shards": lambda world: shards(world, 3),
    "buckets": plain_store,
    "offline": offline_store,
}


@pytest.fixture(params=["memory", "three shards", "history", "auto", "offline"])
def real(request: pytest.FixtureRequest) -> Any:
    """The engines that keep sums modulo 2^64."""
    return ENGINES[request.param]


@pytest.fixture(params=list(ENGINES))
def engine(request: pytest.FixtureRequest) -> Any:
    return ENGINES[request.param]


def of(*series: Raw) -> World:
    return World(series, ((MINUTE, 1_000), (5 * MINUTE, 2_000)))


def asked(engine: Any, world: World, query: str) -> Matrix:
    return evaluate(query, engine(world), NOW)


def refused(query: str, *series: Raw) -> str:
    with pytest.raises(QueryError) as problem:
        evaluate(query, plain_store(of(*series)), NOW)
    return str(problem.value)


# --- integers beyond 64 bits


def test_an_increase_over_seven_lives_is_the_true_number(engine: Any) -> None:
    found = asked(engine, of(counter({"i": "1"}), counter({"i": "2"}, 1)), "fetch('c').increase('30m').at('now')")
    assert [found.tolist(0), found.tolist(1)] == [[float(BEYOND)], [TOP - 1]]
    assert [type(found.tolist(row)[0]) for row in (0, 1)] == [float, int]
    assert "increase: 1 series exceed 64 bits: their values are DOUBLE, rounded beyond 2^53" in found.notes


def test_a_rate_beyond_64_bits_is_positive(engine: Any) -> None:
    found = asked(engine, of(counter({})), "fetch('c').rate('30m').at('now')")
    assert found.tolist(0)[0] == pytest.approx(BEYOND / (27.5 * 60))


@pytest.mark.parametrize(("reducer", "value"), [("sum", BEYOND + TOP - 1), ("max", BEYOND), ("min", TOP - 1)])
def test_classes_are_reduced_from_true_numbers(engine: Any, reducer: str, value: int) -> None:
    """In shards, too, and across them."""
    world = of(counter({"i": "1"}), counter({"i": "2"}, 1))
    found = asked(engine, world, f"fetch('c').increase('30m').{reducer}(by=[]).at('now')")
    assert found.tolist(0) == [float(value)]
    assert any("exceed 64 bits" in note for note in found.notes)


def test_the_plain_evaluator_agrees() -> None:
    found = answer("fetch('c').increase('30m').at('now')", of(counter({})), NOW)
    assert (found.types, found.values) == (["DOUBLE"], [[float(BEYOND)]])


def test_a_difference_of_extremes_is_a_double(engine: Any) -> None:
    found = asked(engine, of(gauge("INTEGER", -(2**63), 2**63 - 1)), "fetch('v').delta('2m').at('now')")
    assert found.tolist(0) == [2.0**64]


@pytest.mark.parametrize("function", ["map('sum','1m')", "bucketize('sum','5m')"])
def test_a_sum_inside_a_bucket_does_not_wrap(real: Any, function: str) -> None:
    world = of(gauge("INTEGER", 2**62 + 1, 2**62 + 1, 2**62 + 10, every_ms=1000))
    found = asked(real, world, f"fetch('v').{function}.at('now')")
    assert found.tolist(0) == [float(3 * 2**62 + 12)]
    assert "sum of v exceeds 64 bits in 1 buckets: given as DOUBLE, NaN where the true sum is not known" in found.notes


def test_a_mean_inside_a_bucket_does_not_wrap(real: Any) -> None:
    world = of(gauge("INTEGER", 2**62, 2**62, 2**62, every_ms=1000))
    assert asked(real, world, "fetch('v').map('mean','1m').at('now')").tolist(0) == [2.0**62]


def test_a_sum_over_buckets_and_series_does_not_wrap(real: Any) -> None:
    world = of(*(gauge("INTEGER", *[2**62] * 12, every_ms=10_000, name=name) for name in ("v.a", "v.b")))
    found = asked(real, world, "fetch('v.*').map('sum','5m').sum(by=[]).at('now')")
    assert found.tolist(0) == [24 * 2.0**62]


def test_a_sum_that_nobody_can_know_is_nan() -> None:
    """Count, least and greatest value leave several true sums."""
    extremes = [-(2**63), 2**63 - 1] * 3
    found = asked(offline_store, of(gauge("INTEGER", *extremes, every_ms=1000)), "fetch('v').map('sum','1m').at('now')")
    assert repr(found.tolist(0)) == "[nan]"


def test_a_product_beyond_64_bits_is_a_double(engine: Any) -> None:
    found = asked(engine, of(gauge("INTEGER", 2**40)), "(fetch('v') * fetch('v')).at('now')")
    assert found.tolist(0) == [2.0**80]


# --- types and arguments


@pytest.mark.parametrize(
    ("query", "told"),
    [
        (
            "(fetch('v') == 'true').at('now')",
            "compare BOOLEAN with the text 'true': write == True without quotes",
        ),
        ("('False' != fetch('v')).at('now')", "write != False without quotes"),
        ("fetch('v').filter('last', '==', 'true').at('now')", "write == True without quotes"),
    ],
)
def test_a_boolean_does_not_compare_with_a_text(query: str, told: str) -> None:
    assert told in refused(query, gauge("BOOLEAN", True))


def test_a_number_does_not_compare_with_a_text() -> None:
    assert "cannot compare INTEGER with the text '5': write == a number without quotes" in refused(
        "(fetch('v') == '5').at('now')", gauge("INTEGER", 5)
    )
    assert "cannot compare STRING with INTEGER" in refused("(fetch('v') == 5).at('now')", gauge("STRING", "5"))


def test_values_are_counted_where_they_are(engine: Any) -> None:
    found = asked(engine, of(gauge("INTEGER", 1, 1, 2)), "fetch('v').count_values('n', by=[]).range('3m')")
    assert [found.tolist(row) for row in (0, 1)] == [[1, 1, None], [None, None, 1]]


@pytest.mark.parametrize("replacement", ["$1-x", "\\\\1-x", "${1}-x"])
def test_groups_are_written_in_two_ways(replacement: str) -> None:
    world = of(Raw("v", {"a": "q"}, "INTEGER", (Sample(T - 1000, 1, 0),), "GAUGE", 0))
    found = asked(plain_store, world, f"fetch('v').label_replace('b', '{replacement}', 'a', '(.*)').at('now')")
    assert [dict(key.labels) for key in found.keys] == [{"a": "q", "b": "q-x"}]


@pytest.mark.parametrize("reference", ["$2", "\\\\2", "${x}"])
def test_a_group_that_does_not_exist_is_refused(reference: str) -> None:
    query = f"fetch('v').label_replace('b', '{reference}', 'a', '(.*)').at('now')"
    assert "has no group" in refused(query, gauge("INTEGER", 1))


@pytest.mark.parametrize("q", ["1.5", "-0.1", "95"])
def test_a_quantile_of_a_histogram_lies_between_0_and_1(q: str) -> None:
    assert f"histogram_quantile: q={q}" in refused(f"fetch('v').histogram_quantile({q}, by=[])", gauge("INTEGER", 1))


def test_an_integral_of_one_bucket_is_refused() -> None:
    assert '.range("1h").integrate()' in refused("fetch('v').integrate().at('now')", gauge("INTEGER", 1, 1))
    found = asked(plain_store, of(gauge("INTEGER", 1, 1)), "fetch('v').range('2m').integrate()")
    assert found.tolist(0) == [0.0, 60.0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("stddev_over_time(v[5m])", 'fetch(\'v\').map("sd", "5m", ddof=0)'),
        ("stdvar_over_time(v[5m])", 'fetch(\'v\').map("var", "5m", ddof=0)'),
        ("stddev by (rack) (v)", "fetch('v').sd(by=[\"rack\"], ddof=0)"),
        ("topk by (rack) (3, v)", 'fetch(\'v\').topk(3, by=["rack"], rank="each")'),
        ("topk(3, v)", "fetch('NAME').topk(…, rank=\"each\")"),
    ],
)
def test_hints_for_promql_give_the_same_numbers(text: str, told: str) -> None:
    assert told in refused(text, gauge("INTEGER", 1))


def test_the_hinted_deviation_divides_by_the_count() -> None:
    found = asked(plain_store, of(gauge("INTEGER", 2, 4)), 'fetch(\'v\').map("sd", "5m", ddof=0).at("now")')
    assert found.tolist(0) == [1.0]


# --- rules


def test_a_rule_sees_the_true_number(tmp_path: Path) -> None:
    """A difference that wrapped would be -1 and never fire."""
    world = RuleWorld(tmp_path)
    world.write(rule_text().replace("fetch('up')", "fetch('up').delta(\"2m\")").replace("< 1", "> 100"))
    world.tick({"a": -(2**63)})
    world.tick({"a": 2**63 - 1})
    assert world.states() == {"a": "firing"}
    assert world.notes()[0].value == 2.0**64
    world.close()


def test_a_rule_that_compares_a_number_with_a_text_is_an_error(tmp_path: Path) -> None:
    world = RuleWorld(tmp_path)
    world.write(rule_text().replace("fetch('up')", "fetch('up').filter('last', '==', 'true')"))
    world.tick({"a": True})
    assert "write == True without quotes" in world.error()
    world.close()


# --- exactness on request


def test_exact_refuses_an_integer_that_became_a_double(engine: Any) -> None:
    world = of(counter({"i": "1"}), counter({"i": "2"}, 1))
    with pytest.raises(QueryError, match=r'exact: 1 series are DOUBLE, such as c\{i="1"\}'):
        asked(engine, world, "fetch('c').increase('30m').exact().at('now')")
    found = asked(engine, world, "fetch('c{i=\"2\"}').increase('30m').exact().at('now')")
    assert found.tolist(0) == [TOP - 1]


def test_exact_refuses_what_is_approximate(engine: Any) -> None:
    """Of several samples a bucket keeps the last one: changes between them are not counted."""
    query = "fetch('v').changes('5m'){}.at('now')"
    crowded = of(gauge("INTEGER", *range(9), every_ms=20_000))
    assert asked(engine, crowded, query.format("")).tolist(0)[0] is not None
    with pytest.raises(QueryError, match="exact: the values of changes are approximate"):
        asked(engine, crowded, query.format(".exact()"))
    with pytest.raises(QueryError, match="exact: the values of changes are approximate"):
        asked(engine, crowded, query.format(".max(by=[]).exact()"))
    assert asked(engine, of(gauge("INTEGER", *range(9))), query.format(".exact()")).tolist(0) == [4]
