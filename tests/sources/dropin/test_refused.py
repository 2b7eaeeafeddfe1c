"""Drop-in files that are refused in whole or in part: links, pipes, permissions, limits, names."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sources.dropin.file_source import END_AFTER_POLLS
from sources.dropin.folder_files import FileLimits
from tests.sources.dropin.world import MINUTE, T, World, lines

SMALL = FileLimits(files=3, file_bytes=4_000, lines=20, line_bytes=300)


def link(path: Path) -> None:
    (path.parent.parent / "secret").write_text("1 password 'x'\n")
    path.symlink_to(path.parent.parent / "secret")


def dangling(path: Path) -> None:
    path.symlink_to("/nowhere")


REFUSED: list[tuple[Callable[[Path], object], str]] = [
    (link, "symbolic link"),
    (dangling, "symbolic link"),
    (lambda path: path.mkdir(), "not a regular file"),
    (lambda path: os.mkfifo(path), "not a regular file"),
]


@pytest.mark.parametrize(("make", "words"), REFUSED, ids=["link", "dangling link", "folder", "pipe"])
def test_what_is_no_regular_file_is_refused_and_disturbs_no_other(
    tmp_path: Path, make: Callable[[Path], object], words: str
) -> None:
    async def run() -> None:
        world = World(tmp_path)
        make(world.folder / "a.artimon")
        world.put("b.artimon", *lines(T, n=1))
        assert await world.poll() == 1
        (problem,) = world.problems
        assert problem.startswith(f"{world.folder}/a.artimon: ")
        assert words in problem
        assert world.refused == {"no file": 1}

    asyncio.run(run())


def test_a_file_that_may_not_be_read_is_named_and_its_series_do_not_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests may run as root, who may read all files, so the refusal is simulated."""
    real = os.open

    def refusing(path: Path, flags: int, mode: int = 0o777) -> int:
        if str(path).endswith("a.artimon"):
            raise PermissionError(13, "Permission denied")
        return real(path, flags, mode)

    async def run() -> None:
        world = World(tmp_path)
        path = world.put("a.artimon", *lines(T, n=1))
        await world.poll()
        monkeypatch.setattr(os, "open", refusing)
        await world.poll(END_AFTER_POLLS + 1)
        assert world.problems == [f"{path}: Permission denied: let the agent read it"]
        assert world.values("n") == [1]
        monkeypatch.undo()
        await world.poll()
        assert world.problems == []

    asyncio.run(run())


def test_a_folder_that_may_not_be_read_is_named_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        world = World(tmp_path)
        world.put("a.artimon", *lines(T, n=1))
        await world.poll()

        def refusing(_: object) -> object:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(os, "scandir", refusing)
        await world.poll(END_AFTER_POLLS + 1)
        assert world.problems == [f"{world.folder}: Permission denied: let the agent read it"]
        assert world.values("n") == [1]

    asyncio.run(run())


def many(world: World) -> None:
    world.put("a.artimon", *lines(T, **{f"n{i}": i for i in range(21)}))


def large(world: World) -> None:
    world.put("a.artimon", f"{T} n0 0", *["#" + "x" * 200] * 25)


def long(world: World) -> None:
    world.put("a.artimon", f"{T} n0 0", f"{T} s '{'x' * 300}'")


def endless(world: World) -> None:
    world.put_bytes("a.artimon", f"{T} n0 0\n".encode() + b"x" * 3_000 + b"\n")


def empty_lines(world: World) -> None:
    world.put_bytes("a.artimon", f"{T} n0 0\n".encode() + b"\n" * 3_000)


LIMITED: list[tuple[Callable[[World], object], int, str]] = [
    (many, 20, ":21: more than 20 lines"),
    (large, 1, "larger than 4,000 bytes"),
    (long, 1, ":2: longer than 300 bytes"),
    (endless, 1, ":2: longer than 300 bytes"),
    (empty_lines, 1, ":21: more than 20 lines"),
]


@pytest.mark.parametrize(("make", "samples", "words"), LIMITED, ids=["many", "large", "long", "endless", "empty"])
def test_beyond_a_limit_the_rest_is_left_out_and_the_limit_named(
    tmp_path: Path, make: Callable[[World], object], samples: int, words: str
) -> None:
    async def run() -> None:
        world = World(tmp_path, SMALL)
        make(world)
        assert await world.poll() == samples
        (problem,) = world.problems
        assert problem.startswith(f"{world.folder}/a.artimon:")
        assert words in problem

    asyncio.run(run())


def test_what_a_limit_hides_does_not_end(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path, SMALL)
        world.put("a.artimon", *lines(T, n=1, m=1))
        await world.poll()
        for i in range(END_AFTER_POLLS + 1):
            world.put("a.artimon", *["#"] * 19, f"{T + 1 + i} n 1", f"{T + 1 + i} m 1")
            await world.poll()
        assert world.values("m") == [1]

    asyncio.run(run())


def test_a_file_beyond_one_piece_is_read_whole(tmp_path: Path) -> None:
    """3 MB: lines that lie across the pieces are not torn."""

    async def run() -> None:
        world = World(tmp_path)
        world.put("a.artimon", *(f"{T} n{{i={i},text='{'y' * (i % 50)}'}} {i}" for i in range(50_000)))
        assert await world.poll() == 50_000
        assert sorted(world.values("n"), key=str) == sorted(range(50_000), key=str)
        assert all(len(polled.samples) <= 10_000 for polled in world.sink.accepted)

    asyncio.run(run())


def test_too_many_series_and_too_many_files_are_named(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path, SMALL, max_series=2)
        world.put("b.artimon", *lines(T, a=1, b=1, c=1, d=1))
        assert await world.poll() == 2
        assert world.problems[0].startswith(f"{world.folder}/b.artimon:3: more than 2 series in a file: c{{")
        assert world.refused == {"too many series": 2}
        for name in ("a1", "a2", "a3", "c"):
            world.put(f"{name}.artimon", *lines(T, n=1))
        await world.poll()
        assert f"{world.folder}: 5 drop-in files: at most 3 are read" in world.problems
        assert {source.split("/")[-1] for source in {p.source for p in world.sink.accepted}} == {"b", "a1", "a2"}
        await world.poll(END_AFTER_POLLS + 1)
        assert None not in world.values("n") + world.values("a")
        (world.folder / "b.artimon").unlink()
        await world.poll(END_AFTER_POLLS)
        assert world.values("a")[-1] is None
        assert world.values("n") == [1, 1, 1], "a3 has taken its place"

    asyncio.run(run())


def test_a_folder_too_full_to_be_listed_is_named_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        world = World(tmp_path)
        world.put("a.artimon", *lines(T, n=1))
        await world.poll()
        monkeypatch.setattr("sources.dropin.folder_files.MAX_ENTRIES", 0)
        await world.poll(END_AFTER_POLLS + 1)
        assert world.problems == [f"{world.folder}: more than 0 entries: the others are ignored"]
        assert world.values("n") == [1]

    asyncio.run(run())


def test_the_end_of_a_series_is_not_its_last_sample(tmp_path: Path) -> None:
    """This also holds when only the log knows both: a file that returns with a time before the end is accepted."""

    async def run() -> None:
        world = World(tmp_path)
        path = world.put("a.artimon", *lines(T, n=1))
        await world.poll()
        await world.store.flush()
        path.unlink()
        await world.poll(END_AFTER_POLLS)
        assert world.values("n") == [1, None]
        await world.restart(saved=False)
        world.put("a.artimon", *lines(T, n=1), *lines(T + MINUTE, n=2))
        assert await world.poll() == 1
        assert world.values("n") == [1, None, 2]

    asyncio.run(run())


def test_a_known_series_gets_no_number_beyond_64_bits(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        world.put("a.artimon", *lines(T, n=1, m=1))
        await world.poll()
        world.put("a.artimon", *lines(T + 1, n=2**63 - 1, m=2**63))
        assert await world.poll() == 1
        assert world.values("n") == [1, 2**63 - 1]
        assert world.refused == {"bad line": 1}

    asyncio.run(run())


def test_a_name_that_is_no_context_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        for name in (b"\xff.artimon", b"a\nb.artimon"):
            (world.folder / os.fsdecode(name)).write_text(f"{T} n 1\n")
        assert await world.poll() == 0
        assert world.refused == {"bad file name": 2}
        assert all(problem.isprintable() for problem in world.problems)
        for path in world.folder.iterdir():
            path.unlink()
        await world.poll()
        assert (world.problems, world.refused) == ([], {})

    asyncio.run(run())
