"""The data source of Grafana for Prometheus, as its package has it, over a real API: variables, panels, Explore.

Of Grafana only the browser's part is here: `@grafana/prometheus` with `@grafana/data` and `@grafana/runtime`. Packages
of the user interface are stubs, and backend.mjs stands for the part in Go between the browser and the API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from artimon.model.values import Kind
from scripts.node_packages import run
from tests.api.serving import EDGE, Client, minutes, served
from tests.api.test_grafana import get
from tests.node.node_driver import NodeDriver, driving, require
from tests.query_dsl.plain_store import PlainStore

pytestmark = [pytest.mark.programs, pytest.mark.timeout(900)]  # the first run installs the packages
RANGE = [EDGE - 30 * 60_000, EDGE]
BOUNDS = ("0.5", "1", "+Inf")
OPTIONS = (
    "--bundle",
    "--platform=node",
    "--format=cjs",
    "--log-level=error",
    "--loader:.svg=empty",
    "--loader:.css=empty",
)


def fleet() -> PlainStore:
    """A gauge, a counter with dots, a histogram whose buckets have 1, 3 and 4 more a minute, and two deployments."""
    store = PlainStore()
    for host in ("h1", "h2"):
        store.add("node_load", {"host": host, "job": "node"}, minutes([float(i) for i in range(40)]), Kind.GAUGE)
        store.add("http.requests", {"host": host, "route": "/"}, minutes([60 * i for i in range(40)]), Kind.COUNTER)
    for le, more in zip(BOUNDS, (1, 3, 4), strict=True):
        store.add("wait_bucket", {"le": le}, minutes([more * i for i in range(40)]), Kind.COUNTER)
    store.add("deployed", {"version": "7"}, minutes([0.0] * 30 + [1.0, 1.0, 0.0, 0.0, 0.0, 1.0] + [0.0] * 4))
    return store


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with served(fleet()) as found:
        yield found


@pytest.fixture(scope="module")
def source(client: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeDriver]:
    folder, out = require("grafana"), tmp_path_factory.mktemp("grafana") / "datasource.cjs"
    run([str(folder / "node_modules/.bin/esbuild"), "datasource.mjs", *OPTIONS, f"--outfile={out}"], folder)
    with driving([out, f"http://127.0.0.1:{client.port}", "60s"], folder) as driver:
        yield driver


def values(frame: Any) -> list[Any]:
    """Return the values of the last field."""
    found: list[Any] = frame["fields"][-1]["values"]
    return found


def test_it_starts_and_reads_names_labels_and_types(source: NodeDriver) -> None:
    source.call("requests")
    told = source.call("start", range=RANGE)
    assert told["metrics"] == ["deployed", "http.requests", "node_load", "wait_bucket"]
    assert told["histograms"] == ["wait_bucket"]
    assert sorted(told["labels"]) == ["__name__", "host", "job", "le", "route", "version"]
    assert {name: one["type"] for name, one in told["metadata"].items()} == {
        "ALERTS": "gauge",  # of the data source itself
        "deployed": "unknown",
        "http.requests": "counter",
        "node_load": "gauge",
        "wait_bucket": "counter",
    }
    assert (told["exemplars"], told["rules"]) == (True, {})
    assert {one.partition("/api/v1/")[2] for one in source.call("requests")} >= {  # it keeps labels of other tests
        "label/__name__/values",
        "metadata",
        "query_exemplars",
        "rules",
    }


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("label_names()", ["__name__", "host", "job", "le", "route", "version"]),
        ("label_names(load)", ["host", "job"]),
        ("label_values(host)", ["h1", "h2"]),
        ('label_values(node_load{job="node"}, host)', ["h1", "h2"]),
        ("label_values(wait_bucket, le)", ["+Inf", "0.5", "1"]),
        ('label_values({"http.requests"}, route)', ["/"]),
        ("metrics(node_.*)", ["node_load"]),
        ("query_result(topk(1, wait_bucket))", [f'wait_bucket{{le="+Inf"}} 156 {EDGE}']),
        ("query_result(2 + 3)", ["5"]),
        ("deployed", ['deployed{version="7"}']),
        ("label_values(nothing, host)", []),
    ],
)
def test_variables(source: NodeDriver, query: str, found: list[str]) -> None:
    assert sorted(source.call("find", query=query, range=RANGE)) == found


def test_a_variable_depends_on_another(source: NodeDriver) -> None:
    source.call("variables", values={"job": "node", "hosts": ["h1", "h2"]})
    assert source.call("find", query='label_values(node_load{job="$job"}, host)', range=RANGE) == ["h1", "h2"]
    asked = 'label_values({__name__=~".+", host=~"$hosts"}, __name__)'
    assert source.call("find", query=asked, range=RANGE) == ["http.requests", "node_load"]


def test_explore_lists_labels_and_values_of_a_selector(source: NodeDriver) -> None:
    assert source.call("labels", range=RANGE, match="node_load") == ["__name__", "host", "job"]
    assert source.call("values", range=RANGE, label="host", match='{"http.requests"}') == ["h1", "h2"]
    assert source.call("values", range=RANGE, label="le", match=None) == ["+Inf", "0.5", "1"]


def test_filters_of_a_dashboard_are_completed(source: NodeDriver) -> None:
    filters = [{"key": "host", "operator": "=", "value": "h1"}]
    tags = source.call("tags", range=RANGE, filters=filters)
    assert {"job", "route"} <= set(tags)
    assert source.call("tag_values", range=RANGE, key="route", filters=filters) == ["/"]


def panel(source: NodeDriver, *targets: dict[str, Any], **more: Any) -> Any:
    """Ask for the frames of a panel without an error."""
    told = source.call("query", range=RANGE, targets=targets, **more)
    assert (told["errors"], told["done"]) == ([], True)
    return told["frames"]


def test_a_panel_over_a_range_with_its_legend(source: NodeDriver, client: Client) -> None:
    """`$__rate_interval` is four scrapes of a minute; the values are those of the API."""
    target = {
        "refId": "A",
        "expr": 'rate({"http.requests"}[$__rate_interval])',
        "range": True,
        "legendFormat": "{{host}}",
    }
    frames = panel(source, target)
    assert [frame["fields"][1]["name"] for frame in frames] == ["h1", "h2"]
    asked = {"query": 'rate({"http.requests"}[4m])', "start": RANGE[0] / 1000, "end": EDGE / 1000, "step": 60}
    for frame, series in zip(frames, get(client, "query_range", **asked)["result"], strict=True):
        assert frame["fields"][0]["values"] == [at * 1000 for at, _ in series["values"]]
        assert values(frame) == [float(text) for _, text in series["values"]]
        assert len(values(frame)) == 31


def test_variables_and_filters_stand_in_panels(source: NodeDriver) -> None:
    source.call("variables", values={"hosts": ["h1", "h2"], "host": "h2"})
    several = {"refId": "A", "expr": 'sum by (host) (node_load{host=~"$hosts"})', "range": True}
    assert [frame["fields"][1]["labels"] for frame in panel(source, several)] == [{"host": "h1"}, {"host": "h2"}]
    one = {"refId": "A", "expr": 'node_load{host="$host"}', "range": True, "legendFormat": "__auto"}
    assert [frame["fields"][1]["name"] for frame in panel(source, one)] == ['node_load{host="h2", job="node"}']
    filtered = panel(source, several, filters=[{"key": "host", "operator": "=", "value": "h1"}])
    assert [frame["fields"][1]["labels"] for frame in filtered] == [{"host": "h1"}]
    span = {"refId": "A", "expr": "max_over_time(node_load[$__range])", "instant": True, "range": False}
    assert {value for frame in panel(source, span) for value in values(frame)} == {39}


def test_explore_asks_for_a_range_and_an_instant_at_once(source: NodeDriver) -> None:
    frames = panel(source, {"refId": "A", "expr": "node_load", "range": True, "instant": True}, app="explore")
    ranged = [frame for frame in frames if frame["refId"] == "A" and frame["type"] != "table"]
    tables = [frame for frame in frames if frame not in ranged]
    assert [values(frame)[-1] for frame in ranged] == [39, 39]
    assert [values(frame) for frame in tables] == [[39, 39]]


def test_a_table_has_a_column_for_each_label(source: NodeDriver) -> None:
    target = {"refId": "A", "expr": "node_load", "instant": True, "range": False, "format": "table"}
    (table,) = panel(source, target)
    columns = {field["name"]: field["values"] for field in table["fields"]}
    assert (columns["host"], columns["job"]) == (["h1", "h2"], ["node", "node"])
    assert values(table) == [39, 39]


def test_a_heat_map_has_the_counts_of_each_bucket(source: NodeDriver) -> None:
    """The data source takes each cumulative count from the next one."""
    expr = "sum by (le) (increase(wait_bucket[1m]))"
    target = {"refId": "A", "expr": expr, "range": True, "format": "heatmap", "legendFormat": "{{le}}"}
    (frame,) = panel(source, {**target, "expr": expr.replace("[1m]", "[2m]")})
    names = [field["name"] for field in frame["fields"][1:]]
    assert names == list(BOUNDS)
    assert [field["values"][-1] for field in frame["fields"][1:]] == [pytest.approx(2 * count) for count in (1, 2, 1)]


def test_annotations_are_regions_where_the_value_is_positive(source: NodeDriver) -> None:
    annotation = {
        "name": "deployments",
        "expr": "deployed",
        "step": "60s",
        "titleFormat": "Version {{version}}",
        "tagKeys": "version",
        "textFormat": "of {{version}}",
    }
    found = source.call("annotations", range=RANGE, annotation=annotation)
    assert [(one["title"], one["text"], one["tags"]) for one in found] == [("Version 7", "of 7", ["7"])] * 2
    minute = 60_000
    assert [(EDGE - one["time"], EDGE - one["timeEnd"]) for one in found] == [
        (9 * minute, 8 * minute),
        (4 * minute, 4 * minute),
    ]


def test_errors_and_warnings_are_shown(source: NodeDriver) -> None:
    told = source.call("query", range=RANGE, targets=[{"refId": "A", "expr": "sum(", "range": True}])
    (message,) = told["errors"]
    assert "is not closed" in message
    counts = {"refId": "A", "expr": "count_over_time(node_load[7d])", "range": True}
    assert any(frame["notices"] for frame in panel(source, counts))


def test_exemplars_are_asked_for_and_there_are_none(source: NodeDriver) -> None:
    source.call("requests")
    frames = panel(source, {"refId": "A", "expr": "rate(wait_bucket[5m])", "range": True, "exemplar": True})
    assert len(frames) == len(BOUNDS)
    assert "POST /api/v1/query_exemplars" in source.call("requests")


def test_only_packages_of_the_user_interface_are_stubs() -> None:
    folder = Path(__file__).parent / "grafana"
    pins = (folder / "package.json").read_text()
    stubs = {line.strip().split('"')[1] for line in pins.splitlines() if "file:stub" in line}
    assert stubs == {
        "@floating-ui/react",
        "@grafana/assistant",
        "@grafana/plugin-ui",
        "@grafana/ui",
        "@hello-pangea/dnd",
        "monaco-editor",
        "monaco-promql",
    }
