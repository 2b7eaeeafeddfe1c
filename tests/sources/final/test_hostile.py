"""Files of other users in the folder of final snapshots: refused, counted, reported, deleted, and bounded."""

from __future__ import annotations

import asyncio
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bookkeeper.export.final_file import HEADER, MAGIC, MAX_BYTES
from sources.base.source_errors import FileRefusedError
from sources.dropin.folder_files import OpenFile
from sources.poll.final_files import FinalLimits, make_folder
from tests.sources.final.world import MINUTE, SOURCE, Process, World, increase_of, rows_of
from tests.sources.helpers import KeepingSink

OLD = Process(0, 1)
GOOD = OLD.final(4, {"n": 7})
DAY_S = 86_400


@pytest.fixture
def limited_world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, limits=FinalLimits(entries=500, files=100))
    yield made
    made.close()


def sealed(payload: bytes) -> bytes:
    return HEADER.pack(MAGIC, len(payload), zlib.crc32(payload)) + payload


BAD: list[tuple[str, bytes, str]] = [
    ("empty", b"", "malformed"),
    ("cut", GOOD[:-1], "malformed"),
    ("longer", GOOD + b"x", "malformed"),
    ("a bit", GOOD[:-9] + bytes([GOOD[-9] ^ 1]) + GOOD[-8:], "malformed"),
    ("another magic", b"ARTFIN99" + GOOD[8:], "malformed"),
    ("no struct", sealed(b"\xff" * 50), "malformed"),
    ("an empty struct", sealed(b"\0"), "malformed"),
    ("fifty million strings", sealed(b"\x0c\0\x01\x0f\0\x05\x0b\x02\xfa\xf0\x80"), "malformed"),
    ("another process", Process(0, 2).final(4, {"n": 1}), "malformed"),
    ("no birth", OLD.final(4, {"n": 1}, birth_ms=0), "malformed"),
    ("born after the end", OLD.final(-1, {"n": 1}), "malformed"),
    ("a path as context", OLD.final(4, {"n": 1}, context="../etc"), "malformed"),
    ("a line as instance", OLD.final(4, {"n": 1}, instance="a\nb"), "malformed"),
    ("no address", OLD.final(4, {"n": 1}, address="localhost"), "malformed"),
    ("another host", OLD.final(4, {"n": 1}, address="10.9.9.9"), "foreign address"),
    ("values of another size", OLD.final(4, {"n": 1}, values=b"1234567"), "malformed"),
    ("another checksum", OLD.final(4, {"n": 1}, crc=b"abcd"), "malformed"),
    ("old", OLD.final(-8 * 24 * 60, {"n": 1}, birth_ms=1), "too old"),
]


@pytest.mark.parametrize(("data", "reason"), [pytest.param(*one, id=name) for name, *one in BAD])
def test_bad_files_are_refused_and_deleted(limited_world: World, data: bytes, reason: str) -> None:
    """A valid file beside them is accepted."""
    good = Process(1, 9)

    async def run() -> None:
        await limited_world.put(OLD.file, data)
        await limited_world.put(good.file, good.final(4, {"n": 7}))
        assert await limited_world.finals.sweep() == 1
        assert limited_world.finals.refused == {reason: 1}
        assert limited_world.figures.to_json()["refused"] == {reason: 1}
        assert OLD.file in limited_world.figures.to_json()["problems"][0]
        assert limited_world.files() == []
        assert await limited_world.finals.sweep() == 0
        assert limited_world.figures.to_json()["problems"] == []
        assert isinstance(limited_world.sink, KeepingSink)
        assert increase_of(rows_of(limited_world.sink, "n")) == 7

    asyncio.run(run())


def test_a_file_that_is_too_large_is_not_read(limited_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        path = await limited_world.put(OLD.file, b"")
        with path.open("r+b") as file:
            file.truncate(MAX_BYTES + 1)
        limited_world.date(path)
        monkeypatch.setattr(OpenFile, "read", lambda _: pytest.fail("read"))
        await limited_world.finals.sweep()
        assert limited_world.finals.refused == {"too large": 1}
        assert limited_world.files() == []

    asyncio.run(run())


def test_too_many_series_are_refused_before_they_are_made(limited_world: World) -> None:
    async def run() -> None:
        limited_world.shared.config.max_series = 10
        await limited_world.put(OLD.file, OLD.final(4, {f"n{i}": i for i in range(11)}))
        await limited_world.finals.sweep()
        assert limited_world.finals.refused == {"malformed": 1}
        assert list(limited_world.store) == []

    asyncio.run(run())


def link(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def pipe(path: Path, _: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("make", [link, pipe])
def test_links_and_pipes_are_deleted_and_never_followed(
    limited_world: World, tmp_path: Path, make: Callable[[Path, Path], None]
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(GOOD)

    async def run() -> None:
        await limited_world.finals.sweep()
        make(limited_world.dropin / "final" / OLD.file, secret)
        limited_world.date(limited_world.dropin / "final" / OLD.file)
        assert await limited_world.finals.sweep() == 0
        assert limited_world.finals.refused == {"no file": 1}
        assert limited_world.files() == []
        assert secret.read_bytes() == GOOD

    asyncio.run(run())


def test_a_folder_of_that_name_is_left_alone(limited_world: World) -> None:
    async def run() -> None:
        await limited_world.finals.sweep()
        (limited_world.dropin / "final" / OLD.file / "below").mkdir(parents=True)
        for _ in range(2):
            await limited_world.finals.sweep()
            assert limited_world.figures.to_json()["problems"]
        assert limited_world.files() == [OLD.file]

    asyncio.run(run())


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to other users")
def test_only_the_user_of_the_process_may_write_for_it(limited_world: World) -> None:
    """This holds for a process that was polled, and for the next one of its source."""
    mine, next_, alien = Process(0, 1, uid=1000), Process(9, 2, uid=1000), Process(9, 3, uid=1001)

    async def put(process: Process, owner: int) -> str:
        path = await limited_world.put(process.file, process.final(10, {"n": 7}))
        os.chown(path, owner, -1)
        await limited_world.finals.sweep()
        return "refused" if limited_world.finals.refused.pop("foreign owner", 0) else "taken"

    async def run() -> None:
        await limited_world.poll(mine, 1, n=1)
        assert await put(mine, 1001) == "refused", "a file of another user"
        assert await put(alien, 1001) == "refused", "a process of another user under the same name"
        assert await put(mine, 1000) == "taken"
        assert await put(next_, 0) == "taken", "root may write for everybody"
        assert limited_world.files() == []

    asyncio.run(run())


def test_other_names_wait_an_hour_and_old_files_a_week(limited_world: World) -> None:
    """A snapshot that was never renamed may belong to a process that is still writing."""

    async def run() -> None:
        await limited_world.put(".0123.77.tmp", b"half", age_s=60)
        await limited_world.put("README", b"x", age_s=3_700)
        await limited_world.put(OLD.file, GOOD, age_s=8 * DAY_S)
        await limited_world.finals.sweep()
        assert limited_world.files() == [".0123.77.tmp"]
        assert limited_world.finals.refused == {"wrong name": 1, "too old": 1}

    asyncio.run(run())


def test_a_snapshot_of_the_future_waits(limited_world: World) -> None:
    """The clock was set back."""

    async def run() -> None:
        await limited_world.put(OLD.file, OLD.final(45, {"n": 7}))
        assert await limited_world.finals.sweep() == 0
        assert "ahead" in limited_world.figures.to_json()["problems"][0]
        limited_world.clock.advance(15 * MINUTE)  # type: ignore[attr-defined]
        assert await limited_world.finals.sweep() == 1

    asyncio.run(run())


def test_thousands_of_files_are_taken_a_part_at_a_time(limited_world: World) -> None:
    async def run() -> None:
        processes = [Process(i % 4, i + 1) for i in range(250)]
        for i, process in enumerate(processes):
            await limited_world.put(process.file, process.final(5, {"n": 1}, instance=str(i)), age_s=250 - i)
        assert [await limited_world.finals.sweep() for _ in range(4)] == [100, 100, 50, 0]
        assert limited_world.files() == []

    asyncio.run(run())


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    """Another user created it before the agent, in a folder that everybody may write to."""
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "final").symlink_to(other)
    with pytest.raises(FileRefusedError, match="not a folder of this user"):
        make_folder(tmp_path)
    (tmp_path / "final").unlink()
    if os.geteuid() == 0:
        (tmp_path / "final").mkdir()
        os.chown(tmp_path / "final", 1000, -1)
        with pytest.raises(FileRefusedError, match="delete it"):
            make_folder(tmp_path)
        (tmp_path / "final").rmdir()
    folder = make_folder(tmp_path)
    assert folder is not None
    assert folder.stat().st_mode & 0o7777 == 0o1777
    assert make_folder(tmp_path / "nowhere") is None


def test_the_state_on_disk_comes_before_the_deletion(limited_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the state cannot be written, the file stays and its samples are not accepted again."""

    async def run() -> None:
        await limited_world.put(OLD.file, GOOD)
        with monkeypatch.context() as patched:
            patched.setattr("sources.state.state_files.replace_file", _full)
            assert await limited_world.finals.sweep() == 1
            assert await limited_world.finals.sweep() == 0
            assert limited_world.files() == [OLD.file]
        assert await limited_world.finals.sweep() == 0
        assert limited_world.files() == []
        assert isinstance(limited_world.sink, KeepingSink)
        assert [row[2] for row in rows_of(limited_world.sink, "n", SOURCE)] == [7, None]

    asyncio.run(run())


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")
