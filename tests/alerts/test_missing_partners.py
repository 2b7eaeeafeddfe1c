"""Rules over operators are decided key by key: one without a partner, or that cannot be judged, stops no other."""

from __future__ import annotations

from artimon.model.values import Kind, ValueType
from tests.alerts.worlds import MINUTE, World, rule_text
from tests.query_dsl.plain_store import PlainSeries, Sample

RATIO = (
    "fetch('requests{code=~\\\"5..\\\"}', default=0).increase('5m').sum(by=['host']) / "
    "fetch('requests').increase('5m').sum(by=['host'])"
)


def count(world: World, host: str, code: str, more: int) -> None:
    """A sample in the next minute; a new series counts from 0."""
    labels = {"host": host, "code": code}
    found = next((one for one in world.store.series if one.labels == labels), None)
    if found is None:
        found = PlainSeries("requests", labels, [], Kind.COUNTER, ValueType.INTEGER)
        world.store.series.append(found)
    before = found.samples[-1] if found.samples else Sample(world.time, 0, world.time)
    assert isinstance(before.value, int)
    found.samples.append(Sample(world.time + MINUTE - 10_000, before.value + more, before.birth))


def test_the_error_ratio_fires_for_the_dying_service_alone(world: World) -> None:
    """40 of 140 requests a minute fail from minute 8 to 11: the ratio of five minutes is above 0.05 until minute 15."""
    world.write(f"""rules: [{{name: down, expr: "{RATIO}", threshold: "> 0.05", missing: keep}}]""")
    told = {}
    for minute in range(20):
        for host in "ab":
            count(world, host, "200", 100)
        if minute >= 8:
            count(world, "a", "500", 40 if minute < 12 else 0)
        world.tick()
        assert world.error() == ""
        told[minute] = world.told()
    assert {minute: one for minute, one in told.items() if one} == {8: ["firing a"], 16: ["resolved a"]}


def test_one_alert_that_cannot_be_judged_stops_no_other(world: World) -> None:
    world.write(rule_text())
    world.store.add("up", {"host": "t"}, [(world.time + MINUTE - 10_000, "text")])
    world.tick({"a": 0, "b": 1})
    assert world.told() == ["firing a"]
    assert "compares with a number" in world.error()
    world.tick({"a": 1, "b": 0})
    assert sorted(world.told()) == ["firing b", "resolved a"]


def test_two_series_of_one_alert_stop_no_other(world: World) -> None:
    world.write(rule_text().replace("fetch('up')", "fetch('{__name__=~\"up|also\"}')"))
    world.store.add("also", {"host": "b"}, [(world.time + MINUTE - 10_000, 0)])
    world.tick({"a": 0, "b": 0})
    assert world.told() == ["firing a"]
    assert "give the same alert" in world.error()
