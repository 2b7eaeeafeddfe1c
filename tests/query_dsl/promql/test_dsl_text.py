"""Queries in PromQL as texts of the query language: the text, parsed and run, gives the same numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from artimon.cli.program import app
from artimon.model.clock import ManualClock
from artimon.session import Session
from query_dsl import Matrix, parse
from query_dsl.evaluation.evaluator import evaluate
from query_dsl.promql import PromqlError, query_store, to_dsl
from query_dsl.stores.engine_store import MemoryStore
from tests.query_dsl.plain_store import MINUTE, PlainStore
from tests.query_dsl.promql.test_pushed import ALIGNED, NOW, Fleet
from tests.query_dsl.test_pushdown import T
from tests.seeds import fixed_and_drawn

TIMES: Mapping[str, Any] = ALIGNED
SAME = [
    "c_total", "g", "-c_total", "c_total offset 5m", "rate(c_total[5m])", "increase(c_total[7m])", "b",
    "rate(c_total[5m] offset 5m)", "changes(c_total[5m])", "avg_over_time(g[5m])", "max_over_time(c_total[5m])",
    "sum_over_time(c_total[5m])", "count_over_time(c_total[2m])", "first_over_time(c_total[5m])",
    "stddev_over_time(g[5m])", "stdvar_over_time(g[5m])", "quantile_over_time(0.4, c_total[5m])",
    "mad_over_time(c_total[5m])", "deriv(c_total[5m])", "predict_linear(c_total[10m], 3600)",
    "double_exponential_smoothing(c_total[10m], 0.5, 0.1)", "sum by (rack) (g)", "avg by (rack) (g)",
    "min(c_total)", "max without (id) (c_total)", "count by (rack) (b)", "group(b)", "stddev by (rack) (g)",
    "quantile(0.3, c_total)", "stdvar(g)", "topk(1, sum by (rack) (g))", "sum by (rack) (rate(c_total[5m]))",
    "max_over_time(rate(c_total[5m])[10m:])", "clamp_min(c_total, 100)", "clamp_max(c_total, 100)",
    "clamp(c_total, 50, 100)", "abs(g - 100)", "ceil(c_total)", "floor(c_total)", "round(c_total / 8)", "sqrt(g - 100)",
    "exp(b)", "ln(c_total)", "log2(g - 100)", "log10(c_total)", "c_total * 2 - 1", "1 - c_total / c_total",
    "g / (b * 0)", "-g ^ 2", "(-g) ^ 2", "2 ^ b ^ 3", "c_total > 100", "100 < c_total", "c_total > bool 100",
    "c_total > g", "c_total and g", "c_total or g", "c_total unless b", "c_total and on (id) g", "c_total / on (id) g",
    "c_total / on (id, rack) g", "c_total / ignoring (rack) group_left () g", "sum(c_total) / count(c_total)",
    "c_total / on (rack) group_left () sum by (rack) (c_total)", "sum by (rack) (c_total) > 1000", "c_total - time()",
    'label_replace(c_total, "x", "$1-", "id", "(.).*")', "sum(nothing) or vector(0)", 'c_total{rack=~"r[01]"} == 0',
    '{"c_total", rack="r0"}', '{__name__=~"c_.*", rack!="r1"}', "sum(c_total{rack='r1'}) # of a rack",
]  # fmt: skip
NONE = [
    "delta(c_total[5m])", "irate(c_total[5m])", "resets(c_total[5m])", "last_over_time(c_total[5m])", "round(g, 0.1)",
    "timestamp(g)", "absent(g)", "absent_over_time(g[5m])", 'count_values("v", b)', "g % 7", "g @ end()", "time()",
    "max_over_time(sum(g)[10m:1m])", "scalar(g)", "1 + 1", "g > Inf", "g atan2 b", '"text"', "rate(g[5m])[1h:]",
    "present_over_time(g[5m])", "sum(g) > on () g", 'label_join(g, "x", "-", "id")', "histogram_fraction(0, 1, g)",
]  # fmt: skip


def rows(found: Matrix) -> Mapping[tuple[tuple[str, str], ...], list[float | None]]:
    """Numbers of each series by its labels without the name, which functions of ranges keep here."""
    made = {key.labels: [None if v is None else float(v) for v in found.tolist(i)] for i, key in enumerate(found.keys)}
    return {labels: values for labels, values in made.items() if any(value is not None for value in values)}


def same(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is b
    return a == b or (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)


@pytest.mark.parametrize("seed", fixed_and_drawn((3,), "promql to_dsl", 1))
def test_the_text_gives_the_same_numbers(seed: int) -> None:
    store = MemoryStore(Fleet(seed).shards)
    for text in SAME:
        wanted = rows(query_store(text, store, NOW, **TIMES, exact_increase=True).to_matrix())
        asked = parse(to_dsl(text)).between(ALIGNED["start_ms"] - MINUTE, ALIGNED["end_ms"])
        found = rows(evaluate(asked, store, NOW))
        assert found.keys() == wanted.keys(), text
        for labels, values in wanted.items():
            assert all(map(same, found[labels], values)), (text, to_dsl(text), labels, found[labels], values)


def test_quantiles_of_histograms_are_the_same() -> None:
    store = PlainStore()
    for le, each in (("0.1", 3), ("1", 5), ("+Inf", 6)):
        for host in "ab":
            samples = [(T - 30_000 - i * MINUTE, (60 - i) * each) for i in range(60)]
            store.add("t_bucket", {"le": le, "host": host}, sorted(samples), birth=T - 120 * MINUTE)
    for text in (
        "histogram_quantile(0.6, sum by (le) (rate(t_bucket[5m])))",
        "histogram_quantile(0.9, rate(t_bucket[5m]))",
    ):
        wanted = rows(query_store(text, MemoryStore(store), NOW, **TIMES).to_matrix())
        asked = parse(to_dsl(text)).between(ALIGNED["start_ms"] - MINUTE, ALIGNED["end_ms"])
        found = rows(evaluate(asked, MemoryStore(store), NOW))
        assert found.keys() == wanted.keys() != set()
        assert all(all(map(same, found[labels], wanted[labels])) for labels in wanted), text


@pytest.mark.parametrize("text", NONE)
def test_a_query_without_an_equivalent_is_refused(text: str) -> None:
    with pytest.raises(PromqlError, match="no text in the query language has the same numbers"):
        to_dsl(text)


def test_other_texts_are_refused_with_their_errors() -> None:
    with pytest.raises(PromqlError, match="is not closed"):
        to_dsl("sum(x")


def text_of(promql: str) -> str:
    try:
        return to_dsl(promql)
    except PromqlError:
        return ""


def test_expressions_of_dashboards_that_have_a_text_have_one_that_parses() -> None:
    texts = (Path(__file__).parent / "dashboards.txt").read_text().splitlines()
    found = [text_of(text.replace("$i", "5m")) for text in texts if text and not text.startswith("#")]
    made = [text for text in found if text]
    for here in made:
        assert parse(str(parse(here))).equals(parse(here))
    assert len(made) > 0.75 * len(found)


def test_an_answer_of_a_session_tells_its_text() -> None:
    store = PlainStore().add("http.requests", {"route": "/"}, [(T - 20_000, 7)])
    found = Session(store, "nowhere", ManualClock(NOW)).promql('sum by (route) ({"http.requests"}) > 5')
    assert found.to_dsl() == 'fetch(\'http.requests\').map("last", "5m").sum(by=["route"]).where("> 5")'
    assert found.tolist(0) == [7]


def test_the_command_line_prints_the_text_without_a_query() -> None:
    def run(*words: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["query", *words])
        return result.exit_code, result.output

    assert run("--promql", "--to-dsl", "rate(x[5m]) / 2") == (0, "fetch('x').rate(\"5m\") / 2\n")
    code, said = run("--promql", "--to-dsl", "delta(x[5m])")
    assert (code, "no text in the query language" in said) == (1, True)
    code, said = run("--to-dsl", "fetch('x')")
    assert (code, "needs --promql" in said) == (2, True)
