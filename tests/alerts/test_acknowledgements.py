"""Acknowledgements: no repeats, but new alerts and ends are told; they end by time or with the alert."""

from __future__ import annotations

import pytest

from alerts.state.notification import Notification
from alerts.state.operations import OperationError
from tests.alerts.api_client import api_of
from tests.alerts.test_silences import routed  # noqa: F401
from tests.alerts.worlds import MINUTE, World


def firing(world: World, *hosts: str) -> list[Notification]:
    alerts = world.engine.dispatcher.alerts.values()
    return [one for one in alerts if dict(one.labels)["host"] in hosts]


def acknowledge(world: World, *hosts: str, minutes: int = 0) -> None:
    now_ms = world.clock.now_ms()
    until_ms = now_ms + minutes * MINUTE if minutes else 0
    world.engine.acknowledgements.put(firing(world, *hosts), "ana", "on it", now_ms, until_ms)


def messages(world: World, values: dict[str, int], minutes: int) -> list[str]:
    """What is told within some minutes, as the hosts that fire."""
    told = []
    for _ in range(minutes):
        world.tick(values)
        for waiting in world.database.due_letters(2**60):
            alerts = waiting.letter.message.alerts
            told.append(" ".join(sorted(f"{one.kind} {dict(one.labels)['host']}" for one in alerts)))
            world.database.sent(waiting.seq)
    return told


def test_an_acknowledged_group_is_not_repeated(routed: World) -> None:  # noqa: F811
    assert messages(routed, {"a": 0}, 12) == ["firing a", "firing a"], "repeat_interval is 10m"
    acknowledge(routed, "a")
    assert messages(routed, {"a": 0}, 30) == []
    (shown,) = routed.engine.view().alerts()
    assert shown["acknowledged"] == {"author": "ana", "comment": "on it", "until_ms": 0}
    assert messages(routed, {"a": 1}, 3) == ["resolved a"]
    assert not routed.engine.acknowledgements.acknowledged, "it ends with the alert"
    assert messages(routed, {"a": 0}, 12) == ["firing a", "firing a"]


def test_a_new_alert_of_the_group_is_told(routed: World) -> None:  # noqa: F811
    messages(routed, {"a": 0}, 2)
    acknowledge(routed, "a")
    assert messages(routed, {"a": 0, "b": 0}, 2) == ["firing a firing b"]
    assert messages(routed, {"a": 0, "b": 0}, 11) == ["firing a firing b"], "nobody cares for b yet"
    acknowledge(routed, "b")
    assert messages(routed, {"a": 0, "b": 0}, 30) == []
    assert messages(routed, {"a": 0, "b": 1}, 2) == ["firing a resolved b"]


def test_it_ends_by_time(routed: World) -> None:  # noqa: F811
    messages(routed, {"a": 0}, 2)
    acknowledge(routed, "a", minutes=30)
    assert messages(routed, {"a": 0}, 29) == []
    assert messages(routed, {"a": 0}, 3) == ["firing a"]
    assert not routed.engine.acknowledgements.acknowledged


def test_it_survives_a_restart_and_can_be_withdrawn(routed: World) -> None:  # noqa: F811
    messages(routed, {"a": 0}, 2)
    acknowledge(routed, "a")
    routed.start()
    assert messages(routed, {"a": 0}, 30) == []
    routed.engine.acknowledgements.remove(firing(routed, "a"), "bo", routed.clock.now_ms())
    assert messages(routed, {"a": 0}, 2) == ["firing a"]
    entries = [(one.author, one.action, one.comment) for one in routed.database.audit(10)]
    assert entries == [
        ("bo", "acknowledgement withdrawn", "down host=a,severity=page: "),
        ("ana", "acknowledged", "down host=a,severity=page: on it"),
    ]


def test_what_cannot_be_acknowledged_is_refused(routed: World) -> None:  # noqa: F811
    routed.tick({"a": 0})
    with pytest.raises(OperationError, match="no such alert fires"):
        acknowledge(routed, "z")
    with pytest.raises(OperationError, match="author: missing"):
        routed.engine.acknowledgements.put(firing(routed, "a"), "", "x", routed.clock.now_ms())
    with pytest.raises(OperationError, match="in the past"):
        acknowledge(routed, "a", minutes=-1)
    with pytest.raises(OperationError, match="no such alert is acknowledged"):
        routed.engine.acknowledgements.remove(firing(routed, "a"), "bo", routed.clock.now_ms())


def test_over_http_by_alert_by_matchers_and_by_group(routed: World) -> None:  # noqa: F811
    routed.tick({"a": 0, "b": 0})
    with api_of(routed) as api:
        (one, *_) = api.ask("/api/v2/alerts")
        told = {"createdBy": "ana", "comment": "on it"}
        path = "/api/alerts/acknowledgements"
        assert api.ask(path, {**told, "alerts": [one["fingerprint"]]}) == {"acknowledged": [one["fingerprint"]]}
        assert len(api.ask(path, {**told, "filter": 'host=~"a|b"', "duration": "2h"})["acknowledged"]) == 2
        assert len(api.ask(path, {**told, "group": {"alertname": "down"}})["acknowledged"]) == 2
        assert {found["acknowledged"]["author"] for found in api.ask("/api/v2/alerts")} == {"ana"}
        assert api.ask(path, {**told, "alerts": ["nobody"]}) == (404, "no such alert fires")
        assert api.ask(path, {**told})[0] == 400
        assert len(api.ask(path, {"filter": 'host="a"'}, "DELETE")["withdrawn"]) == 1
        assert api.ask("/api/alerts/audit?limit=1")[0]["author"] == "ana"
