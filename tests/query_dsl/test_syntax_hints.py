"""Syntax hints for users of PromQL, pandas and word processors."""

from __future__ import annotations

import re

import pytest

from query_dsl import QueryError, fetch, offline, parse
from query_dsl.functions.tables import OPERATORS, REDUCERS
from query_dsl.tree.syntax_hints import EQUIVALENTS, foreign_hint, name_hint

PROMQL = [
    ("load", None),
    ('load{host="h1"}', "fetch('load{host=\"h1\"}')"),
    ("rate(http.requests[5m])", "fetch('http.requests').rate(\"5m\")"),
    ('increase(http_requests_total{code=~"5.."}[1h])', 'fetch(\'http_requests_total{code=~"5.."}\').increase("1h")'),
    ("avg_over_time(load[5m])", 'fetch(\'load\').map("mean", "5m")'),
    ("quantile_over_time(0.9, load[5m])", 'fetch(\'load\').map("quantile", "5m", 0.9)'),
    ("sum by (rack) (load)", "fetch('load').sum(by=[\"rack\"])"),
    ("avg(load) without (host)", "fetch('load').mean(without=[\"host\"])"),
    ("sum by (dc, rack) (rate(x[5m]))", 'fetch(\'x\').rate("5m").sum(by=["dc", "rack"])'),
    ("sum(rate(x[5m]))", "fetch('x').rate(\"5m\").sum(by=[])"),
    ("topk(3, sum by (host) (rate(x[1m])))", 'fetch(\'x\').rate("1m").sum(by=["host"]).topk(3, by=[], rank="each")'),
    (
        "histogram_quantile(0.9, sum by (le) (rate(x_bucket[5m])))",
        'fetch(\'x_bucket\').rate("5m").sum(by=["le"]).histogram_quantile(0.9, without=[])',
    ),
    ("x offset 1d", None),
    ("rate(x[5m] offset 1d)", 'fetch(\'x\').rate("5m").offset("1d")'),
    ("count(x) by ()", "fetch('x').count(by=[])"),
    ('count(up{a="b"} == 1)', 'fetch(\'up{a="b"}\').where("== 1").count(by=[])'),
    ("5 < rate(x[5m])", 'fetch(\'x\').rate("5m").where("> 5")'),
    ("rate(x[5m]) > rate(y[5m])", "fetch('x').rate(\"5m\").where(fetch('x').rate(\"5m\") > fetch('y').rate(\"5m\"))"),
    ("predict_linear(x[1h], 4 * 3600) < 0", 'fetch(\'x\').predict_linear("1h", horizon="14400s").where("< 0")'),
    ("deriv(x[6h])", "fetch('x').derivative(\"6h\")"),
    ("holt_winters(x[1h], 0.5, 0.1)", "fetch('x').holt(\"1h\", alpha=0.5, beta=0.1)"),
    ("clamp_min(rate(x[5m]), 0)", "fetch('x').rate(\"5m\").clamp(0, inf)"),
    ("clamp_max(rate(x[5m]), 9)", "fetch('x').rate(\"5m\").clamp(-inf, 9)"),
    ("round(sum(rate(x[5m])), 0.01)", "fetch('x').rate(\"5m\").sum(by=[]).round(2)"),
    ("round(rate(x[5m]), 100)", "fetch('x').rate(\"5m\").round(-2)"),
    ("log2(rate(x[5m]))", "fetch('x').rate(\"5m\").log(base=2)"),
    ("sort_desc(sum(rate(x[5m])) by (job))", 'fetch(\'x\').rate("5m").sum(by=["job"]).sort(descending=True)'),
    ('absent(up{job="a"})', "absent('up{job=\"a\"}')"),
    ('count_values("v", up{job="a"})', 'fetch(\'up{job="a"}\').count_values("v", by=[])'),
    ("sum(rate(x[5m])) or vector(0)", "fetch('x').rate(\"5m\").sum(by=[]).or_(0)"),
    ("irate(x[$__rate_interval])", "fetch('x').irate(\"auto\")"),
    ('-x{a="b"}', "-fetch('x{a=\"b\"}')"),
    ('sum(rate({__name__=~"a.*"}[5m]))', 'fetch(\'{__name__=~"a.*"}\').rate("5m").sum(by=[])'),
    ("max_over_time(rate(x[5m])[1h:])", 'fetch(\'x\').rate("5m").map("max", "1h")'),
    ('timestamp(up{a="b"})', "fetch('up{a=\"b\"}').last_seen().div(1000)"),
    ('(x{a="b"} - time()) / 86400', "(fetch('x{a=\"b\"}') - time()) / 86400"),
    ('time() - x{a="b"} > 3600', '(time() - fetch(\'x{a="b"}\')).where("> 3600")'),
    (
        "label_replace(up{a=\"b\"}, 'x', '$1', 'y', '(.*)')",
        "fetch('up{a=\"b\"}').label_replace('x', '$1', 'y', '(.*)')",
    ),
]


@pytest.mark.parametrize(("text", "here"), PROMQL)
def test_simple_promql_is_told_as_a_query(text: str, here: str | None) -> None:
    """The suggested query parses, too."""
    with pytest.raises(QueryError) as caught:
        parse(text)
    if here is not None:
        assert f"this looks like PromQL; write {here}" in caught.value.message
        assert parse(str(parse(here))).equals(parse(here))


@pytest.mark.parametrize(
    "text",
    [
        "a > on(host) group_left(rack) b{x=\"1\"}",
        "rate(x[5m])[1h:]",
        "predict_linear(x[1h], 4 * y)",
        "round(x{a=\"b\"}, 0.3)",
        "max_over_time(rate(x[5m])[1h:1m])",
    ],
)  # fmt: skip
def test_other_promql_is_recognised(text: str) -> None:
    with pytest.raises(QueryError, match=r"this looks like PromQL; write a query like fetch\('NAME"):
        parse(text)


OTHERS = [
    (
        "SELECT mean(a) FROM cpu WHERE $timeFilter GROUP BY time($__interval)",
        'fetch(\'cpu.a\').map("mean", "auto").mean(by=[])',
    ),
    (
        "SELECT max(a) FROM cpu WHERE time > now() - 1d",
        'fetch(\'cpu.a\').map("max", "1d").max(by=[]).at("now")',
    ),
    ("SELECT stddev(a) FROM cpu WHERE time > now() - 1h", 'fetch(\'cpu.a\').map("sd", "1h").at("now")'),
    (
        "SELECT non_negative_derivative(mean(rx), 1s) FROM net GROUP BY time(10s), host",
        'fetch(\'net.rx\').bucketize("rate", "10s").sum(by=["host"])',
    ),
    (
        "SELECT sum(a) FROM cpu GROUP BY time(5m) fill(0)",
        'fetch(\'cpu.a\').bucketize("sum", "5m").sum(by=[]).fill("value", 0)',
    ),
    ("SELECT a FROM cpu WHERE host = 'x'", "fetch('cpu.a{host=\"x\"}')"),
    ("SELECT host, avg(a) FROM cpu GROUP BY host", "fetch('cpu.a').mean(by=[\"host\"])"),
    ("SELECT min(a) FROM cpu WHERE host IN ('x', 'y')", "fetch('cpu.a{host=~\"x|y\"}').min(by=[])"),
    (
        "SELECT time_bucket('5 minutes', time) AS t, avg(a) FROM cpu GROUP BY t",
        'fetch(\'cpu.a\').bucketize("mean", "5m").mean(by=[])',
    ),
    (
        "select date_trunc('hour', ts), sum(a) from cpu group by 1",
        'fetch(\'cpu.a\').bucketize("sum", "1h").sum(by=[])',
    ),
    (
        "SELECT avg(a) FROM cpu GROUP BY rack ORDER BY avg(a) DESC LIMIT 5",
        "fetch('cpu.a').mean(by=[\"rack\"]).sort(descending=True).limit(5)",
    ),
    (
        "groupByNode(a.*.cpu, 1, 'averageSeries')",
        'fetch(\'{__name__=~"a[.][^.]*[.]cpu"}\').mean(by=["label"])',
    ),
    ("highestMax(a.cpu, 3)", 'fetch(\'a.cpu\').filter("top", 3, rank="max")'),
    ("limit(sortByMaxima(a.cpu), 5)", "fetch('a.cpu').sort(\"max\", descending=True).limit(5)"),
]


@pytest.mark.parametrize(("text", "here"), OTHERS)
def test_sql_and_graphite_are_told_as_a_query(text: str, here: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text)
    assert caught.value.message.endswith(f"; write {here}")
    assert parse(str(parse(here))).equals(parse(here))


def test_what_has_other_numbers_here_is_not_translated() -> None:
    """The integral of Graphite is a sum of values, without their time."""
    with pytest.raises(QueryError, match="this looks like Graphite; write a query like"):
        parse("integral(a.b)")


@pytest.mark.parametrize("text", ["fetch('a') fetch('b')", "fetch('rate(x[5m]) by (a)'", "1 +", "x" * 5_000 + "[5m]"])
def test_other_texts_get_no_foreign_hint(text: str) -> None:
    assert foreign_hint(text) == ""


def test_every_name_of_elsewhere_is_none_of_ours_and_leads_to_what_there_is() -> None:
    from query_dsl.language.methods import FUNCTIONS, METHODS

    known = {*METHODS, *FUNCTIONS, *OPERATORS, *REDUCERS}
    for name, here in EQUIVALENTS.items():
        assert name not in known
        for call in re.split(r", (?=\.)", here):
            if call.startswith("."):
                parse("fetch('x')" + re.sub("low|high", "0", re.sub(" over .*", "", call)))


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("avg", ".mean(by="),
        ("averge", ".mean(by="),
        ("stddev_over_time", '.map("sd", "5m", ddof=0)'),
        ("fillna", ".fill("),
    ],
)
def test_names_of_other_languages(name: str, told: str) -> None:
    assert told in name_hint(name)
    for text in (f"fetch('x').{name}('5m')", f"fetch('x').map('{name}', '5m')", f"{name}(fetch('x'))"):
        with pytest.raises(QueryError) as caught:
            parse(text)
        assert told in caught.value.message


def test_no_other_name_means_anything_elsewhere() -> None:
    assert name_hint("zzz") == ""


MARKS = [
    ("fetch(\u2018load\u2019)", "write straight quotes"),
    ("fetch('a')\u00a0+ 1", "a special space"),
    ("fetch('a') \u2212 1", "write -"),
    ("fetch('a') \u2264 1", "write <="),
    ("fetch('a') && fetch('b')", "write & for and"),
    ("fetch('a') || fetch('b')", "| for or"),
    ("!fetch('a')", "write ~(…) for not"),
    ("fetch('a') = 5", "compare with =="),
    ("a = fetch('a')", "compare with =="),
    ("fetch('a') <> 5", "write != for not equal"),
    ("fetch('a'); fetch('b')", "one query at a time"),
    ("fetch('a').rate(5m)", 'in quotes, as in "5m"'),
    ("fetch('a')fetch('b')", "something is missing here"),
    ("sum(fetch('a'))", "sum is a method: write fetch('NAME').sum(…)"),
    ("disk.used", "unknown name 'disk.used': read data with fetch('disk.used')"),
    ("disk.used.rate('5m')", "unknown name 'disk.used': read data with fetch('disk.used')"),
    ("fetch('a').topk(by=[])", "it takes topk(k, rank, by=…, without=…)"),
    ("fetch('a').map(own('f'), '5m')", "own functions exist in Python only"),
    ("fetch('a').fill(0)", "as in fetch('temperature').fill(\"value\", 0"),
]


@pytest.mark.parametrize(("text", "told"), MARKS)
def test_errors_suggest_the_right_syntax(text: str, told: str) -> None:
    with pytest.raises(QueryError) as caught:
        parse(text)
    assert told in caught.value.message
    assert caught.value.position is not None


@pytest.mark.parametrize("call", [".ewma('10m', 0.3)", ".holt('1h', 0.5, 0.1)", ".predict_linear('1h', '4h')"])
def test_arguments_by_position_behind_a_window(call: str) -> None:
    """In text as in Python; without a window they go by name."""
    name, rest = call[1:].split("(", 1)
    assert parse(f"fetch('x'){call}").equals(parse(f"fetch('x').map('{name}', {rest}"))
    with pytest.raises(QueryError, match=f"{name} needs "):
        parse(f"fetch('x').{name}('1h')")


def test_python_says_what_a_query_does_not_have() -> None:
    with pytest.raises(AttributeError, match=r"no method 'avg'; here: \.mean"):
        fetch("x").avg(by=[])
    with pytest.raises(AttributeError, match="near: median"):
        fetch("x").medain(by=[])
    assert not hasattr(fetch("x"), "_repr_png_")
    assert abs(fetch("x")).equals(fetch("x").abs())
    assert round(fetch("x"), 1).equals(fetch("x").round(1))
    assert round(fetch("x")).equals(fetch("x").round())


def test_unknown_names_list_existing_ones() -> None:
    store = offline({'load{host="h1"}': [(60_000, 1)], "http.requests": [(60_000, 1)]})
    for text, told in (
        ("fetch('nothing')", "there are: http.requests, load"),
        ("fetch('lo.*')", "near: load"),
        ("fetch('load{zzz=\"1\"}')", "there are: host"),
    ):
        with pytest.raises(QueryError) as caught:
            store.query(text)
        assert told in caught.value.message
    with pytest.raises(QueryError, match="plain value") as caught:
        store.query("1 + 1")
    assert caught.value.position == 0
