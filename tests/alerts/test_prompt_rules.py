"""Evaluations that follow the data: minutes as soon as the shards hold them, and rules below a minute."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from alerts.dispatch.routes import Routing
from alerts.evaluation.feed_status import FeedStatus, PollCount, hold_minute, late_text
from alerts.evaluation.prompt_schedule import PromptSchedule
from alerts.evaluation.rule_replay import replay_rules
from alerts.evaluation.unit_tests import run_unit_tests
from alerts.rules.rule_file import parse_rules
from alerts.rules.unit_test_file import read_unit_tests
from alerts.state.rule import RecordingRule, Rule
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.labels import canonical
from artimon.model.values import Kind, Value, ValueType
from artimon.runtime.config_file import ConfigFileError
from query_dsl.stores.history.engine import History
from query_dsl.stores.history_store import HistoryStore
from tests.alerts.worlds import MINUTE, START, World
from tests.history.world import HistoryWorld
from tests.query_dsl.plain_store import Sample
from tests.series.world import block
from tests.spark.local_files import local_files

RULES = """
rules:
  - name: down
    expr: fetch('up')
    threshold: "< 1"
    missing: {missing}
    interval: 10s
    for: {hold}
    summary: "{{host}} is {{value}}"
  - name: all
    expr: fetch('up').sum(by=[])
    threshold: "< 2"
    missing: keep
    interval: 10s
"""


def rules(hold: str = "0s", missing: str = "keep") -> str:
    return RULES.format(hold=hold, missing=missing)


PROMETHEUS = """
groups:
- name: g
  interval: 10s
  rules:
  - {alert: Down, expr: up < 1, for: 20s}
  - {record: "up:sum", expr: sum(up)}
"""


class Seconds(World):
    """A world that moves on in steps of seconds. Its shard is known, and complete."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.newest = [START]
        self.polls = (PollCount(10_000, 2**50, 1, "a"),)

    def poll(self, values: dict[str, Value], at_s: int) -> None:
        """One sample a series at this second after the start."""
        time_ms = START + 1000 * at_s
        for host, value in values.items():
            found = [one for one in self.store.series if one.labels == {"host": host}]
            if found:
                found[0].samples.append(Sample(time_ms, value))
            else:
                self.store.add("up", {"host": host}, [(time_ms, value)])
        self.newest, self.applied = [time_ms], self.applied + len(values)

    def phase(self, rule: str) -> str:
        """State of the first alert of a rule; "" without one."""
        known = self.engine.view().known.get(rule)
        return next(iter(known.alerts.values())).phase.value if known else ""

    def at(self, second: int) -> bool:
        """Look at what is due at this second after the start; once more after a minute."""
        self.clock.advance(START + 1000 * second - self.clock.now_ms())
        before = self.engine.time_ms
        changed = self.engine.evaluate_due()
        return self.engine.evaluate_due() or changed if self.engine.time_ms != before else changed


@pytest.fixture
def seconds(tmp_path: Path) -> Iterator[Seconds]:
    made = Seconds(tmp_path)
    yield made
    made.close()


# ---- whole minutes


def test_a_source_is_late_for_one_period() -> None:
    def late(newest_s: int, period_s: int = 10) -> bool:
        return PollCount(1000 * period_s, START + 1000 * newest_s, 1, "a").is_late(START)

    assert [late(at) for at in (-21, -20, -19, -10, -9, 0, 5)] == [False, False, True, True, False, False, False]
    assert not late(-59, 60)
    assert late(-60, 60)


def test_a_minute_is_held_once_no_source_is_late() -> None:
    punctual, behind = PollCount(60_000, START - 5_000, 7, "a"), PollCount(10_000, START - 12_000, 3, "b")
    assert hold_minute([FeedStatus(0, 0, (punctual,)), FeedStatus(0)], START)
    assert not hold_minute([FeedStatus(0, 0, (punctual,)), FeedStatus(0, 0, (behind,))], START)
    assert not hold_minute([], START)
    assert not hold_minute([FeedStatus(START)], START)  # a shard of an older version
    assert late_text([FeedStatus(0, 0, (punctual, behind))], START) == (
        "the last poll of 3 sources had not arrived, among them b"
    )


def test_the_status_of_a_shard_may_lack_polls() -> None:
    assert FeedStatus.from_status({"newest_sample_ms": 7}) == FeedStatus(7)
    told = {"newest_sample_ms": 7, "applied": 2, "polls": [[10, 3, 4, "s"]]}
    assert FeedStatus.from_status(json.loads(json.dumps(told))) == FeedStatus(7, 2, (PollCount(10_000, 3_000, 4, "s"),))


def test_the_evaluation_follows_the_data_and_waits_within_a_limit(seconds: Seconds) -> None:
    seconds.write(rules().replace("10s", "1m"))
    seconds.at(15)
    seconds.polls = (PollCount(60_000, START + 55_000, 1, "shop/h1"),)
    assert not seconds.at(59)
    assert seconds.at(61)  # all are here
    assert (seconds.engine.time_ms, seconds.engine.result.delay_ms) == (START + MINUTE, 1_000)
    assert seconds.engine.result.late == ""
    assert not seconds.at(122)  # the poll of the second minute is not
    assert not seconds.at(134)
    assert seconds.at(135)
    assert seconds.engine.time_ms == START + 2 * MINUTE
    assert seconds.engine.result.late == "the last poll of 1 sources had not arrived, among them shop/h1"
    seconds.at(195)
    assert seconds.engine.result.late == ""  # after two polls it is not waited for


# ---- below a minute


def test_a_bad_value_is_told_when_it_arrives(seconds: Seconds) -> None:
    seconds.write(rules())
    seconds.poll({"a": 1, "b": 1}, 12)
    seconds.at(15)
    assert seconds.told() == []
    seconds.poll({"a": 0, "b": 1}, 22)
    assert seconds.at(23)
    assert sorted(seconds.told()) == ["firing", "firing a"]  # the sum is of both, of which one is new
    seconds.poll({"a": 1, "b": 1}, 32)
    assert seconds.at(34)
    assert sorted(seconds.told()) == ["resolved", "resolved a"]
    assert seconds.engine.time_ms == START  # no minute was evaluated
    assert (seconds.engine.missed, seconds.engine.result.failing) == (0, "")


def test_a_sample_of_the_minute_before_counts_until_a_newer_one_comes(seconds: Seconds) -> None:
    seconds.write(rules(missing="resolve"))
    seconds.poll({"a": 0, "b": 1}, 55)
    seconds.at(57)
    assert sorted(seconds.told()) == ["firing", "firing a"]
    for second in (61, 71, 119):
        seconds.at(second)
    assert seconds.told() == []
    seconds.at(121)
    assert seconds.told() == []  # nothing at all comes: the pipeline is late
    seconds.newest = [START + 122_000]
    seconds.at(131)
    assert seconds.told() == ["resolved a"]  # no sample in the minute before: no data, which keeps the other rule


def test_an_ended_series_resolves_at_once(seconds: Seconds) -> None:
    seconds.write(rules())
    seconds.poll({"a": 0}, 21)
    seconds.at(22)
    assert sorted(seconds.told()) == ["firing", "firing a"]
    seconds.series("a").ended = START + 25_000
    seconds.applied += 1
    seconds.at(26)
    assert sorted(seconds.told()) == ["resolved", "resolved a"]


def test_for_of_less_than_a_minute(seconds: Seconds) -> None:
    seconds.write(rules("20s"))
    states = []
    for second in range(20, 61, 10):
        seconds.poll({"a": 0 if second >= 30 else 1, "b": 1}, second)
        seconds.at(second + 1)
        states.append(seconds.phase("down"))
    assert states == ["", "pending", "pending", "firing", "firing"]
    (note,) = [one for one in seconds.notes() if one.rule == "down"]
    assert note.fired_ms == START + 51_000


def test_between_arrivals_nothing_is_asked_until_the_interval_has_passed(seconds: Seconds) -> None:
    seconds.write(rules())
    seconds.poll({"a": 1, "b": 1}, 20)
    seconds.at(21)
    asked = len(seconds.store.requests)
    for second in range(22, 31):
        seconds.at(second)
    assert len(seconds.store.requests) == asked
    seconds.at(31)
    assert len(seconds.store.requests) > asked


def test_promql_below_a_minute(seconds: Seconds) -> None:
    seconds.recordings = seconds.folder
    seconds.write(PROMETHEUS, "prometheus.yaml")
    for second in range(20, 81, 10):
        seconds.poll({"a": 0 if second >= 30 else 1}, second)
        seconds.at(second + 1)
    (note,) = seconds.notes()
    assert (note.fired_ms, note.kind) == (START + 51_000, "firing")
    lines = (seconds.folder / "alert-rules.artimon").read_text().splitlines()
    assert [int(line.split(" ")[0]) - START for line in lines] == [1000 * at for at in (21, 31, 41, 51, 61, 71, 81)]
    assert {line.rsplit(" ", 1)[1] for line in lines} == {"0.0", "1.0"}


def test_a_minute_does_not_judge_rules_below_it(seconds: Seconds) -> None:
    seconds.write(rules("20s"))
    seconds.poll({"a": 0, "b": 1}, 50)
    seconds.at(51)
    assert seconds.phase("down") == "pending"
    seconds.at(62)
    assert seconds.engine.time_ms == START + MINUTE
    assert [one["since_ms"] for one in seconds.engine.view().alerts() if one["rule"] == "down"] == [START + 51_000]


def test_after_a_restart_it_goes_on(seconds: Seconds) -> None:
    seconds.write(rules("20s"))
    seconds.poll({"a": 0, "b": 1}, 20)
    seconds.at(21)
    for second in (31, 41, 51):
        seconds.start()
        seconds.applied = 2  # of shards that started again
        seconds.at(second)
    assert seconds.told() == ["firing", "firing a"]


class Killed(Exception):
    """The engine ends here."""


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_kill_tells_each_change_once(tmp_path: Path, is_stored: bool) -> None:
    def kill(step: str) -> None:
        if armed and step == "committing":
            raise Killed

    armed: list[bool] = []
    made = Seconds(tmp_path, hook=kill)
    made.write(rules())
    made.poll({"a": 1, "b": 1}, 10)
    made.at(16)
    made.poll({"a": 0, "b": 1}, 20)
    if is_stored:
        made.at(21)
    else:
        armed.append(True)
        with pytest.raises(Killed):
            made.at(21)
        armed.clear()
    made.start()
    made.at(22)
    made.at(23)
    assert sorted(made.told()) == ["firing", "firing a"]
    made.close()


def test_a_changed_rule_ends_its_alerts_with_the_minute(seconds: Seconds) -> None:
    seconds.write(rules())
    seconds.poll({"a": 0, "b": 1}, 20)
    seconds.at(21)
    assert len(seconds.told()) == 2
    seconds.write(rules().replace('"< 1"', '"< -1"'))
    seconds.start()
    seconds.poll({"a": 0, "b": 1}, 30)
    seconds.at(31)
    assert seconds.told() == []
    seconds.at(62)
    assert seconds.told() == ["resolved a"]


def test_the_schedule_follows_arrivals_and_its_own_cost() -> None:
    schedule = PromptSchedule()
    assert schedule.due([10_000, 50_000], START, 5) == {10_000, 50_000}
    schedule.note([10_000, 50_000], START, 5, 50.0)
    assert not schedule.may_begin([10_000], START + 999)
    assert schedule.due([10_000, 50_000], START + 1_000, 5) == set()
    assert schedule.due([10_000, 50_000], START + 1_000, 6) == {10_000}
    assert schedule.due([10_000, 50_000], START + 5_000, 6) == {10_000, 50_000}
    assert schedule.due([10_000, 50_000], START + 10_000, 5) == {10_000}
    schedule.note([10_000], START + 10_000, 6, 1_000.0)  # it took a second: at most a fifth of the time
    assert schedule.due([10_000], START + 13_999, 7) == set()
    assert schedule.due([10_000], START + 14_000, 7) == {10_000}
    schedule.note([10_000], START + 20_000, 7, 60_000.0)
    assert schedule.due([10_000], START + 30_000, 7) == {10_000}  # never rarer than the interval
    assert schedule.may_begin([10_000], START)  # the clock went back


def test_a_replay_has_the_firings_of_the_engine(seconds: Seconds) -> None:
    text = rules("20s")
    seconds.write(text)
    seconds.write(PROMETHEUS, "prometheus.yaml")
    bad = {*range(60, 100), *range(150, 160), *range(200, 420)}
    values: dict[int, dict[str, Value]]
    values = {second: {"a": int(second not in bad), "b": 1} for second in range(20, 600, 10)}
    for second, both in values.items():
        seconds.poll(both, second)
        seconds.at(second)
    begun, told = dict[str, int](), set[tuple[str, int, int]]()
    for note in seconds.changes():
        if note.kind == "firing":
            begun[note.rule] = note.fired_ms
        else:
            told.add((note.rule, begun.pop(note.rule), note.resolved_ms))
    found = [*parse_rules(text, "rules.yaml").rules, *parse_rules(PROMETHEUS, "prometheus.yaml").rules]
    with local_files(SYSTEM_CLOCK):
        made = HistoryWorld(f"file://{seconds.folder / 'history'}")
        names = {host: canonical("up", {"host": host}) for host in ("a", "b")}
        made.announce([block("s", 0, 1, list(names.values()), type=ValueType.INTEGER, kind=Kind.GAUGE)])
        rows = [
            ("s", names[host], START + 1000 * second, value)
            for second, both in values.items()
            for host, value in both.items()
        ]
        made.append(START + 600_000, rows)
        with History(made.hdfs) as history:
            past = HistoryStore(history, engine="local")
            replay = replay_rules({one.name: one for one in found}, past, START, START + 600_000, Routing("default"))
    assert [one.errors for one in replay.rules] == [{}, {}, {}]
    assert told == {
        (one.rule.name, firing.fired_ms, firing.resolved_ms) for one in replay.rules for firing in one.firings
    }
    assert sorted(name for name, _, _ in told) == ["all"] * 3 + ["down"] * 2 + ["prometheus.yaml/g/Down"] * 2


def test_unit_tests_read_the_newest_values(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(rules("20s"))
    text = """
rule_files: [rules.yaml]
evaluation_interval: 10s
tests:
  - interval: 10s
    input_series:
      - {series: 'up{host="a"}', values: '1x2 0x5'}
      - {series: 'up{host="b"}', values: '1x9'}
    alert_rule_test:
      - {eval_time: 40s, alertname: down}
      - {eval_time: 50s, alertname: down, exp_alerts: [{exp_labels: {host: a}, exp_annotations: {summary: a is 0}}]}
"""
    (tmp_path / "tests.yaml").write_text(text)
    assert run_unit_tests(read_unit_tests(tmp_path / "tests.yaml"), tmp_path) == []


# ---- files


@pytest.mark.parametrize(
    "expr",
    [
        "fetch('up').map('mean', '5m')",
        "fetch('up').offset('1h')",
        "fetch('up').range('10m')",
        "fetch('up', resolution='raw')",
        "fetch('up').bucketize('last', '5m')",
    ],
)
def test_windows_need_whole_minutes(expr: str) -> None:
    text = rules().replace("fetch('up')\n", f"{expr}\n", 1)
    with pytest.raises(ConfigFileError, match=r"r\.yaml:7:15: .*newest values only"):
        parse_rules(text, "r.yaml")
    assert len(parse_rules(text.replace("10s", "1m"), "r.yaml").rules) == 2


@pytest.mark.parametrize("text", ["4s", "2d", "10", "-10s"])
def test_intervals_have_limits(text: str) -> None:
    with pytest.raises(ConfigFileError, match=r"r\.yaml:7:15"):
        parse_rules(rules().replace("10s", text, 1), "r.yaml")


def test_intervals_of_prometheus_files() -> None:
    def interval(text: str) -> int:
        found = parse_rules(PROMETHEUS.replace("interval: 10s", text), "r.yaml")
        rule: Rule = found.rules[0]
        record: RecordingRule = found.records[0]
        assert rule.interval_ms == record.interval_ms
        return rule.interval_ms

    assert [interval(one) for one in ("interval: 1s", "interval: 15s", "limit: 0", "interval: 90s")] == [
        5_000, 15_000, 60_000, 90_000,
    ]  # fmt: skip
