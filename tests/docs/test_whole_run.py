"""The run of all benchmarks: each line once, failures are lines, a run is resumed."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from benchmarks import all as whole
from benchmarks import fleet
from benchmarks.suite.machine import describe
from benchmarks.suite.plan import PLAN, Entry, Form
from benchmarks.suite.results import Record, Results, ResultsError, failed, read

MACHINE: Record = {"name": "machine", "commit": "c0ffee", "dirty": False, "form": "usual"}


def entry(*words: str, name: str = "fake", promised: tuple[str, ...] = ("fake.a",)) -> Entry:
    return Entry(name, "tests.docs.breaking_benchmark", 1.0, words, promised=promised)


def ran(file: Path, *entries: Entry) -> dict[str, Record]:
    results = Results(file, MACHINE)
    results.begin()
    for one in entries:
        whole.run_entry(one, "usual", results)
    assert read(file) == results.records
    return {record["name"]: record for record in results.records}


def test_a_run_ends_with_its_time_and_loads(tmp_path: Path) -> None:
    found = ran(tmp_path / "out", entry("fake.a", "noise", "fake.b"))
    assert list(found) == ["machine", "fake.a", "fake.b", "benchmark.fake"]
    end = found["benchmark.fake"]
    assert end["value"] >= 0
    assert end["arguments"] == ["fake.a", "noise", "fake.b"]
    assert {"load_start", "load_end"} <= end.keys()
    assert not failed(end)


def test_failures_are_lines_with_reasons_and_the_others_go_on(tmp_path: Path) -> None:
    broken, parts = entry("fake.a", "break"), entry("part", "peer", "other.a", name="other", promised=("other.a",))
    found = ran(tmp_path / "out", broken, parts)
    assert failed(found["benchmark.fake"]) == "exit code 1: told to break"
    assert failed(found["fake.part"]) == "RuntimeError: no server answers"
    assert failed(found["peer.nobody.fake"]) == "not here"
    assert found["other.a"]["value"] == 12350
    assert not failed(found["benchmark.other"])


def test_a_promised_line_that_is_not_printed_failed(tmp_path: Path) -> None:
    found = ran(tmp_path / "out", entry("fake.b", promised=("fake.a", "fake.b")))
    assert failed(found["fake.a"]) == "was not printed"


def test_a_line_that_is_printed_twice_stands_once_and_fails(tmp_path: Path) -> None:
    found = ran(tmp_path / "out", entry("fake.a", "fake.a"))
    assert "fake.a was printed before" in failed(found["benchmark.fake"])


def test_a_run_that_takes_too_long_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "LEAST_S", 0.05)
    slow = Entry("slow", "http.server", 0.0, ("0", "--bind", "127.0.0.1"))
    assert "interrupted after" in failed(ran(tmp_path / "out", slow)["benchmark.slow"])


def test_resuming_keeps_what_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "out"
    ran(file, entry("good.a", name="good", promised=()), entry("fake.a", "break"))
    file.write_text(file.read_text() + '{"name": "cut')
    results = Results(file, {**MACHINE, "date": "later"})
    results.resume()
    assert [record["name"] for record in results.records] == ["machine", "good.a", "benchmark.good"]
    results.begin()
    assert read(file) == results.records


def test_resuming_refuses_another_commit(tmp_path: Path) -> None:
    ran(tmp_path / "out", entry("fake.a"))
    with pytest.raises(ResultsError, match="use another file"):
        Results(tmp_path / "out", {**MACHINE, "commit": "other"}).resume()


def test_renewing_replaces_the_chosen_benchmarks(tmp_path: Path) -> None:
    file = tmp_path / "out"
    ran(file, entry("old.a", name="old", promised=()), entry("fake.a"))
    results = Results(file, {**MACHINE, "commit": "other"})
    results.renew(["fake"])
    results.begin()
    whole.run_entry(entry("fake.a"), "usual", results)
    found = read(file)
    assert [one["name"] for one in found] == ["machine", "old.a", "benchmark.old", "fake.a", "benchmark.fake"]
    assert [found[i]["commit"] for i in (0, 2, 4)] == [MACHINE["commit"], MACHINE["commit"], "other"]


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(whole, "PLAN", (entry("fake.a"), entry("break", name="broken", promised=())))
    file = str(tmp_path / "out")
    assert whole.main([file, "--only", "fake"]) == 0
    assert whole.main([file, "--only", "fake"]) == 2
    assert whole.main([file, "--only", "nothing"]) == 2
    assert whole.main([file, "--resume"]) == 1
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["name"] for one in printed[3:]] == ["machine", "fake.a", "benchmark.fake", "benchmark.broken"]


def test_the_machine_line() -> None:
    machine = describe()
    assert {"date", "commit", "dirty", "machine", "java", "libraries", "load"} <= machine.keys()
    assert machine["libraries"]["numpy"]


def test_the_plan_names_each_benchmark_and_line_once_and_fits_an_hour() -> None:
    names = Counter(name for one in PLAN for name in (one.name, *(f"line {line}" for line in one.promised_of("usual"))))
    assert {name: n for name, n in names.items() if n > 1} == {}
    assert all(importlib.util.find_spec(one.module) for one in PLAN)
    assert sum(one.minutes for one in PLAN) <= 60
    assert max(one.minutes for one in PLAN) <= 10


def test_a_fleet_at_rest_is_watched_for_a_period_of_its_checks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shorter time counts no check, or all of them, by chance."""
    (planned,) = (one for one in PLAN if one.module == "benchmarks.fleet")
    for form in get_args(Form):
        words = planned.arguments_of(form)
        assert float(words[words.index("--seconds") + 1]) >= fleet.CHECK_S
    monkeypatch.setattr("sys.argv", ["fleet", "--seconds", "59"])
    with pytest.raises(SystemExit):
        fleet.main()
    assert "--seconds 59: use 60 or more" in capsys.readouterr().err
