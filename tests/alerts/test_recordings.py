"""Recording rules: their results are lines of a drop-in file, with the time of the evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from alerts.evaluation import recordings
from alerts.evaluation.alert_engine import AlertEngine, EngineConfig
from alerts.evaluation.recordings import FILE, RecordingFile, recorded_lines
from sources.dropin.line_grammar import parse_line
from tests.alerts.worlds import MINUTE, START, World

RULES = """
groups:
- name: g
  labels: {site: paris}
  rules:
  - {record: "up:sum", expr: sum by (job) (up), labels: {level: 'a"b,c\\d'}}
  - {record: "up:nan", expr: sum(up) * NaN}
- name: slow
  interval: 3m
  limit: 1
  rules:
  - {record: "up:copy", expr: up}
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    made.recordings = tmp_path
    made.write(RULES)
    yield made
    made.close()


def lines(folder: Path) -> list[tuple[int, str, dict[str, str], object]]:
    found = [parse_line(line) for line in (folder / FILE).read_bytes().splitlines()]
    return [(one.time_ms, one.name, {k: v for k, v in one.labels.items() if v}, one.value) for one in found]


def test_results_have_the_time_of_the_evaluation_and_only_the_labels_of_the_rule(world: World, tmp_path: Path) -> None:
    world.tick({"a": 1, "b": 2})
    found = lines(tmp_path)
    assert found[0] == (START + MINUTE, "up:sum", {"site": "paris", "level": 'a"b,c\\d'}, 3.0)
    assert found[1][3] != found[1][3]  # NaN
    assert (tmp_path / FILE).read_text().count('host=""') == 2
    world.start()  # a restart keeps what the agent may not have read
    world.tick({"a": 1, "b": 4})
    assert [(time, value) for time, name, _, value in lines(tmp_path) if name == "up:sum"] == [
        (START + MINUTE, 3.0),
        (START + 2 * MINUTE, 5.0),
    ]
    world.tick({"a": 1, "b": 4}, minutes=11)
    assert {time for time, *_ in lines(tmp_path)} == {START + 13 * MINUTE}


def test_the_interval_and_the_limit_of_a_group(world: World) -> None:
    told = []
    for _ in range(6):
        world.tick({"a": 1, "b": 2})
        told.append("exceeded limit of 1 with 2 series" in " ".join(world.engine.result.problems))
    assert told == [True, False, True, False, False, True]  # the first evaluation, then each third minute


def test_without_a_folder_the_rules_are_a_problem(world: World) -> None:
    world.recordings = None
    world.tick({"a": 1})
    assert "give --recordings" in world.engine.result.problems[0]


def test_equal_series_are_an_error(world: World) -> None:
    world.write("groups:\n- name: g\n  rules:\n  - {record: r, expr: up, labels: {host: x}}\n")
    world.tick({"a": 1, "b": 2})
    assert "same labelset" in world.engine.result.problems[0]


def test_a_folder_that_is_gone_stops_no_alert(world: World, tmp_path: Path) -> None:
    world.recordings = tmp_path / "gone"
    world.tick({"a": 1})
    assert "cannot be written" in world.engine.result.problems[0]
    assert world.engine.evaluations == 1


def test_old_results_leave_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "MAX_LINES", 3)
    file = RecordingFile(tmp_path / FILE)
    two = [({"__name__": "a", "l": str(at)}, 1.0) for at in range(2)]
    made = {time_ms: recorded_lines(time_ms, two * 3) for time_ms in (MINUTE, 2 * MINUTE)}
    assert [len(one) for one in made.values()] == [3, 3]
    file.write(made)
    assert [time for time, *_ in lines(tmp_path)] == [2 * MINUTE] * 3


def test_the_file_is_written_when_it_lacks_results_only(tmp_path: Path) -> None:
    made = {MINUTE: recorded_lines(MINUTE, [({"__name__": "a"}, 1.0)])}
    file = RecordingFile(tmp_path / FILE)
    file.write(made)
    before = (tmp_path / FILE).stat().st_ino
    file.write(made)
    RecordingFile(tmp_path / FILE).write(made)  # as after a restart
    RecordingFile(tmp_path / FILE).write({})
    assert (tmp_path / FILE).stat().st_ino == before
    file.write({MINUTE: (*made[MINUTE], *made[MINUTE])})
    assert len(lines(tmp_path)) == 2


class Killed(Exception):
    """The engine ends here."""


@pytest.mark.parametrize("step", ["evaluated", "committing", "committed"])
def test_a_kill_loses_no_result_and_writes_none_that_is_not_stored(tmp_path: Path, step: str) -> None:
    def kill(at: str) -> None:
        if at == step and armed:
            raise Killed

    armed: list[bool] = []
    world = World(tmp_path, hook=kill)
    world.recordings = tmp_path
    world.write(RULES)
    world.tick({"a": 1, "b": 1})
    armed.append(True)
    world.time += MINUTE
    world.clock.advance(MINUTE)
    world.put({"a": 1, "b": 2})
    with pytest.raises(Killed):
        world.engine.evaluate_due()
    assert [value for _, name, _, value in lines(tmp_path) if name == "up:sum"] == [2.0]
    armed.clear()
    world.start()
    stored = step == "committed"
    assert [value for _, name, _, value in lines(tmp_path) if name == "up:sum"] == [2.0, *([3.0] if stored else [])]
    assert world.engine.evaluate_due() != stored
    found = [(time, value) for time, name, _, value in lines(tmp_path) if name == "up:sum"]
    assert found == [(START + MINUTE, 2.0), (START + 2 * MINUTE, 3.0)]
    world.close()


def test_a_label_may_hold_any_text(world: World, tmp_path: Path) -> None:
    world.write("groups:\n- name: g\n  rules:\n  - {record: r, expr: up}\n")
    world.tick({"a\u2028b\x0bc": 1})
    world.start()
    world.tick({"a\u2028b\x0bc": 2})
    assert [value for *_, value in lines(tmp_path)] == [1.0, 2.0]
    assert {labels["host"] for _, _, labels, _ in lines(tmp_path)} == {"a\u2028b\x0bc"}


def test_engines_of_one_folder_share_the_file_and_others_write_nothing(world: World, tmp_path: Path) -> None:
    """The engines of a pair share the state; a series belongs to one file of an agent."""
    world.tick({"a": 1})
    (tmp_path / FILE).unlink()
    database, elsewhere = world.database, tmp_path / "elsewhere"
    elsewhere.mkdir()
    far = EngineConfig("far", world.rules, (), recordings=elsewhere)
    engine = AlertEngine(far, world.store, database, database.load(), world.clock)
    engine.load(database.load())
    assert not (elsewhere / FILE).exists()
    near = EngineConfig("near", world.rules, (), recordings=tmp_path)
    AlertEngine(near, world.store, database, database.load(), world.clock)
    assert [value for _, name, _, value in lines(tmp_path) if name == "up:sum"] == [1.0]
