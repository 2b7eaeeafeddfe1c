"""Rules tell which part of their data is missing: in the display of the rule and in the messages."""

from __future__ import annotations

import pytest

from alerts.evaluation import rule_completeness
from alerts.receivers.mail import as_text
from alerts.state.notification import Message
from artimon.model.select import Buckets, SelectRequest
from query_dsl.evaluation.host_acks import UNACKED
from tests.alerts.worlds import MINUTE, World, rule_text
from tests.query_dsl.plain_store import PlainStore
from varstore.cluster.varstore_client import StoreUnavailable

WELL = {"a": 1, "b": 1, "c": 1, "d": 1}
PROMQL = """
groups:
- name: g
  rules:
  - {alert: down, expr: 'sum by (host) (rate(up[5m])) > 100 or up{host="a"} < 1'}
"""


def silent(world: World, minutes: int = 5) -> None:
    """Ten minutes with all hosts, then `minutes` without b."""
    for _ in range(10):
        world.tick(WELL)
    for _ in range(minutes):
        world.tick({host: value for host, value in WELL.items() if host != "b"})


def shown(world: World) -> str:
    (rule,) = (world.engine.view()._rule(name, "") for name in world.engine.view().active.rules)
    return str(rule.get("completeness", ""))


def test_a_complete_answer_is_not_mentioned(world: World) -> None:
    world.write(rule_text())
    silent(world, minutes=0)
    world.tick({**WELL, "a": 0})
    assert shown(world) == ""
    assert dict(world.notes()[0].annotations) == {}


def test_a_message_tells_what_is_missing(world: World) -> None:
    world.write(rule_text())
    silent(world)
    world.tick({"a": 0, "c": 1, "d": 1})
    told = dict(world.notes()[0].annotations)["completeness"]
    assert told.startswith("90.62 % of expected points; host b silent since ")
    assert shown(world) == told
    assert f"completeness  {told}" in " ".join(as_text(Message.of_one(world.notes()[0]), "").split("\n"))


def test_a_rule_without_alerts_tells_it_within_ten_minutes(world: World) -> None:
    world.write(rule_text())
    silent(world, minutes=12)
    assert "host b silent since" in shown(world)
    for _ in range(45):
        world.tick(WELL)
    assert shown(world) == ""


@pytest.mark.parametrize(
    ("selector", "is_told"), [("up", True), ('up{host="b"}', True), ('up{host="a"}', False), ("other", False)]
)
def test_only_what_the_rule_selects_counts(world: World, selector: str, is_told: bool) -> None:
    world.write(rule_text().replace("fetch('up')", f"fetch('{selector}')"))
    silent(world, minutes=12)
    assert ("host b silent" in shown(world)) is is_told


def test_rules_in_promql_tell_it(world: World) -> None:
    world.write(PROMQL)
    silent(world, minutes=12)
    assert "host b silent since" in shown(world)


def test_a_message_tells_the_state_of_a_silent_host(world: World) -> None:
    world.write(rule_text())
    silent(world, minutes=12)
    world.store.add(UNACKED, {"host": "b", "instance": "agent-b"}, [(world.time - 1_000, 20 * MINUTE)])
    world.tick({"a": 0, "c": 1, "d": 1})
    assert dict(world.notes()[0].annotations)["completeness"].endswith("Z (late)")


def test_an_annotation_of_the_rule_wins(world: World) -> None:
    world.write(rule_text().replace("summary:", "annotations: {completeness: mine}\n    summary:"))
    silent(world)
    world.tick({"a": 0, "c": 1, "d": 1})
    assert dict(world.notes()[0].annotations)["completeness"] == "mine"


class Counted(PlainStore):
    """Counts selections of the last half hour; `broken`: they fail."""

    asked = 0
    is_broken = False

    def select(self, request: SelectRequest) -> Buckets:
        if request.grid.n == rule_completeness.COLUMNS:
            self.asked += 1
            if self.is_broken:
                raise StoreUnavailable("no shard")
        return super().select(request)


@pytest.fixture
def counted(world: World) -> Counted:
    world.store = Counted()
    return world.store


def test_rules_with_equal_selectors_are_measured_once(world: World, counted: Counted) -> None:
    rules = [rule_text().replace("down", f"down-{i}").replace("\nrules:", "") for i in range(20)]
    world.write(f"rules:{''.join(rules)}")
    world.tick(WELL)
    assert counted.asked == 1
    for _ in range(9):
        world.tick(WELL)
    assert counted.asked == 1
    world.tick(WELL)
    assert counted.asked == 2


def test_the_time_is_bounded_and_every_rule_has_its_turn(
    world: World, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_completeness, "BUDGET_S", 0.0)
    rules = [
        rule_text().replace("down", f"down-{i}").replace("\nrules:", "").replace("'up'", f"'up{{n!=\"{i}\"}}'")
        for i in range(8)
    ]
    world.write(f"rules:{''.join(rules)}")
    for minute in range(8):
        world.tick(WELL)
        assert counted.asked == minute + 1
    world.tick(WELL)
    assert counted.asked == 8


def test_a_failure_leaves_the_verdicts_alone(world: World, counted: Counted) -> None:
    counted.is_broken = True
    world.write(rule_text())
    world.tick({**WELL, "a": 0})
    assert (world.states(), shown(world)) == ({"a": "firing"}, "")
    assert world.engine.result.failing == ""
