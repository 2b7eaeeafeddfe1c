"""Silences: limits, changes that do not rewrite the past, what they hide, and what is told after their end."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alerts.dispatch import silences as module
from alerts.dispatch.matchers import matches
from alerts.dispatch.silences import KEPT_MS, Silence, SilenceIndex, Silences, SilenceState, checked_matchers
from alerts.state import operations
from alerts.state.alert_database import SCHEMA_VERSION, open_database
from alerts.state.operations import OperationCommit, OperationError
from tests.alerts.worlds import MINUTE, START, World, rule_text

NOW = START
HOST_A = checked_matchers([("host", "=", "a")])
ROUTING = """
route: {receiver: ops, group_by: [alertname], group_wait: 0s, group_interval: 1m, repeat_interval: 10m}
receivers: [{name: ops, webhook_configs: [{url: "http://127.0.0.1:1/"}]}]
"""


def wanted(*matchers: tuple[str, str, str], begin: int = 0, minutes: int = 60, **more: Any) -> Silence:
    """A silence from `begin` minutes after NOW."""
    found = checked_matchers(matchers or [("host", "=", "a")])
    starts_ms = NOW + begin * MINUTE
    return replace(Silence("", found, starts_ms, starts_ms + minutes * MINUTE, "ana", "work"), **more)


@pytest.fixture
def saved() -> list[OperationCommit]:
    return []


@pytest.fixture
def silences(saved: list[OperationCommit]) -> Silences:
    return Silences(saved.append)


# ---- changes


def test_a_silence_hides_from_its_start_to_its_end(silences: Silences) -> None:
    made = silences.put(wanted(begin=10), NOW)
    times = {minute: silences.hides({"host": "a"}, NOW + minute * MINUTE) for minute in (0, 9, 10, 69, 70)}
    assert times == {0: False, 9: False, 10: True, 69: True, 70: False}
    assert not silences.hides({"host": "b"}, NOW + 20 * MINUTE)
    states = [made.state(NOW + minute * MINUTE) for minute in (0, 10, 70)]
    assert states == [SilenceState.PENDING, SilenceState.ACTIVE, SilenceState.EXPIRED]
    assert silences.hiding({"host": "a"}, NOW + 20 * MINUTE) == [made.id]


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"author": " "}, "author: missing"),
        ({"comment": "\n"}, "comment: missing"),
        ({"author": "x" * 201}, "at most 200"),
        ({"ends_ms": NOW}, "start of a silence must be before"),
        ({"starts_ms": NOW - 2, "ends_ms": NOW - 1}, "in the past"),
        ({"id": "nobody"}, "is not known"),
    ],
)
def test_what_cannot_be_stored_is_refused(silences: Silences, bad: dict[str, Any], text: str) -> None:
    with pytest.raises(OperationError, match=text):
        silences.put(wanted(**bad), NOW)
    assert not silences.silences


@pytest.mark.parametrize(
    ("matchers", "text"),
    [([], "at least one"), ([("a", "=~", "(")], "not valid RE2"), ([("a", "=", "x" * 5_000)], "characters")],
)
def test_matchers_are_checked(matchers: list[tuple[str, str, str]], text: str) -> None:
    with pytest.raises(OperationError, match=text):
        checked_matchers(matchers)


@pytest.mark.parametrize(
    "matchers",
    [
        [("alertname", "=~", ".+")],
        [("alertname", "=~", ".*")],
        [("alertname", "!=", "")],
        [("host", "=~", ".*")],
        [("host", "!=", "a")],
        [("host", "=", "")],
        [("alertname", "=~", ".+"), ("host", "!~", "a|b")],
    ],
)
def test_a_silence_for_everything_asks_back(silences: Silences, matchers: list[tuple[str, str, str]]) -> None:
    with pytest.raises(OperationError, match=r"hides every alert.*force"):
        silences.put(wanted(*matchers), NOW)
    assert silences.put(wanted(*matchers), NOW, force=True).id


@pytest.mark.parametrize("matchers", [[("host", "=~", ".+")], [("alertname", "=~", "Host.*")], [("a", "!=", "")]])
def test_other_wide_silences_are_taken(silences: Silences, matchers: list[tuple[str, str, str]]) -> None:
    assert silences.put(wanted(*matchers), NOW).id


def test_an_active_silence_is_prolonged_but_its_past_stays(silences: Silences, saved: list[OperationCommit]) -> None:
    made = silences.put(wanted(), NOW)
    longer = silences.put(replace(made, ends_ms=NOW + 5 * 60 * MINUTE), NOW + MINUTE)
    assert longer.id == made.id
    later = silences.put(replace(longer, starts_ms=NOW + 3 * MINUTE), NOW + 2 * MINUTE)
    assert later.id != made.id
    assert silences.get(made.id).ends_ms == NOW + 2 * MINUTE
    assert later.starts_ms == NOW + 3 * MINUTE
    other = silences.put(replace(later, matchers=checked_matchers([("host", "=", "b")])), NOW + 2 * MINUTE)
    assert other.id != later.id
    assert silences.get(later.id).state(NOW + 2 * MINUTE) is SilenceState.EXPIRED
    actions = [entry.action for commit in saved for entry in commit.audit]
    assert actions[:2] == ["silence created", "silence changed"]
    assert [action.split(" in place of ")[-1] for action in actions[2:]] == [made.id, later.id]


def test_an_expired_silence_is_neither_changed_nor_expired_again(silences: Silences) -> None:
    made = silences.put(wanted(), NOW)
    assert silences.expire(made.id, "bo", NOW + MINUTE).ends_ms == NOW + MINUTE
    with pytest.raises(OperationError, match="already expired"):
        silences.expire(made.id, "bo", NOW + 2 * MINUTE)
    again = silences.put(replace(made, ends_ms=NOW + 60 * MINUTE), NOW + 2 * MINUTE)
    assert (again.id != made.id, again.starts_ms) == (True, NOW + 2 * MINUTE)


def test_a_pending_silence_that_is_expired_never_begins(silences: Silences) -> None:
    made = silences.put(wanted(begin=10), NOW)
    ended = silences.expire(made.id, "bo", NOW + MINUTE)
    assert (ended.starts_ms, ended.ends_ms) == (NOW + MINUTE, NOW + MINUTE)
    assert not silences.hides({"host": "a"}, NOW + 20 * MINUTE)


def test_the_number_is_bounded(silences: Silences, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SILENCES", 3)
    monkeypatch.setattr(module, "MAX_UNINDEXED", 1)
    first = silences.put(wanted(minutes=1), NOW)
    silences.put(wanted(("host", "=~", "a.+")), NOW)
    with pytest.raises(OperationError, match="have no matcher"):
        silences.put(wanted(("host", "=~", "b.+")), NOW)
    silences.put(wanted(), NOW)
    with pytest.raises(OperationError, match="3 silences last"):
        silences.put(wanted(), NOW)
    made = silences.put(replace(wanted(begin=2)), NOW + MINUTE)
    assert first.id not in silences.silences, "expired ones give way"
    assert made.id in silences.silences


def test_what_ended_long_ago_is_deleted(silences: Silences, saved: list[OperationCommit]) -> None:
    made = silences.put(wanted(), NOW)
    silences.purge(made.ends_ms + KEPT_MS - 1)
    assert silences.silences
    silences.purge(made.ends_ms + KEPT_MS)
    assert (silences.silences, dict(saved[-1].silences)) == ({}, {made.id: None})


def test_the_index_finds_what_a_scan_finds() -> None:
    given = [
        wanted(*matchers, id=str(at))
        for at, matchers in enumerate(
            [
                [("host", "=", "a")],
                [("host", "=", "a"), ("rack", "!=", "1")],
                [("rack", "=~", "1|2"), ("host", "=", "b")],
                [("rack", "=~", "1|2")],
                [("host", "=", ""), ("rack", "=", "2")],
            ]
        )
    ]
    index = SilenceIndex(given)
    for labels in ({"host": "a"}, {"host": "a", "rack": "1"}, {"host": "b", "rack": "2"}, {"rack": "2"}, {}):
        expected = {one.id for one in given if matches(one.matchers, labels)}
        assert {one.id for one in index.matching(labels)} == expected
        assert {one.id for one in index.matching(labels)} == expected, "remembered"


# ---- in the engine


def silence_host(world: World, host: str, minutes: int = 60) -> str:
    now_ms = world.clock.now_ms()
    found = checked_matchers([("host", "=", host)])
    return world.engine.silences.put(Silence("", found, now_ms, now_ms + minutes * MINUTE, "ana", "work"), now_ms).id


@pytest.fixture
def routed(world: World) -> World:
    world.routing = world.folder / "am.yml"
    world.routing.write_text(ROUTING)
    world.write(rule_text())
    return world


@pytest.mark.parametrize("restart", [False, True])
def test_a_silenced_alert_is_told_after_the_silence(routed: World, restart: bool) -> None:
    id = silence_host(routed, "a", minutes=3)
    routed.tick({"a": 0, "b": 0})
    assert routed.told() == ["firing b"]
    shown = {one["labels"]["host"]: one["silenced_by"] for one in routed.engine.view().alerts()}
    assert shown == {"a": [id], "b": []}
    if restart:
        routed.start()
    routed.tick({"a": 0, "b": 0})
    assert routed.told() == []
    routed.tick({"a": 0, "b": 0})
    routed.tick({"a": 0, "b": 0})
    assert routed.told() == ["firing a"]


def test_an_alert_that_resolves_in_the_silence_is_never_told(routed: World) -> None:
    silence_host(routed, "a", minutes=3)
    routed.tick({"a": 0})
    routed.tick({"a": 1})
    routed.tick({"a": 1})
    routed.tick({"a": 1})
    assert routed.told() == []


def test_a_silence_of_rules_with_their_own_receivers(world: World) -> None:
    world.write(rule_text())
    id = silence_host(world, "a", minutes=600)
    world.tick({"a": 0, "b": 0})
    assert world.told() == ["firing b"]
    world.engine.silences.expire(id, "bo", world.clock.now_ms())
    world.tick({"a": 0, "b": 0})
    assert world.told() == ["firing a"]


def test_silences_and_the_audit_log_survive_a_restart(routed: World) -> None:
    id = silence_host(routed, "a")
    before = routed.engine.silences.get(id)
    routed.start()
    assert routed.engine.silences.get(id) == before
    (entry,) = routed.database.audit(10)
    assert (entry.author, entry.action, entry.subject) == ("ana", "silence created", id)
    assert entry.comment == '{host="a"}: work'


def test_a_silence_that_cannot_be_stored_has_no_effect(routed: World) -> None:
    routed.tick({"a": 0})
    routed.database.close()
    with pytest.raises(sqlite3.ProgrammingError):
        silence_host(routed, "a")
    assert not routed.engine.silences.silences
    routed._database = None


def test_the_audit_log_and_the_history_are_bounded(routed: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "MAX_AUDIT", 3)
    monkeypatch.setattr(operations, "MAX_HISTORY", 2)
    ids = [silence_host(routed, host) for host in "abcde"]
    assert [one.subject for one in routed.database.audit(10)] == ids[:1:-1]
    for value in (0, 1, 0, 1):
        routed.tick({"a": value})
    assert [one.change for one in routed.database.history(10)] == ["resolved", "firing"]


def test_a_database_of_version_2_is_read(tmp_path: Path) -> None:
    database, _, _ = open_database(tmp_path, NOW)
    database.close()
    file = sqlite3.connect(tmp_path / "alerts.db")
    for table in ("silences", "acknowledgements", "audit", "history", "recorded"):
        file.execute(f"DROP TABLE {table}")
    file.execute("ALTER TABLE outbox DROP COLUMN started")
    file.execute("INSERT INTO meta VALUES ('time_ms', '7')")
    file.execute("PRAGMA user_version = 2")
    file.commit()
    file.close()
    database, memory, damage = open_database(tmp_path, NOW)
    assert (memory.time_ms, memory.silences, damage) == (7, {}, "")
    database.record(OperationCommit(silences={"x": wanted(id="x").to_json()}))
    database.close()
    database, memory, _ = open_database(tmp_path, NOW)
    assert Silence.from_json(memory.silences["x"]).matchers == HOST_A
    database.close()
    with sqlite3.connect(tmp_path / "alerts.db") as file:
        assert file.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
