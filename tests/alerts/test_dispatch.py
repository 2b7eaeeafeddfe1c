"""Groups of alerts: what is sent when, to whom; the times are those of Alertmanager."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from alerts.dispatch.dispatcher import Dispatcher
from alerts.dispatch.groups import Group
from alerts.dispatch.inhibition import InhibitRule
from alerts.dispatch.matchers import parse_matchers
from alerts.dispatch.routes import EscalationStep, Route, Routing, Timing, child_key
from alerts.dispatch.time_intervals import TimeInterval
from alerts.receivers.receiver_kind import Integration
from alerts.state.alert import AlertChange
from alerts.state.notification import AlertLetter, Notification
from tests.alerts.worlds import World, rule_text

S = 1_000
MINUTE = 60 * S
NOW = 1_800_000_000_000
TIMING = Timing(30 * S, 5 * MINUTE, 4 * 60 * MINUTE)


def alert(rule: str, at_ms: int, kind: AlertChange = AlertChange.FIRING, /, **labels: str) -> Notification:
    resolved_ms = at_ms if kind is AlertChange.RESOLVED else 0
    pairs = tuple(sorted(labels.items()))
    return Notification(kind, rule, pairs, "fetch('x')", "< 1", 0, at_ms, at_ms, resolved_ms, 0, "", f"{rule} fires")


@dataclass
class Team:
    """A dispatcher, its clock, and what was told."""

    routing: Routing
    now_ms: int = NOW
    silenced: set[str] = field(default_factory=set)
    """Hosts with a silence."""
    acknowledged: set[str] = field(default_factory=set)
    """Hosts whose alerts are acknowledged."""

    def __post_init__(self) -> None:
        self.dispatcher = Dispatcher(self.routing)

    def fire(self, rule: str, **labels: str) -> None:
        self.dispatcher.put([alert(rule, self.now_ms, **labels)], self.now_ms)

    def resolve(self, rule: str, **labels: str) -> None:
        self.dispatcher.put([alert(rule, self.now_ms, AlertChange.RESOLVED, **labels)], self.now_ms)

    def after(self, wait_ms: int) -> list[str]:
        """Time passes, second by second; return what was told, as `target status: KIND host`."""
        told: list[str] = []
        for _ in range(wait_ms // S):
            self.now_ms += S
            told += [text_of(letter) for letter in self._flush()]
        return told

    def _flush(self) -> list[AlertLetter]:
        return self.dispatcher.flush(self.now_ms, self._silenced, self._acknowledged)

    def _acknowledged(self, one: Notification, now_ms: int) -> bool:
        return dict(one.labels).get("host") in self.acknowledged

    def _silenced(self, labels: Mapping[str, str], now_ms: int) -> bool:
        return labels.get("host") in self.silenced

    def restart(self) -> None:
        """Continue with what would be stored."""
        groups = {id: Group.from_json(group.to_json()) for id, group in self.dispatcher.groups.items()}
        alerts = {one: Notification.from_json(found.to_json()) for one, found in self.dispatcher.alerts.items()}
        self.dispatcher = Dispatcher(self.routing, alerts, groups)


def text_of(letter: AlertLetter) -> str:
    alerts = " ".join(f"{one.kind} {dict(one.labels).get('host', one.rule)}" for one in letter.message.alerts)
    return f"{letter.target}: {alerts}"


def routing(root: Route, **more: object) -> Routing:
    receivers = {"ops": (Integration("ops@x.y"),), "db": (Integration("db@x.y"),), "default": ()}
    quiet = {"quiet": (Integration("quiet@x.y", send_resolved=False),)}
    return Routing("default", {**receivers, **quiet}, root, **more)  # type: ignore[arg-type]


@pytest.fixture
def team() -> Team:
    return Team(routing(Route("ops", ("rack",), TIMING)))


def test_a_new_group_waits_and_takes_all_that_fire_meanwhile(team: Team) -> None:
    team.fire("down", host="a", rack="1")
    assert team.after(20 * S) == []
    team.fire("down", host="b", rack="1")
    team.fire("down", host="c", rack="2")
    assert team.after(10 * S) == ["ops@x.y: firing b firing a"]
    assert team.after(20 * S) == ["ops@x.y: firing c"]


def test_changes_are_told_once_an_interval(team: Team) -> None:
    team.fire("down", host="a", rack="1")
    team.after(MINUTE)
    team.fire("down", host="b", rack="1")
    assert team.after(4 * MINUTE) == []
    assert team.after(MINUTE) == ["ops@x.y: firing b firing a"]
    team.resolve("down", host="a", rack="1")
    assert team.after(5 * MINUTE) == ["ops@x.y: firing b resolved a"]
    assert team.after(60 * MINUTE) == []
    team.resolve("down", host="b", rack="1")
    assert team.after(5 * MINUTE) == ["ops@x.y: resolved b"]
    assert not team.dispatcher.groups
    assert not team.dispatcher.alerts


def test_an_unchanged_group_is_repeated(team: Team) -> None:
    team.fire("down", host="a", rack="1")
    assert len(team.after(13 * 60 * MINUTE)) == 4


def test_an_alert_that_resolves_within_the_wait_is_never_told(team: Team) -> None:
    team.fire("down", host="a", rack="1")
    team.after(10 * S)
    team.resolve("down", host="a", rack="1")
    assert team.after(10 * MINUTE) == []
    assert not team.dispatcher.groups


def test_an_alert_older_than_the_wait_is_told_at_once(team: Team) -> None:
    team.dispatcher.put([alert("down", NOW - MINUTE, host="a", rack="1")], team.now_ms)
    assert team.after(S) == ["ops@x.y: firing a"]


def test_without_send_resolved_the_end_is_not_told_but_the_next_firing_is() -> None:
    team = Team(routing(Route("quiet", (), TIMING)))
    team.fire("down", host="a")
    assert team.after(MINUTE) == ["quiet@x.y: firing a"]
    team.resolve("down", host="a")
    assert team.after(10 * MINUTE) == []
    team.fire("down", host="a")
    assert team.after(MINUTE) == ["quiet@x.y: firing a"]


def tree() -> Route:
    """Databases go to db, pages to ops and on; all else to ops."""
    base = Route("ops", (), TIMING)
    paging = parse_matchers('severity="page"')
    databases = parse_matchers('service=~"mysql|pg"')
    children = (
        Route("quiet", (), TIMING, paging, True, key=child_key(base.key, paging)),
        Route("db", ("service",), TIMING, databases, key=child_key(base.key, databases)),
    )
    return Route("ops", (), TIMING, routes=children)


def test_routes_are_chosen_depth_first() -> None:
    team = Team(routing(tree()))
    team.fire("down", host="a", service="pg", severity="page")
    team.fire("down", host="b", service="pg")
    team.fire("down", host="c")
    told = team.after(MINUTE)
    assert sorted(told) == ["db@x.y: firing a firing b", "ops@x.y: firing c", "quiet@x.y: firing a"]
    keys = {group.key for group in team.dispatcher.groups.values()}
    assert keys == {'{}/{severity="page"}:{}', '{}/{service=~"mysql|pg"}:{service="pg"}', "{}:{}"}


def test_every_label_groups_each_alert_alone() -> None:
    team = Team(routing(Route("ops", None, TIMING)))
    team.fire("down", host="a", rack="1")
    team.fire("down", host="b", rack="1")
    assert sorted(team.after(MINUTE)) == ["ops@x.y: firing a", "ops@x.y: firing b"]


def inhibit(source: str, target: str, *equal: str) -> InhibitRule:
    return InhibitRule(parse_matchers(source), parse_matchers(target), equal)


def test_a_dead_site_mutes_its_hosts_and_no_other() -> None:
    rules = (inhibit('alertname="site"', 'alertname="down"', "site"),)
    team = Team(routing(Route("ops", ("alertname",), TIMING), inhibit_rules=rules))
    team.fire("site", site="paris")
    team.fire("down", host="a", site="paris")
    team.fire("down", host="b", site="rome")
    assert sorted(team.after(MINUTE)) == ["ops@x.y: firing b", "ops@x.y: firing site"]
    team.resolve("site", site="paris")
    assert sorted(team.after(5 * MINUTE)) == ["ops@x.y: firing a firing b", "ops@x.y: resolved site"]


def test_an_alert_on_both_sides_does_not_mute_itself_or_its_like() -> None:
    rules = (inhibit('severity=~".+"', 'severity=~".+"', "host"),)
    team = Team(routing(Route("ops", (), TIMING), inhibit_rules=rules))
    team.fire("one", host="a", severity="page")
    team.fire("two", host="a", severity="warn")
    assert len(team.after(MINUTE)) == 1
    assert len(team.dispatcher.alerts) == 2


def test_a_source_that_a_silence_hides_still_inhibits() -> None:
    rules = (inhibit('alertname="site"', 'alertname="down"'),)
    team = Team(routing(Route("ops", (), TIMING), inhibit_rules=rules), silenced={"s"})
    team.fire("site", host="s")
    team.fire("down", host="a")
    assert team.after(10 * MINUTE) == []


def test_a_silence_that_ends_lets_the_alert_through_at_the_next_interval(team: Team) -> None:
    team.silenced = {"a"}
    team.fire("down", host="a", rack="1")
    assert team.after(MINUTE) == []
    team.silenced = set()
    assert team.after(5 * MINUTE) == ["ops@x.y: firing a"]


def test_an_alert_that_resolves_under_a_silence_is_not_told_and_its_return_is(team: Team) -> None:
    team.fire("down", host="a", rack="1")
    team.after(MINUTE)
    team.silenced = {"a"}
    team.resolve("down", host="a", rack="1")
    assert team.after(10 * MINUTE) == []
    team.silenced = set()
    team.fire("down", host="a", rack="1")
    assert team.after(MINUTE) == ["ops@x.y: firing a"]


def test_a_muted_time_holds_messages_back() -> None:
    base = NOW // (24 * 60 * MINUTE) * (24 * 60 * MINUTE)
    night = {"night": (TimeInterval(times=((0, 6 * 60),)),)}
    team = Team(routing(Route("ops", (), TIMING, mute_intervals=("night",)), intervals=night), base + 5 * 60 * MINUTE)
    team.fire("down", host="a")
    assert team.after(59 * MINUTE) == []
    assert team.after(10 * MINUTE) == ["ops@x.y: firing a"]


def test_a_restart_tells_nothing_twice_and_forgets_nothing(team: Team) -> None:
    team.fire("down", host="a", rack="1")
    team.after(MINUTE)
    team.fire("down", host="b", rack="1")
    team.restart()
    assert team.after(5 * MINUTE) == ["ops@x.y: firing b firing a"]
    team.resolve("down", host="a", rack="1")
    team.restart()
    assert team.after(5 * MINUTE) == ["ops@x.y: firing b resolved a"]


def test_messages_of_a_group_form_a_thread_until_all_is_well(team: Team) -> None:
    ids: list[tuple[str, str]] = []

    def told(wait_ms: int) -> None:
        for _ in range(wait_ms // S):
            team.now_ms += S
            ids.extend((one.message.id, one.message.thread) for one in team.dispatcher.flush(team.now_ms))

    team.fire("down", host="a", rack="1")
    told(MINUTE)
    team.fire("down", host="b", rack="1")
    told(5 * MINUTE)
    team.resolve("down", host="a", rack="1")
    team.resolve("down", host="b", rack="1")
    told(5 * MINUTE)
    team.fire("down", host="a", rack="1")
    told(MINUTE)
    first, second, third, later = ids
    assert first[0] == first[1] == second[1] == third[1] != later[1]
    assert len({id for id, _ in ids}) == 4


def test_a_receiver_whose_address_changes_gets_the_ends_of_what_it_was_told() -> None:
    old = routing(Route("ops", (), TIMING))
    team = Team(old)
    team.fire("down", host="a")
    team.after(MINUTE)
    team.dispatcher.routing = Routing("default", {**old.receivers, "ops": (Integration("new@x.y"),)}, old.root)
    assert team.after(5 * MINUTE) == ["new@x.y: firing a"]
    team.resolve("down", host="a")
    assert sorted(team.after(5 * MINUTE)) == ["new@x.y: resolved a", "ops@x.y: resolved a"]


def test_a_storm_is_one_message_for_each_group() -> None:
    team = Team(routing(Route("ops", ("alertname",), TIMING)))
    storm = [alert(f"rule{i % 23}", NOW, host=f"h{i // 23}") for i in range(23_000)]
    team.dispatcher.put(storm, team.now_ms)
    team.now_ms += 31 * S
    letters = team.dispatcher.flush(team.now_ms)
    assert len(letters) == 23
    assert sum(len(letter.message.alerts) for letter in letters) == 23_000
    assert team.after(5 * MINUTE) == []


STEPS = (EscalationStep(15 * MINUTE, "db"), EscalationStep(60 * MINUTE, "quiet"))


def test_an_alert_that_nobody_acknowledges_is_told_to_the_next_step() -> None:
    team = Team(routing(Route("ops", ("rack",), replace(TIMING, interval_ms=10 * MINUTE), escalation=STEPS)))
    team.fire("down", host="a", rack="1")
    assert team.after(14 * MINUTE) == ["ops@x.y: firing a"]
    assert team.after(MINUTE) == ["db@x.y: firing a"]
    assert team.after(44 * MINUTE) == []
    assert team.after(MINUTE) == ["quiet@x.y: firing a"]
    team.resolve("down", host="a", rack="1")
    assert team.after(10 * MINUTE) == ["ops@x.y: resolved a", "db@x.y: resolved a"]


def test_an_acknowledgement_stops_the_escalation_and_a_new_alert_starts_it_again() -> None:
    team = Team(routing(Route("ops", ("rack",), TIMING, escalation=STEPS)))
    team.fire("down", host="a", rack="1")
    team.after(10 * MINUTE)
    team.acknowledged.add("a")
    assert team.after(120 * MINUTE) == []
    team.fire("down", host="b", rack="1")
    assert team.after(14 * MINUTE) == ["ops@x.y: firing b firing a"]
    team.restart()
    assert team.after(2 * MINUTE) == ["db@x.y: firing b firing a"]


def test_a_message_of_an_escalation_names_its_receiver() -> None:
    team = Team(routing(Route("ops", ("rack",), TIMING, escalation=STEPS[:1])))
    team.fire("down", host="a", rack="1")
    team.now_ms += 15 * MINUTE
    assert [one.message.receiver for one in team.dispatcher.flush(team.now_ms)] == ["ops", "db"]


def test_an_alert_of_a_sender_whose_clock_is_ahead_is_told(team: Team) -> None:
    team.dispatcher.put([alert("down", team.now_ms + MINUTE, host="a", rack="1")], team.now_ms)
    assert team.after(30 * S) == ["ops@x.y: firing a"]


def test_a_silenced_alert_is_not_escalated() -> None:
    team = Team(routing(Route("ops", ("rack",), TIMING, escalation=STEPS)))
    team.fire("down", host="a", rack="1")
    team.after(MINUTE)
    team.silenced.add("a")
    assert team.after(30 * MINUTE) == []


ROUTES = """
route: {receiver: ops, group_wait: 30s, group_interval: 5m, group_by: [alertname]}
receivers:
  - name: ops
    email_configs: [{to: "routed@example.org", send_resolved: true}]
"""


def test_a_group_that_is_due_right_after_a_restart_reaches_its_receivers(world: World) -> None:
    """The message is made before the first evaluation: receivers are read for it."""
    world.routing = world.folder / "am.yml"
    world.routing.write_text(ROUTES)
    world.write(rule_text())
    world.tick({"a": 0})
    assert world.letters() == []
    world.start()
    world.clock.advance(31 * S)
    assert world.engine.evaluate_due()
    (letter,) = world.letters()
    assert letter.target == "routed@example.org"
