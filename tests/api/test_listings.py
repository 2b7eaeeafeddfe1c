"""Names, labels, values, endpoints, alerts: what the page asks beside questions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from artimon.api.endpoint_states import FRESH_S
from artimon.model.clock import ManualClock
from artimon.model.values import Kind
from tests.api.serving import EDGE, NOW, Client, minutes, served, small_store
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


def instances(found: dict[str, Any]) -> list[str]:
    return [one["instance"] for one in found["endpoints"]]


def test_endpoints_come_in_pages_and_all_are_counted(polled: Client) -> None:
    pages = [polled.get("/api/endpoints", limit=3, offset=offset).json for offset in (0, 3, 6)]
    assert [instances(page) for page in pages] == [["1", "2", "0"], ["4"], []]
    assert [page["truncated"] for page in pages] == [True, False, False]
    for page in pages:
        assert (page["found"], page["down"], page["unknown"], page["up"]) == (4, 1, 1, 2)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"state": "up"}, ["0", "4"]),
        ({"state": "unknown"}, ["2"]),
        ({"filter": "SHOP"}, ["1", "2", "0", "4"]),
        ({"filter": "dc=jb instance=4"}, ["4"]),
        ({"filter": "h1 dc=x"}, []),
        ({"filter": "instance=1", "state": "up"}, []),
    ],
)
def test_endpoints_are_filtered(polled: Client, parameters: dict[str, str], expected: list[str]) -> None:
    found = polled.get("/api/endpoints", **parameters).json
    assert (instances(found), found["found"]) == (expected, len(expected))
    assert (found["down"], found["unknown"], found["up"]) == (1, 1, 2)


def test_an_unknown_state_of_endpoints_is_refused(polled: Client) -> None:
    answer = polled.get("/api/endpoints", state="gone")
    assert answer.status == 400
    assert "'gone'" in answer.error
    assert "down, unknown, up" in answer.error


def test_endpoints_are_read_once_for_many_requests() -> None:
    store, clock = polled_store(), ManualClock(NOW)
    with served(store, clock=clock) as client:
        assert client.get("/api/endpoints").json["found"] == 4
        store.add("artimon.endpoint.up", {"context": "new"}, minutes([0]), Kind.GAUGE)
        assert client.get("/api/endpoints").json["found"] == 4
        clock.advance(int(FRESH_S * 1000))
        assert client.get("/api/endpoints", filter="new").json["down"] == 2


def test_no_endpoints_at_all(client: Client) -> None:
    expected = {"endpoints": [], "found": 0, "truncated": False, "down": 0, "unknown": 0, "up": 0, "notes": []}
    assert client.get("/api/endpoints").json == expected


def test_without_an_engine_alerts_say_so(client: Client) -> None:
    found = client.get("/api/alerts").json
    assert (found["rules"], found["alerts"], found["engines"]) == ([], [], [])
    assert "artimon alerts" in found["problem"]


def test_alerts_are_what_the_engines_say() -> None:
    said = {"engines": [{"id": "a"}], "rules": [], "recordings": [], "alerts": [], "truncated": 0, "problem": ""}
    with served(alerts=lambda: said) as client:
        assert client.get("/api/alerts").json == said
