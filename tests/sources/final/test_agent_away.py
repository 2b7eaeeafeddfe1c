"""Processes that end in order while their agent is away: their counts arrive once, when the agent is back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from artimon.model.batch import PollResult
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.protocols import NewestPoll
from tests.sources.helpers import HOST, Application, KeepingSink, running
from tests.waiting import until

pytestmark = pytest.mark.stack


class LoggingSink(KeepingSink):
    """Sink that replays as the log does: samples it accepted, without those that the source remembers."""

    def replay(self, since: NewestPoll | None = None) -> Iterable[PollResult]:
        for one in list(self.accepted):
            if since is None or not len(one.samples) or one.poll_ms >= since(one.source):
                yield one


def rows_of(sink: KeepingSink, source: str, name: str = "orders") -> list[tuple[int, int, object]]:
    """(time, birth, value) of a series, by time."""
    found = [(t, b, v) for text, t, b, v in sink.samples(source) if text.startswith(name + "{")]
    return sorted(found, key=lambda row: row[:2])


def increase_of(rows: list[tuple[int, int, object]]) -> int:
    """Return the increase of a counter from 0: a new start time counts from 0; values of one must not fall."""
    total, before, birth = 0, 0, 0
    for _, born, value in rows:
        if not isinstance(value, int):
            continue
        assert born >= birth
        before = before if born == birth else 0
        assert value >= before
        total, before, birth = total + value - before, value, born
    return total


def finals(dropin: Path) -> list[Path]:
    return sorted((dropin / "final").glob("*.final"))


@pytest.fixture
def dropin(tmp_path: Path) -> Path:
    folder = tmp_path / "dropin"
    folder.mkdir()
    return folder


def test_what_was_counted_while_the_agent_was_away_arrives_once(tree: str, tmp_path: Path, dropin: Path) -> None:
    """The process is polled at 1 and ends at 132 while the agent is away. The agent restarts three times."""

    async def run() -> None:
        sink, source, data = LoggingSink(), f"away/{HOST}/0", tmp_path / "data"
        app = Application(tree, "away", tmp_path / "run", dropin=dropin)
        async with running(tree, data, sink, dropin=dropin):
            await app.do("add orders 1")
            await until(lambda: sink.last(source).get("orders") == 1, "the first poll")
        await app.do("add orders 131")
        await app.do("add late 7")
        await app.leave()
        ended_ms = SYSTEM_CLOCK.now_ms()
        assert len(finals(dropin)) == 1
        for _ in range(3):
            async with running(tree, data, sink, dropin=dropin):
                await until(lambda: not finals(dropin), "the file is taken")
                await until(lambda: sink.last(source).get("orders", 0) is None, "the end")
        rows = rows_of(sink, source)
        assert increase_of(rows) == 132
        assert [value for _, _, value in rows].count(132) == 1
        (final,) = [row for row in rows if row[2] == 132]
        assert final[0] <= ended_ms
        (late,) = [row for row in rows_of(sink, source, "late") if row[2] == 7]
        assert late[1] == max(time for time, _, value in rows if value == 1), "born at the poll before"

    asyncio.run(run())


def test_a_program_that_nobody_ever_polled(tree: str, tmp_path: Path, dropin: Path) -> None:
    """It begins and ends while the agent is away, and a second one with its name follows."""

    async def run() -> None:
        sink, source, data = LoggingSink(), f"brief/{HOST}/0", tmp_path / "data"
        async with running(tree, data, sink, dropin=dropin):
            await until(lambda: (dropin / "final").is_dir(), "the folder")
        for amount in (20, 22):
            app = Application(tree, "brief", tmp_path / "run", dropin=dropin)
            await app.do(f"add orders {amount}")
            await app.leave()
        assert len(finals(dropin)) == 2
        async with running(tree, data, sink, dropin=dropin):
            await until(lambda: not finals(dropin), "both files are taken")
        rows = rows_of(sink, source)
        assert increase_of(rows) == 42
        assert rows[-1][2] is None

    asyncio.run(run())


def test_without_zookeeper_the_values_arrive(tree: str, tmp_path: Path, dropin: Path) -> None:
    async def run() -> None:
        sink, source = LoggingSink(), f"alone/{HOST}/0"
        async with running(tree, tmp_path / "data", sink, dropin=dropin):
            await until(lambda: (dropin / "final").is_dir(), "the folder")
            app = Application("127.0.0.1:1", "alone", tmp_path / "run", dropin=dropin)
            await app.do("add orders 5")
            await app.leave()
            await until(lambda: sink.last(source).get("orders", 0) is None, "the values and their end")
        assert increase_of(rows_of(sink, source)) == 5

    asyncio.run(run())


def test_a_polled_process_leaves_no_file(tree: str, tmp_path: Path, dropin: Path) -> None:
    async def run() -> None:
        sink, source = LoggingSink(), f"well/{HOST}/0"
        async with running(tree, tmp_path / "data", sink, dropin=dropin):
            app = Application(tree, "well", tmp_path / "run", dropin=dropin)
            await app.do("add orders 1")
            await until(lambda: sink.last(source).get("orders") == 1, "the first poll")
            await app.do("add orders 41")
            await app.leave()
            assert finals(dropin) == []
        assert increase_of(rows_of(sink, source)) == 42

    asyncio.run(run())


def test_an_answer_that_the_log_did_not_take(tree: str, tmp_path: Path, dropin: Path) -> None:
    """The agent polls the process at its end, and dies or is refused before the values are on disk."""

    async def run() -> None:
        sink, source = LoggingSink(), f"torn/{HOST}/0"
        async with running(tree, tmp_path / "data", sink, dropin=dropin):
            app = Application(tree, "torn", tmp_path / "run", dropin=dropin)
            await app.do("add orders 1")
            await until(lambda: sink.last(source).get("orders") == 1, "the first poll")
            sink.refusing = "full"
            await app.do("add orders 41")
            await app.leave()
            assert len(finals(dropin)) == 1
            sink.refusing = ""
            await until(lambda: not finals(dropin), "the file is taken")
        assert increase_of(rows_of(sink, source)) == 42

    asyncio.run(run())


def test_a_successor_that_is_there_first(tree: str, tmp_path: Path, dropin: Path) -> None:
    """The next process with that name runs when the agent returns."""

    async def run() -> None:
        sink, source, data = LoggingSink(), f"next/{HOST}/0", tmp_path / "data"
        app = Application(tree, "next", tmp_path / "run", dropin=dropin)
        async with running(tree, data, sink, dropin=dropin):
            await app.do("add orders 1")
            await until(lambda: sink.last(source).get("orders") == 1, "the first poll")
        await app.do("add orders 9")
        await app.leave()
        app = Application(tree, "next", tmp_path / "run", dropin=dropin)
        await app.do("add orders 100")
        async with running(tree, data, sink, dropin=dropin):
            await until(lambda: sink.last(source).get("orders") == 100, "the next process")
            await app.do("add orders 1000")
            await until(lambda: sink.last(source).get("orders") == 1100, "its next poll")
            await app.leave()
        rows = rows_of(sink, source)
        assert increase_of(rows) == 1110
        assert finals(dropin) == []

    asyncio.run(run())
