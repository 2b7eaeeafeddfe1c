"""The HTTP API of Prometheus: the requests of Grafana's data source and of other clients, and their errors."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest
import yaml

from artimon.api.api_limits import ApiLimits
from artimon.api.json_points import number
from artimon.api.prometheus_format import unescaped
from artimon.model.cardinality import Cardinality
from artimon.model.values import Kind
from query_dsl.promql.promql_settings import PromqlSettings
from query_dsl.stores.engine_store import EngineStore
from query_dsl.stores.query_limits import QueryBudget
from query_dsl.tree.times import format_time
from tests.api.serving import EDGE, Answer, Client, minutes, served
from tests.api.test_listings import polled_store
from tests.query_dsl.plain_store import PlainStore

MANY = '{host!=""}'
FORM = {"content-type": "application/x-www-form-urlencoded"}
ALERTS = {
    "engines": [{"id": "alerts", "time_ms": EDGE}],
    "rules": [
        {"name": "down", "expr": "fetch('up') == 0", "state": "firing", "error": "", "for_ms": 60_000},
        {"name": "odd", "expr": "fetch('x')", "state": "error", "error": "no series", "for_ms": 0},
        {
            "name": "p.yaml/g/High",
            "alert": "High",
            "file": "p.yaml",
            "group": "g",
            "interval_ms": 10_000,
            "expr": "x > 1",
            "state": "inactive",
            "error": "",
            "for_ms": 0,
            "duration_ms": 1.5,
            "labels": {"severity": "page"},
            "annotations": {"summary": "{{ $value }} is high"},
            "line": 9,
        },
    ],
    "recordings": [
        {
            "name": "p.yaml/g/x:sum",
            "record": "x:sum",
            "file": "p.yaml",
            "group": "g",
            "line": 5,
            "interval_ms": 10_000,
            "expr": "sum(x)",
            "error": "",
            "time_ms": EDGE - 60_000,
            "duration_ms": 2.5,
            "labels": {"site": "paris"},
        },
        {
            "name": "q.yaml/h/y:sum",
            "record": "y:sum",
            "file": "q.yaml",
            "group": "h",
            "expr": "sum(y)",
            "error": "give less",
            "time_ms": EDGE,
        },
        {"name": "q.yaml/h/z:sum", "record": "z:sum", "file": "q.yaml", "group": "h", "expr": "sum(z)", "time_ms": 0},
    ],
    "alerts": [
        {
            "rule": "down",
            "labels": {"host": "h1"},
            "state": "firing",
            "since_ms": EDGE,
            "value": 0,
            "summary": "down",
        },
        {"rule": "down", "labels": {"host": "h2"}, "state": "resolved", "since_ms": EDGE, "value": 1, "summary": ""},
    ],
    "truncated": 0,
    "problem": "",
}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    store = PlainStore()
    for route in ("/", "/a"):
        store.add("http.requests", {"route": route, "job": "shop"}, minutes([60 * i for i in range(40)]))
    store.add("heat", {"host": 'a"\n'}, minutes([20.5, float("nan"), float("inf")]))
    store.add("tiny", {}, minutes([1e-7]))
    with served(store, alerts=lambda: ALERTS) as found:
        yield found


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("query", {"query": "heat @ 1e300"}),
        ("query", {"query": "heat @ -9e15"}),
        ("query", {"query": "heat", "lookback_delta": "1e300"}),
        ("query", {"query": "heat", "lookback_delta": "99999y"}),
        ("query", {"query": "heat", "time": "1e300"}),
        ("query_range", {"query": "heat", "start": 0, "end": 1, "step": "1e300"}),
        ("query", {"query": "count_over_time(heat[1y:1s])"}),
        ("query", {"query": 'label_replace(heat, "a", "x", "host", "(")'}),
        ("query", {"query": "topk(1e308, heat)"}),
        ("query", {"query": "heat\0"}),
        ("series", {"match[]": 'heat{host=~"["}'}),
    ],
)
def test_hostile_parameters_are_refused(client: Client, path: str, parameters: dict[str, Any]) -> None:
    answer = client.get(f"/api/v1/{path}", **parameters)
    assert (answer.status in (400, 422), answer.json["status"]) == (True, "error")


@pytest.mark.parametrize("name", ["U___FFFFFF_", "U___D800_", "U___0_", "%00"])
def test_escapes_of_no_character_are_names(client: Client, name: str) -> None:
    assert data(client.get(f"/api/v1/label/{name}/values")) == []


def post(client: Client, path: str, **parameters: Any) -> Answer:
    return client.send("POST", path, urlencode(parameters, doseq=True).encode(), FORM)


def data(answer: Answer) -> Any:
    assert answer.status == 200, answer.body
    assert answer.json["status"] == "success"
    return answer.json["data"]


# --- what Grafana asks


def test_save_and_test_is_answered_at_any_time(client: Client) -> None:
    found = post(client, "/api/v1/query", query="1+1", time=4)
    assert found.body == b'{"status":"success","data":{"resultType":"scalar","result":[4,"2"]}}'
    assert data(client.get("/api/v1/query", query="vector(1)+vector(1)", time="4.5")) == {
        "resultType": "vector",
        "result": [{"metric": {}, "value": [4.5, "2"]}],
    }
    assert data(client.get("/api/v1/status/buildinfo"))["version"] == "2.24.0"
    assert "features" not in data(client.get("/api/v1/status/buildinfo"))


def test_a_panel_asks_for_a_range(client: Client) -> None:
    start, end = EDGE / 1000 - 600, EDGE / 1000
    found = data(
        post(
            client,
            "/api/v1/query_range",
            query='sum by (route) (rate({"http.requests"}[5m]))',
            start=start,
            end=end,
            step="60",
        )
    )
    assert found["resultType"] == "matrix"
    assert [one["metric"] for one in found["result"]] == [{"route": "/"}, {"route": "/a"}]
    times, values = zip(*found["result"][0]["values"], strict=True)
    assert list(times) == [start + 60 * i for i in range(11)]
    assert set(values) == {"1"}
    durations = client.get(
        "/api/v1/query_range", query="heat", start="2023-11-14T22:00:00Z", end=EDGE / 1000, step="1m"
    )
    assert data(durations)["result"][0]["metric"] == {"__name__": "heat", "host": 'a"\n'}


def test_explore_gets_vectors_with_special_values(client: Client) -> None:
    found = data(client.get("/api/v1/query", query="heat", time=EDGE / 1000))
    assert found["result"][0]["value"] == [EDGE / 1000, "+Inf"]
    assert data(client.get("/api/v1/query", query="heat", time=EDGE / 1000 - 60))["result"][0]["value"][1] == "NaN"
    assert data(client.get("/api/v1/query", query="tiny"))["result"][0]["value"][1] == "1e-07"
    window = data(client.get("/api/v1/query", query='{"http.requests",route="/"}[2m]', time=EDGE / 1000))
    assert (window["resultType"], len(window["result"][0]["values"])) == ("matrix", 2)
    assert data(client.get("/api/v1/query", query='"a\\n"', time=1)) == {"resultType": "string", "result": [1, "a\n"]}
    stats = data(client.get("/api/v1/query", query="heat[3m]", stats="all", time=EDGE / 1000))["stats"]
    assert stats["timings"]["execTotalTime"] >= stats["timings"]["evalTotalTime"] > 0
    assert stats["samples"]["totalQueryableSamples"] == 3


def test_variables_are_filled(client: Client) -> None:
    assert data(client.get("/api/v1/label/__name__/values")) == ["heat", "http.requests", "tiny"]
    wanted = urlencode({"match[]": '{"http.requests"}', "start": 1, "end": 2})
    matched = f"/api/v1/label/route/values?{wanted}"
    assert data(client.get(matched)) == ["/", "/a"]
    assert data(client.get("/api/v1/label/U__job/values")) == ["shop"]
    assert data(post(client, "/api/v1/labels")) == ["__name__", "host", "job", "route"]
    assert data(post(client, "/api/v1/labels", **{"match[]": ["heat", "tiny"]})) == ["__name__", "host"]
    series = data(post(client, "/api/v1/series", **{"match[]": ['{"http.requests"}', '{route="/"}']}))
    assert series == [{"__name__": "http.requests", "job": "shop", "route": route} for route in ("/", "/a")]
    every = post(client, "/api/v1/series", **{"match[]": '{__name__!=""}', "limit": 2})
    assert len(data(every)) == 2
    assert "truncated to 2" in every.json["warnings"][0]


def test_the_editor_gets_types_and_layout(client: Client) -> None:
    assert data(client.get("/api/v1/metadata"))["heat"] == [{"type": "unknown", "help": "", "unit": ""}]
    assert list(data(client.get("/api/v1/metadata", metric="tiny"))) == ["tiny"]
    assert data(client.get("/api/v1/format_query", query="sum  by(a)(x)")) == "sum by (a) (x)"
    assert (
        data(post(client, "/api/v1/query_exemplars", query="test", start=1_700_000_000_000, end=1_700_000_000_001))
        == []
    )


def test_rules_and_alerts(client: Client) -> None:
    group = data(client.get("/api/v1/rules"))["groups"][0]
    assert [(one["name"], one["state"], one["health"]) for one in group["rules"]] == [
        ("down", "firing", "ok"),
        ("odd", "inactive", "err"),
    ]
    (alert,) = data(client.get("/api/v1/alerts"))["alerts"]
    assert alert["labels"] == {"alertname": "down", "host": "h1"}
    assert (alert["state"], alert["annotations"]) == ("firing", {"summary": "down"})


def test_rules_have_their_alerts_and_types(client: Client) -> None:
    group, _ = data(client.get("/api/v1/rules", type="alert"))["groups"]
    assert [len(one["alerts"]) for one in group["rules"]] == [1, 0]
    recorded, others = data(client.get("/api/v1/rules", type="record"))["groups"]
    assert recorded["rules"] == [
        {
            "name": "x:sum",
            "query": "sum(x)",
            "type": "recording",
            "health": "ok",
            "lastError": "",
            "lastEvaluation": format_time(EDGE - 60_000),
            "evaluationTime": 0.0025,
            "labels": {"site": "paris"},
        }
    ]
    assert [(one["health"], one["lastError"]) for one in others["rules"]] == [("err", "give less"), ("unknown", "")]
    assert others["rules"][1]["lastEvaluation"] == "0001-01-01T00:00:00Z"
    refused = client.get("/api/v1/rules", type="alerts").json
    assert (refused["errorType"], "write alert or record" in refused["error"]) == ("bad_data", True)


@pytest.mark.parametrize(
    ("parameters", "names"),
    [
        ({"rule_name[]": ["High", "z:sum"]}, ["High", "z:sum"]),
        ({"rule_group[]": "g"}, ["x:sum", "High"]),
        ({"file[]": ["artimon", "q.yaml"]}, ["down", "odd", "y:sum", "z:sum"]),
        ({"file[]": "p.yaml", "type": "alert"}, ["High"]),
        ({"file[]": "p.yaml", "rule_group[]": "h"}, []),
        ({"rule_name[]": "high"}, []),
    ],
)
def test_rules_are_chosen_by_their_place(client: Client, parameters: dict[str, Any], names: list[str]) -> None:
    groups = data(client.get(f"/api/v1/rules?{urlencode(parameters, doseq=True)}"))["groups"]
    assert [rule["name"] for group in groups for rule in group["rules"]] == names
    assert all(group["rules"] for group in groups)


def test_rules_that_are_left_out_are_a_warning() -> None:
    with served(alerts=lambda: {**ALERTS, "truncated": 7}) as client:
        assert client.get("/api/v1/rules").json["warnings"][0].startswith("7 rules and alerts are left out")


def test_rules_of_prometheus_are_in_their_groups(client: Client) -> None:
    found = data(client.get("/api/v1/rules"))["groups"]
    assert [(one["name"], one["file"], one["interval"]) for one in found] == [
        ("artimon", "artimon", 60),
        ("g", "p.yaml", 10),
        ("h", "q.yaml", 60),
    ]
    recording, rule = found[1]["rules"]
    assert (recording["name"], rule["annotations"]) == ("x:sum", {"summary": "{{ $value }} is high"})
    assert (rule["name"], rule["labels"], rule["evaluationTime"]) == ("High", {"severity": "page"}, 0.0015)
    assert rule["lastEvaluation"] == format_time(EDGE)


def test_targets_are_the_endpoints(client: Client) -> None:
    with served(polled_store()) as polled:
        found = data(polled.get("/api/v1/targets"))["activeTargets"]
        assert {one["health"] for one in found} <= {"up", "down", "unknown"}
        assert [one["health"] for one in found].count("down") == polled.get("/api/endpoints").json["down"] > 0
        assert data(polled.get("/api/v1/targets", state="dropped"))["activeTargets"] == []


def test_probes(client: Client) -> None:
    assert client.get("/-/healthy").status == client.get("/-/ready").status == 200
    assert client.get("/api/v1/status/flags").status == 404
    told = client.get("/api/v1/no/such").json
    assert (told["status"], told["errorType"]) == ("error", "not_found")
    assert client.send("DELETE", "/api/v1/series").status == 405


def test_the_server_describes_itself(client: Client) -> None:
    assert data(client.get("/api/v1/status/runtimeinfo"))["startTime"].endswith("Z")
    limits = yaml.safe_load(data(client.get("/api/v1/status/config"))["yaml"])["limits"]
    assert limits["soft"]["series"] < limits["hard"]["series"]


class CountedStore(PlainStore):
    """A store that counts its series, as shards do; it also says that a shard is missing."""

    def cardinality(self, top: int) -> Cardinality:
        return Cardinality(9, 7, {"up": 6, "x": 3}, {"host": 2}, {"host": 4}, {"host=a": 6})

    def watching(self, watch: QueryBudget) -> EngineStore:
        watch.remark(["shard 1 does not answer"])
        return self


def test_cardinality(client: Client) -> None:
    store = CountedStore()
    for host in ("a", "b", "c"):
        store.add("up", {"host": host}, minutes([1]))
    with served(store) as counted:
        found = counted.get("/api/v1/status/tsdb", limit=5)
        told = data(found)
        assert (told["headStats"]["numSeries"], told["headStats"]["numLabelPairs"]) == (9, 7)
        assert told["seriesCountByMetricName"] == [{"name": "up", "value": 6}, {"name": "x", "value": 3}]
        assert told["labelValueCountByLabelName"] == [{"name": "host", "value": 3}]
        assert told["seriesCountByLabelValuePair"] == [{"name": "host=a", "value": 6}]
        for path in ("status/tsdb", "labels", "series?match[]=up", "label/host/values", "metadata"):
            assert counted.get(f"/api/v1/{path}").json["warnings"] == ["shard 1 does not answer"]
    assert client.get("/api/v1/status/tsdb").json["errorType"] == "bad_data"


def test_trees_are_returned(client: Client) -> None:
    assert data(post(client, "/api/v1/parse_query", query="-1")) == {"type": "numberLiteral", "val": "-1"}


def test_answers_are_compressed(client: Client) -> None:
    asked = urlencode({"query": '{"http.requests"}[1h]', "time": EDGE / 1000})
    found = client.send("GET", f"/api/v1/query?{asked}", headers={"accept-encoding": "gzip"})
    assert found.headers["content-encoding"] == "gzip"
    assert json.loads(gzip.decompress(found.body))["status"] == "success"


# --- errors and limits


@pytest.mark.parametrize(
    ("path", "parameters", "status", "kind", "message"),
    [
        ("query", {}, 400, "bad_data", 'invalid parameter "query"'),
        ("query", {"query": "sum("}, 400, "bad_data", "is not closed"),
        ("query", {"query": "x", "time": "noon"}, 400, "bad_data", "valid timestamp"),
        ("query", {"query": "x", "time": "nan"}, 400, "bad_data", "valid timestamp"),
        ("query", {"query": "x", "limit": "-1"}, 400, "bad_data", "whole number"),
        ("query", {"query": "x", "lookback_delta": "0"}, 400, "bad_data", "greater than 0"),
        ("query", {"query": "(" * 3000}, 400, "bad_data", "nest more than"),
        ("query", {"query": "1" + "+1" * 3000}, 400, "bad_data", "operators"),
        ("query", {"query": "x" * 17_000}, 422, "execution", "query_bytes"),
        ("query", {"query": "heat * on () {__name__=~'.+'}"}, 422, "execution", "many-to-many"),
        ("query", {"query": "info(x)"}, 400, "bad_data", "experimental"),
        ("query_range", {"query": "x", "start": 0, "end": 1}, 400, "bad_data", '"step"'),
        ("query_range", {"query": "x", "start": 0, "end": 1, "step": "x"}, 400, "bad_data", '"step"'),
        ("query_range", {"query": "x", "start": 0, "end": 1e9, "step": 1}, 422, "execution", "11,000 points"),
        ("query_range", {"query": "x", "start": 2, "end": 1, "step": 1}, 422, "execution", "end must not be before"),
        ("query_range", {"query": "x[5m]", "start": 1, "end": 2, "step": 1}, 422, "execution", "range query"),
        ("series", {}, 400, "bad_data", "no match[]"),
        ("series", {"match[]": "rate(x[5m])"}, 400, "bad_data", "not a vector selector"),
        ("labels", {"match[]": "{"}, 400, "bad_data", "not closed"),
        ("series", {"match[]": ""}, 400, "bad_data", "empty"),
        ("series", {"match[]": "{}"}, 400, "bad_data", "at least one non-empty matcher"),
        ("labels", {"limit": "x"}, 400, "bad_data", "whole number"),
        ("parse_query", {"query": "("}, 400, "bad_data", "not closed"),
        ("parse_query", {"query": "-" * 300 + "1"}, 400, "bad_data", "operators"),
        ("parse_query", {"query": "x" * 17_000}, 422, "execution", "query_bytes"),
        ("format_query", {"query": "sum("}, 400, "bad_data", "not closed"),
        ("query_exemplars", {"query": "("}, 400, "bad_data", "not closed"),
        ("query", {"query": "x", "timeout": "0"}, 400, "bad_data", "greater than 0"),
        ("query", {"query": "max_over_time(heat[1y:1ms])"}, 422, "execution", "subquery"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_errors_have_the_form_of_prometheus(
    client: Client, method: str, path: str, parameters: dict[str, Any], status: int, kind: str, message: str
) -> None:
    if method == "GET":
        found = client.get(f"/api/v1/{path}", **parameters)
    else:
        found = post(client, f"/api/v1/{path}", **parameters)
    told = json.loads(found.body)
    assert (found.status, told["status"], told["errorType"]) == (status, "error", kind)
    assert message in told["error"]


def test_answers_are_truncated_with_a_warning(client: Client) -> None:
    found = client.get("/api/v1/query", query='{__name__=~".+"}', limit=1)
    assert len(data(found)["result"]) == 1
    assert "truncated to 1 of 4" in found.json["warnings"][0]


def test_many_parameters_and_other_bodies_are_refused(client: Client) -> None:
    many = "&".join(f"match[]=a{i}" for i in range(300))
    assert client.get(f"/api/v1/series?{many}").json["errorType"] == "bad_data"
    assert client.send("POST", "/api/v1/query", b'{"query": "1"}', {"content-type": "application/json"}).status == 415


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (0.1, "0.1"),
        (-2.5, "-2.5"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1e-6, "0.000001"),
        (1e-7, "1e-07"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Inf"),
        (123456789.125, "123456789.125"),
    ],
)
def test_numbers_are_texts_without_loss(value: float, text: str) -> None:
    assert number(value) == text


def test_names_of_labels_are_unescaped() -> None:
    assert unescaped("U__http_2e_requests__total") == "http.requests_total"
    assert unescaped("plain_name") == "plain_name"


def test_settings_of_the_process_hold_for_requests_that_ask_for_nothing() -> None:
    store = PlainStore()
    samples = [(EDGE - 30_000 - i * 60_000, (20 - i) ** 2) for i in range(20)]
    store.add("c.total", {"job": "a"}, sorted(samples), Kind.COUNTER, birth=EDGE - 3_600_000)
    increases = {"query": "increase(c_total[3m])", "time": EDGE / 1000}
    with served(store, promql=PromqlSettings(exact_increase=True, similar_names=True)) as client:
        assert values(client, **increases) == ["111"]
        (extrapolated,) = values(client, **increases, exact_increase="false")
        assert float(extrapolated) == pytest.approx(114)
        for path, wanted in (
            ("series", [{"__name__": "c.total", "job": "a"}]),
            ("labels", ["__name__", "job"]),
            ("label/job/values", ["a"]),
        ):
            asked = urlencode({"match[]": "c_total"})
            assert client.get(f"/api/v1/{path}?{asked}").json["data"] == wanted
        refused = client.get(f"/api/v1/query?{urlencode({**increases, 'exact_increase': 'yes'})}")
        assert (refused.status, refused.json["errorType"]) == (400, "bad_data")
        assert "write true or false" in refused.json["error"]
    with served(store) as client:
        assert values(client, **increases) == []
        assert values(client, **{**increases, "query": 'increase({"c.total"}[3m])'}, exact_increase="true") == ["111"]


def test_lists_are_of_series_with_samples_in_the_range() -> None:
    store = PlainStore()
    store.add("now", {"host": "a", "job": "x"}, minutes([1] * 10))
    store.add("old", {"host": "b", "rack": "r"}, minutes([1] * 10, last=60))
    store.add("silent", {"host": "c"}, [])

    def listed(client: Client, path: str, *times: int, match: str = '{__name__!=""}') -> Any:
        named = {name: EDGE / 1000 + 60 * at for name, at in zip(("start", "end"), times, strict=False)}
        return data(client.get(f"/api/v1/{path}?{urlencode({'match[]': match, **named})}"))

    with served(store) as client:
        for times, wanted in (
            ((), ["now", "old", "silent"]),
            ((-5,), ["now"]),
            ((-65,), ["now", "old"]),
            ((-65, -60), ["old"]),
            ((-50, -20), []),
            ((-200, -100), []),
        ):
            assert [one["__name__"] for one in listed(client, "series", *times)] == wanted
            assert listed(client, "label/__name__/values", *times) == wanted
        assert listed(client, "label/host/values", -65, -60) == ["b"]
        assert listed(client, "label/job/values", -65, -60) == []
        assert listed(client, "labels", -65, -60) == ["__name__", "host", "rack"]
        assert listed(client, "labels", -5, 0) == ["__name__", "host", "job"]
        assert listed(client, "labels", -5, 0, match="old") == []
        assert listed(client, "labels", match="silent") == ["__name__", "host"]
        turned = client.get("/api/v1/series?match[]=now&start=20&end=10")
        assert (turned.status, turned.json["errorType"]) == (400, "bad_data")
        assert "end must not be before the start" in turned.json["error"]
    with served(store, replace(ApiLimits(), series=1)) as client:
        told = client.get(f"/api/v1/labels?{urlencode({'match[]': MANY, 'start': EDGE / 1000})}").json
        assert told["data"] == ["__name__", "host", "job", "rack"]
        assert "start and end are not applied" in told["warnings"][0]


class Described(PlainStore):
    """A store that knows help and unit, as shards do."""

    def metadata(self, names: Sequence[str] | None) -> dict[str, tuple[str, str]]:
        known = {
            "heat": ("Temperature.", "celsius"),
            "gone": ("Not in memory.", ""),
            "up.time": ("Time since the rack was switched on.", ""),
            "wait_count": ("Time of waiting.", "s"),
        }
        return {name: told for name, told in known.items() if names is None or name in names}


def test_metadata_have_help_and_unit_where_they_are_known() -> None:
    heat = [{"type": "gauge", "help": "Temperature.", "unit": "celsius"}]
    store = Described().add("heat", {}, minutes([1]), Kind.GAUGE).add("load", {}, minutes([1]))
    with served(store) as client:
        load = [{"type": "unknown", "help": "", "unit": ""}]
        assert data(client.get("/api/v1/metadata")) == {"heat": heat, "load": load}
        assert data(client.get("/api/v1/metadata", metric="heat")) == {"heat": heat}
        assert data(client.get("/api/v1/metadata", metric="load")) == {"load": load}
        assert data(client.get("/api/v1/metadata", metric="gone")) == {}


def test_metadata_have_the_families_of_histograms_and_summaries() -> None:
    """Under their names, beside the variables; a counter and a gauge that are called so are no family."""
    store = Described()
    for name in ("wait_bucket", "wait_sum", "wait_count", "rpc_sum", "rpc_count", "own.bucket", "own.sum", "own.count"):
        store.add(name, {"le": "1"} if "bucket" in name else {}, minutes([1]), Kind.COUNTER)
    store.add("rpc", {"quantile": "0.5"}, minutes([1]), Kind.GAUGE).add("disk_sum", {}, minutes([1]), Kind.GAUGE)
    store.add("disk_count", {}, minutes([1]), Kind.COUNTER).add("_count", {}, minutes([1]), Kind.COUNTER)
    with served(store) as client:
        every = data(client.get("/api/v1/metadata"))
        assert every["wait"] == [{"type": "histogram", "help": "Time of waiting.", "unit": "s"}]
        assert {name: one[0]["type"] for name, one in every.items() if one[0]["type"] not in ("counter", "gauge")} == {
            "wait": "histogram",
            "own": "histogram",
            "rpc": "summary",
        }
        assert len(every) == 14
        assert list(every) == sorted(every)
        for name in ("wait", "own", "rpc", "wait_sum", "disk_sum"):
            assert data(client.get("/api/v1/metadata", metric=name)) == {name: every[name]}
        assert data(client.get("/api/v1/metadata", metric="disk")) == {}
        assert list(data(client.get("/api/v1/metadata", search="wait_"))) == ["wait_bucket", "wait_count", "wait_sum"]


def test_metadata_are_limited() -> None:
    store = Described().add("a", {}, minutes([1]))
    for name in ("b_bucket", "b_sum", "b_count"):
        store.add(name, {}, minutes([1]), Kind.COUNTER)
    with served(store) as client:
        cut = client.get("/api/v1/metadata", limit=2, limit_per_metric=1).json
        assert (list(cut["data"]), "truncated to 2" in cut["warnings"][0]) == (["a", "b"], True)
        assert "warnings" not in client.get("/api/v1/metadata", limit=5).json
        refused = client.get("/api/v1/metadata", limit_per_metric="x").json
        assert refused["error"].startswith('invalid parameter "limit_per_metric": it must be a whole number')


@pytest.mark.parametrize(
    ("search", "names"),
    [
        ("", ["heat", "load", "up.time"]),
        ("TEMP", ["heat"]),
        ("celsius ea", ["heat"]),
        ("celsius load", []),
        ("rack", ["load", "up.time"]),
        ("rack=", ["load"]),
        ("rack=a", ["load"]),
        ("rack=b", []),
        ("nothing=b", []),
    ],
)
def test_variables_are_searched_by_words(search: str, names: list[str]) -> None:
    store = Described().add("heat", {}, minutes([1]), Kind.GAUGE).add("load", {"rack": "a"}, minutes([1]))
    store.add("up.time", {"host": "rack"}, minutes([1]), Kind.COUNTER)
    with served(store) as client:
        assert list(data(client.get("/api/v1/metadata", search=search))) == names
        cut = client.get("/api/v1/metadata", search=search, limit=1).json
        assert (list(cut["data"]), bool(cut.get("warnings"))) == (names[:1], len(names) > 1)


def values(client: Client, **parameters: Any) -> list[str]:
    """Values of an instant query."""
    found = client.get(f"/api/v1/query?{urlencode(parameters)}").json
    return [one["value"][1] for one in found["data"]["result"]]


def test_all_numbers_are_formatted_one_by_one_or_together() -> None:
    """Rows of numbers, with and without exponents, gaps, NaN and infinities."""
    rows = [
        [1.0, 2.5, -0.0, 123456789.0],
        [1e-7, 1e20, 1e21, 0.1 + 0.2],
        [float("nan"), float("inf"), float("-inf"), 5e-324],
        [0.00001, 1e15, 1e16, 2.0**53],
    ]
    store = PlainStore()
    for i, row in enumerate(rows):
        store.add("x", {"i": str(i), "odd": 'a"b\n\u00e9' * i}, minutes(row))
    store.add("x", {"i": "gap"}, minutes([7, 8], last=10))
    with served(store) as client:
        asked = {"query": "last_over_time(x[1m])", "start": EDGE / 1000 - 900, "end": EDGE / 1000, "step": 60}
        found = client.get(f"/api/v1/query_range?{urlencode(asked)}").json["data"]["result"]
    texts = {one["metric"]["i"]: [text for _, text in one["values"]] for one in found}
    assert texts == {**{str(i): [number(value) for value in row] for i, row in enumerate(rows)}, "gap": ["7", "8"]}
    assert [time for time, _ in found[-1]["values"]] == [EDGE / 1000 - 660, EDGE / 1000 - 600]
    assert [one["metric"].get("odd") for one in found] == [None, *('a"b\n\u00e9' * i for i in (1, 2, 3)), None]


def half_an_hour(query: str, **more: object) -> dict[str, object]:
    return {"query": query, "start": EDGE / 1000 - 2400, "end": EDGE / 1000, "step": 60, **more}


def test_an_answer_carries_its_completeness_if_it_is_asked_for() -> None:
    """In a member of its own, which clients of Prometheus ignore; a remark only if data is missing."""
    store = PlainStore().add("load", {"host": "a"}, minutes([1.0] * 50))
    store.add("load", {"host": "b"}, minutes([1.0] * 50, last=10))
    with served(store) as client:
        plain = client.get("/api/v1/query_range", **half_an_hour("load")).json
        asked = client.get("/api/v1/query_range", **half_an_hour("load", completeness="true")).json
        told = asked.pop("completeness")
        assert asked == plain
        assert (told["silent"][0]["host"], told["missing"], told["expected"]) == ("b", 9, 88)
        assert [one[:36] for one in plain["infos"]] == ["data is missing: host b silent since"]
        assert "warnings" not in plain
        whole = client.get("/api/v1/query_range", **half_an_hour('load{host="a"}', completeness="true")).json
        assert (whole["completeness"]["missing"], set(whole)) == (0, {"status", "data", "completeness"})
        summed = client.get("/api/v1/query", query="sum(load)", time=EDGE / 1000, completeness="true").json
        assert (summed["completeness"]["text"][:9], summed["data"]["result"][0]["value"][1]) == ("50.00 % o", "1")
        assert client.get("/api/v1/query", query="load", completeness="1").status == 400
