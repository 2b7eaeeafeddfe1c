"""What a notebook has beyond queries: sample, profile, magic, chart, completeness in the display, rules and panels."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from alerts.rules.rule_file import parse_rules
from artimon import chart_widget
from artimon.dashboards.dashboard_file import read_dashboard
from artimon.model.clock import ManualClock
from artimon.query_magic import run_magic
from artimon.session import Session
from query_dsl import Matrix, QueryError
from query_dsl.stores.levels import SETTLE_MS
from tests.chromium import chromium
from tests.query_dsl.plain_store import MINUTE, PlainStore

HOSTS = 50


@pytest.fixture
def session() -> Iterator[Session]:
    store = PlainStore()
    for n in range(HOSTS):
        points = [(at * MINUTE, float(n)) for at in (1, 2)]
        store.add("load", {"host": f"h.{n}", "rack": f"r{n % 2}"}, points[: 1 if n == 7 else 2])
    store.add("word", {"host": "h.1"}, [(MINUTE, "a"), (2 * MINUTE, "b")])
    with Session(store, "nowhere", ManualClock(2 * MINUTE + SETTLE_MS)) as opened:
        yield opened


# --- sample


def test_a_sample_has_some_hosts_of_the_query(session: Session) -> None:
    query = (session.fetch('load{rack="r1"}') * 2).range("2m")
    sampled = query.sample(5)
    assert sampled.collector is session
    hosts = {labels["host"] for labels in sampled.collect().labels}
    assert len(hosts) == 5
    assert hosts < {labels["host"] for labels in query.collect().labels}
    assert str(query.sample(5)) == str(sampled), "the same seed chooses the same hosts"
    assert len({str(query.sample(5, seed=seed)) for seed in range(5)}) > 1
    assert len(query.sample(1_000).collect()) == HOSTS // 2


def test_each_selector_of_a_query_is_sampled(session: Session) -> None:
    query = session.fetch("load") - session.fetch("load").offset("1m") + 1
    assert str(query.sample(3)).count("host=~") == 2


def test_a_sample_of_nothing_is_refused(session: Session) -> None:
    with pytest.raises(QueryError, match=r"no series of .* has the label dc: name another one with label="):
        session.fetch("load").sample(label="dc")
    with pytest.raises(QueryError, match="1 or more"):
        session.fetch("load").sample(0)


# --- timing


def test_a_timing_has_time_and_size_of_each_node(session: Session) -> None:
    frame = (session.fetch("load").map("max", "2m").sum(by=["rack"]) * 2).range("2m").timing().to_pandas()
    assert list(frame.columns) == ["ms", "own_ms", "series", "points"]
    assert frame.loc[frame.index[-2]].series in (2, HOSTS)  # the fetch, or the window if the store reduces
    root = frame.iloc[0]
    assert (root.series, root.points) == (2, 4)
    assert root.ms >= frame.own_ms.sum() * 0.99 > 0
    told = str(session.fetch("load").range("2m").timing())
    assert f"{HOSTS} series, {2 * HOSTS - 1} points" in told


def test_a_plan_that_did_not_run_has_no_times(session: Session) -> None:
    assert "ms" not in session.explain("fetch('load')", run=False).to_dict()["plan"][0]


# --- completeness


def test_an_answer_is_shown_with_its_completeness(session: Session) -> None:
    found = session.query("fetch('load').range('2m')")
    assert "of expected points" in repr(found)
    assert "of expected points" in found._repr_html_()
    assert found == session.query("fetch('load').range('2m')")


def test_completeness_is_measured_only_for_the_display(session: Session) -> None:
    store = session._open_store()
    assert isinstance(store, PlainStore)
    found = session.query("fetch('load').range('2m')")
    before = len(store.requests)
    assert "expected points" not in repr(pickle.loads(pickle.dumps(found)))
    assert len(store.requests) == before
    assert repr(found) == repr(found)
    assert len(store.requests) == before + 1
    assert "expected points" in repr(pickle.loads(pickle.dumps(found)))
    other = session.query("fetch('load')")
    session.close()
    assert "load" in repr(other), "a closed session does not break the display"


def test_an_answer_in_promql_is_shown_with_its_completeness(session: Session) -> None:
    store = session._open_store()
    assert isinstance(store, PlainStore)
    found = session.promql("sum by (rack) (load)", start=1 * MINUTE)
    before = len(store.requests)
    assert "99.00 % of expected points" in repr(found)
    assert len(store.requests) == before + 1
    told = session.completeness("sum by (rack) (load)", lang="promql", start=1 * MINUTE)
    assert (told.expected, told.missing) == (2 * HOSTS, 1)
    assert "of expected points" in session.promql("load")._repr_html_()
    with pytest.raises(QueryError, match="unknown language 'sql': use one of artimon, promql"):
        session.completeness("load", lang="sql")


# --- magic


def magic(session: Session, line: str, cell: str | None = None) -> tuple[Any, dict[str, object]]:
    names: dict[str, object] = {}
    return run_magic(session, SimpleNamespace(user_ns=names), line, cell), names


def test_a_line_is_a_query(session: Session) -> None:
    found, names = magic(session, "--into hot --at now fetch('load') > 3")
    assert isinstance(found, Matrix)
    assert names == {"hot": found}
    assert found == session.query("fetch('load') > 3")


def test_a_cell_is_a_query(session: Session) -> None:
    found, _ = magic(session, "", "\nfetch('load')\n  .sum(by=['rack'])\n")
    assert len(found) == 2
    found, _ = magic(session, "--promql", 'sum by (rack) ({__name__="load"})')
    assert len(found) == 2


@pytest.mark.parametrize(
    ("line", "cell", "problem"),
    [
        ("--into 1x fetch('load')", None, "write the name of a variable"),
        ("--colour fetch('load')", None, "unrecognized arguments: --colour"),
        ("", None, "the query is missing"),
        ("--engine", " ", "expected one argument"),
        ("--step 1m fetch('load')", None, "belong to --promql"),
        ("fetch('load').raet()", None, "raet"),
    ],
)
def test_wrong_use_of_the_magic_is_named(session: Session, line: str, cell: str | None, problem: str) -> None:
    with pytest.raises(QueryError, match=problem):
        magic(session, line, cell)


# --- chart


def test_a_chart_has_the_numbers_of_the_answer(session: Session) -> None:
    data = chart_widget.chart_data(session.query("fetch('load{host=~\"h.[17]\"}').range('2m')"))
    assert data["times"] == [60, 120]
    assert [one["values"] for one in data["series"]] == [[1.0, 1.0], [7.0, None]]
    data = chart_widget.chart_data(session.query("fetch('word').range('2m')"))
    assert data["series"] == []
    assert "1 series of texts are left out" in data["title"]


def test_a_widget_draws_with_the_library_of_the_page(session: Session) -> None:
    widget = chart_widget.make_widget(session.query("fetch('load')"))
    assert "export default" in widget._esm
    assert widget.data["series"][0]["label"].startswith("load")


@pytest.mark.programs
def test_a_widget_is_drawn_in_a_browser(session: Session) -> None:
    widget = chart_widget.make_widget(session.query("fetch('load{host=~\"h.[17]\"}').range('2m')"))
    with chromium() as browser:
        page = browser.new_page()
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.set_content("<div id=out></div>")
        page.add_style_tag(content=widget._css)
        script = widget._esm.replace("export default {render: draw};", "window.draw = draw;")
        page.add_script_tag(content=script, type="module")
        page.wait_for_function("() => Boolean(window.draw)")
        page.evaluate("data => draw({model: {get: () => data}, el: document.querySelector('#out')})", widget.data)
        assert page.get_by_role("img").get_attribute("aria-label") == "fetch('load{host=~\"h.[17]\"}').range('2m')"
        assert page.locator("canvas").count() == 1
        texts = page.locator(".u-legend .u-label").all_inner_texts()
        assert texts == ["UTC", *widget_labels(widget)]
        assert not problems
        page.close()


def widget_labels(widget: Any) -> list[str]:
    return [one["label"] for one in widget.data["series"]]


def test_without_a_notebook_matplotlib_draws(session: Session) -> None:
    assert len(session.chart("fetch('load{host=\"h.1\"}').range('2m')").lines) == 1


# --- rules and panels


def test_a_rule_is_a_file_that_the_engine_reads(session: Session) -> None:
    text = session.rule(session.fetch("load"), "hot", "> 5", labels={"severity": "page"})
    (rule,) = parse_rules(text, "rule").rules
    assert (rule.name, rule.expr, rule.threshold_text, rule.hold_ms) == ("hot", "fetch('load')", "> 5", 300_000)
    with pytest.raises(QueryError, match="threshold"):
        session.rule("fetch('load')", "hot", "more")


def test_a_panel_is_a_dashboard_that_the_page_reads(session: Session) -> None:
    text = session.panel(session.fetch("load"), "Load", unit="bytes")
    (panel,) = read_dashboard(text, "panel").panels
    assert (panel.title, panel.queries[0].q) == ("Load", "fetch('load')")
    with pytest.raises(QueryError, match="unit"):
        session.panel("fetch('load')", "Load", unit="parsecs")
