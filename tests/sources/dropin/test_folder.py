"""Folder of drop-in files: accepted samples, and the treatment of each invalid state of a file."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from artimon.model.labels import parse_canonical
from artimon.model.values import Kind
from sources.delivery import file_thread
from sources.dropin.file_source import END_AFTER_POLLS
from sources.state.retention_rules import RetentionDivider, parse_retention_rules
from tests.sources.dropin.world import MINUTE, T, World, lines
from tests.sources.helpers import HOST
from tests.waiting import LIMIT_S


def test_lines_become_samples_with_their_own_times_and_the_labels_of_the_host(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        world.put(
            "snmp.artimon",
            "# written by hand",
            "",
            f"{T} lb.requests{{class=lb,name=/env/node_name,host=device1}} 42",
            f'{T + 1} temperature{{context="room"}} 21.5\r',
            f"{T + 2}\t up{{dc=}}   T ",
            f"{T + 3} state{{}} 'a b'",
        )
        assert await world.poll() == 4
        labels = {text.partition("{")[0]: parse_canonical(text)[1] for text, *_ in world.sink.samples()}
        assert labels == {
            "lb.requests": {"class": "lb", "name": "/env/node_name", "host": "device1", "dc": "jb", "context": "snmp"},
            "temperature": {"context": "room", "host": HOST, "dc": "jb"},
            "up": {"context": "snmp", "host": HOST},
            "state": {"context": "snmp", "host": HOST, "dc": "jb"},
        }
        assert world.rows("snmp") == [
            ("lb.requests", T, 0, 42),
            ("temperature", T + 1, 0, 21.5),
            ("up", T + 2, 0, True),
            ("state", T + 3, 0, "a b"),
        ]
        assert world.problems == []

    asyncio.run(run())


@pytest.mark.parametrize("saved", [True, False], ids=["stopped in order", "killed before its state was written"])
def test_a_sample_counts_once_whether_the_file_is_read_again_touched_or_the_agent_restarted(
    tmp_path: Path, saved: bool
) -> None:
    async def run() -> None:
        world = World(tmp_path)
        path = world.put("a.artimon", *lines(T, n=1, m=2))
        assert await world.poll() == 2
        assert await world.poll(5) == 0
        os.utime(path)
        assert await world.poll() == 0
        await world.restart(saved)
        assert await world.poll(3) == 0
        world.put("a.artimon", *lines(T, n=1, m=2))
        assert await world.poll() == 0
        world.put("a.artimon", *lines(T, n=1, m=2), *lines(T + 5, n=3))
        assert await world.poll() == 1
        assert world.values("n") == [1, 3]
        assert world.problems == []

    asyncio.run(run())


def test_nothing_is_cached_of_a_file_that_is_gone(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        keeping = world.dropin._delivery.divider = RetentionDivider(parse_retention_rules(["n=short"]))
        path = world.put("a.artimon", f"{T} n 1")
        await world.poll()
        assert keeping._by_source
        path.unlink()
        await world.poll(END_AFTER_POLLS + 1)
        assert not keeping._by_source

    asyncio.run(run())


def test_several_times_of_a_series_are_taken_in_their_order(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        world.put("a.artimon", f"{T + 2} n 3", f"{T} n 1", f"{T + 1} n 2", f"{T + 1} m 5")
        assert await world.poll() == 4
        assert [row for row in world.rows() if row[0] == "n"] == [
            ("n", T, 0, 1),
            ("n", T + 1, 0, 2),
            ("n", T + 2, 0, 3),
        ]
        world.put("a.artimon", f"{T + 3} n 4", f"{T + 2} n 3", f"{T + 1} m 5")
        assert await world.poll() == 1, "a history that moves on"
        assert world.problems == []

    asyncio.run(run())


def test_a_bad_line_is_named_with_file_and_line_and_the_good_ones_count(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        path = world.put(
            "a.artimon", f"{T} n 1", "oh no", f"{T} bad-label{{0=x}} 1", f"{T} x{{l=\xff}} 1", f"{T} m five"
        )
        path.write_bytes(path.read_bytes().replace("\xff".encode(), b"\xff"))
        assert await world.poll() == 1
        assert [problem.split(" ")[0] for problem in world.problems] == [f"{path}:{n}:" for n in (2, 3, 4, 5)]
        assert "begin with the time" in world.problems[0]
        assert "label name '0'" in world.problems[1]
        assert "UTF-8" in world.problems[2]
        assert "'five'" in world.problems[3]
        assert world.refused == {"bad line": 4}
        assert world.told()["artimon.dropin.lines.refused", "a.artimon"] == 4
        await world.poll(3)
        assert world.told()["artimon.dropin.lines.refused", "a.artimon"] == 4, "the same lines count once"
        assert len(world.problems) == 4
        world.put("a.artimon", *lines(T + 1, n=2))
        await world.poll()
        assert (world.problems, world.refused) == ([], {})

    asyncio.run(run())


def test_many_bad_lines_are_all_counted_and_the_first_few_named(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        path = world.put("a.artimon", *["bad"] * 1_000, f"{T} n 1")
        assert await world.poll() == 1
        assert world.refused == {"bad line": 1_000}
        assert world.problems[:2] == [
            f"{path}: 1,000 lines refused in all",
            f"{path}:1: {world.problems[1][len(str(path)) + 4 :]}",
        ]
        assert len(world.problems) == 6

    asyncio.run(run())


def test_a_last_line_without_newline_waits_until_it_is_whole(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        path = world.put("a.artimon", f"{T} n 1", f"{T} m 12", end="")
        assert await world.poll() == 1
        assert world.problems == [f"{path}:2: no newline at its end: read again at the next poll"]
        await world.poll(END_AFTER_POLLS + 2)
        assert world.values("m") == []
        world.put("a.artimon", f"{T} n 1", f"{T} m 123")
        assert await world.poll() == 1
        assert world.values("m") == [123]
        assert world.problems == []

    asyncio.run(run())


def test_times_too_far_ahead_wait_and_times_too_old_are_refused(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        now = T + MINUTE
        days = 72 * 60 * MINUTE
        path = world.put(
            "a.artimon",
            f"{now + MINUTE} ahead 1",
            f"{now + MINUTE + 1} future 1",
            f"{now - days + 1} ancient 1",
            f"{now - days} old 1",
            f"{now // 1000} seconds 1",
        )
        assert await world.poll() == 2
        assert {name for name, *_ in world.rows()} == {"ahead", "ancient"}
        assert world.refused == {"future": 1, "too old": 2}
        assert any(problem.startswith(f"{path}:2: more than 60 s ahead") for problem in world.problems)
        assert any(problem.startswith(f"{path}:4: older than 72 h") for problem in world.problems)
        assert await world.poll() == 1, "its time has come"
        assert world.refused == {"too old": 2}
        assert await world.poll(3) == 0
        assert world.values("future") == [1]

    asyncio.run(run())


def test_what_comes_late_or_contradicts_is_refused_not_guessed(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        world.put("a.artimon", f"{T + 5} n 5", f"{T + 5} n 6", f"{T + 5} n 5", f"{T} d nan")
        assert await world.poll() == 2
        assert world.refused == {"time taken": 1}
        path = world.put("a.artimon", f"{T + 5} n 7", f"{T} d nan")
        assert await world.poll() == 0
        assert world.problems == [f"{path}:1: another value for a series and time that was taken before"]
        path = world.put("a.artimon", f"{T + 4} n 4", f"{T + 6} n 8")
        assert await world.poll() == 1
        assert world.problems == [f"{path}:1: a newer sample of its series was taken before"]
        assert world.values("n") == [5, 8]

    asyncio.run(run())


def test_types(tmp_path: Path) -> None:
    """An integer becomes a double once; 7 after 7.5 is 7.0; other changes of type are refused by name."""

    async def run() -> None:
        world = World(tmp_path)
        world.put(
            "a.artimon", f"{T} a 1", f"{T} b 1", f"{T} c 2.5", f"{T} d T", f"{T} e 'x'", f"{T} f 1", f"{T + 1} f 1.5"
        )
        assert await world.poll() == 7
        path = world.put("a.artimon", *lines(T + 9, a=2, b=1.5, c=7, d=1, e=2, f=3))
        assert await world.poll() == 4
        assert world.values("b") == [1, 1.5]
        assert [type(v) for v in world.values("c")] == [float, float]
        assert [type(v) for v in world.values("f")] == [float, float, float]
        assert world.refused == {"type change": 2}
        assert world.problems[0].startswith(f"{path}:4: INTEGER where its series is BOOLEAN: d{{")
        path = world.put("a.artimon", f"{T + 20} a 3", f"{T + 21} a 'x'")
        assert await world.poll() == 1
        assert world.problems == [f"{path}:2: not of the type of its series"]

    asyncio.run(run())


def test_a_file_that_is_gone_ends_its_series_after_five_polls_not_before(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        path = world.put("a.artimon", *lines(T, n=1))
        await world.poll()
        path.unlink()
        await world.poll(END_AFTER_POLLS - 1)
        world.put("a.artimon", *lines(world.now, n=2))
        await world.poll()
        path.unlink()
        await world.poll(END_AFTER_POLLS - 1)
        assert world.values("n") == [1, 2]
        await world.poll()
        assert world.values("n") == [1, 2, None]
        assert world.rows()[-1][1] == world.now
        assert world.told() == {}
        await world.poll(END_AFTER_POLLS)
        world.put("a.artimon", *lines(T + 9 * MINUTE, n=2))
        await world.poll()
        assert world.values("n") == [1, 2, None, 2], "it goes on"
        assert {birth for _, _, birth, _ in world.rows()} == {0}, "what it had counted does not count again"

    asyncio.run(run())


def test_a_series_that_left_its_file_ends_after_five_polls(tmp_path: Path) -> None:
    """The same rules hold for a file that is rewritten and for one that stays; also across a restart."""

    async def run() -> None:
        world = World(tmp_path)
        world.put("a.artimon", *lines(T, n=1, m=1))
        world.put("b.artimon", *lines(T, x=1, y=1))
        await world.poll()
        world.put("b.artimon", *lines(world.now, x=2))
        for _ in range(END_AFTER_POLLS - 1):
            world.put("a.artimon", *lines(world.now, n=2))
            await world.poll()
        assert None not in world.values("m") + world.values("y")
        world.put("a.artimon", *lines(world.now, n=2))
        await world.poll()
        assert (world.values("m"), world.values("y")) == ([1, None], [1, None])
        await world.restart()
        (world.folder / "a.artimon").unlink()
        await world.poll(END_AFTER_POLLS)
        assert world.values("n")[-1] is None
        assert world.values("x") == [1, 2]

    asyncio.run(run())


def test_a_folder_that_does_not_exist_is_no_problem_and_is_found_when_it_comes(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        world.folder.rmdir()
        await world.poll(2)
        assert world.problems == []
        world.folder.mkdir()
        world.put("a.artimon", *lines(T, n=1))
        assert await world.poll() == 1

    asyncio.run(run())


def test_only_the_suffix_counts_and_scratch_files_are_left_alone(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        for name in ("a.artimon.123", ".snmp.123", "a.tmp", ".hidden.artimon", "artimon", ".artimon", "a.ARTIMON"):
            (world.folder / name).write_text(f"{T} n 1\n")
        assert await world.poll() == 0
        assert world.problems == []
        assert world.sink.accepted == []

    asyncio.run(run())


def test_what_the_sink_refuses_is_taken_at_the_next_poll(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        world.put("a.artimon", *lines(T, n=1))
        world.sink.refusing = "quota: full"
        assert await world.poll(3) == 0
        assert any("quota: full" in problem for problem in world.problems)
        world.sink.refusing = ""
        assert await world.poll(3) == 1
        assert world.values("n") == [1]
        (world.folder / "a.artimon").unlink()
        world.sink.refusing = "quota: full"
        await world.poll(END_AFTER_POLLS + 1)
        world.sink.refusing = ""
        await world.poll()
        assert world.values("n") == [1, None], "the end is said, late"

    asyncio.run(run())


def test_a_file_system_that_hangs_holds_up_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        world = World(tmp_path)
        world.put("a.artimon", *lines(T, n=1))
        release, real = threading.Event(), os.scandir

        def hanging(folder: Path) -> object:
            release.wait(30)
            return real(folder)

        monkeypatch.setattr(file_thread, "READ_TIMEOUT_S", 0.05)
        monkeypatch.setattr(os, "scandir", hanging)
        assert await world.poll(3) == 0
        assert "does not answer" in world.problems[0]
        monkeypatch.undo()
        release.set()
        async with asyncio.timeout(LIMIT_S):
            while not await world.poll():
                await asyncio.sleep(0.01)
        assert world.problems == []

    asyncio.run(run())


def test_the_age_of_each_file_and_its_lines_are_variables(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        world.put("a.artimon", *lines(T, n=1, m=2))
        world.put("b.artimon", "oh no")
        await world.poll(3)
        world.put("a.artimon", *lines(world.now, n=1))
        await world.poll()
        assert world.told() == {
            ("artimon.dropin.age.ms", "a.artimon"): MINUTE,
            ("artimon.dropin.lines.accepted", "a.artimon"): 3,
            ("artimon.dropin.lines.refused", "a.artimon"): 0,
            ("artimon.dropin.age.ms", "b.artimon"): 4 * MINUTE,
            ("artimon.dropin.lines.accepted", "b.artimon"): 0,
            ("artimon.dropin.lines.refused", "b.artimon"): 1,
        }
        kinds = {v.name: v.kind for v in world.dropin.variables(world.now)}
        assert kinds["artimon.dropin.age.ms"] == Kind.GAUGE
        assert kinds["artimon.dropin.lines.accepted"] == Kind.COUNTER
        assert all(v.labels["host"] == HOST for v in world.dropin.variables(world.now))

    asyncio.run(run())


def test_labels_that_change_all_the_time_do_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sources.dropin.file_parser._MAX_CACHED_LINES", 50)

    async def run() -> None:
        world = World(tmp_path)
        for poll in range(10):
            world.put(
                "a.artimon", f"{T + poll} steady {poll}", *(f"{T + poll} n{{i={poll * 20 + i}}} 1" for i in range(20))
            )
            assert await world.poll() == 21
        assert world.values("steady") == list(range(10))
        assert len(world.dropin._files["a.artimon"]._reader.texts) <= 90

    asyncio.run(run())


def test_two_files_and_a_process_of_one_name_are_never_merged(tmp_path: Path) -> None:
    class Process:
        async def answers(self, sure: bool) -> bool:
            return True

        def supersede(self) -> None:
            raise AssertionError("it is alive")

    async def run() -> None:
        world = World(tmp_path)
        process = Process()
        assert await world.owners.claim(f"file/{HOST}/a", process, sure=True)
        path = world.put("a.artimon", *lines(T, n=1))
        assert await world.poll() == 0
        assert world.problems == [f"{path}: a process already owns file/{HOST}/a: rename it"]
        world.owners.release(f"file/{HOST}/a", process)
        assert await world.poll() == 1
        assert not await world.owners.claim(f"file/{HOST}/a", process, sure=True)

    asyncio.run(run())
