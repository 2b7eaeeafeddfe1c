"""Start times of the counts of a drop-in file: the rules one by one, and against a slow reference."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from sources.dropin.file_source import END_AFTER_POLLS
from tests.sources.dropin.world import MINUTE, T, World, lines


def births(world: World, name: str) -> list[int]:
    """Return start times of the samples of a variable relative to T, 0 if unknown, in the order of acceptance."""
    return [birth and birth - T for found, _, birth, value in world.rows() if found == name and value is not None]


def test_nothing_is_known_of_what_was_there_at_the_first_look(tmp_path: Path) -> None:
    """A start time of 0: the first value is no increase. A series that appears later began after the poll before."""

    async def run() -> None:
        world = World(tmp_path)
        world.put("a.artimon", *lines(T + 1, n=10))
        await world.poll()
        world.put("a.artimon", *lines(T + 2, n=11, late=5))
        await world.poll()
        await world.restart()
        world.put("a.artimon", *lines(T + 3, n=12, late=6, later=1))
        await world.poll()
        assert births(world, "n") == [0, 0, 0]
        assert births(world, "late") == [1, 1]
        assert births(world, "later") == [2]

    asyncio.run(run())


def test_a_look_that_was_not_whole_proves_no_absence(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        world.put("a.artimon", f"{T + 1} n 1")
        await world.poll()
        world.put("a.artimon", f"{T + 2} n 2", f"{T + 2} m oops")
        await world.poll()
        world.put("a.artimon", f"{T + 3} n 3", f"{T + 3} half 7", end="")
        await world.poll()
        world.put("a.artimon", *lines(T + 4, n=3, m=1, half=7))
        await world.poll()
        assert births(world, "m") == [1], "it was not there at the last whole look, at 1"
        assert births(world, "half") == [1]

    asyncio.run(run())


def test_a_counter_that_falls_began_at_its_sample_before_a_gauge_goes_on(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        told = ["# kind n counter", "# kind g gauge", "# kind d counter"]
        world.put("a.artimon", *told, *lines(T + 1, n=10, g=10, u=10, d=1.5))
        await world.poll()
        world.put("a.artimon", *told, *lines(T + 5, n=3, g=3, u=3, d=0.5), *lines(T + 6, n=4), *lines(T + 7, n=1))
        await world.poll()
        await world.restart()
        world.put("a.artimon", *told, *lines(T + 9, n=0, g=3, u=3, d="nan"))
        await world.poll()
        world.put("a.artimon", *told, *lines(T + 10, n=0, d=0.4))
        await world.poll()
        assert births(world, "n") == [0, 1, 1, 6, 7, 7]
        assert births(world, "d") == [0, 1, 1, 9], "a NaN is neither below nor above"
        assert set(births(world, "g") + births(world, "u")) == {0}

    asyncio.run(run())


def test_what_went_and_comes_back_goes_on(tmp_path: Path) -> None:
    """Its counts do not count again, unless the value fell."""

    async def run() -> None:
        world = World(tmp_path)
        told = ["# kind n counter", "# kind m counter"]
        world.put("a.artimon", *told, *lines(T + 1, x=1, n=10, m=10))
        await world.poll()
        world.put("a.artimon", *told, *lines(T + 2, x=1))
        await world.poll(END_AFTER_POLLS)
        assert world.values("n")[-1] is None
        world.put("a.artimon", *told, *lines(T + 30 * MINUTE, x=1, n=10, m=1))
        await world.poll(30)
        assert births(world, "n") == [0, 0]
        assert births(world, "m") == [0, 1]

    asyncio.run(run())


def test_the_birth_that_a_file_gives(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        world.put("a.artimon", f"# birth {T - 50}", *lines(T + 1, n=10))
        await world.poll()
        world.put("a.artimon", f"# birth {T + 3}", *lines(T + 4, n=12))
        await world.poll()
        world.put("a.artimon", f"# birth {T + 3}", *lines(T + 5, n=13, late=1))
        await world.poll()
        world.put("a.artimon", f"# birth {T + 2}", *lines(T + 6, n=14))
        await world.poll()
        world.put("a.artimon", f"# birth {T + 99}", *lines(T + 7, n=15))
        await world.poll()
        assert births(world, "n") == [-50, 3, 3, 3, 3], (
            "one that lies before the last sample or after this one says nothing"
        )
        assert births(world, "late") == [4]

    asyncio.run(run())


def test_a_birth_told_in_the_middle_of_a_life_does_not_count_it_again(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        world.put("a.artimon", *lines(T + 5, n=10))
        await world.poll()
        world.put("a.artimon", f"# birth {T + 1}", *lines(T + 6, n=11))
        await world.poll()
        assert births(world, "n") == [0, 0]

    asyncio.run(run())


@dataclass
class FileState:
    """State of the file at one poll: its start time, if it has one, and lines (variable, time, value)."""

    told: int | None
    lines: Sequence[tuple[str, int, int]]


@dataclass
class Reference:
    """Rules of start times, line by line. `c` is a counter, `g` a gauge."""

    whole: int = 0
    last: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    rows: list[tuple[str, int, int, int]] = field(default_factory=list)

    def poll(self, shot: FileState) -> None:
        firsts: dict[tuple[str, int], int] = {}
        for name, time, value in shot.lines:
            firsts.setdefault((name, time), value)
        clean = all(firsts[name, time] == value for name, time, value in shot.lines)
        taken = dict(self.last)
        for (name, time), value in sorted(firsts.items(), key=lambda item: item[0][1]):
            if name in taken and time <= taken[name][0]:
                clean &= time < taken[name][0] or value == taken[name][1]
                clean &= time == taken[name][0] or (name, time) in self._shown
                continue
            birth = self._birth(name, time, value, shot.told)
            self.last[name] = (time, value, birth)
            self.rows.append((name, time, birth, value))
        self._shown = set(firsts)
        if clean:
            self.whole = max([self.whole, *(time for _, time, _ in shot.lines)])

    _shown: set[tuple[str, int]] = field(default_factory=set)

    def _birth(self, name: str, time: int, value: int, told: int | None) -> int:
        before, last, birth = self.last.get(name, (0, 0, 0))
        if name not in self.last:
            birth = min(self.whole, time)
        elif name == "c" and value < last:
            birth = before
        if told is not None and before <= told <= time:
            birth = max(birth, told)
        return birth


times = st.integers(T, T + 30)
shots = st.builds(
    FileState,
    st.one_of(st.none(), times),
    st.lists(st.tuples(st.sampled_from(["c", "g", "x"]), times, st.integers(0, 5)), max_size=6),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(shots, max_size=6))
def test_against_the_reference(found: Sequence[FileState]) -> None:
    async def run(world: World) -> None:
        reference = Reference()
        for shot in found:
            told = [] if shot.told is None else [f"# birth {shot.told}"]
            kinds = ["# kind c counter", "# kind g gauge"]
            world.put("a.artimon", *kinds, *told, *(f"{time} {name} {value}" for name, time, value in shot.lines))
            await world.poll()
            reference.poll(shot)
        taken = [row for row in world.rows() if row[3] is not None]
        assert sorted(taken) == sorted(reference.rows)
        for name in "cgx":
            rows = [row for row in taken if row[0] == name]
            assert [row[1] for row in rows] == sorted({row[1] for row in rows}), "once each, in order"
            assert [row[2] for row in rows] == sorted(row[2] for row in rows), "births do not go back"
            assert all(birth <= time for _, time, birth, _ in rows)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(World(Path(folder))))


@settings(deadline=None, max_examples=100)
@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=1, max_size=5), st.randoms())
def test_lives_add_up_to_what_the_runs_of_a_program_counted(runs: list[list[int]], random: object) -> None:
    """Each run counts from 0 and writes its file now and then; some writes are never read."""

    async def run(world: World) -> None:
        expected = 0
        for adds in runs:
            birth, count, read = world.now, 0, 0
            for add in adds:
                count += add
                world.put("a.artimon", f"# birth {birth}", "# kind n counter", f"{world.now + 1} n {count}")
                if random.random() < 0.7:  # type: ignore[attr-defined]
                    await world.poll()
                    read = count
                else:
                    world.clock.advance(MINUTE)
            expected += read
        lives: dict[int, int] = {}
        for _, _, born, value in world.rows():
            lives[born] = int(value or 0)
        assert sum(lives.values()) == expected

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(World(Path(folder))))
