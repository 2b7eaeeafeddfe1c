"""The rules of examples/alerts over two hours of generated failures: each fires and resolves at the right minute."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from artimon.model.values import Kind
from query_dsl import offline
from query_dsl.stores.auto_store import AutoStore
from tests.alerts.worlds import MINUTE, START, World
from tests.query_dsl.plain_store import Sample

EXAMPLES = Path(__file__).parents[2] / "examples" / "alerts"
FIRST, HOURLY, BEFORE, LENGTH = -31 * 24 * 60, -74 * 60, 7 * 60, 120
"""Minutes: the first, and the first in memory; minutes with samples before the first evaluation, and evaluations."""
BIRTH = START - 60 * 24 * 60 * MINUTE
SERVICES = {"shop": (20, 50, 20), "cart": (0, 0, 0), "search": (40, 45, 100), "mail": (70, 120, 2)}
"""Service -> first and last minute of its failures, and failures a minute of 100 requests. `cart` never fails."""
DOWN = (60, 76)
"""Minutes in which the process of search does not answer."""
SILENT = (80, 95)
"""Minutes without a heartbeat of the backup."""
Event = tuple[int, str, str, str]
"""Minute, rule, value of its label, and kind of the notification."""


def failures(service: str, minute: int) -> int:
    first, last, rate = SERVICES[service]
    return rate if first <= minute < last else 0


def failed(service: str, minute: int) -> int:
    """Failed requests since the first minute; those of mail in the past are a little less than its budget."""
    first, last, rate = SERVICES[service]
    old = 71 * min(max((minute - FIRST) // 60 - 100, 0), 60) if service == "mail" else 0
    return old + rate * max(0, min(minute, last - 1) - first + 1)


def free(minute: int) -> float:
    """Free space: constant, then falling by 5 a minute, then constant."""
    return 1_000.0 - 5.0 * min(max(minute - 30, 0), 60)


def put_minute(world: World, minute: int) -> None:
    """Add the samples of one minute, 10 s before its end."""

    def add(name: str, labels: Mapping[str, str], value: float, kind: Kind = Kind.GAUGE) -> None:
        at = START + minute * MINUTE - 10_000
        found = [one for one in world.store.series if one.name == name and one.labels == labels]
        if found:
            found[0].samples.append(Sample(at, value, BIRTH))
        else:
            world.store.add(name, dict(labels), [Sample(at, value, BIRTH)], kind)

    for service in SERVICES:
        bad, all_ = failed(service, minute), 100 * (minute - FIRST)
        add("http.requests", {"service": service, "code": "200"}, all_ - bad, Kind.COUNTER)
        if service != "cart":
            add("http.requests", {"service": service, "code": "503"}, bad, Kind.COUNTER)
    add("artimon.endpoint.up", {"context": "search"}, float(not DOWN[0] <= minute < DOWN[1]))
    add("host.disk.free", {"host": "h1", "mount": "/"}, free(minute))
    add("job.heartbeat", {"job": "billing"}, 1.0)
    if not SILENT[0] <= minute < SILENT[1]:
        add("job.heartbeat", {"job": "backup"}, 1.0)


def expected_events(rule: str, label: str, holds: Callable[[int], bool], hold: int = 0, first: int = 1) -> list[Event]:
    """The events of one alert whose condition holds or not at each minute."""
    since: int | None = None
    firing = False
    events: list[Event] = []
    for minute in range(first, LENGTH + 1):
        true = holds(minute)
        since = (minute if since is None else since) if true else None
        if true and not firing and since is not None and minute - since >= hold:
            events.append((minute, rule, label, "firing"))
            firing = True
        elif firing and not true:
            events.append((minute, rule, label, "resolved"))
            firing = False
    return events


def ratio(service: str, end: int, window: int) -> float:
    """Failed share of the requests of the minutes (end - window, end]."""
    return sum(failures(service, one) for one in range(end - window + 1, end + 1)) / (100 * window)


def falls_to(end: int) -> float:
    """Line of the last hour, four hours on."""
    minutes = np.arange(end - 59, end + 1)
    slope, at_0 = np.polyfit(minutes - end, [free(int(one)) for one in minutes], 1)
    return float(at_0 + slope * (240 + 10 / 60))


def run(world: World, file: str) -> list[Event]:
    """Evaluate the file each minute; return what was notified."""
    world.write((EXAMPLES / file).read_text())
    for minute in (*range(HOURLY, -BEFORE, 60), *range(-BEFORE, 1)):
        put_minute(world, minute)
    events: list[Event] = []
    for minute in range(1, LENGTH + 1):
        put_minute(world, minute)
        world.tick()
        for note in world.changes():
            labels = dict(note.labels)
            label = next(labels[name] for name in ("service", "context", "host", "job") if name in labels)
            events.append((minute, note.rule, label, str(note.kind)))
        errors = {name: result.error for name, result in world.engine.view().results.items() if result.error}
        assert not errors, (minute, errors)
    return events


def with_history(world: World) -> World:
    """Thirty-one days, hourly."""
    minutes = range(FIRST, LENGTH + 1, 60)
    series: dict[str, Sequence[tuple[int, float]]] = {}
    for service in SERVICES:
        counts: dict[str, list[tuple[int, float]]] = {
            code: [] for code in ("200", "503") if service != "cart" or code == "200"
        }
        for minute in minutes:
            bad, all_ = failed(service, minute), 100 * (minute - FIRST)
            for code, points in counts.items():
                points.append((START + minute * MINUTE - 10_000, bad if code == "503" else all_ - bad))
        for code, points in counts.items():
            series[f'http.requests{{service="{service}",code="{code}"}}'] = points
    made = offline(series, kinds=dict.fromkeys(series, "counter"), births=dict.fromkeys(series, BIRTH))
    world.past = AutoStore(world.store, lambda: made, world.clock)
    return world


def objective(service: str, end: int) -> float:
    """Failed share of the requests of 30 days, up to the hour."""
    hour = end // 60 * 60
    return (failed(service, hour) - failed(service, hour - 30 * 24 * 60)) / (100 * 30 * 24 * 60)


def expected_of(service: str) -> list[Event]:
    """The events of one service."""

    def burns(end: int, short: int, long: int) -> float:
        return min(ratio(service, end, short), ratio(service, end, long))

    return [
        *expected_events("budget-burns-fast", service, lambda end: burns(end, 5, 60) > 0.0144),
        *expected_events("budget-burns", service, lambda end: burns(end // 15 * 15, 30, 360) > 0.006),
        *expected_events("objective-missed", service, lambda end: objective(service, end) > 0.001),
        *expected_events("error-ratio", service, lambda end: ratio(service, end, 5) > 0.05, hold=2),
    ]


def test_rules_of_services(world: World) -> None:
    """The healthy service never fires; the dying ones do, at the minute at which the truth crosses the threshold."""
    events = run(with_history(world), "slo.yaml")
    expected = [event for service in SERVICES for event in expected_of(service)]
    assert sorted(events) == sorted(expected)
    assert {event[1:3] for event in events} >= {
        ("budget-burns-fast", "shop"), ("budget-burns", "shop"), ("error-ratio", "search"), ("objective-missed", "mail")
    }  # fmt: skip
    assert not [event for event in events if event[2] == "cart"]


def test_rules_of_hosts(world: World) -> None:
    events = run(world, "hosts.yaml")

    def up(end: int) -> float:
        return sum(not DOWN[0] <= one < DOWN[1] for one in range(end - 59, end + 1)) / 60

    expected = [
        *expected_events("uptime", "search", lambda end: up(end) < 0.9),
        *expected_events("disk-full-in-4h", "h1", lambda end: falls_to(end) < 0, hold=5),
        *expected_events("deadman", "backup", lambda end: SILENT[0] <= end < SILENT[1], hold=3),
    ]
    assert sorted(events) == sorted(expected)
    assert {event[1] for event in events} == {"uptime", "disk-full-in-4h", "deadman"}
    assert not math.isnan(falls_to(60))


@pytest.mark.parametrize("file", sorted(one.name for one in EXAMPLES.glob("*.yaml")))
def test_every_example_is_a_valid_file(world: World, file: str) -> None:
    world.write((EXAMPLES / file).read_text())
    world.tick()
    assert world.engine.result.problems == ()
