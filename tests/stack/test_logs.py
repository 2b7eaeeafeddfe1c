"""Reading and following logs."""

from __future__ import annotations

from pathlib import Path

from artimon.stack.log_follower import LogFollower, tail


def test_tail_returns_the_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    assert tail(log, 3) == []
    log.write_text("one\ntwo\nthree\n")
    assert tail(log, 2) == ["two", "three"]
    assert tail(log, 0) == []


def test_follow_gives_whole_lines_and_survives_a_cut(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("before\n")
    follower = LogFollower(log)
    with log.open("a") as writer:
        writer.write("one\ntw")
        writer.flush()
        assert follower.lines() == ["one"]
        writer.write("o\n")
    assert follower.lines() == ["two"]
    log.write_text("new\n")
    assert follower.lines() == ["new"]


def test_follow_a_log_that_comes_later(tmp_path: Path) -> None:
    follower = LogFollower(tmp_path / "a.log")
    assert follower.lines() == []
    (tmp_path / "a.log").write_text("first\n")
    assert follower.lines() == ["first"]
