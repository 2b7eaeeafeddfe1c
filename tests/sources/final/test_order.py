"""Births, times and ends of final snapshots: after a poll, after the end was said, after polls of a successor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from artimon.model.values import Value
from sources.poll import memo
from tests.sources.final.world import MINUTE, SOURCE, Process, T, World, increase_of, rows_of
from tests.sources.helpers import KeepingSink

OLD, NEW = Process(0, 1), Process(20, 2)
Step = Callable[[World], Coroutine[Any, Any, None]]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def sink_of(world: World) -> KeepingSink:
    assert isinstance(world.sink, KeepingSink)
    return world.sink


def rows(world: World, name: str = "n") -> list[tuple[float, float, Value | None]]:
    """Times and births in minutes after T."""
    return [((t - T) / MINUTE, (b - T) / MINUTE, v) for t, b, v in rows_of(sink_of(world), name)]


async def polls(world: World) -> None:
    """`n` from the start, `late` since the second poll, `gone` removed before the third, `again` began anew then."""
    await world.poll(OLD, 1, n=1, gone=1, again=5)
    await world.poll(OLD, 2, n=2, late=10, gone=2, again=6)
    await world.poll(OLD, 3, n=3, late=20, again=2)


async def end_said(world: World) -> None:
    await world.delivery.end(world.store.get(SOURCE))


async def successor(world: World) -> None:
    await world.poll(NEW, 21, n=100, late=100)


async def two_successors(world: World) -> None:
    await successor(world)
    await world.poll(Process(22, 3), 23, n=1000)


async def nothing(_: World) -> None:
    return


@pytest.mark.parametrize("then", [nothing, end_said, successor, two_successors])
@pytest.mark.parametrize("saved", [True, False], ids=["state saved", "state lost, log replayed"])
def test_every_count_arrives_once(
    world: World, then: Callable[[World], Coroutine[Any, Any, None]], saved: bool
) -> None:
    """Whatever came before the file; and the file is put there again after it was taken, over restarts."""

    async def run() -> None:
        await polls(world)
        await then(world)
        await world.restart(saved)
        data = OLD.final(4, {"n": 7, "late": 30, "again": 4, "new": 50}, poller="agent1")
        for _ in range(3):
            await world.put(OLD.file, data)
            await world.finals.sweep()
            assert world.files() == []
            await world.restart(saved)
        before = {nothing: 0, end_said: 0, successor: 100, two_successors: 1100}[then]
        assert increase_of(rows_of(sink_of(world), "n")) == 7 + before
        assert increase_of(rows_of(sink_of(world), "late")) == 30 + (100 if before else 0)
        assert increase_of(rows_of(sink_of(world), "again")) == 6 + 4
        assert increase_of(rows_of(sink_of(world), "new")) == 50
        assert [row for row in rows(world, "new") if row[2]] == [(4, 3, 50)], "born at the poll before"
        assert rows(world, "new")[-1][2] is None, "it does not go on"
        assert [row for row in rows(world) if row[2] == 7] == [(4, 0, 7)]

    asyncio.run(run())


def test_a_successor_goes_on_undisturbed(world: World) -> None:
    """It is not ended, and a series that it gets later is born at its own poll before."""

    async def run() -> None:
        await polls(world)
        await successor(world)
        await world.put(OLD.file, OLD.final(4, {"n": 7, "own": 1}))
        assert await world.finals.sweep() == 1
        await world.poll(NEW, 24, n=101, late=100, fresh=1)
        assert rows(world)[-2:] == [(21, 20, 100), (24, 20, 101)]
        assert rows(world, "fresh") == [(24, 21, 1)]
        assert rows(world, "own")[-1][::2] == ((4 * MINUTE + 1) / MINUTE, None)

    asyncio.run(run())


def test_a_poll_that_arrived_after_the_end_was_dated(world: World) -> None:
    """The agent dates a poll when the answer has come, the process its end before that: the file is newer."""

    async def run() -> None:
        await world.poll(OLD, 4.01, n=3)
        await world.put(OLD.file, OLD.final(4, {"n": 5}))
        await world.finals.sweep()
        values = [value for _, _, value in rows(world)]
        assert values == [3, 5, None]

    asyncio.run(run())


def test_births_that_another_agent_left(world: World) -> None:
    """Another agent polled the process; what it left with it tells which series began later."""

    async def run() -> None:
        other = World(world.data / "other")
        await other.poll(OLD, 1, n=1)
        await other.poll(OLD, 2, n=2, late=1)
        left = memo.encode(memo.late_of(other.store.get(SOURCE)))
        other.close()
        await world.put(OLD.file, OLD.final(4, {"n": 7, "late": 30}, poller="agent2", memo=left))
        assert await world.finals.sweep() == 1
        assert rows(world)[0] == (4, 0, 7)
        assert rows(world, "late")[0] == (4, 1, 30)

    asyncio.run(run())


def test_a_counter_that_fell_since_the_last_poll(world: World) -> None:
    async def run() -> None:
        await world.poll(OLD, 1, n=10)
        await world.put(OLD.file, OLD.final(4, {"n": 3}))
        await world.finals.sweep()
        assert rows(world)[:2] == [(1, 0, 10), (4, 1, 3)]

    asyncio.run(run())


def test_the_log_takes_nothing_now(world: World) -> None:
    """The file stays, and is taken later."""

    async def run() -> None:
        await polls(world)
        await world.put(OLD.file, OLD.final(4, {"n": 7}))
        sink_of(world).refusing = "full"
        assert await world.finals.sweep() == 0
        assert world.files() == [OLD.file]
        sink_of(world).refusing = ""
        assert await world.finals.sweep() == 1
        assert increase_of(rows_of(sink_of(world), "n")) == 7

    asyncio.run(run())
