"""The requests that Grafana's data source makes, in its order and with its parameters.

They are those of the package @grafana/prometheus 13.2 (resource_clients, metric_find_query, language_provider,
datasource) and of Grafana's backend, which sends forms by POST."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.api.serving import EDGE, Client, minutes, served
from tests.api.test_prometheus import data, post
from tests.query_dsl.plain_store import PlainStore

END_S = EDGE // 1000
RANGE = {"start": END_S - 3600, "end": END_S}
LIMIT = 40_000
"""`seriesLimit` of a new data source."""


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    store = PlainStore()
    for host in ("h1", "h2"):
        store.add("node_load", {"host": host, "job": "node"}, minutes([1.0 * i for i in range(40)]))
        store.add("http.requests", {"host": host, "route": "/"}, minutes([60 * i for i in range(40)]))
    with served(store) as found:
        yield found


def get(client: Client, path: str, **parameters: object) -> Any:
    return data(client.send("GET", f"/api/v1/{path}?{urlencode(parameters, doseq=True)}"))


def test_save_and_test(client: Client) -> None:
    assert data(post(client, "/api/v1/query", query="1+1", time=4))["result"] == [4, "2"]
    info = get(client, "status/buildinfo")
    assert (info["version"], "features" in info) == ("2.24.0", False)
    assert client.get("/api/v1/status/flags").status == 404  # else it would be taken for Thanos


def test_the_start_of_the_language_provider(client: Client) -> None:
    assert get(client, "label/__name__/values", limit=LIMIT, **RANGE) == ["http.requests", "node_load"]
    assert get(client, "labels", limit=LIMIT, **RANGE) == ["__name__", "host", "job", "route"]
    assert set(get(client, "metadata", limit=LIMIT)) == {"http.requests", "node_load"}
    probe = {"query": "test", "start": EDGE - 1800_000, "end": EDGE}  # in milliseconds
    assert get(client, "query_exemplars", **probe) == []
    assert get(client, "rules") == {"groups": []}


@pytest.mark.parametrize(
    ("path", "match", "values"),
    [
        ("label/host/values", None, ["h1", "h2"]),  # label_values(host)
        ("label/host/values", 'node_load{job="node"}', ["h1", "h2"]),  # label_values(node_load{job="node"}, host)
        ("label/route/values", '{"http.requests"}', ["/"]),
        ("label/__name__/values", '{__name__=~"node_.*"}', ["node_load"]),  # metrics(node_.*)
        ("labels", '{__name__=~".*load.*"}', ["__name__", "host", "job"]),  # label_names(load)
        ("label/U__http_2e_route/values", None, []),
    ],
)
def test_variables(client: Client, path: str, match: str | None, values: list[str]) -> None:
    matching = {} if match is None else {"match[]": match}
    assert get(client, path, limit=LIMIT, **RANGE, **matching) == values


def test_variables_of_queries_and_series(client: Client) -> None:
    found = data(post(client, "/api/v1/query", query="topk(1, node_load)", time=END_S))  # query_result(topk(…))
    assert (found["resultType"], found["result"][0]["value"]) == ("vector", [END_S, "39"])
    series = data(post(client, "/api/v1/series", **{"match[]": "node_load"}, **RANGE))
    assert {one["__name__"] for one in series} == {"node_load"}
    everything = get(client, "series", **{"match[]": '{__name__!=""}'}, limit=LIMIT, **RANGE)
    assert len(everything) == 4


def test_a_panel(client: Client) -> None:
    """The interval is 15 s, `$__rate_interval` four scrapes of 60 s; start and end are aligned to the step."""
    asked = {
        "query": "rate(node_load[4m0s])",
        "start": f"{END_S - 900}",
        "end": f"{END_S}",
        "step": "15",
        "timeout": "",
    }
    found = data(post(client, "/api/v1/query_range", **asked))
    assert found["resultType"] == "matrix"
    assert [len(one["values"]) for one in found["result"]] == [61, 61]


def test_explore_sends_a_range_and_an_instant_query(client: Client) -> None:
    query = 'sum by (route) (rate({"http.requests"}[4m]))'
    ranged = data(post(client, "/api/v1/query_range", query=query, start=f"{END_S}.000", end=f"{END_S}.000", step="60"))
    instant = data(post(client, "/api/v1/query", query=query, time=f"{END_S}.000"))
    assert ranged["result"][0]["values"] == [instant["result"][0]["value"]]
    assert get(client, "query_exemplars", query=query, **RANGE) == []


def test_a_refused_post_is_repeated_by_get(client: Client) -> None:
    """The data source falls back to GET on 405; every path that it posts to takes both."""
    for path in ("query", "query_range", "series", "labels"):
        assert client.send("GET", f"/api/v1/{path}").status != 405
        assert client.send("POST", f"/api/v1/{path}").status != 405
