"""Packed cells on disk: the same answers, memory and space given back, and nothing lost when the disk fails."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from artimon.compute.statistics import FIELDS, STATISTICS
from artimon.model.batch import BatchId
from artimon.model.grid import Grid
from artimon.model.select import NAME, Matcher, SelectRequest
from tests.varstore.test_model import MINUTE, SERIES, START
from tests.varstore.worlds import TestBatch, announce, print_of, range_of
from tests.waiting import eventually
from varstore.cells import cell_file
from varstore.cells.cell_file import CellFile, CellsUnreadable, warm
from varstore.cells.open_block import OpenBlock
from varstore.cells.packed_block import PackedBlock, pack
from varstore.cluster.membership import Membership
from varstore.shard.shard import Shard
from varstore.shard_process import ShardConfig, ShardProcess
from varstore.store.cell_spiller import PENDING_BYTES, RETRY_S, CellSpiller

SOURCE = "s0"
MINUTES = 400
EVERYTHING = slice(0, 65_536)


def packed_block(seed: int) -> PackedBlock:
    """Return a packed segment of random cells, about 2 MB."""
    random = np.random.default_rng(seed)
    columns = {name: random.integers(0, 2**31, 65_536).astype(dtype) for name, dtype in FIELDS.items()}
    packed = pack(OpenBlock.wrap(columns), False, False)
    assert packed is not None
    return packed


def move(file: CellFile, *blocks: PackedBlock) -> None:
    """Move blocks to a file."""
    moved = [(block, block.write(file, 60)) for block in blocks]
    file.sync()
    for block, columns in moved:
        block.place(columns)


def mapped_bytes() -> int:
    """Return the resident bytes of this process that are pages of files."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["RssFile"].split()[0]) * 1024


def evict(file: CellFile) -> None:
    """Take everything out of the page cache."""
    file.release()
    for chunk in file._chunks:
        os.posix_fadvise(chunk.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_cells_on_disk_take_no_memory_and_leave_nothing_behind(tmp_path: Path) -> None:
    """The file has no name, so that a crash leaves nothing. Pages that were read leave the process again."""
    file, blocks = CellFile(tmp_path / "cells"), [packed_block(i) for i in range(10)]
    before = [block.copy(EVERYTHING) for block in blocks]
    size = sum(block.nbytes for block in blocks)
    move(file, *blocks)
    assert list((tmp_path / "cells").iterdir()) == []
    assert [block.nbytes for block in blocks] == [0] * 10
    assert size <= file.nbytes <= size + 10 * 6 * 64
    unread = mapped_bytes()
    for block, cells in zip(blocks, before, strict=True):
        assert all((column == cells[name]).all() for name, column in block.copy(EVERYTHING).items())
    assert mapped_bytes() > unread + size // 2
    file.release()
    assert mapped_bytes() < unread + size // 4
    assert (blocks[3].cells(EVERYTHING, ("sum",))["sum"] == before[3]["sum"]).all()


def test_space_is_given_back(tmp_path: Path) -> None:
    """A chunk goes with its last block; a reader that still has a block keeps it."""
    file, held = CellFile(tmp_path), packed_block(0)
    expected = held.copy(EVERYTHING)
    move(file, held)
    for i in range(20):
        move(file, packed_block(i))
    file.release()
    assert len(file._chunks) == 2
    assert file.nbytes < 2 * cell_file.LEAST_CHUNK_BYTES
    assert (held.cells(EVERYTHING, ("last",))["last"] == expected["last"]).all()
    descriptors = len(os.listdir("/proc/self/fd"))
    del held
    file.release()
    assert len(file._chunks) == 1
    assert len(os.listdir("/proc/self/fd")) == descriptors - 2


def test_cold_cells_are_read_before_they_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the disk is an error of the query, not the end of the process."""
    file, block = CellFile(tmp_path), packed_block(0)
    expected = block.copy(EVERYTHING)
    move(file, block)
    evict(file)
    extents = list(block.extents.values())
    if extents[0].is_cached():
        pytest.skip("this file system keeps all pages")
    assert set(block.extents) == set(FIELDS)
    warm([block.extents["last"]])
    assert block.extents["last"].is_cached()
    warm(extents)
    assert all(extent.is_cached() for extent in extents)
    evict(file)

    def broken(*_: object) -> int:
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr(os, "preadv", broken)
    with pytest.raises(CellsUnreadable, match=r"broken disk.*restart the shard"):
        warm(extents)
    monkeypatch.undo()
    assert (block.cells(EVERYTHING, ("last",))["last"] == expected["last"]).all()


def batches() -> list[TestBatch]:
    """Return one batch of a source for each minute."""
    return [
        TestBatch(
            BatchId("agent", 7, 0, minute),
            SOURCE,
            START + minute * MINUTE + 1_000,
            [(print_of(i), START + minute * MINUTE + 1, 0, minute * (i + 1)) for i in range(SERIES)],
        )
        for minute in range(MINUTES)
    ]


class World:
    """Shard with packed cells on disk, and another one without."""

    def __init__(self, folder: Path, quota_bytes: int = 1 << 30) -> None:
        self.shard, self.other = Shard(capacity=1_000, cell_file=CellFile(folder, quota_bytes)), Shard(capacity=1_000)
        for shard in (self.shard, self.other):
            announce(shard, range(SERIES), SOURCE)
        self.log, self.at = batches(), 0

    @property
    def spiller(self) -> CellSpiller:
        assert self.shard.spiller is not None
        return self.shard.spiller

    def feed(self, minutes: int) -> None:
        """Feed both, and pack everything that is due."""
        for shard in (self.shard, self.other):
            for i in range(self.at, self.at + minutes):
                shard.feed(range_of(self.log, i, i + 1))
            while shard._store.maintain():
                pass
        self.at += minutes

    def in_memory(self) -> int:
        """Return the number of packed segments of the coarser levels in memory."""
        return sum(len(ring.unwritten()) for ring in self.shard._store.rings[1:])

    def check(self) -> None:
        """Check that both give the same answer, and some."""
        for ring in self.shard._store.rings:
            for few in (False, True):
                request = request_of(ring.step_ms, self.at, few)
                got, expected = self.shard.select(request).statistics, self.other.select(request).statistics
                assert expected["count"].any()
                assert all((got[name] == expected[name]).all() for name in STATISTICS)


def request_of(step_ms: int, minutes: int, few: bool = False) -> SelectRequest:
    """Return a request for everything up to a minute, of all series or of one."""
    grid = Grid((START + minutes * MINUTE) // step_ms * step_ms, step_ms, 60)
    return SelectRequest((Matcher(NAME, "=" if few else "prefix", "test.v1" if few else "test."),), grid, STATISTICS)


def test_a_shard_answers_from_disk_as_from_memory(tmp_path: Path) -> None:
    """Cells are moved, read, patched by late samples, packed and moved again."""
    world = World(tmp_path)
    world.feed(200)
    assert world.spiller.move() > 20
    assert world.in_memory() == 0
    assert world.shard._store.bytes_used() < world.other._store.bytes_used()
    world.check()
    late = [(print_of(1), START + 30 * MINUTE, 0, 10**6)]
    world.log.insert(200, TestBatch(BatchId("agent", 7, 1, 0), SOURCE, START + 200 * MINUTE, late))
    evict(world.spiller.file)
    world.feed(1)
    world.check()
    world.feed(150)
    assert world.spiller.move() > 0
    world.spiller.file.release()
    world.check()


@pytest.mark.parametrize("fault", ["full", "short", "unsynchronized", "quota", "no folder", "little left"])
def test_nothing_is_lost_when_the_disk_is_full_or_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Cells stay in memory, health has the reason, and they are moved once the disk can be written again."""
    world = World(tmp_path / "cells")
    world.feed(100)
    assert world.spiller.move() > 0
    world.feed(100)
    waiting, file = world.in_memory(), world.spiller.file
    assert waiting > 0

    def fail(*_: object) -> int:
        raise OSError(errno.ENOSPC if fault == "full" else errno.EIO, "no space left")

    match fault:
        case "full":
            monkeypatch.setattr(os, "pwrite", fail)
        case "short":
            monkeypatch.setattr(os, "pwrite", lambda _file, data, _at: len(data) // 2)
        case "unsynchronized":
            monkeypatch.setattr(os, "fdatasync", fail)
        case "quota":
            monkeypatch.setattr(file, "_quota_bytes", file.nbytes)
        case "no folder":
            monkeypatch.setattr(file, "folder", tmp_path / "cells" / "file")
            file.abandon()
            (tmp_path / "cells" / "file").write_text("")
        case _:
            monkeypatch.setattr(cell_file, "FREE_BYTES", 1 << 60)
    world.spiller.move()
    assert world.spiller.problem.startswith("buckets stay in memory")
    assert world.in_memory() == waiting
    world.check()
    monkeypatch.undo()
    used = [(chunk, chunk.used) for chunk in file._chunks]
    assert world.spiller.move() == waiting
    assert world.spiller.problem == ""
    assert all(chunk.used == size for chunk, size in used)  # what was written with the error is not trusted
    assert world.in_memory() == 0
    world.check()


def test_a_disk_that_hangs_stops_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples are applied, queries are answered, and the process can end."""
    world, hanging, release = World(tmp_path), threading.Event(), threading.Event()
    write = os.pwrite

    def hang(file: int, data: memoryview, at: int) -> int:
        hanging.set()
        release.wait(60)
        return write(file, data, at)

    monkeypatch.setattr(os, "pwrite", hang)
    world.feed(100)
    world.spiller.start()
    assert hanging.wait(60)
    world.feed(100)
    world.check()
    world.spiller.stop(timeout_s=0.01)
    release.set()
    world.spiller.stop()
    world.check()


def test_a_load_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cells of a loaded snapshot do not fill the memory, unless the disk is broken or hangs, or nothing writes."""
    world, hanging, release = World(tmp_path), threading.Event(), threading.Event()
    write, spiller = os.pwrite, world.spiller
    spiller.throttle(2 * PENDING_BYTES)  # the thread does not run: nothing to wait for

    def hang(file: int, data: memoryview, at: int) -> int:
        hanging.set()
        release.wait(60)
        return write(file, data, at)

    def load() -> threading.Thread:
        thread = threading.Thread(target=spiller.throttle, args=[PENDING_BYTES + 1], daemon=True)
        thread.start()
        thread.join(0.3)
        return thread

    monkeypatch.setattr(os, "pwrite", hang)
    world.feed(100)
    spiller.start()
    assert hanging.wait(60)
    for attribute, value in (("problem", "the disk is full"), ("_progress_s", time.monotonic() - RETRY_S)):
        loading, before = load(), getattr(spiller, attribute)
        assert loading.is_alive()
        setattr(spiller, attribute, value)
        loading.join(60)
        assert not loading.is_alive()
        setattr(spiller, attribute, before)
    loading = load()
    assert loading.is_alive()
    release.set()
    loading.join(60)
    assert not loading.is_alive()
    spiller.stop()


def test_a_process_moves_cells_by_itself_and_reports_why_not(tmp_path: Path) -> None:
    world = World(tmp_path / "file" / "cells")
    world.feed(100)
    world.spiller.start()
    eventually(lambda: world.in_memory() == 0)
    world.spiller.stop()

    def process(data: Path | None, disk_bytes: int = 1 << 30) -> ShardProcess:
        nowhere = "127.0.0.1:1"
        return ShardProcess(
            ShardConfig("0", ("0",), nowhere, nowhere, capacity=1_000, data=data, disk_bytes=disk_bytes)
        )

    assert process(None).shard.spiller is None
    assert process(tmp_path, 0).shard.spiller is None
    running = process(tmp_path)
    spiller = running.shard.spiller
    assert spiller is not None
    assert spiller.file.folder == tmp_path / "cells"
    spiller.problem = "buckets stay in memory"
    running._members = Membership(("0",))
    assert "buckets stay in memory" in running._problems(running.shard.status())


@pytest.fixture
def feeding(tmp_path: Path) -> Iterator[World]:
    """Give a shard that is fed, and whose cells are moved, by two threads."""
    world, stop = World(tmp_path), threading.Event()
    world.feed(50)

    def feed() -> None:
        for i in range(50, 240):  # the shortest level still has all of it
            world.shard.feed(range_of(world.log, i, i + 1))
        stop.set()

    def spill() -> None:
        while not stop.is_set():
            world.spiller.move()
            evict(world.spiller.file)

    threads = [threading.Thread(target=work, daemon=True) for work in (feed, spill)]
    for thread in threads:
        thread.start()
    yield world
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert world.spiller.problem == ""


def test_reads_are_right_while_cells_are_fed_and_moved(feeding: World) -> None:
    """A bucket that was settled before the threads began never changes."""
    requests = [request_of(ring.step_ms, 30, few) for ring in feeding.shard._store.rings[1:] for few in (False, True)]
    expected = [feeding.other.select(request).statistics for request in requests]
    for _ in range(20):
        for request, held in zip(requests, expected, strict=True):
            got = feeding.shard.select(request).statistics
            assert all((got[name] == held[name]).all() for name in STATISTICS)
