"""Start times, times and ends of final snapshots: after a poll, after a reported end, after polls of a successor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from artimon.model.values import Value
from sources.poll import start_time_memo as memo
from tests.sources.final.world import MINUTE, SOURCE, Process, T, World, increase_of, rows_of
from tests.sources.helpers import KeepingSink

OLD, NEW = Process(0, 1), Process(20, 2)
Step = Callable[[World], Coroutine[Any, Any, None]]


@pytest.fixture
def final_world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def sink_of(final_world: World) -> KeepingSink:
    assert isinstance(final_world.sink, KeepingSink)
    return final_world.sink


def kept_rows(final_world: World, name: str = "n") -> list[tuple[float, float, Value | None]]:
    """Times and births in minutes after T."""
    return [((t - T) / MINUTE, (b - T) / MINUTE, v) for t, b, v in rows_of(sink_of(final_world), name)]


async def polls(final_world: World) -> None:
    """Make polls: `n` from the start, `late` since the second, `gone` not in the third, `again` restarted."""
    await final_world.poll(OLD, 1, n=1, gone=1, again=5)
    await final_world.poll(OLD, 2, n=2, late=10, gone=2, again=6)
    await final_world.poll(OLD, 3, n=3, late=20, again=2)


async def end_said(final_world: World) -> None:
    await final_world.delivery.end(final_world.store.get(SOURCE))


async def successor(final_world: World) -> None:
    await final_world.poll(NEW, 21, n=100, late=100)


async def two_successors(final_world: World) -> None:
    await successor(final_world)
    await final_world.poll(Process(22, 3), 23, n=1000)


async def nothing(_: World) -> None:
    return


@pytest.mark.parametrize("then", [nothing, end_said, successor, two_successors])
@pytest.mark.parametrize("saved", [True, False], ids=["state saved", "state lost, log replayed"])
def test_every_count_arrives_once(
    final_world: World, then: Callable[[World], Coroutine[Any, Any, None]], saved: bool
) -> None:
    """For any polls before the file, and for a file that is put back after acceptance, across restarts."""

    async def run() -> None:
        await polls(final_world)
        await then(final_world)
        await final_world.restart(saved)
        data = OLD.final(4, {"n": 7, "late": 30, "again": 4, "new": 50}, poller="agent1")
        for _ in range(3):
            await final_world.put(OLD.file, data)
            await final_world.finals.sweep()
            assert final_world.files() == []
            await final_world.restart(saved)
        before = {nothing: 0, end_said: 0, successor: 100, two_successors: 1100}[then]
        assert increase_of(rows_of(sink_of(final_world), "n")) == 7 + before
        assert increase_of(rows_of(sink_of(final_world), "late")) == 30 + (100 if before else 0)
        assert increase_of(rows_of(sink_of(final_world), "again")) == 6 + 4
        assert increase_of(rows_of(sink_of(final_world), "new")) == 50
        assert [row for row in kept_rows(final_world, "new") if row[2]] == [(4, 3, 50)], "born at the poll before"
        assert kept_rows(final_world, "new")[-1][2] is None, "it does not go on"
        assert [row for row in kept_rows(final_world) if row[2] == 7] == [(4, 0, 7)]

    asyncio.run(run())


def test_a_successor_goes_on_undisturbed(final_world: World) -> None:
    """It does not end, and a series that appears later begins at its own previous poll."""

    async def run() -> None:
        await polls(final_world)
        await successor(final_world)
        await final_world.put(OLD.file, OLD.final(4, {"n": 7, "own": 1}))
        assert await final_world.finals.sweep() == 1
        await final_world.poll(NEW, 24, n=101, late=100, fresh=1)
        assert kept_rows(final_world)[-2:] == [(21, 20, 100), (24, 20, 101)]
        assert kept_rows(final_world, "fresh") == [(24, 21, 1)]
        assert kept_rows(final_world, "own")[-1][::2] == ((4 * MINUTE + 1) / MINUTE, None)

    asyncio.run(run())


def test_a_poll_that_arrived_after_the_end_was_dated(final_world: World) -> None:
    """The agent dates a poll on receipt, the process dates its end before that: the file is newer."""

    async def run() -> None:
        await final_world.poll(OLD, 4.01, n=3)
        await final_world.put(OLD.file, OLD.final(4, {"n": 5}))
        await final_world.finals.sweep()
        values = [value for _, _, value in kept_rows(final_world)]
        assert values == [3, 5, None]

    asyncio.run(run())


def test_births_that_another_agent_left(final_world: World) -> None:
    """Another agent polled the process; the start times that it stored tell which series began later."""

    async def run() -> None:
        other = World(final_world.data / "other")
        await other.poll(OLD, 1, n=1)
        await other.poll(OLD, 2, n=2, late=1)
        left = memo.encode_memo(memo.late_series_of(other.store.get(SOURCE)))
        other.close()
        await final_world.put(OLD.file, OLD.final(4, {"n": 7, "late": 30}, poller="agent2", memo=left))
        assert await final_world.finals.sweep() == 1
        assert kept_rows(final_world)[0] == (4, 0, 7)
        assert kept_rows(final_world, "late")[0] == (4, 1, 30)

    asyncio.run(run())


def test_a_counter_that_fell_since_the_last_poll(final_world: World) -> None:
    async def run() -> None:
        await final_world.poll(OLD, 1, n=10)
        await final_world.put(OLD.file, OLD.final(4, {"n": 3}))
        await final_world.finals.sweep()
        assert kept_rows(final_world)[:2] == [(1, 0, 10), (4, 1, 3)]

    asyncio.run(run())


def test_the_log_takes_nothing_now(final_world: World) -> None:
    """The file stays and is accepted later."""

    async def run() -> None:
        await polls(final_world)
        await final_world.put(OLD.file, OLD.final(4, {"n": 7}))
        sink_of(final_world).refusing = "full"
        assert await final_world.finals.sweep() == 0
        assert final_world.files() == [OLD.file]
        sink_of(final_world).refusing = ""
        assert await final_world.finals.sweep() == 1
        assert increase_of(rows_of(sink_of(final_world), "n")) == 7

    asyncio.run(run())
