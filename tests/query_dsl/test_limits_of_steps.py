"""Limits hold inside each step; errors have a place and no foreign sentence; foreign languages are recognised."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from artimon.compute.checkpoint import charge_text, checkpoint, enforced
from artimon.model.clock import ManualClock
from artimon.model.values import Kind
from query_dsl import QueryError, evaluate, offline, parse
from query_dsl.evaluation.offline import LiteralStore
from query_dsl.evaluation.time_limit import DEFAULT_TIMEOUT_S
from query_dsl.stores.auto_store import AutoStore
from query_dsl.stores.levels import SETTLE_MS
from query_dsl.stores.query_limits import DEFAULT_LIMITS, LimitExceeded, Limits, QueryBudget
from query_dsl.tree.prescan import MAX_DIGITS, MAX_LENGTH
from query_dsl.tree.syntax_hints import foreign_hint
from tests.alerts.worlds import World
from tests.query_dsl import hostile
from tests.query_dsl.plain_store import PlainStore
from tests.query_dsl.test_engines_auto import Long, Short
from tests.query_dsl.test_pushdown import MINUTE, T, Told, fed_shards

HOUR = 60 * MINUTE
N = 10_000
GROW = ".replace('.', '\\\\0\\\\0\\\\0\\\\0')"


def test_replace_in_a_chain_ends_in_time_and_memory() -> None:
    """The attack of the issue: 23 s before. A process of its own shows how much memory it takes."""
    found = tried("texts", seconds=2.0, seed=0, count=0, only=f"fetch('text'){GROW * 5}{hostile.R}")
    assert found["wrong"] == []
    assert found["bytes"] < hostile.MOST_BYTES


def tried(kind: str, *, seconds: float, seed: int, count: int, only: str = "") -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.query_dsl.hostile", kind, str(seed), str(count), str(seconds), only]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("kind", "seed", "count"), [("texts", 11, 60), ("data", 11, 6)])
def test_a_share_of_hostile_texts_and_data_ends_in_time(kind: str, seed: int, count: int) -> None:
    """The slow test tries many more, with the time that the issue names."""
    found = tried(kind, seconds=0.3, seed=seed, count=count)
    assert found["wrong"] == []
    assert found["bytes"] < hostile.MOST_BYTES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "seed", "count"), [("texts", 1, 600), ("texts", 2, 600), ("data", 1, 60), ("data", 2, 60)]
)
def test_hostile_texts_and_data_end_in_time_and_memory(kind: str, seed: int, count: int) -> None:
    found = tried(kind, seconds=hostile.SECONDS, seed=seed, count=count)
    assert found["wrong"] == []
    assert found["bytes"] < hostile.MOST_BYTES


# --- limits inside kernels


def wide(series: int = 3, samples: int = N) -> LiteralStore:
    return offline({f"x{{i='{i}'}}": [(t * MINUTE, t * i % 977) for t in range(1, samples + 1)] for i in range(series)})


@pytest.fixture(scope="module")
def long() -> LiteralStore:
    return wide()


@pytest.mark.parametrize(
    "call", ["'quantile', '9000m', 0.9", "'ewma', '9000m', 0.3", "'increase', '9000m'", "'sd', '9000m'"]
)
@pytest.mark.parametrize("source", ["fetch", "samples"])
def test_time_is_over_inside_a_kernel(call: str, source: str, long: LiteralStore) -> None:
    """Each of these takes more than the limit, in one step."""
    if source == "samples" and "increase" in call:
        return  # reads the ends of windows only
    begun = time.process_time()
    with pytest.raises(LimitExceeded, match=r"longer than its limit of 0.15 s \(seconds\)") as refused:
        long.query(f"{source}('x').map({call}).range('{N}m')", limits=Limits(seconds=0.15))
    assert time.process_time() - begun < 0.65
    assert refused.value.position is not None


class Enough(Exception):
    """Raised at a checkpoint."""


class Counting:
    """Budget that ends the query at a checkpoint."""

    def __init__(self, most: int) -> None:
        self.checks, self.texts, self.most = 0, 0, most

    def check(self) -> None:
        self.checks += 1
        if self.checks > self.most:
            raise Enough

    def charge_text(self, bytes_: int) -> None:
        self.texts += bytes_


def test_checkpoints_ask_the_budget_of_their_query_only() -> None:
    inner, outer = Counting(1), Counting(9)
    checkpoint()
    charge_text(5)
    with enforced(outer):
        checkpoint()
        with enforced(inner):
            checkpoint()
            charge_text(7)
            with pytest.raises(Enough):
                checkpoint()
        checkpoint()
    assert (inner.checks, inner.texts, outer.checks, outer.texts) == (2, 7, 2, 0)


def test_a_stop_ends_a_query_between_two_texts() -> None:
    """The check is asked for each text, not only between two nodes."""
    asked = 0

    def check() -> None:
        nonlocal asked
        asked += 1
        if asked > 50:
            raise Enough

    given = offline({"x": [(t * MINUTE, f"text {t}") for t in range(1, 201)]})
    with pytest.raises(Enough):
        evaluate(parse("fetch('x').replace('t', 'T').range('200m')"), given, 201 * MINUTE, check)


def test_new_texts_are_counted_over_all_steps() -> None:
    given = offline({"x": [(t * MINUTE, f"text {t}") for t in range(1, 101)]})
    query = "fetch('x').replace('$', '!').replace('$', '!').range('100m')"
    assert len(given.query(query, limits=Limits(text_bytes=100_000))) == 1
    with pytest.raises(LimitExceeded, match=r"texts of more than 20,000 bytes \(text_bytes\)"):
        given.query(query, limits=Limits(text_bytes=20_000))


def test_equal_texts_are_counted_once() -> None:
    given = offline({"x": [(t * MINUTE, f"text {t}") for t in range(1, 1_001)]})
    found = given.query("fetch('x').replace('.+', 'same').range('1000m')", limits=Limits(text_bytes=1_000))
    assert set(found.row(0).tolist()) == {"same"}


def test_one_text_never_grows_beyond_its_limit() -> None:
    given = offline({"x": [(MINUTE, "a" * 60_000)]})
    with pytest.raises(QueryError, match=r"replace makes a text of .* characters or more"):
        given.query(f"fetch('x').replace('a', '{'b' * 1000}')")


def test_count_values_refuses_what_memory_does_not_hold(long: LiteralStore) -> None:
    with pytest.raises(QueryError, match=r"count_values would make 977 series of 10000 buckets"):
        long.query(f"fetch('x').count_values('v', by=[]).range('{N}m')")


def test_offline_has_a_time_limit_unless_one_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LiteralStore.default_limits.seconds == DEFAULT_TIMEOUT_S
    assert DEFAULT_LIMITS.seconds is None
    monkeypatch.setattr(LiteralStore, "default_limits", Limits(seconds=0.1))
    heavy, given = f"fetch('x').map('holt', '9000m', 0.3, 0.3).range('{N}m')", wide(1)
    calls: list[Callable[[], object]] = [
        lambda: given.query(heavy),
        lambda: given.query(heavy, limits=None),
        lambda: given.explain(heavy),
        lambda: given.parse(heavy).collect(),
    ]
    for call in calls:
        with pytest.raises(LimitExceeded, match=r"limit of 0.1 s"):
            call()
    assert len(given.query(heavy, limits=Limits(seconds=50))) == 1


def test_a_store_in_memory_is_held_to_the_limits_of_texts() -> None:
    store = PlainStore()
    store.add("x", {}, [(t * MINUTE, f"text {t}") for t in range(1, 61)])
    with pytest.raises(LimitExceeded, match="text_bytes"):
        evaluate(parse("fetch('x').replace('$', '!')"), store, 61 * MINUTE, limits=Limits(text_bytes=500))


def test_near_the_limit_of_texts_the_answer_says_so() -> None:
    budget = QueryBudget(Limits(text_bytes=100))
    budget.charge_text(60)
    assert budget.notes() == ("near a limit: text_bytes 60 of 100",)


# --- errors


@pytest.fixture(scope="module")
def store() -> LiteralStore:
    return hostile.world()


@pytest.mark.parametrize("name", list(hostile.ERRORS))
def test_errors_have_a_place_and_no_foreign_sentence(name: str, store: LiteralStore) -> None:
    text = hostile.ERRORS[name]
    with pytest.raises(QueryError) as refused:
        store.query(text)
    assert hostile.fault(refused.value, text) == ""


@pytest.mark.parametrize(
    ("text", "position", "said"),
    [
        ("", 0, "the query is empty"),
        ("x" * (MAX_LENGTH + 1), MAX_LENGTH, f"use at most {MAX_LENGTH}"),
        ("fetch('x\0')", 8, "NUL"),
        ("fetch('x') + \udfff", 13, "surrogate"),
        ("fetch('x') + " + "9" * (MAX_DIGITS + 1), 13, f"use at most {MAX_DIGITS}"),
        ("fetch('x') fetch('y')", 0, "something is missing here"),
        ("fetch('x') + + ", 13, "something is missing or too much here"),
        ("fetch('x') + 007", 13, "without leading zeros"),
        ("1 + 1", 0, "a plain value"),
    ],
)
def test_the_place_is_that_of_the_fault(text: str, position: int, said: str, store: LiteralStore) -> None:
    with pytest.raises(QueryError, match=said) as refused:
        store.query(text)
    assert refused.value.position == position


def test_numbers_of_many_digits_are_read() -> None:
    assert str(parse("fetch('x') + 1." + "0" * 900))


def test_foreign_sentences_and_echoes_are_found() -> None:
    """The judge of the tests above can fail."""
    assert "place" in hostile.fault(QueryError("wrong"), "text")
    assert "foreign" in hostile.fault(QueryError("invalid syntax", 0, "text"), "text")
    text = "q " * 200
    assert "echoes" in hostile.fault(QueryError(f"wrong: {text}", 0, "text"), text)


def test_labels_that_no_series_may_have_are_a_query_error() -> None:
    with pytest.raises(QueryError, match="41 labels: use at most 40"):
        offline({"x{" + ",".join(f"l{i}='v'" for i in range(41)) + "}": [(MINUTE, 1)]})
    with pytest.raises(QueryError, match="lone surrogates"):
        offline({"x": [(MINUTE, "\ud800")]})


# --- foreign languages

FOREIGN = [
    ("PromQL", 'rate(e{code=~"5.."}[5m]) / rate(e[5m])',
     "fetch('e{code=~\"5..\"}').rate(\"5m\") / fetch('e').rate(\"5m\")"),
    ("PromQL", "sum by (rack) (a / b)", "(fetch('a') / fetch('b')).sum(by=[\"rack\"])"),
    ("PromQL", "100 * (1 - rate(a[5m]))", "100 * (1 - fetch('a').rate(\"5m\"))"),
    ("PromQL", 'a{x="1"} * on(host) group_left(rack) b',
     "apply(\"mul\", fetch('a{x=\"1\"}'), fetch('b'), on=[\"host\"], group_left=[\"rack\"])"),
    ("PromQL", 'up{a="b"} == 0', "fetch('up{a=\"b\"}').where(\"== 0\")"),
    ("PromQL", 'up{a="b"} > bool 0', "fetch('up{a=\"b\"}') > 0"),
    ("PromQL", 'a{x="1"} and on(host) b', "fetch('a{x=\"1\"}').and_(fetch('b'), on=[\"host\"])"),
    ("PromQL", "rate(a[5m]) unless b or c", "fetch('a').rate(\"5m\").unless(fetch('b')).or_(fetch('c'))"),
    ("PromQL", "rate(a[5m]) - b - c", "(fetch('a').rate(\"5m\") - fetch('b')) - fetch('c')"),
    ("PromQL", "2 ^ rate(a[5m]) ^ 2", "2 ** (fetch('a').rate(\"5m\") ** 2)"),
    ("InfluxQL", "SELECT mean(\"value\") FROM \"cpu\" WHERE time > now() - 1h AND \"host\" = 'a'"
     " GROUP BY time(5m), \"rack\"",
     "fetch('cpu{host=\"a\"}').bucketize(\"mean\", \"5m\").mean(by=[\"rack\"]).range(\"1h\")"),
    ("InfluxQL", "SELECT max(idle) FROM cpu WHERE host =~ /^web/ GROUP BY *",
     "fetch('cpu.idle{host=~\"web.*\"}').max(without=[])"),
    ("SQL", "select avg(usage) from cpu where host <> 'a' group by rack;",
     "fetch('cpu.usage{host!=\"a\"}').mean(by=[\"rack\"])"),
    ("SQL", "SELECT count(*) FROM logs WHERE time > now() - interval '2 hours'",
     "fetch('logs').map(\"count\", \"2h\").sum(by=[]).at(\"now\")"),
    ("Graphite", "sumSeries(servers.*.cpu)", "fetch('{__name__=~\"servers[.][^.]*[.]cpu\"}').sum(by=[])"),
    ("Graphite", "movingAverage(servers.web1.cpu, '10min')", "fetch('servers.web1.cpu').map(\"mean\", \"10m\")"),
    ("Graphite", "alias(scale(perSecond(a.b), 60), 'rpm')", "(fetch('a.b').rate() * 60).named('rpm')"),
    ("Graphite", "summarize(a.b, '1h', 'avg')", "fetch('a.b').bucketize(\"mean\", \"1h\")"),
    ("Graphite", "asPercent(a.used, a.total)", "100 * fetch('a.used') / fetch('a.total')"),
]  # fmt: skip


@pytest.mark.parametrize(("language", "text", "here"), FOREIGN)
def test_foreign_texts_are_told_as_a_query(language: str, text: str, here: str) -> None:
    with pytest.raises(QueryError) as refused:
        parse(text)
    assert f"this looks like {language}; write {here}" in refused.value.message
    assert parse(str(parse(here))).equals(parse(here))


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("SQL", "SELECT * FROM cpu"),
        ("SQL", "SELECT avg(a) FROM b WHERE a > 5"),
        ("SQL", "SELECT a FROM (SELECT b FROM c)"),
        ("InfluxQL", "SELECT derivative(mean(a), 1h) FROM b GROUP BY time(1m)"),
        ("Graphite", "holtWintersForecast(movingAverage(a.b, 5))"),
        ("Graphite", "scale(a.b)"),
        ("PromQL", "max_over_time(rate(x[5m])[1h:1m])"),
        ("PromQL", "rate(" + "x" * 150 + "[5m])"),
        ("PromQL", "+".join(["rate(x[5m])"] * 200)),
        ("Graphite", "sumSeries(" * 200 + "a.b" + ")" * 99),
    ],
)
def test_foreign_texts_that_are_not_understood_get_an_example(language: str, text: str) -> None:
    said = foreign_hint(text)
    assert said.startswith(f"this looks like {language}; write a query like fetch('NAME")
    assert parse(said.split("a query like ")[-1]).node


@pytest.mark.parametrize("text", ["fetch('select a from b')", "select", "from a select b", "a + b", "average(x.y)"])
def test_other_texts_are_not_taken_for_foreign(text: str) -> None:
    assert foreign_hint(text) == ""


@pytest.mark.parametrize(
    "piece", ["select a from ", "where ", "time(", "sumSeries(", "rate(x[5m]) by (", "'", '"', "a / ", "{"]
)
def test_hints_take_linear_time(piece: str) -> None:
    begun = time.process_time()
    for end in ("", "sumSeries(", " rate(x[5m])"):
        foreign_hint((piece * 4_000)[:3_900] + end)
        foreign_hint("select a from b " + (piece * 4_000)[:3_900] + end)
    assert time.process_time() - begun < 2


# --- windows that follow the step


def counter() -> LiteralStore:
    return offline({"x": [(t * MINUTE, 60 * t) for t in range(1, 241)]}, kinds={"x": "counter"})


@pytest.mark.parametrize("step", ["1m", "5m", "15m", "1h"])
def test_a_window_that_follows_the_step_serves_every_step(step: str) -> None:
    found = counter().query(f"fetch('x').bucketize('last', '{step}').rate('auto').range('2h')", 240 * MINUTE)
    assert set(found.row(0).tolist()) == {1.0}
    assert not any("rounded" in note for note in found.notes)


@pytest.mark.parametrize(
    "text", ["fetch('x').rate('auto')", "fetch('x').map('quantile', 'auto', 0.9)", "fetch('x').ewma('auto', alpha=0.5)"]
)
def test_the_window_that_follows_the_step_prints_and_parses(text: str) -> None:
    assert parse(str(parse(text))).equals(parse(text))


def test_auto_is_one_step() -> None:
    assert parse("fetch('x').increase('auto')").equals(parse("fetch('x').increase()"))


def test_raw_samples_have_no_step_to_follow() -> None:
    with pytest.raises(QueryError, match="needs a window, which has no step here"):
        counter().query("samples('x').rate('auto')")


def test_a_window_that_is_no_multiple_is_rounded_up_with_a_note() -> None:
    found = counter().query("fetch('x').increase('7m').bucketize('last', '5m').range('1h')")
    assert set(found.row(0).tolist()) == {420}
    found = counter().query("fetch('x').bucketize('max', '5m').map('sum', '7m').range('1h')", 240 * MINUTE)
    assert "sum: the window 7m is rounded up to 10m, a multiple of the step 5m" in found.notes
    assert found == counter().query("fetch('x').bucketize('max', '5m').map('sum', '10m').range('1h')", 240 * MINUTE)
    exact = counter().query("fetch('x').map('mean', '10m').range('1h')")
    assert not any("rounded" in note for note in exact.notes)


def test_zooming_out_never_breaks_a_window() -> None:
    """In memory, where the level follows the range."""
    store = PlainStore()
    store.add("x", {}, [(t * MINUTE, t) for t in range(1, 300)])
    for length in ("30m", "3h", "12h", "2d"):
        found = evaluate(parse(f"fetch('x').map('max', '90s').range('{length}')"), store, 300 * MINUTE)
        assert len(found) == 1
        assert any("the window 1m30s is rounded up to" in note for note in found.notes)


# --- on every engine

PAST = range(59, -1, -1)
TOLD = [
    Told("c", (("k", "c"),), Kind.COUNTER, tuple((T - i * MINUTE, T - HOUR, 60 * (60 - i)) for i in PAST), "s0", 0),
    Told("t", (("k", "t"),), Kind.UNKNOWN, tuple((T - i * MINUTE, 0, f"text {i}") for i in PAST), "s0", 0),
]
ENGINES: dict[str, Callable[[], Any]] = {
    "memory": lambda: fed_shards(TOLD, 2),
    "history": lambda: Long(TOLD),
    "auto": lambda: AutoStore(Short(fed_shards(TOLD, 2)), lambda: Long(TOLD), ManualClock(T + SETTLE_MS)),
    "offline": lambda: offline(
        {told.name: [(time, value) for time, _, value in told.samples] for told in TOLD},
        kinds={"c": "counter"},
        births={"c": T - HOUR},
    ),
}
on_engines = pytest.mark.parametrize("engine", list(ENGINES))


@on_engines
def test_limits_hold_inside_functions_on_every_engine(engine: str) -> None:
    query = parse("fetch('t').replace('$', '!').range('8m')")
    with pytest.raises(LimitExceeded, match="text_bytes") as refused:
        evaluate(query, ENGINES[engine](), T + SETTLE_MS, limits=Limits(text_bytes=500))
    assert refused.value.position is not None
    assert len(evaluate(query, ENGINES[engine](), T + SETTLE_MS, limits=Limits(seconds=60))) == 1


@on_engines
def test_windows_are_rounded_and_follow_the_step_on_every_engine(engine: str) -> None:
    rounded = evaluate(parse("fetch('c').increase('90s').range('8m')"), ENGINES[engine](), T + SETTLE_MS)
    assert set(rounded.tolist(0)) == {120}
    assert any("the window 1m30s is rounded up to 2m" in note for note in rounded.notes)
    followed = evaluate(parse("fetch('c').rate('auto').range('8m')"), ENGINES[engine](), T + SETTLE_MS)
    assert set(followed.tolist(0)) == {1.0}


RULE = """\
rules:
  - name: down
    expr: fetch('up').increase(WINDOW)
    threshold: "> 100"
    for: 0s
    missing: resolve
    labels: {severity: page}
    summary: "{host} is {value}"
"""


@pytest.mark.parametrize(("window", "states"), [("'90s'", {"a": "firing"}), ("'auto'", {})])
def test_alert_rules_take_these_windows(window: str, states: dict[str, str], tmp_path: Path) -> None:
    """120 in two minutes, 60 in one."""
    world = World(tmp_path)
    world.write(RULE.replace("WINDOW", window))
    for minute in range(4):
        world.tick({"a": 60 * minute})
    assert world.error() == ""
    assert world.states() == states
    world.close()
