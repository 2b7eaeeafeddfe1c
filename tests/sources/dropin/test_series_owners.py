"""One series in two drop-in files: the first one owns it; the other is refused by name until the first has ended."""

from __future__ import annotations

import asyncio
from pathlib import Path

from artimon.model.values import Kind, ValueType
from sources.dropin.file_source import END_AFTER_POLLS
from sources.dropin.series_owners import META, SeriesOwners
from sources.state.series_memory import SourceSeries
from sources.state.series_rows import SeriesDescription
from tests.sources.dropin.world import T, World

SAME = "room.celsius{context=room}"


def test_the_second_file_is_refused_by_name_and_takes_over_when_the_first_is_gone(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        a = world.put("a.artimon", f"{T} {SAME} 1")
        await world.poll()
        b = world.put("b.artimon", f"{T + 1} {SAME} 2", f"{T + 1} own 5")
        assert await world.poll() == 1
        assert world.values("room.celsius") == [1]
        (problem,) = world.problems
        assert problem.startswith(f"{b}:1: series already comes from a.artimon: room.celsius{{")
        assert world.refused == {"same series twice": 1}
        assert world.told()["artimon.dropin.lines.refused", "b.artimon"] == 1
        await world.poll(2)
        assert world.told()["artimon.dropin.lines.refused", "b.artimon"] == 1, "an unchanged file counts once"
        world.put("a.artimon", f"{T + 2} {SAME} 3")
        await world.poll()
        a.unlink()
        await world.poll(END_AFTER_POLLS - 1)
        assert world.values("room.celsius") == [1, 3]
        world.put("b.artimon", f"{T + 3} {SAME} 4", f"{T + 1} own 5")
        await world.poll(2)
        assert world.values("room.celsius") == [1, 3, None, 4]
        await world.poll()
        assert world.problems == []
        assert world.refused == {}
        world.put("a.artimon", f"{T + 9} {SAME} 9")
        await world.poll()
        assert "series already comes from b.artimon" in world.problems[0]

    asyncio.run(run())


def test_what_the_first_file_gave_does_not_count_again_in_the_second(tmp_path: Path) -> None:
    """A counter keeps its start time, and a time that was accepted is not accepted again."""

    async def run() -> None:
        world = World(tmp_path)
        kind = "# kind n counter"
        first = world.put("a.artimon", kind, f"{T} n{{context=x}} 10")
        await world.poll()
        world.put("a.artimon", kind, f"{T + 5} n{{context=x}} 2")
        await world.poll()
        first.unlink()
        world.put("b.artimon", kind, f"{T + 4} n{{context=x}} 1", f"{T + 5} n{{context=x}} 2")
        await world.poll(END_AFTER_POLLS + 2)
        assert [value for _, _, _, value in world.rows()] == [10, 2, None]
        world.put("b.artimon", kind, f"{T + 7} n{{context=x}} 3")
        await world.poll()
        assert world.rows("b")[-1] == ("n", T + 7, T, 3)

    asyncio.run(run())


def test_a_series_that_left_the_first_file_alone_may_come_from_the_second(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        world.put("a.artimon", f"{T} {SAME} 1", f"{T} other 1")
        world.put("b.artimon", f"{T + 1} {SAME} 2")
        await world.poll()
        world.put("a.artimon", f"{T + 1} other 2")
        await world.poll(END_AFTER_POLLS + 1)
        assert world.values("room.celsius") == [1, None, 2]
        world.put("a.artimon", f"{T + 2} other 3", f"{T + 2} {SAME} 3")
        await world.poll(END_AFTER_POLLS + 1)
        assert world.values("room.celsius") == [1, None, 2], "nor does its absence from the first end it again"

    asyncio.run(run())


def test_a_restarted_agent_knows_who_has_a_series(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        world.put("z.artimon", f"{T} {SAME} 1")
        await world.poll()
        world.put("a.artimon", f"{T + 1} {SAME} 2")
        await world.poll()
        await world.restart()
        await world.poll()
        assert world.values("room.celsius") == [1]
        assert "series already comes from z.artimon" in world.problems[0]

    asyncio.run(run())


def test_an_agent_that_lost_its_state_still_takes_a_series_from_one_file(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        world.put("z.artimon", f"{T} {SAME} 1")
        await world.poll()
        world.put("a.artimon", f"{T + 1} {SAME} 2")
        await world.restart(saved=False)
        await world.poll()
        world.put("z.artimon", f"{T + 2} {SAME} 3")
        await world.poll(2)
        assert world.values("room.celsius") == [1, 2]
        assert "series already comes from a.artimon" in world.problems[0]

    asyncio.run(run())


def test_a_refused_poll_of_the_log_gives_a_series_to_nobody(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        world.put("a.artimon", f"{T} {SAME} 1")
        world.sink.refusing = "quota"
        await world.poll()
        (world.folder / "a.artimon").unlink()
        world.put("b.artimon", f"{T + 1} {SAME} 2")
        world.sink.refusing = ""
        await world.poll()
        assert world.values("room.celsius") == [2]

    asyncio.run(run())


def series_of(name: str, *prints: int, last_ms: int = 0) -> SourceSeries:
    series = SourceSeries(name)
    series.meta = {META: f"{name}.artimon"}
    for print_ in prints:
        row = series.rows.add(print_, ValueType.INTEGER, SeriesDescription("n{}", Kind.GAUGE, "", "", 0))
        series.rows.state["live"][row], series.rows.state["last_ms"][row] = True, last_ms
    return series


def test_of_two_that_an_older_version_left_live_the_newer_goes_on() -> None:
    owners, old, new = SeriesOwners(), series_of("old", 1, last_ms=5), series_of("new", 1, last_ms=9)
    owners.add(old)
    owners.add(new)
    assert (old.live, new.live) == (0, 1)
    assert owners.owner_of(1, old) == "new.artimon"
    assert owners.owner_of(1, new) == ""


def test_what_no_file_remembers_is_forgotten() -> None:
    owners, series = SeriesOwners(), series_of("a", 1, 2, 3)
    owners.claim(range(5_000), series)
    owners.trim([series])
    assert len(owners) == 3
