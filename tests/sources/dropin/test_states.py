"""States in which a poll may find a drop-in file: accepted samples, named problems; the next valid file counts."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.sources.dropin.world import MINUTE, T, World

GOOD = f"{T} a 1\n{T} b 2\n".encode()
STATES = [
    pytest.param(b"", [], {}, id="empty"),
    pytest.param(b"\n\n# only comments\n", [], {}, id="comments_only"),
    pytest.param(GOOD.replace(b"\n", b"\r\n"), ["a", "b"], {}, id="lines_of_windows"),
    pytest.param(b"\xef\xbb\xbf" + GOOD, ["b"], {"bad line": 1}, id="byte_order_mark"),
    pytest.param(GOOD.decode().encode("utf-16"), [], {"bad line": 2, "half-written": 1}, id="utf_16"),
    pytest.param(b"\0" * 512 + GOOD, ["b"], {"bad line": 1}, id="zeros_before"),
    pytest.param(GOOD + b"\0" * 512, ["a", "b"], {"half-written": 1}, id="zeros_after_a_crash"),
    pytest.param(GOOD[:-1], ["a"], {"half-written": 1}, id="no_newline_at_the_end"),
    pytest.param(GOOD[: len(GOOD) // 2 - 4], [], {"half-written": 1}, id="cut_in_the_first_line"),
    pytest.param(GOOD + GOOD, ["a", "b"], {}, id="written_twice"),
    pytest.param(GOOD + GOOD.replace(b" 1\n", b" 9\n"), ["a", "b"], {"time taken": 1}, id="written_twice_otherwise"),
    pytest.param(f"{T // 1000} a 1\n".encode() + GOOD[len(GOOD) // 2 :], ["b"], {"too old": 1}, id="seconds"),
    pytest.param(f"{T * 1000} a 1\n".encode() + GOOD[len(GOOD) // 2 :], ["b"], {"future": 1}, id="microseconds"),
    pytest.param(b"0 a 1\n-1 a 1\n9999999999999999999 a 1\n", [], {"too old": 1, "bad line": 2}, id="no_times"),
    pytest.param(b"{not" + GOOD + b'[{"i":{}}]\n', ["b"], {"bad line": 2}, id="json"),
    pytest.param(b"# TYPE a counter\na 1\n" + GOOD, ["a", "b"], {"bad line": 1}, id="prometheus"),
    pytest.param(b"x" * 100_000 + b"\n" + GOOD, ["a", "b"], {"bad line": 1}, id="a_line_too_long"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "taken", "refused"), STATES)
def test_a_file_in_every_state(tmp_path: Path, data: bytes, taken: list[str], refused: dict[str, int]) -> None:
    async def run() -> None:
        world = World(tmp_path)
        world.put_bytes("one.artimon", data)
        world.put("other.artimon", f"{T} other 1")
        await world.poll()
        assert sorted(name for name, value in world.sink.last("file/web1/one").items() if value is not None) == taken
        assert world.figures.to_json()["refused"] == refused
        assert world.sink.last("file/web1/other") == {"other": 1}, "it disturbs no other"
        world.put("one.artimon", f"{world.now} a 5", f"{world.now} b 6")
        await world.poll()
        assert world.sink.last("file/web1/one") == {"a": 5, "b": 6}
        assert world.figures.to_json()["refused"] == {}

    asyncio.run(run())


def test_a_file_that_is_written_in_place_is_taken_once_it_is_whole(tmp_path: Path) -> None:
    """Polls find it truncated, half written and whole: no series ends, no value is invented or counted twice."""

    async def run() -> None:
        world = World(tmp_path)
        path = world.put("one.artimon", f"{T} a 1", f"{T} b 2")
        await world.poll()
        for state in (b"", f"{T + MINUTE} a 1".encode(), f"{T + MINUTE} a 11\n{T + MINUTE} b".encode()):
            path.write_bytes(state)
            await world.poll()
        assert world.sink.last("file/web1/one") == {"a": 11, "b": 2}
        path.write_text(f"{T + MINUTE} a 11\n{T + MINUTE} b 12\n")
        await world.poll(2)
        assert [value for _, _, _, value in world.sink.samples("file/web1/one")] == [1, 2, 11, 12]

    asyncio.run(run())


def test_a_producer_that_unlinks_before_it_renames(tmp_path: Path) -> None:
    """The file is absent at some polls, never at five in a row: nothing ends."""

    async def run() -> None:
        world = World(tmp_path)
        for turn in range(4):
            (world.folder / "one.artimon").unlink(missing_ok=True)
            (world.folder / f"one.artimon.{world.now}").write_text("scratch")
            await world.poll(4)
            world.put("one.artimon", f"{world.now} a {turn}")
            await world.poll()
        assert [value for _, _, _, value in world.sink.samples("file/web1/one")] == [0, 1, 2, 3]

    asyncio.run(run())


def test_a_giant_without_contents_and_a_second_name_of_a_file(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        with (world.folder / "giant.artimon").open("wb") as file:
            file.truncate(1 << 40)
        path = world.put("one.artimon", f"{T} a{{context=x}} 1")
        os.link(path, world.folder / "two.artimon")
        await world.poll()
        refused = world.figures.to_json()["refused"]
        assert refused.keys() == {"file limit", "same series twice"}
        assert world.sink.last("file/web1/one") == {"a": 1}

    asyncio.run(run())
