"""Dashboards of Grafana: what becomes YAML, and what is listed because it cannot."""

from __future__ import annotations

import json
from typing import Any

import pytest

from artimon.dashboards.dashboard_file import MAX_MARKS, Dashboard, read_dashboard
from artimon.dashboards.grafana_export import export_grafana
from artimon.dashboards.grafana_import import MAX_READ, import_grafana
from query_dsl import offline

MINUTE = 60_000

JOBS = "label_values(up, job)"
STEPS = [{"color": "green"}, {"color": "dark-red", "value": 80}]
UP = {"type": "value", "options": {"1": {"text": "up", "color": "green"}}}
PROM = {"type": "prometheus", "uid": "${ds}"}
MODEL: dict[str, Any] = {
    "title": "Shop",
    "time": {"from": "now-6h", "to": "now"},
    "refresh": "30s",
    "links": [{"title": "runbook", "url": "https://example.org/?a=$job"}, {"title": "bad", "url": "javascript:x"}],
    "annotations": {
        "list": [
            {"builtIn": 1, "name": "Annotations & Alerts", "datasource": {"type": "grafana"}, "enable": True},
            {"name": "deploys"},
            {"name": "Restarts", "expr": "resets(up_s{job='$job'}[5m]) > 0", "titleFormat": "{{instance}} of $job"},
            {"name": "Newer", "datasource": PROM, "target": {"expr": "changes(build[5m])"}, "enable": True},
            {"name": "Fires", "expr": 'ALERTS{alertstate="firing",team="a"}'},
            {"name": "Named", "expr": "ALERTS{alertname='a', alertstate='firing'}"},
            {"name": "Off", "expr": "up", "enable": False},
            {"name": "Times", "expr": "up", "useValueForTime": True},
            {"name": "Of all", "expr": "up{x='$nothing'}"},
            {"name": "Wrong", "expr": "up{"},
            {"name": "Logs", "datasource": {"type": "loki"}, "expr": "{job='a'}"},
        ]
    },
    "templating": {
        "list": [
            {"name": "ds", "type": "datasource", "query": "prometheus"},
            {"name": "job", "type": "query", "multi": True, "query": {"query": JOBS}, "label": "Job"},
            {"name": "zone", "type": "custom", "query": "a, B : b", "current": {"value": "b"}},
            {"name": "step", "type": "interval", "query": "auto,1m,5m"},
            {"name": "fixed", "type": "constant", "query": "prod"},
            {"name": "odd", "type": "query", "query": "metrics(x)"},
            {"name": "filters", "type": "adhoc"},
        ]
    },
    "panels": [
        {"type": "row", "title": "Traffic", "panels": []},
        {
            "type": "timeseries",
            "title": "Requests of $job",
            "gridPos": {"w": 8, "h": 7},
            "repeat": "job",
            "datasource": PROM,
            "targets": [
                {
                    "refId": "A",
                    "expr": 'sum by (code) (rate(http_requests_total{job=~"${job:regex}"}[$__rate_interval]))',
                    "legendFormat": "{{code}} of {{ job }}",
                },
                {"refId": "B", "expr": "up{x='$nothing'}"},
                {"refId": "C", "datasource": {"type": "loki"}},
                {"refId": "D", "expr": "up", "hide": True},
            ],
            "fieldConfig": {
                "defaults": {"unit": "reqps", "min": 0, "thresholds": {"steps": STEPS}},
                "overrides": [{"matcher": {}}],
            },
            "transformations": [{"id": "merge"}],
        },
        {
            "type": "stat",
            "title": "Up",
            "targets": [{"expr": 'min(up{zone="$zone"})'}],
            "options": {"reduceOptions": {"calcs": ["mean"]}},
            "fieldConfig": {"defaults": {"unit": "furlongs", "mappings": [UP]}},
        },
        {"type": "heatmap", "title": "Broken", "targets": [{"expr": "rate(x["}]},
        {"type": "logs", "title": "Logs"},
        {"type": "text", "title": "Note", "options": {"mode": "html", "content": "<script>alert(1)</script>"}},
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def found() -> tuple[Dashboard, str]:
    made = import_grafana(json.dumps(MODEL))
    return read_dashboard(made.text, "shop.yaml"), "\n".join(made.problems)


def test_panels_with_promql_are_converted(found: tuple[Dashboard, str]) -> None:
    board, _ = found
    assert [(one.kind, one.title) for one in board.panels] == [
        ("text", "Traffic"), ("chart", "Requests of $job"), ("value", "Up"), ("text", "Note"),
    ]  # fmt: skip
    chart, value, note = board.panels[1:]
    (query,) = chart.queries
    assert query.q == 'sum by (code) (rate(http_requests_total{job=~"${job}"}[$__rate_interval]))'
    assert (query.lang, query.legend) == ("promql", "{code} of {job}")
    assert (chart.width, chart.height, chart.unit, chart.min, chart.repeat) == (8, 7, "/s", 0, "job")
    assert [(one.above, one.state) for one in chart.thresholds] == [(80, "bad")]
    assert (value.reduce, value.names[0].text, value.names[0].state) == ("mean", "up", "good")
    assert note.text == "<script>alert(1)</script>"
    assert (board.range, board.refresh) == ("12h", "60s")


def test_variables_are_converted(found: tuple[Dashboard, str]) -> None:
    job, zone, step, fixed, odd = found[0].variables
    assert (job.label, job.query, job.lang, job.multi, job.title) == ("job", "up", "promql", True, "Job")
    assert (zone.values, zone.default) == (("a", "b"), ("b",))
    assert (step.values, step.default, fixed.default) == (("1m", "5m"), ("5m",), ("prod",))
    assert (odd.label, odd.values, odd.default) == (None, (), ())


def imported(variables: list[dict[str, Any]], *queries: str, **panel: Any) -> tuple[Dashboard, list[str]]:
    """Return the dashboard of these variables and one panel, and what was listed."""
    targets = [{"refId": str(n), "expr": query} for n, query in enumerate(queries)]
    shown = {"type": "timeseries", "title": "P", "targets": targets, **panel}
    found = import_grafana(json.dumps({"title": "T", "templating": {"list": variables}, "panels": [shown]}))
    return read_dashboard(found.text, "t.yaml"), found.problems


def query_variable(name: str, query: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "query", "query": {"query": query}, **more}


def test_variables_use_others_in_any_order() -> None:
    board, told = imported(
        [
            query_variable("disk", 'label_values(disk_bytes{job="$job",node=~"$node"}, disk)', includeAll=True),
            query_variable("node", 'label_values(up{job="${job:regex}"}, node)', multi=True),
            query_variable("job", "label_values(up, job)"),
        ],
        'rate(disk_bytes{job="$job",node=~"$node",disk=~"$disk"}[$__rate_interval])',
    )
    assert [one.name for one in board.variables] == ["job", "node", "disk"]
    assert [one.multi for one in board.variables] == [False, True, True]
    assert len(board.panels[0].queries) == 1
    assert told == []


def test_very_many_variables_end_in_time() -> None:
    chain = [query_variable(f"v{n}", f'label_values(up{{a="$v{n + 1}"}}, a)') for n in range(20_000)]
    board, told = imported(chain, "up")
    assert len(board.panels) == 1
    assert told[0] == "19760 variables beyond 240 were left out"


def test_variables_that_use_each_other_are_listed() -> None:
    circle = [query_variable("a", 'label_values(up{b="$b"}, a)'), query_variable("b", 'label_values(up{a="$a"}, b)')]
    board, told = imported(circle, "up")
    assert board.variables == ()
    assert len(board.panels[0].queries) == 1
    assert all("unknown variable" in one for one in told)


@pytest.mark.parametrize("pattern", ['/.*topic="([^"]*).*/', 'topic="(.*)"', '/topic="(.+)",.*/'])
def test_a_result_gives_the_label_of_its_regular_expression(pattern: str) -> None:
    board, told = imported([query_variable("topic", "query_result(kafka_lag)", regex=pattern)], 'lag{topic="$topic"}')
    assert (board.variables[0].label, board.variables[0].query) == ("topic", "kafka_lag")
    assert told == []


@pytest.mark.parametrize(
    ("pattern", "label", "query"),
    [
        ("/web.*/", "node", 'up{job="$job", node=~".*?(?:web.*).*"}'),
        ("web-[0-9]+", "node", 'up{job="$job", node=~"web-[0-9]+"}'),
        ("/^WEB/i", "node", 'up{job="$job", node=~".*?(?i:^WEB).*"}'),
        (
            "/([^:]+):.*/",
            "variable_value",
            'group by (variable_value) (label_replace(group by (node) (up{job="$job", node=~".*?(?:([^:]+):.*).*"}), '
            '"variable_value", "$1", "node", ".*?(?:([^:]+):.*).*"))',
        ),
        ('/a\\.b"c/', "node", 'up{job="$job", node=~".*?(?:a\\\\.b\\"c).*"}'),
    ],
)
def test_a_regular_expression_chooses_values_or_their_first_group(pattern: str, label: str, query: str) -> None:
    job = query_variable("job", "label_values(up, job)")
    node = query_variable("node", 'label_values(up{job="$job"}, node)', regex=pattern)
    board, told = imported([job, node], 'up{node="$node"}')
    assert (board.variables[1].label, board.variables[1].query) == (label, query)
    assert told == []


@pytest.mark.parametrize("pattern", ["/(?!x)y/", "/a$x/", "/(?<value>a)/", "/(/"])
def test_other_regular_expressions_are_listed(pattern: str) -> None:
    board, told = imported([query_variable("node", "label_values(up, node)", regex=pattern)], 'up{node="$node"}')
    assert (board.variables[0].label, board.variables[0].query) == ("node", "up")
    assert "its regular expression is left out" in told[0]


def test_values_are_those_that_the_regular_expression_takes() -> None:
    node = query_variable("node", "label_values(up, node)", regex="/web-([0-9]+):/")
    board, _ = imported([node], "up")
    query = board.variables[0].query
    assert query is not None
    names = ("web-1:80", "web-1:81", "web-2:80", "db-3:80")
    store = offline({f'up{{node="{name}"}}': [(MINUTE, 1)] for name in names})
    found = store.promql(query, at=MINUTE)
    assert sorted(value for _, labels in found.keys for _, value in labels) == ["1", "2"]


def test_equality_with_a_variable_of_several_values_becomes_a_regular_expression() -> None:
    job = query_variable("job", "label_values(up, job)", multi=True)
    one = query_variable("one", 'label_values(up{job="$job"}, one)')
    board, _ = imported([job, one], """up{job="$job",one="$one",a!='${job}',b=~"$job"} == 1""")
    assert board.panels[0].queries[0].q == """up{job=~"$job",one="$one",a!~'${job}',b=~"$job"} == 1"""
    assert board.variables[1].query == 'up{job=~"$job"}'


def test_the_expression_of_every_value_is_kept() -> None:
    board, _ = imported([query_variable("job", "label_values(up, job)", includeAll=True, allValue="web.+")], "up")
    assert board.variables[0].all == "web.+"
    again = read_dashboard(import_grafana(export_grafana(board).text).text, "again.yaml")
    assert again.variables[0].all == "web.+"


def test_a_text_for_a_variable_with_every_value_is_an_expression_of_all() -> None:
    board, _ = imported([query_variable("node", "metrics(x)", includeAll=True)], 'up{node=~"$node"}')
    assert board.variables[0].default == (".*",)


def test_what_cannot_be_queried_becomes_a_text() -> None:
    odd = query_variable("limit", "query_result(settings)", regex="/ ([0-9]+)/", current={"value": "100"})
    board, told = imported([odd], "x > $limit")
    assert board.variables[0].default == ("100",)
    assert len(board.panels[0].queries) == 1
    assert "it became a text" in told[0]


@pytest.mark.parametrize("kind", ["piechart", "barchart", "grafana-piechart-panel", "grafana-polystat-panel"])
def test_panels_of_one_value_a_series_are_bars_or_values(kind: str) -> None:
    board, told = imported([], "sum by (job) (up)", type=kind)
    assert board.panels[0].kind in ("bars", "value")
    assert told == []


def test_the_name_of_a_missing_value_is_not_listed() -> None:
    mappings = [{"type": "special", "options": {"match": "null", "result": {"text": "N/A"}}}]
    _, told = imported([], "up", type="stat", fieldConfig={"defaults": {"mappings": mappings}})
    assert told == []


def test_a_large_dashboard_is_imported_whole() -> None:
    panels = [{"type": "stat", "title": f"P{n}", "targets": [{"expr": f"up + {n}"}]} for n in range(260)]
    board = read_dashboard(import_grafana(json.dumps({"title": "T", "panels": panels})).text, "t.yaml")
    assert len(board.panels) == 260


@pytest.mark.parametrize(
    "told",
    [
        "range 6h: 12h instead",
        "annotation 'deploys': no query in PromQL, but the data source unknown",
        "annotation 'Logs': no query in PromQL, but the data source loki",
        "annotation 'Fires': alerts of all rules and series are marked",
        "annotation 'Named': alerts of all rules and series are marked",
        "annotation 'Off': it is switched off",
        "annotation 'Times': times in values are not supported",
        "annotation 'Of all': it needs the variable $nothing",
        "annotation 'Wrong': ",
        "panel 'the dashboard': the link 'bad': only addresses of the web are converted",
        "variable 'odd': only label_values",
        "variable 'filters': the type 'adhoc' is not supported",
        "variable 'step': the value auto was left out",
        "panel 'Requests of $job': query B needs the variable $nothing",
        "panel 'Requests of $job': query C of the data source loki",
        "panel 'Requests of $job': query D is hidden",
        "panel 'Requests of $job': transformations are not supported",
        "panel 'Requests of $job': overrides of fields are not supported",
        "panel 'Up': the unit 'furlongs' is not known",
        "panel 'Broken': panels[0].queries[0].q: ",
        "panel 'Logs': the type 'logs' is not supported",
        "panel 'Note': html is shown as plain text",
    ],
)
def test_what_is_not_converted_is_listed(found: tuple[Dashboard, str], told: str) -> None:
    assert told in found[1]


def test_an_export_can_be_imported_again(found: tuple[Dashboard, str]) -> None:
    board, _ = found
    exported = export_grafana(board)
    assert exported.problems == ["marks.alerts: the annotation asks ALERTS, which Prometheus has and Artimon does not"]
    again = read_dashboard(import_grafana(exported.text).text, "again.yaml")
    assert [(one.kind, one.title, one.queries, one.unit, one.thresholds) for one in again.panels] == [
        (one.kind, one.title, one.queries, one.unit, one.thresholds) for one in board.panels
    ]
    assert [(one.name, one.label, one.values, one.multi) for one in again.variables] == [
        (one.name, one.label, one.values, one.multi) for one in board.variables
    ]


def test_annotations_become_marks_and_marks_annotations(found: tuple[Dashboard, str]) -> None:
    marks = found[0].marks
    assert marks
    assert (marks.alerts, marks.starts) == (True, None)
    assert [(one.q, one.lang, one.title) for one in marks.queries] == [
        ("resets(up_s{job=~'$job'}[5m]) > 0", "promql", "{instance} of $job"),
        ("changes(build[5m])", "promql", "Newer"),
    ]
    assert "Annotations" not in found[1]
    again = read_dashboard(import_grafana(export_grafana(found[0]).text).text, "again.yaml")
    assert again.marks == marks


def test_marks_that_are_not_in_promql_are_listed() -> None:
    marks = "marks: {starts: fetch('a'), queries: [{q: fetch('b'), title: B}]}\n"
    found = export_grafana(read_dashboard(f"title: t\n{marks}panels: [{{kind: text}}]\n", "t.yaml"))
    assert json.loads(found.text)["annotations"] == {"list": []}
    assert found.problems == [
        "marks.starts: the query is not in PromQL",
        "marks.queries[0]: the query is not in PromQL",
    ]


def test_braces_of_labels_are_doubled_and_those_of_variables_stay() -> None:
    """As Grafana writes them in titles and legends."""
    board = read_dashboard(
        "title: t\nvariables: [{name: job, values: [a]}]\n"
        "marks: {queries: [{q: up, lang: promql, title: 'restart of {host} in ${job}'}]}\n"
        "panels: [{queries: [{q: up, lang: promql, legend: '{host} ${job}'}]}]\n",
        "t.yaml",
    )
    found = json.loads(export_grafana(board).text)
    assert found["annotations"]["list"][0]["titleFormat"] == "restart of {{host}} in ${job}"
    assert found["panels"][0]["targets"][0]["legendFormat"] == "{{host}} ${job}"
    assert read_dashboard(import_grafana(json.dumps(found)).text, "again.yaml").marks == board.marks


def test_only_alerts_that_fire_are_converted_without_a_remark() -> None:
    """A text of many spaces is no more work than another one."""
    texts = [
        'ALERTS{alertstate="firing"}',
        "ALERTS{ alertstate=~'firing' }",
        "ALERTS",
        f'ALERTS{{alertstate="firing",{" " * 9_000}x',
    ]
    told = []
    for text in texts:
        model = {"title": "t", "panels": [], "annotations": {"list": [{"name": "a", "expr": text}]}}
        found = import_grafana(json.dumps(model))
        marks = read_dashboard(found.text, "t.yaml").marks
        assert marks
        assert (marks.alerts, marks.queries) == (True, ())
        told.append("annotation 'a': alerts of all rules and series are marked" in found.problems)
    assert told == [False, False, True, True]


def test_many_annotations_are_left_out() -> None:
    events = [{"name": f"n{number}", "expr": "up"} for number in range(MAX_READ + 3)]
    found = import_grafana(json.dumps({"title": "t", "panels": [], "annotations": {"list": events}}))
    marks = read_dashboard(found.text, "t.yaml").marks
    assert marks
    assert len(marks.queries) == MAX_MARKS
    assert found.problems[-1] == f"annotation 'n{MAX_READ - 1}': a dashboard has at most {MAX_MARKS} queries of marks"
    assert f"3 annotations beyond {MAX_READ} were left out" in found.problems


def test_an_export_lists_queries_of_another_language() -> None:
    board = read_dashboard("title: T\npanels: [{title: A, queries: [{q: fetch('host.load')}]}]\n", "t.yaml")
    assert export_grafana(board).problems == ["panel 'A': a query is not in PromQL"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '"a"', "[" * 100_000, '{"panels": 1}', '{"dashboard": {"panels": "x"}}', "\0"],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not JSON|not a dashboard of Grafana"):
        import_grafana(text)


@pytest.mark.parametrize("value", [None, 1e999, float("nan"), "x", [{}], {"a": {}}])
def test_members_of_any_type_do_no_harm(value: Any) -> None:
    """Each member in turn is replaced by something else."""
    for at in range(len(MODEL["panels"])):
        for key in MODEL["panels"][at]:
            panels = [*MODEL["panels"]]
            panels[at] = {**panels[at], key: value}
            read_dashboard(import_grafana(json.dumps({**MODEL, "panels": panels})).text, "t.yaml")
    for key in set(MODEL) - {"panels"}:
        read_dashboard(import_grafana(json.dumps({**MODEL, key: value})).text, "t.yaml")
