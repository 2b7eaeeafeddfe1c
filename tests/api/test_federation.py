"""`/federate`: the newest samples as text, which the parser of Prometheus' client reads."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from prometheus_client.parser import text_string_to_metric_families

from query_dsl.promql.promql_settings import PromqlSettings
from tests.api.serving import EDGE, Client, minutes, served
from tests.query_dsl.plain_store import MINUTE, PlainStore


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    store = PlainStore()
    store.add("up", {"job": "shop", "instance": "1"}, minutes([1, 1, 0]))
    store.add("up", {"job": 'quote"\n\\'}, minutes([1.5]))
    store.add("http.requests", {"route": "/"}, minutes([1, 2, 3]))
    store.add("gone", {}, minutes([7.0], last=2), ended=EDGE - MINUTE)
    store.add("old", {}, minutes([7.0], last=10))
    with served(store) as found:
        yield found


def federate(client: Client, *selectors: str, accept: str = "text/plain") -> str:
    asked = urlencode({"match[]": selectors}, doseq=True)
    found = client.send("GET", f"/federate?{asked}", headers={"accept": accept})
    assert found.status == 200, found.body
    assert found.headers["content-type"].startswith("text/plain; version=")
    return found.body.decode()


def test_the_newest_samples_come_with_their_times(client: Client) -> None:
    text = federate(client, "up", '{__name__=~"gone|old|up|text"}')
    samples = [one for family in text_string_to_metric_families(text) for one in family.samples]
    assert [(one.name, one.labels, one.value) for one in samples] == [
        ("up", {"job": 'quote"\n\\', "instance": ""}, 1.5),
        ("up", {"job": "shop", "instance": "1"}, 0.0),
    ] or [one.labels["instance"] for one in samples] == ["1", ""]
    assert text.count("# TYPE up untyped\n") == 1
    assert f" 0 {EDGE - 1}\n" in text


def test_names_are_escaped_unless_the_client_takes_them(client: Client) -> None:
    assert f'http_requests{{instance="",route="/"}} 3 {EDGE - 1}\n' in federate(client, '{"http.requests"}')
    whole = federate(client, '{"http.requests"}', accept="text/plain; version=1.0.0; escaping=allow-utf-8")
    assert f'# TYPE "http.requests" untyped\n{{"http.requests",instance="",route="/"}} 3 {EDGE - 1}\n' in whole


@pytest.mark.parametrize(("similar", "lines"), [(False, 0), (True, 2)])
def test_similar_names_are_found_if_the_process_has_that_setting(similar: bool, lines: int) -> None:
    """They have their own names, escaped where the client needs that."""
    store = PlainStore().add("http.requests", {"route": "/"}, minutes([3]))
    with served(store, promql=PromqlSettings(similar_names=similar)) as client:
        text = federate(client, "http_requests", accept="text/plain; version=1.0.0; escaping=allow-utf-8")
        assert text.count('"http.requests"') == lines
        assert federate(client, '{__name__=~"http_requests"}') == ""


@pytest.mark.parametrize(
    "query", ["", "match[]=", "match[]=sum(x)", "match[]={}", "match[]=up[5m]", "match[]=up offset 1m"]
)
def test_selectors_are_required(client: Client, query: str) -> None:
    found = client.get("/federate" + ("?" + query.replace(" ", "+") if query else ""))
    assert (found.status, found.json["errorType"]) == (400, "bad_data")
