"""The engine minute by minute: policies for missing data, restarts, changed rules, errors; and that each change is told
exactly once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alerts.evaluation import alert_engine, rule_evaluator
from alerts.evaluation.rule_completeness import COLUMNS
from alerts.evaluation.verdicts import MISSING_MS
from alerts.state.alert_database import FILE
from alerts.state.rule import AlertsError
from artimon.model.select import Buckets, SelectRequest
from artimon.model.values import Kind
from query_dsl.stores.query_limits import Limits
from tests.alerts.worlds import MINUTE, World, rule_text
from tests.query_dsl.plain_store import PlainSeries, PlainStore
from varstore.cluster.varstore_client import StoreUnavailable


def test_fires_after_for_and_resolves(world: World) -> None:
    world.write(rule_text("1m"))
    world.tick({"a": 1, "b": 1})
    assert world.states() == {}
    world.tick({"a": 0, "b": 1})
    assert world.states() == {"a": "pending"}
    world.tick({"a": 0, "b": 0})
    assert world.states() == {"a": "firing", "b": "pending"}
    note = world.notes()[0]
    assert (note.since_ms, note.fired_ms, note.value, note.summary) == (world.time - MINUTE, world.time, 0, "a is 0")
    assert dict(note.labels) == {"host": "a", "severity": "page"}
    world.tick({"a": 1, "b": 1})
    assert world.states() == {"a": "resolved"}
    for _ in range(15):
        world.tick({"a": 1, "b": 1})
    assert world.states() == {}
    assert world.told() == ["firing a", "resolved a"]


def test_the_recovery_threshold_keeps_it_firing(world: World) -> None:
    world.write(rule_text().replace("for:", 'resolve: ">= 5"\n    for:'))
    for value in (0, 3, 4, 5, 3):
        world.tick({"a": value})
    assert world.told() == ["firing a", "resolved a"]


@pytest.mark.parametrize(
    ("missing", "told", "state"),
    [
        ("resolve", ["firing a", "resolved a"], "resolved"),
        ("keep", ["firing a"], "firing"),
        ("fire", ["firing a", "firing b"], "firing"),
    ],
)
def test_missing_data(world: World, missing: str, told: list[str], state: str) -> None:
    """a fires and goes silent; b is well and goes silent; nobody said that they ended."""
    world.write(rule_text("0s", missing))
    world.tick({"a": 0, "b": 1, "c": 1})
    world.tick({"c": 1})
    world.tick({"c": 1})
    assert world.states()["a"] == state
    assert world.told() == told
    world.tick({"a": 1, "b": 1, "c": 1})
    assert sorted(one for one in world.told() if one.startswith("resolved")) == [
        one.replace("firing", "resolved") for one in told if one.startswith("firing") and state == "firing"
    ]


@pytest.mark.parametrize("missing", ["resolve", "keep", "fire"])
def test_a_series_that_ended_resolves_whatever_the_policy(world: World, missing: str) -> None:
    world.write(rule_text("0s", missing))
    world.tick({"a": 0, "b": 1})
    for host in ("a", "b"):
        world.series(host).ended = world.time + 5_000
    world.tick({"c": 1})
    assert world.notes()[0].kind == "firing"
    assert world.told() == ["firing a", "resolved a"]
    assert world.engine.view().alerts()[0]["reason"] == "the source says that the series ended"


def test_an_end_is_seen_behind_a_reduction(world: World) -> None:
    """One of two series of a class ended: the other one keeps the class; both: it ended."""
    text = rule_text("0s", "keep").replace("fetch('up')", "fetch('up').sum(by=['dc'])")
    world.write(text.replace("{host}", "{dc}"))
    for host in ("a", "b"):
        world.store.add("up", {"host": host, "dc": "x"}, [(world.time + MINUTE - 10_000, 0)])
    world.tick()
    world.store.series[0].ended = world.time + 5_000
    world.tick()
    assert world.engine.view().alerts()[0]["state"] == "firing"
    world.store.series[1].ended = world.time + 5_000
    world.tick()
    assert world.engine.view().alerts()[0]["state"] == "resolved"


def test_no_policy_holds_an_alert_for_ever(world: World) -> None:
    world.write(rule_text("0s", "keep"))
    world.tick({"a": 0, "b": 1})
    for _ in range(30):
        world.tick({"b": 1}, minutes=60)
    assert world.told() == ["firing a", "resolved a"]
    assert MISSING_MS < 30 * 60 * MINUTE


def test_a_pipeline_that_lags_is_not_missing_data(world: World) -> None:
    """Nothing at all in the newest bucket while a shard was fed just before: nobody resolves, for five minutes."""
    world.write(rule_text("0s", "resolve"))
    world.tick({"a": 0})
    world.newest = [world.time - 5_000]
    world.tick()
    assert world.states() == {"a": "firing"}
    world.tick(minutes=6)
    assert world.states() == {"a": "resolved"}


def test_a_restart_keeps_everything_and_says_nothing_twice(world: World) -> None:
    world.write(rule_text("2m"))
    world.tick({"a": 0, "b": 1})
    world.start()
    world.tick({"a": 0, "b": 0})
    world.start()
    world.tick({"a": 0, "b": 0})
    assert world.states() == {"a": "firing", "b": "pending"}
    world.start()
    world.tick({"a": 0, "b": 0})
    assert world.states() == {"a": "firing", "b": "firing"}
    world.start()
    world.tick({"a": 1, "b": 0})
    assert world.told() == ["firing a", "firing b", "resolved a"]


def test_missed_minutes_are_counted_and_for_goes_on_by_time(world: World) -> None:
    world.write(rule_text("10m"))
    world.tick({"a": 0})
    world.tick({"a": 0}, minutes=11)
    assert (world.engine.missed, world.states()) == (10, {"a": "firing"})
    world.tick({"b": 0})
    world.tick({"b": 0}, minutes=90)
    assert world.states()["b"] == "pending"


def test_the_same_minute_is_evaluated_once(world: World) -> None:
    world.write(rule_text("0s", "keep"))
    world.tick({"a": 0})
    assert not world.engine.evaluate_due()
    world.start()
    assert not world.engine.evaluate_due()
    world.clock.advance(-MINUTE)
    assert not world.engine.evaluate_due()
    world.clock.advance(-10 * MINUTE)
    assert world.engine.evaluate_due()
    assert world.told() == ["firing a"]


def test_rules_that_go_resolve_with_a_reason(world: World) -> None:
    world.write(rule_text())
    world.tick({"a": 0})
    world.write(rule_text().replace("summary", "receivers: [nobody]\n    summary"))
    world.tick({"a": 0})
    assert world.states() == {"a": "firing"}
    assert "unknown receiver 'nobody'" in world.engine.result.problems[0]
    world.write(rule_text().replace("< 1", "< 2"))
    world.tick({"a": 0})
    assert world.told() == ["firing a"], "the alert of the changed rule fires as before: nothing new is told"
    (world.rules / "rules.yaml").unlink()
    world.tick({"a": 0})
    assert world.states() == {"a": "firing"}  # one absence may be an editor's
    world.tick({"a": 0})
    (note,) = world.notes()
    assert (note.kind, note.reason) == ("resolved", "the rule was removed")
    assert note.summary == "a is 0"


def test_a_bad_file_stops_no_other_and_its_last_good_version_holds(world: World) -> None:
    world.write(rule_text())
    world.write(rule_text().replace("name: down", "name: other"), "other.yaml")
    world.tick({"a": 0})
    world.write("rules: [", "rules.yaml")
    world.tick({"a": 0})
    world.start()  # the last good version outlives the process
    world.tick({"a": 1})
    assert sorted(world.told()) == ["firing a"] * 2 + ["resolved a"] * 2
    assert any("rules.yaml" in problem and "not YAML" in problem for problem in world.engine.result.problems)
    world.write("rules: []", "rules.yaml")
    world.tick({"a": 0})
    assert list(world.engine.view().active.rules) == ["other"]
    assert world.engine.result.problems == ()


def test_a_new_file_takes_the_blame_for_a_name_that_is_taken(world: World) -> None:
    world.write(rule_text(), "z.yaml")
    world.tick({"a": 1})
    world.write(rule_text() + "  - {name: more, expr: fetch('up'), threshold: '< 1', missing: keep}\n", "a.yaml")
    world.tick({"a": 1})
    assert list(world.engine.view().active.rules) == ["down"]
    assert world.engine.view().active.rules["down"].file == "z.yaml"
    assert world.engine.result.problems == ("a.yaml:3:11: rule 'down' is already defined in z.yaml:3",)


def test_receivers_of_all_files_are_known_to_all(world: World) -> None:
    world.write("receivers: {night: {mail: [n1@example.org, n2@example.org]}}", "receivers.yaml")
    world.write(rule_text().replace("summary", "receivers: [night, default]\n    summary"))
    world.tick({"a": 0})
    assert [letter.target for letter in world.letters()] == ["n1@example.org", "n2@example.org", "ops@example.org"]
    (world.rules / "rules.yaml").write_text(rule_text())
    world.tick({"a": 1})  # those who were told of it hear of its end
    assert len(world.told()) == 6


def test_an_unreadable_folder_changes_nothing(world: World, tmp_path: Path) -> None:
    world.write(rule_text())
    world.tick({"a": 0})
    world.rules.rename(tmp_path / "away")
    for _ in range(3):
        world.tick({"a": 0})
    assert world.states() == {"a": "firing"}
    assert "cannot be read" in world.engine.result.problems[0]
    (tmp_path / "away").rename(world.rules)
    world.tick({"a": 1})
    assert world.told() == ["firing a", "resolved a"]


class Broken(PlainStore):
    """A store that fails on command."""

    failure: Exception | None = None

    def select(self, request: SelectRequest) -> Buckets:
        if self.failure:
            self.requests.append(request)
            raise self.failure
        return super().select(request)


def test_a_store_that_does_not_answer_changes_nothing_and_is_asked_once(tmp_path: Path) -> None:
    store = Broken()
    world = World(tmp_path, store)
    rules = [
        rule_text().replace("name: down", f"name: r{i}").replace("'up'", f"'up{{host=\"h{i}\"}}'") for i in range(9)
    ]
    for i, text in enumerate(rules):
        world.write(text, f"{i}.yaml")
    world.tick({"h1": 0, "h2": 1})
    store.failure = StoreUnavailable("no shard answered")
    store.requests.clear()
    world.tick()
    assert len(store.requests) == 1
    assert world.engine.result.rules == {"inactive": 0, "pending": 0, "firing": 0, "error": 9}
    assert "no shard answered" in world.error("r1")
    assert world.states() == {"h1": "firing"}
    store.failure = None
    world.tick({"h1": 1})
    assert world.told() == ["firing h1", "resolved h1"]
    world.close()


@pytest.mark.parametrize("slow", ["files", "store"])
def test_time_limit_of_an_evaluation(world: World, monkeypatch: pytest.MonkeyPatch, slow: str) -> None:
    """Files may take longer than the limit, which rules that come after a slow store reach."""
    now_s = [0.0]
    monkeypatch.setattr(alert_engine, "perf_counter", lambda: now_s[0])
    of, name = (world.engine, "read_rules") if slow == "files" else (world.store, "select")
    work = getattr(of, name)

    def worked(*arguments: object) -> object:
        now_s[0] += 2 * alert_engine.MAX_EVALUATION_S
        return work(*arguments)

    monkeypatch.setattr(of, name, worked)
    for one in ("a", "b"):
        world.write(
            rule_text().replace("name: down", f"name: {one}").replace("'up'", f"'up{{r=\"{one}\"}}'"), one + ".yaml"
        )
    world.tick({"h1": 0})
    errors = [world.error(one) for one in ("a", "b")]
    late = "not evaluated: the time limit of the evaluation was reached before this rule"
    assert errors == (["", ""] if slow == "files" else ["", late])


@pytest.mark.parametrize("nothing_fits", [False, True])
def test_an_answer_that_is_not_whole_decides_nothing(world: World, nothing_fits: bool) -> None:
    world.write(rule_text())
    world.tick({"a": 0})
    world.store.partial, world.store.notes = True, ("shard 1 is not there",)
    if nothing_fits:
        held, world.store.series = world.store.series, []
    world.tick()
    assert world.states() == {"a": "firing"}
    assert world.error() == "the answer is incomplete: shard 1 is not there"
    world.store.partial = False
    if nothing_fits:
        world.store.series = held
    world.tick({"a": 1})
    assert world.told() == ["firing a", "resolved a"]


@pytest.mark.parametrize(
    ("expr", "threshold", "told"),
    [
        ("fetch('up').sum(by=['hots'])", "< 1", "hots"),
        ("fetch('word')", "< 1", "compares with a number"),
        ("fetch('up') > 1", "== 'x'", "compares with a text"),
        ("fetch('up')", "== true", "compares with true or false"),
        ("fetch('both.*')", "< 1", "give the same alert"),
        ("fetch('up').bucketize('sum', '7s')", "< 1", "7s"),
    ],
)
def test_a_rule_that_cannot_be_judged_is_in_error_alone(world: World, expr: str, threshold: str, told: str) -> None:
    world.write(rule_text())
    world.write(f'rules:\n- {{name: odd, expr: "{expr}", threshold: "{threshold}", missing: keep}}\n', "odd.yaml")
    for name, value in (("both.x", 0), ("both.y", 0), ("word", "well")):
        world.store.add(name, {"host": "a"}, [(world.time + MINUTE - 10_000, value)])
    world.tick({"a": 0})
    assert told in world.error("odd")
    assert world.told() == ["firing a"]


def test_a_rule_that_takes_too_long_stops_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_evaluator, "RULE_LIMITS", Limits(seconds=0.2))
    grow = ".replace('.', '\\\\0\\\\0\\\\0\\\\0')" * 5
    slow = {"name": "slow", "expr": f"fetch('word'){grow}", "threshold": "== 'x'", "missing": "keep"}
    world.write(json.dumps({"rules": [slow]}), "a.yaml")
    world.write(rule_text(), "b.yaml")
    for i in range(200):
        world.store.add("word", {"host": str(i)}, [(world.time + MINUTE - 10_000, f"{i:03} " * 15)])
    world.tick({"a": 0})
    assert "longer than its limit of 0.2 s" in world.error("slow")
    assert world.told() == ["firing a"]


def test_nothing_selected_is_no_error(world: World) -> None:
    world.write(rule_text())
    world.tick()
    assert (world.error(), world.states()) == ("", {})


def test_an_absent_variable_can_be_asked_for(world: World) -> None:
    world.write("rules: [{name: gone, expr: \"absent('up')\", threshold: '== true', missing: keep}]")
    world.tick({"a": 1})
    world.tick()
    world.tick({"a": 1})
    assert [one.split()[0] for one in world.told()] == ["firing", "resolved"]


def test_rules_share_their_questions(world: World) -> None:
    """Thirty parts of one variable are one question, and answers are those of thirty questions."""
    texts = []
    for i in range(30):
        matcher = ('host="h%d"', 'host=~"h%d|x"', 'host!="",host="h%d"')[i % 3] % i
        texts.append(rule_text().replace("name: down", f"name: r{i}").replace("'up'", f"'up{{{matcher}}}'"))
    for i, text in enumerate(texts):
        world.write(text, f"{i}.yaml")
    world.tick({f"h{i}": i % 2 for i in range(30)})
    measured = [one for one in world.store.requests if one.grid.n == COLUMNS]
    assert len(world.store.requests) - len(measured) == 1
    assert world.told() == [f"firing h{i}" for i in sorted(range(0, 30, 2), key=lambda i: f"{i}.yaml")]
    assert all(world.error(f"r{i}") == "" for i in range(30))


def test_only_the_owner_may_read_the_database(world: World) -> None:
    world.write(rule_text())
    world.tick({"a": 0})
    world.close()
    path = world.folder / "data" / FILE
    path.chmod(0o644)  # as older versions left it
    world.start()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damage", ["cut", "text", "bit"])
def test_a_damaged_file_is_set_aside(world: World, damage: str) -> None:
    world.write(rule_text())
    world.tick({"a": 0})
    world.told()
    world.close()
    path = world.folder / "data" / FILE
    raw = bytearray(path.read_bytes())
    if damage == "cut":
        raw = raw[: len(raw) // 2]
    elif damage == "text":
        raw[:100] = b"x" * 100
    else:
        at = raw.find(b'"phase"')
        raw[at + 30] ^= 1
    path.write_bytes(raw)
    world.start()
    assert "starts with empty state" in world.damage
    assert len(list(path.parent.glob("*.damaged-*"))) == 1
    world.tick({"a": 0})
    assert world.told() == ["firing a"]  # it begins anew, and says so


def test_a_full_disk_is_no_damage(world: World) -> None:
    world.start()
    world.close()
    path = world.folder / "data" / FILE
    path.unlink()
    path.mkdir()
    with pytest.raises(AlertsError, match="cannot be opened"):
        world.start()


def test_an_evaluation_that_cannot_be_stored_did_not_happen(world: World) -> None:
    world.write(rule_text())
    world.tick({"a": 1})
    failing = [True]

    def hook(step: str) -> None:
        if step == "committing" and failing:
            raise OSError("disk full")

    world.hook = hook
    world.start()
    with pytest.raises(OSError, match="disk full"):
        world.tick({"a": 0})
    assert (world.letters(), world.states()) == ([], {})
    failing.clear()
    assert world.engine.evaluate_due()
    assert world.told() == ["firing a"]


Minute = st.tuples(st.sampled_from([0, 1, None]), st.booleans(), st.integers(1, 3))


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(st.lists(Minute, min_size=1, max_size=14), st.integers(0, 3), st.sampled_from(["resolve", "keep", "fire"]))
def test_random_histories_with_restarts(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[int | None, bool, int]], hold: int, missing: str
) -> None:
    """Bad, well or missing, restarts anywhere, missed minutes: what is told is what a plain reference tells."""
    world = World(tmp_path_factory.mktemp("world"))
    world.write(rule_text(f"{hold}m", missing))
    world.tick({"a": 1, "b": 1})
    since, firing, seen, expect = -1, False, world.time, []
    for value, restart, minutes in history:
        if restart:
            world.start()
        world.tick({"b": 1} | ({} if value is None else {"a": value}), minutes=minutes)
        bad = value == 0 or (value is None and missing == "fire")
        well = value == 1 or (value is None and missing == "resolve")
        if bad:
            since = world.time if since < 0 else since
            if not firing and world.time - since >= hold * MINUTE:
                firing = True
                expect.append("firing a")
        elif well:
            expect += ["resolved a"] if firing else []
            since, firing = -1, False
    assert seen
    assert world.told() == expect
    assert world.states().get("a", "") in (("firing",) if firing else ("pending",) if since >= 0 else ("", "resolved"))
    world.close()


def test_series_of_the_store_are_as_written(world: World) -> None:
    """The world's own helper: a second value goes to the same series."""
    world.tick({"a": 1})
    world.tick({"a": 2})
    assert [type(s) for s in world.store.series] == [PlainSeries]


LONG = 'rules:\n- {{name: long, expr: "{expr}", threshold: "{threshold}", missing: keep{more}}}\n'


def test_an_increase_of_six_hours_fires(world: World) -> None:
    """Five a minute are 1,800 in six hours."""
    labels, first = {"host": "a"}, world.time - 10 * 60 * MINUTE
    counts = [(first + i * MINUTE - 10_000, 5 * i) for i in range(1, 602)]
    world.store.add("errors", labels, counts, Kind.COUNTER, birth=first - MINUTE)
    world.write(LONG.format(expr="fetch('errors').increase('6h')", threshold="> 100", more=""))
    world.tick()
    assert world.error("long") == ""
    assert world.told() == ["firing a"]
    assert [shown["value"] for shown in world.engine.view().alerts()] == [1800]


def test_a_truncated_answer_is_an_error_unless_accepted(world: World) -> None:
    """Memory holds three days, of the newest in buckets of an hour."""
    world.store.add("up", {"host": "a"}, [(world.time - 60 * MINUTE, 0)])
    text = "fetch('up').map('mean', '30d')"
    world.write(LONG.format(expr=text, threshold="< 1", more=""))
    world.tick()
    assert "truncated" in world.error("long")
    assert "begins before what memory holds" in world.error("long")
    assert world.told() == []
    world.write(LONG.format(expr=text, threshold="< 1", more=", accept: [partial]"))
    world.tick({"a": 0})
    assert (world.error("long"), world.told()) == ("", ["firing a"])


@pytest.mark.parametrize(
    ("expr", "told"),
    [
        ("fetch('up').map('count', '7m').offset('2h')", "is rounded up to 10m"),
        ("fetch('up').map('count', '5m', after='5m')", "ends after the newest settled bucket"),
    ],
)
def test_another_window_than_asked_for_decides_nothing(world: World, expr: str, told: str) -> None:
    world.store.add("up", {"host": "a"}, [(world.time - i * MINUTE - 10_000, 1) for i in range(200)])
    world.write(LONG.format(expr=expr, threshold="> 0", more=""))
    world.tick()
    assert told in world.error("long")
    assert world.told() == []


def test_an_approximate_answer_is_an_error_unless_accepted(world: World) -> None:
    """Of two samples a bucket keeps the last."""
    world.store.add("up", {"host": "a"}, [(world.time + MINUTE - 10_000 - i * 1_000, 0) for i in range(2)])
    text = "fetch('up').map('median', '5m')"
    world.write(LONG.format(expr=text, threshold="< 1", more=""))
    world.tick()
    assert "are approximate" in world.error("long")
    world.write(LONG.format(expr=text, threshold="< 1", more=", accept: [approximate]"))
    world.tick({"a": 0})
    assert (world.error("long"), world.told()) == ("", ["firing a"])


def test_the_display_during_an_evaluation_is_that_of_the_last_one(world: World) -> None:
    """The thread that counts mails shows the state while a new rule is evaluated for the first time."""
    shown: list[list[str]] = []

    def look(step: str) -> None:
        if step == "evaluated":
            shown.append([rule["name"] for rule in json.loads(world.engine.display({}))["rules"]])

    world.engine._database.hook = look
    world.write(LONG.format(expr="fetch('up')", threshold="< 1", more=""))
    world.tick({"a": 1})
    world.write(LONG.format(expr="fetch('up')", threshold="< 1", more="").replace("long", "other"))
    world.tick({"a": 1})
    assert shown == [[], ["long"]]
    assert [rule["name"] for rule in json.loads(world.engine.display({}))["rules"]] == ["other"]


def test_keep_firing_for_bridges_good_minutes_and_restarts(world: World) -> None:
    world.write(rule_text().replace("    for: 0s", "    for: 0s\n    keep_firing_for: 3m"))
    world.tick({"a": 0})
    assert world.told() == ["firing a"]
    world.tick({"a": 1})
    world.start()
    world.tick({"a": 1})
    world.tick({"a": 0})
    for _ in range(3):
        world.tick({"a": 1})
        assert world.states() == {"a": "firing"}
    assert world.told() == []
    world.tick({"a": 1})
    assert world.told() == ["resolved a"]
