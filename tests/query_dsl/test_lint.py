"""Lint of queries: each check with its place in both languages, what is not reported, and limits of the look-ups."""

from __future__ import annotations

import pytest

from artimon.model.select import Matcher, Series
from artimon.model.values import Kind
from query_dsl import fetch
from query_dsl.lint import Finding, lint
from query_dsl.lint.catalogue import MAX_LOOKUPS, MAX_SERIES
from query_dsl.lint.checks import MAX_GROUPS
from query_dsl.stores.levels import SETTLE_MS
from tests.query_dsl.plain_store import MINUTE, PlainStore

END = 1_800_000_000_000 // (60 * MINUTE) * 60 * MINUTE
NOW = END + SETTLE_MS


def points(count: int, every_ms: int = MINUTE) -> list[tuple[int, float]]:
    """Samples up to END."""
    return [(END - i * every_ms - 1, float(1_000 - i)) for i in reversed(range(count))]


@pytest.fixture(scope="module")
def store() -> PlainStore:
    """Two hosts: a counter by code, a gauge, a gauge with a further label, a counter polled every five minutes."""
    found = PlainStore()
    for host in ("a", "b"):
        for code in ("200", "500"):
            found.add("shop.requests", {"host": host, "code": code}, points(30), Kind.COUNTER)
        found.add("load", {"host": host}, points(30), Kind.GAUGE)
        found.add("size", {"host": host, "rack": "r1"}, points(30), Kind.GAUGE)
        found.add("slow", {"host": host}, points(12, 5 * MINUTE), Kind.COUNTER)
    return found


def told(text: str, found: list[Finding]) -> list[tuple[str, str]]:
    """Codes, and the places in the text."""
    return [(one.code, "" if one.position is None else text[one.position : one.position + one.length]) for one in found]


DSL = [
    ("fetch('laod')", "no-series", "fetch('laod')", "near: load"),
    ("1 + fetch('load{host=\"c\"}')", "no-series", "fetch('load{host=\"c\"}')", 'no series fits host="c"'),
    ("fetch('load{hots!=\"a\"}')", "unknown-label", "hots!=", "near: host"),
    ("fetch('load').sum(by=['hots'])", "unknown-label", "sum(by=['hots'])", "near: host"),
    ("fetch('load{host=~\"a\"}')", "plain-regex", "host=~", 'write host="a"'),
    ("fetch('load{host!~\"a\"}')", "plain-regex", "host!~", 'write host!="a"'),
    ("fetch('load{host=~\".*\"}')", "plain-regex", "host=~", 'write host=~".+"'),
    ("fetch('load{host=~\"^[ab]$\"}')", "plain-regex", "host=~", "leave them out"),
    ("fetch('load').rate()", "gauge-rate", "rate()", "delta is meant"),
    ("fetch('shop.requests')", "raw-counter", "fetch('shop.requests')", "take its rate"),
    ("fetch('shop.requests').map('max', '5m')", "raw-counter", "fetch('shop.requests')", "take its rate"),
    ("fetch('shop.requests').sum(by=['host']).rate('5m')", "rate-of-sum", "rate('5m')", "take the rate first"),
    ("fetch('slow').rate('1m')", "short-window", "rate('1m')", "write 5m or more"),
    ("fetch('load').map('sd', '1m')", "short-window", "map('sd', '1m')", "write 2m or more"),
    ("fetch('load') / fetch('size')", "join-nothing", "fetch('load') / fetch('size')", "by on or ignoring"),
    (
        "fetch('load').div(fetch('shop.requests').rate('5m'), on=['host'])",
        "join-many",
        "div(fetch('shop.requests').rate('5m'), on=['host'])",
        "same key",
    ),
    ("fetch('load'", "invalid", "(", "not closed"),
]
PROMQL = [
    ("1 + laod", "no-series", "laod", "near: load"),
    ('load{hots!="a"}', "unknown-label", "hots!=", "near: host"),
    ("sum by (hots) (load)", "unknown-label", "sum", "near: host"),
    ('load + load{host=~"a"}', "plain-regex", "host=~", 'write host="a"'),
    ("rate(load[5m])", "gauge-rate", "rate", "delta is meant"),
    ('max_over_time({"shop.requests"}[5m])', "raw-counter", "shop.requests", "take its rate"),
    ('rate(sum by (host) ({"shop.requests"})[5m:1m])', "rate-of-sum", "rate", "take the rate first"),
    ('rate({"shop.requests"}[1m])', "short-window", "rate", "write 2m or more"),
    ("load / size", "join-nothing", "load / size", "by on or ignoring"),
    ("size and on (rack) load", "join-nothing", "size and on (rack) load", "by on or ignoring"),
    ('load * on (host) rate({"shop.requests"}[5m])', "join-many", 'load * on (host) rate({"shop.requests', "same key"),
    ("sum(load", "invalid", "(", "not closed"),
]


@pytest.mark.parametrize(("text", "code", "place", "says"), DSL)
def test_a_finding_names_place_and_remedy(store: PlainStore, text: str, code: str, place: str, says: str) -> None:
    found = lint(text, store, NOW)
    assert (code, place) in told(text, found), found
    assert says in next(one.message for one in found if one.code == code)


@pytest.mark.parametrize(("text", "code", "place", "says"), PROMQL)
def test_promql_has_the_same_checks(store: PlainStore, text: str, code: str, place: str, says: str) -> None:
    found = lint(text, store, NOW, promql=True)
    assert (code, place) in told(text, found), found
    assert says in next(one.message for one in found if one.code == code)


@pytest.mark.parametrize(
    "text",
    [
        "fetch('shop.requests').rate('5m').sum(by=['host'])",
        "fetch('shop.requests{code=~\"5..\"}').rate('5m') / fetch('shop.requests{code=~\"5..\"}').rate('5m')",
        "fetch('shop.requests').rate('5m') - fetch('shop.requests').rate('5m').mean(by=['host'])",
        "fetch('shop.requests').rate('5m').sum(by=['host']) / fetch('load')",
        "fetch('shop.requests').count(by=['host'])",
        "fetch('shop.requests').delta('5m')",
        "fetch('shop.requests').offset('1h')",
        "fetch('load').div(fetch('size'), on=['host'])",
        "fetch('load{host=~\"a|b\"}')",
        "fetch('load').where('> 5')",
        "absent('laod')",
        "fetch('load') * 2 + 1",
        "now() + 1",
    ],
)
def test_good_queries_have_no_findings(store: PlainStore, text: str) -> None:
    assert lint(text, store, NOW) == []


@pytest.mark.parametrize(
    "text",
    [
        'sum by (host) (rate({"shop.requests"}[5m])) / on (host) load',
        'rate({"shop.requests"}[5m]) / on (host) group_left load',
        'count({"shop.requests"})',
        '{"shop.requests"} offset 1h',
        'load and on (host) {"shop.requests"}',
        "absent(laod)",
        "load or vector(0)",
        'histogram_quantile(0.9, rate({"shop.requests"}[5m]))',
        'load{host=~"a|b"} > bool 5',
        "time() - 5",
        "load * scalar(sum(load))",
    ],
)
def test_good_queries_in_promql_have_no_findings(store: PlainStore, text: str) -> None:
    assert lint(text, store, NOW, promql=True) == []


def test_without_a_store_only_the_text_is_checked() -> None:
    text = "fetch('x{host=~\"a\"}').sum(by=['host']).rate('5m')"
    assert [code for code, _ in told(text, lint(text))] == ["plain-regex", "rate-of-sum"]


def test_a_window_is_compared_with_the_period_of_the_samples() -> None:
    """Not with how long the series exist, which the number of their samples would tell."""
    store = PlainStore().add("new", {}, points(4), Kind.COUNTER).add("few", {}, points(2), Kind.COUNTER)
    store.add("quick", {}, points(200, MINUTE // 4), Kind.COUNTER)
    for name, window in (("new", "2m"), ("few", "1m"), ("quick", "30s")):
        assert lint(f"rate({name}[{window}])", store, NOW, promql=True) == [], name
    for name, window in (("new", "1m"), ("quick", "15s")):
        assert [one.code for one in lint(f"rate({name}[{window}])", store, NOW, promql=True)] == ["short-window"], name


def test_findings_are_in_the_order_of_the_text_and_equal_ones_stand_once(store: PlainStore) -> None:
    text = "fetch('laod') + fetch('lod') + fetch('laod').where(value > 5)"
    found = lint(text, store, NOW)
    assert [one.position for one in found] == [0, 16, 31]
    assert found[0].shown(text).splitlines()[1:] == [f"  {text}", "  " + "^" * 13]


def test_an_expression_of_a_program_has_no_places(store: PlainStore) -> None:
    (found,) = lint(fetch("laod").rate("5m"), store, NOW)
    assert (found.code, found.position) == ("no-series", None)


def test_similar_names_are_found_if_queries_find_them(store: PlainStore) -> None:
    text = "rate(shop_requests[5m])"
    assert [one.code for one in lint(text, store, NOW, promql=True)] == ["no-series"]
    assert lint(text, store, NOW, promql=True, similar_names=True) == []


def test_series_that_no_longer_report_do_not_count_as_partners() -> None:
    """A process that was replaced would be a second partner."""
    store = PlainStore().add("load", {"host": "a"}, points(30), Kind.GAUGE)
    store.add("memory", {"host": "a", "instance": "new"}, points(30), Kind.GAUGE)
    assert lint("fetch('memory').div(fetch('load'), on=['host'])", store, NOW) == []
    store.add("memory", {"host": "a", "instance": "old"}, [(END - 50 * MINUTE, 1.0)], Kind.GAUGE)
    assert lint("fetch('memory').div(fetch('load'), on=['host'])", store, NOW) == []
    store.add("memory", {"host": "a", "instance": "other"}, points(5), Kind.GAUGE)
    assert [one.code for one in lint("fetch('memory').div(fetch('load'), on=['host'])", store, NOW)] == ["join-many"]


@pytest.mark.parametrize("hosts", [MAX_GROUPS, MAX_GROUPS + 1, MAX_SERIES + 1])
def test_a_reduction_by_a_label_with_many_values_is_reported(hosts: int) -> None:
    store = PlainStore()
    for number in range(hosts):
        store.add("load", {"host": f"h{number}"}, points(3), Kind.GAUGE)
    expected = ["many-groups"] if hosts > MAX_GROUPS else []
    assert [one.code for one in lint("fetch('load').sum(by=['host'])", store, NOW)] == expected
    assert [one.code for one in lint("sum by (host) (load)", store, NOW, promql=True)] == expected
    for text in ("fetch('load').sum(by=['host']).topk(5, by=[])", "fetch('load').sum(by=['host']).max(by=[])"):
        assert lint(text, store, NOW) == []


def test_of_many_series_only_some_are_looked_at() -> None:
    store = PlainStore()
    for number in range(MAX_SERIES + 1):
        store.add("requests", {"host": f"h{number}"}, points(3), Kind.COUNTER)
    assert [one.code for one in lint("fetch('requests')", store, NOW)] == ["raw-counter"]
    assert lint("fetch('requests').rate('5m') / fetch('requests').rate('1h')", store, NOW) == []
    assert store.requests == []


class CountingStore(PlainStore):
    """Store that counts its look-ups."""

    looked_up = 0

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        self.looked_up += limit > 1
        return super().find(matchers, limit)


def test_look_ups_are_bounded_and_made_once() -> None:
    store = CountingStore()
    store.add("x", {"host": "a"}, points(30), Kind.GAUGE)
    lint(" + ".join(["fetch('x').max(by=[])"] * 50), store, NOW)
    assert store.looked_up == 1
    lint(" + ".join(f"fetch('x{{host!=\"{n}\"}}').max(by=[])" for n in range(MAX_LOOKUPS * 2)), store, NOW)
    assert store.looked_up == 1 + MAX_LOOKUPS


def test_the_longest_sum_is_checked(store: PlainStore) -> None:
    (found,) = lint(" + ".join(["fetch('laod')", *["fetch('load')"] * 240]), store, NOW)
    assert (found.code, found.position) == ("no-series", 0)
    (found,) = lint(" + ".join(["laod", *["load"] * 240]), store, NOW, promql=True)
    assert (found.code, found.position) == ("no-series", 0)
