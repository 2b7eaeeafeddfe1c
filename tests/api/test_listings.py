"""Names, labels, values, endpoints, alerts: what the page asks beside questions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from artimon.model.values import Kind
from tests.api.serving import EDGE, Client, minutes, served, small_store
from tests.query_dsl.plain_store import MINUTE, PlainStore


def polled_store() -> PlainStore:
    """Endpoints in every state."""
    store = small_store()

    def add(instance: str, points: list[tuple[int, int]], ended: int = 0) -> None:
        labels = {"context": "shop", "instance": instance, "host": "h1", "dc": "jb"}
        store.add("artimon.endpoint.up", labels, points, Kind.GAUGE, ended=ended)

    add("0", minutes([1] * 10))
    add("1", minutes([1, 1, 1, 0, 0]))
    add("2", minutes([1] * 5, last=20))
    add("3", minutes([1, 1], last=3), ended=EDGE - MINUTE)
    add("4", minutes([1] * 70))
    return store


@pytest.fixture(scope="module")
def polled() -> Iterator[Client]:
    with served(polled_store()) as client:
        yield client


def test_names_by_prefix(client: Client) -> None:
    assert client.get("/api/names").json == {"names": ["heat", "http.requests"], "truncated": False}
    assert client.get("/api/names", prefix="http").json == {"names": ["http.requests"], "truncated": False}
    assert client.get("/api/names", limit=1).json == {"names": ["heat"], "truncated": True}
    assert client.get("/api/names", prefix="x").json == {"names": [], "truncated": False}


def test_labels_and_their_values(client: Client) -> None:
    assert client.get("/api/labels").json == {"labels": ["route"], "truncated": False}
    assert client.get("/api/label_values", label="route").json == {"values": ["/", "/a"], "truncated": False}
    assert client.get("/api/label_values", label="route", prefix="/a").json["values"] == ["/a"]
    assert client.get("/api/label_values", label="route", limit=1).json == {"values": ["/"], "truncated": True}
    assert client.get("/api/label_values", label="__name__", prefix="h").json["values"] == ["heat", "http.requests"]
    assert client.get("/api/label_values", label="nothing").json == {"values": [], "truncated": False}
    assert client.get("/api/label_values").status == 400


@pytest.mark.parametrize("route", ["names", "labels", "label_values?label=a&", "endpoints", "find?selector=a&"])
def test_limits_of_lists(client: Client, route: str) -> None:
    join = "" if route.endswith("&") else "?"
    over = client.send("GET", f"/api/{route}{join}limit=10001")
    assert over.status == 413
    for word in ("10001", "found = 10000"):
        assert word in over.error
    assert client.send("GET", f"/api/{route}{join}limit=0").status == 400


def test_endpoints_that_are_down_come_first(polled: Client) -> None:
    found = polled.get("/api/endpoints").json
    told: list[tuple[Any, ...]] = [(one["instance"], one["up"], one["since_ms"]) for one in found["endpoints"]]
    assert told == [
        ("1", False, EDGE - MINUTE - 1),
        ("2", None, None),
        ("0", True, EDGE - 9 * MINUTE - 1),
        ("4", True, None),
    ]
    assert (found["down"], found["truncated"]) == (1, False)
    first = found["endpoints"][0]
    assert (first["context"], first["host"], first["time_ms"]) == ("shop", "h1", EDGE - 1)
    assert first["labels"] == {"context": "shop", "instance": "1", "host": "h1", "dc": "jb"}


def test_endpoints_are_cut_and_counted(polled: Client) -> None:
    found = polled.get("/api/endpoints", limit=1).json
    assert ([one["instance"] for one in found["endpoints"]], found["truncated"], found["down"]) == (["1"], True, 1)


def test_no_endpoints_at_all(client: Client) -> None:
    assert client.get("/api/endpoints").json == {"endpoints": [], "down": 0, "truncated": False, "notes": []}


def test_without_an_engine_alerts_say_so(client: Client) -> None:
    found = client.get("/api/alerts").json
    assert (found["rules"], found["alerts"], found["engines"]) == ([], [], [])
    assert "artimon alerts" in found["problem"]


def test_alerts_are_what_the_engines_say() -> None:
    said = {"engines": [{"id": "a"}], "rules": [], "alerts": [], "truncated": 0, "problem": ""}
    with served(alerts=lambda: said) as client:
        assert client.get("/api/alerts").json == said
