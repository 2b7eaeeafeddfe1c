"""A series is announced with its first accepted sample: refused lines leave nothing behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sources.dropin.line_start_times import MAX_AGE_MS, MAX_AHEAD_MS
from tests.sources.dropin.world import MINUTE, T, World


@pytest.mark.parametrize(
    ("time_ms", "reason"), [(T - MAX_AGE_MS, "too old"), (T + MAX_AHEAD_MS + 9 * MINUTE, "future")], ids=str
)
def test_a_series_that_only_refused_lines_name_is_not_announced(tmp_path: Path, time_ms: int, reason: str) -> None:
    async def run() -> None:
        world = World(tmp_path)
        path = world.put("a.artimon", f"{time_ms} lost 1", f"{T} good 2", f"{time_ms} lost 'a text'")
        assert await world.poll() == 1
        assert [text.partition("{")[0] for text in world.sink.texts().values()] == ["good"]
        assert world.refused == {reason: 2}
        assert world.problems[0].startswith(f"{path}:1: ")
        await world.restart()
        await world.poll()
        assert len(world.sink.texts()) == 1
        now = world.put("a.artimon", f"{T + MINUTE} lost 3", f"{T} good 2")
        assert now == path
        await world.poll()
        assert world.values("lost") == [3]
        assert len(world.sink.texts()) == 2

    asyncio.run(run())


def test_the_type_of_a_series_is_that_of_a_line_that_may_be_taken(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        world.put("a.artimon", f"{T + 10 * MINUTE} n 'soon'", f"{T} n 7")
        assert await world.poll() == 1
        assert world.values("n") == [7]
        assert world.refused == {"future": 1}

    asyncio.run(run())


def test_a_line_that_waits_is_announced_when_its_time_has_come(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        world.put("a.artimon", f"{T + 4 * MINUTE} n 7")
        await world.poll(2)
        assert world.sink.accepted == []
        await world.poll()
        assert world.values("n") == [7]

    asyncio.run(run())


def test_too_many_labels_with_the_added_ones_are_counted_apart(tmp_path: Path) -> None:
    """Context, host and dc are added; a line can remove one of them."""

    async def run() -> None:
        world = World(tmp_path)
        path = world.put("a.artimon", f"{T} n{{{','.join(f'l{i}=v' for i in range(38))},empty=}} 1")
        more = world.put("b.artimon", f"{T} n{{{','.join(f'l{i}=v' for i in range(41))}}} 1")
        assert await world.poll() == 0
        assert world.problems == [
            f"{path}:1: 38 labels and 3 added: at most 40 in all",
            f"{more}:1: 41 labels and 3 added: at most 40 in all",
        ]
        world.put("a.artimon", f"{T} n{{{','.join(f'l{i}=v' for i in range(38))},host=}} 1")
        assert await world.poll() == 1

    asyncio.run(run())
