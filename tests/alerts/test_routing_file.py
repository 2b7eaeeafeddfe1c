"""Routing files: those of Alertmanager are read as they are; errors and what is left out have their position."""

from __future__ import annotations

from pathlib import Path

import pytest

from alerts.dispatch.matchers import matches, parse_matchers
from alerts.dispatch.routes import Routing, Timing
from alerts.dispatch.routing_file import RoutingFile, check_routing, parse_routing
from alerts.dispatch.time_intervals import TimeInterval
from alerts.receivers.receiver_kind import Integration
from alerts.state.rule import AlertsError
from artimon.runtime.config_file import ConfigFileError
from tests.alerts.worlds import World, rule_text

DEFAULT = Routing("default", {"default": (Integration("ops@example.org"),)})
MINIMAL = "route: {receiver: ops}\nreceivers: [{name: ops, email_configs: [{to: a@b.c}]}]\n"
WHOLE = """
global:
  smtp_smarthost: mail:25
  resolve_timeout: 5m
route:
  receiver: ops
  group_by: [alertname, site]
  group_wait: 10s
  routes:
    - match: {severity: page}
      match_re: {site: "paris|rome"}
      receiver: night
      group_interval: 1m
      repeat_interval: 1d
      continue: true
      mute_time_intervals: [office]
    - matchers: ['service=~"pg|mysql"', 'team!="x"']
      group_by: ["..."]
receivers:
  - name: ops
    email_configs:
      - to: "a@b.c, d@e.f"
        send_resolved: true
        smarthost: mail:25
  - name: night
    webhook_configs: [{url: "https://x.y/z", max_alerts: 5}]
    slack_configs: [{api_url: "https://hooks.slack.com/services/T1/B2/C3", channel: "#x"}]
    sns_configs: [{topic_arn: x}]
inhibit_rules:
  - source_match: {alertname: site-down}
    target_matchers: ['severity="page"']
    equal: [site]
time_intervals:
  - name: office
    time_intervals:
      - weekdays: ["monday:friday", sunday]
        times: [{start_time: "09:00", end_time: "17:30"}]
        months: ["may:august", 12]
        days_of_month: ["1:5", "-3:-1"]
        years: ["2026:2028"]
        location: Europe/Paris
"""


def test_a_file_of_alertmanager_is_read_and_what_is_left_out_is_named() -> None:
    routing, left_out = parse_routing(WHOLE, "am.yml", DEFAULT)
    assert [str(one).split(": ")[0:2] for one in left_out] == [
        ["am.yml:2:1", "global"],
        ["am.yml:24:9", "receivers[0].email_configs[0].smarthost"],
        ["am.yml:27:76", "receivers[1].slack_configs[0].channel"],
        ["am.yml:28:5", "receivers[1].sns_configs"],
    ]
    root = routing.root
    assert root is not None
    assert (root.receiver, root.group_by, root.timing) == (
        "ops",
        ("alertname", "site"),
        Timing(10_000, 300_000, 4 * 3_600_000),
    )
    page, databases = root.routes
    assert (page.receiver, page.group_by, page.passes_on) == ("night", ("alertname", "site"), True)
    assert page.timing == Timing(10_000, 60_000, 86_400_000)
    assert page.key == '{}/{severity="page",site=~"^(?:paris|rome)$"}'
    assert (databases.receiver, databases.group_by) == ("ops", None)
    assert databases.key == '{}/{service=~"pg|mysql",team!="x"}'
    assert routing.receivers["ops"] == (Integration("a@b.c", True, 100), Integration("d@e.f", True, 100))
    slack = Integration("apprise:https://hooks.slack.com/services/T1/B2/C3", False)
    assert routing.receivers["night"] == (Integration("webhook:https://x.y/z", True, 5), slack)
    assert routing.inhibit_rules[0].equal == ("site",)
    (office,) = routing.intervals["office"]
    assert office == TimeInterval(
        ((540, 1050),), ((1, 5), (0, 0)), ((1, 5), (-3, -1)), ((5, 8), (12, 12)), ((2026, 2028),), "Europe/Paris"
    )


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("receiver: ops}", "receiver: opps}", "am.yml:1:19: route.receiver: unknown receiver; did you mean ops?"),
        ("{receiver: ops}", "{receiver: ops, group_wait: 5}", "route.group_wait"),
        ("{receiver: ops}", "{receiver: ops, group_wayt: 5s}", "unknown key"),
        ("{receiver: ops}", "{receiver: ops, matchers: ['a=\"b\"']}", "move the matchers to a child"),
        ("{receiver: ops}", "{receiver: ops, routes: [{matchers: ['a b']}]}", 'is not a matcher: write label="value"'),
        ("{receiver: ops}", "{receiver: ops, routes: [{matchers: ['a=~\"(\"']}]}", "route.routes[0].matchers[0]"),
        ("{receiver: ops}", "{receiver: ops, mute_time_intervals: [x]}", "unknown time interval"),
        ("{receiver: ops}", "{group_wait: 1s}", "needs a receiver"),
        (
            "{receiver: ops}",
            "{receiver: ops, escalation: [{after: 5m, receiver: boss}]}",
            "route.escalation[0].receiver",
        ),
        ("{receiver: ops}", "{receiver: ops, escalation: [{after: 5, receiver: ops}]}", "route.escalation[0].after"),
        ("a@b.c", "nobody", "not a mail address"),
        ("email_configs: [{to: a@b.c}]", "sns_configs: [{}]", "none of the kinds of this receiver is supported"),
        ("email_configs: [{to: a@b.c}]", "slack_configs: [{channel: x}]", "slack_configs[0]: api_url is missing"),
        ("email_configs: [{to: a@b.c}]", "apprise_configs: [{url: 'nowhere://x'}]", "apprise knows no service"),
        ("email_configs: [{to: a@b.c}]", "apprise_configs: [{}]", "give one of url, url_file and url_env"),
        ("email_configs", "emale_configs", "unknown key"),
        ("{name: ops, email", "{name: ops}, {name: ops, email", "receiver 'ops'"),
    ],
)
def test_errors_say_where_and_what(old: str, new: str, told: str) -> None:
    text = MINIMAL.replace(old, new)
    assert text != MINIMAL
    with pytest.raises(ConfigFileError) as failure:
        parse_routing(text, "am.yml", DEFAULT)
    assert told in str(failure.value)
    assert str(failure.value).startswith("am.yml:")


def test_a_tree_that_is_too_deep_or_too_large_is_refused() -> None:
    deep = "route: " + "{receiver: ops, routes: [" * 200 + "{receiver: ops}" + "]}" * 200
    with pytest.raises(ConfigFileError):
        parse_routing(deep + "\nreceivers: [{name: ops, email_configs: [{to: a@b.c}]}]", "am.yml", DEFAULT)


@pytest.mark.parametrize(
    ("text", "labels", "fits"),
    [
        ('a="b"', {"a": "b"}, True),
        ("a=b", {"a": "b"}, True),
        ('{a="b", c!="d"}', {"a": "b"}, True),
        ('a=~"b|c"', {"a": "bc"}, False),
        ('a!~"b.*"', {}, True),
        ('a=""', {}, True),
        ('a="x\\"y,z"', {"a": 'x"y,z'}, True),
        ("", {}, True),
    ],
)
def test_matchers(text: str, labels: dict[str, str], fits: bool) -> None:
    assert matches(parse_matchers(text), labels) is fits


@pytest.mark.parametrize("text", ["a", "a=b c=d", 'a="b', "1a=b", 'a=~"["', "a=b,,c=d", "x" * 5000])
def test_bad_matchers_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"matcher|character|regular|expression"):
        parse_matchers(text)


FRIDAY = 1_800_000_000_000 - 8 * 3_600_000
"""2027-01-15 00:00 UTC, a Friday."""
HOUR = 3_600_000


@pytest.mark.parametrize(
    ("interval", "hours", "inside"),
    [
        (TimeInterval(), 5, True),
        (TimeInterval(times=((540, 1050),)), 9, True),
        (TimeInterval(times=((540, 1050),)), 17.5, False),
        (TimeInterval(times=((540, 1050),), zone="Europe/Paris"), 8, True),
        (TimeInterval(weekdays=((1, 5),)), 23.9, True),
        (TimeInterval(weekdays=((1, 5),)), 24, False),
        (TimeInterval(days_of_month=((15, 15),)), 1, True),
        (TimeInterval(days_of_month=((-17, -17),)), 1, True),
        (TimeInterval(days_of_month=((-1, -1),)), 24 * 16, True),
        (TimeInterval(days_of_month=((29, 31),)), 24 * 20, False),
        (TimeInterval(months=((2, 3),)), 0, False),
        (TimeInterval(years=((2027, 2027),)), 0, True),
    ],
)
def test_time_intervals(interval: TimeInterval, hours: float, inside: bool) -> None:
    assert interval.contains(FRIDAY + int(hours * HOUR)) is inside


def test_the_engine_follows_a_routing_file_and_its_changes(world: World, tmp_path: Path) -> None:
    path = tmp_path / "am.yml"
    path.write_text(MINIMAL.replace("receiver: ops", "receiver: ops, group_by: [alertname], group_wait: 30s"))
    world.routing = path
    world.write(rule_text())
    world.tick({"a": 0})
    assert world.letters() == []
    world.clock.advance(40_000)
    assert world.engine.evaluate_due() is True
    assert [letter.target for letter in world.letters()] == ["a@b.c"]
    assert world.told() == ["firing a"]
    path.write_text(MINIMAL.replace("a@b.c", "nobody"))
    world.tick({"a": 0, "b": 0}, minutes=1)
    assert "not a mail address" in world.engine.result.problems[0]
    for _ in range(6):
        world.tick({"a": 0, "b": 0})
    assert world.told() == ["firing b"]


def test_a_start_with_an_invalid_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AlertsError, match="cannot be read"):
        check_routing(tmp_path / "am.yml")
    (tmp_path / "am.yml").write_text("route: 5")
    with pytest.raises(AlertsError, match=r"am\.yml:1"):
        check_routing(tmp_path / "am.yml")


def test_a_file_that_was_never_valid_leaves_the_default(tmp_path: Path) -> None:
    (tmp_path / "am.yml").write_text("route: 5")
    file = RoutingFile(tmp_path / "am.yml")
    assert file.apply(DEFAULT) == DEFAULT
    assert file.problems
