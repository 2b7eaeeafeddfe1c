"""Recording rules: their results are lines of a drop-in file, with the time of the evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from alerts.evaluation import recordings
from alerts.evaluation.recordings import FILE, RecordingFile
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
    file = RecordingFile(tmp_path)
    two = [({"__name__": "a", "l": str(at)}, 1.0) for at in range(2)]
    assert file.write(MINUTE, two) == file.write(2 * MINUTE, two) == 0
    assert [time for time, *_ in lines(tmp_path)] == [2 * MINUTE] * 2
    assert file.write(3 * MINUTE, two * 3) == 3
