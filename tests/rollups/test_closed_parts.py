"""Answers with the cache of closed parts are those without it: again, later, and after every change of the past."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from artimon.cli.history_deletion import SelectedDeletion
from artimon.cli.history_relabel import SelectedRelabel, read_rules
from artimon.cli.process_wiring import open_parts
from artimon.model.clock import ManualClock
from artimon.model.grid import Grid
from artimon.rawtable.schema import DAY_MS
from query_dsl.stores import closed_parts, part_reader
from query_dsl.stores.closed_parts import CachedPart, ClosedParts, decode_part, encode_part, renumber
from query_dsl.stores.history.engine import History
from query_dsl.stores.history_store import HistoryStore
from query_dsl.stores.partial_buckets import PartialBuckets
from tests.history.engine_world import some_series
from tests.history.world import HistoryWorld
from tests.query_dsl.engine_worlds import made_of, request_of
from tests.query_dsl.test_pushdown import HOUR, MINUTE, T
from tests.rollups.conftest import SERIES
from tests.rollups.test_reading import GRIDS, answers, later, put_at, turn
from tests.series.world import block
from tests.waiting import eventually


@pytest.fixture
def parts(tmp_path: Path) -> ClosedParts:
    return ClosedParts(tmp_path / "parts")


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache files of which most rows are wanted, too: those of these tests are small."""
    monkeypatch.setattr(part_reader, "MIN_ROWS_A_BUCKET", 0)


@pytest.fixture
def history(world: HistoryWorld) -> Iterator[History]:
    with History(world.hdfs) as made:
        yield made


def cached(history: History, parts: ClosedParts) -> HistoryStore:
    """A store that has not looked up series before."""
    return HistoryStore(history, engine="local", parts=parts)


def plainly(history: History) -> list[Any]:
    return answers(HistoryStore(history, engine="local"))


def files_cached(one: HistoryStore, grid: Grid) -> int:
    """Number of cached files that the answer names."""
    told = one.select(request_of(["v.*"], grid)).parts[0].detail
    return int(told.partition(" of them cached")[0].rpartition(" ")[2]) if " of them cached" in told else 0


def entries(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "parts").glob("*/*/*.part"))


def test_a_question_that_is_asked_again(
    world: HistoryWorld, history: History, parts: ClosedParts, clock: ManualClock, tmp_path: Path
) -> None:
    turn(world, clock, tmp_path)
    expected = plainly(history)
    assert files_cached(cached(history, parts), GRIDS[0]) == 0
    for _ in range(2):
        assert answers(cached(history, parts)) == expected
    assert files_cached(cached(history, parts), GRIDS[0]) > 0


@pytest.mark.parametrize(("rows", "files"), [(2, 1), (24, 0)])
def test_files_of_which_most_rows_are_wanted_are_not_cached(
    world: HistoryWorld,
    history: History,
    parts: ClosedParts,
    clock: ManualClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: int,
    files: int,
) -> None:
    """From the level of 5 min to a step of 1 h twelve rows make a bucket."""
    monkeypatch.setattr(part_reader, "MIN_ROWS_A_BUCKET", rows)
    turn(world, clock, tmp_path, rollups="5m=365")
    grid, expected = GRIDS[2], plainly(history)
    for _ in range(2):
        assert answers(cached(history, parts)) == expected
    assert bool(files_cached(cached(history, parts), grid)) == bool(files)
    assert files_cached(cached(history, parts), GRIDS[0]) == 0


@pytest.mark.parametrize("shift", [-3, 1, 4, 40])
def test_a_window_that_moves(
    world: HistoryWorld, history: History, parts: ClosedParts, clock: ManualClock, tmp_path: Path, shift: int
) -> None:
    """Entries do not depend on the place of a file in the grid; a file that is only partly in it is read."""
    turn(world, clock, tmp_path)
    grid, moved = Grid(T, 5 * MINUTE, 30), Grid(T + shift * 5 * MINUTE, 5 * MINUTE, 36 + max(0, shift))
    one = cached(history, parts)
    one.select(request_of(["v.*"], grid))
    expected = HistoryStore(history, engine="local").select(request_of(["v.*"], moved))
    assert made_of(one.select(request_of(["v.*"], moved)), True) == made_of(expected, True)
    assert bool(files_cached(one, moved)) == (shift >= 0)


def test_late_samples_and_series(
    world: HistoryWorld, history: History, parts: ClosedParts, clock: ManualClock, tmp_path: Path
) -> None:
    """Samples of a closed day that come later, and series that are announced after their samples were cached."""
    unknown = 'v.unknown{rack="r1"}'
    world.append(T - HOUR, [("s-late", unknown, T - HOUR - n, n) for n in range(5)])
    turn(world, clock, tmp_path)
    assert answers(cached(history, parts)) == plainly(history)
    put_at(world, later(some_series(11, SERIES, 120), 1), clock.now_ms())
    assert answers(cached(history, parts)) == plainly(history)
    clock.advance(2 * DAY_MS)
    turn(world, clock, tmp_path)
    assert answers(cached(history, parts)) == plainly(history)
    before = plainly(history)
    world.announce([block("s-late", 0, 1, [unknown])])
    expected = plainly(history)
    assert expected != before
    for _ in range(2):
        assert answers(cached(history, parts)) == expected


@pytest.mark.parametrize("change", ["delete", "relabel"])
def test_after_a_change_of_the_past(
    world: HistoryWorld,
    history: History,
    parts: ClosedParts,
    clock: ManualClock,
    tmp_path: Path,
    change: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The change counts at once, and no entry of the replaced files stays on the disk."""
    monkeypatch.setattr(closed_parts, "SWEEP_S", 0.0)
    turn(world, clock, tmp_path)
    answers(cached(history, parts))
    old = entries(tmp_path)
    where = (world.hdfs, '{rack="r1"}', T - HOUR, T)
    if change == "delete":
        one: SelectedDeletion | SelectedRelabel = SelectedDeletion(*where, clock=clock)
    else:
        rules = tmp_path / "rules.yaml"
        rules.write_text("relabel: [{source_labels: [rack], target_label: rack, replacement: 'x-$1'}]")
        one = SelectedRelabel(*where, read_rules(rules), tmp_path / "rows", clock=clock)
    one.confirm(one.plan()[1])
    for _ in range(2):
        assert answers(cached(history, parts)) == plainly(history)
        turn(world, clock, tmp_path)
    answers(cached(history, parts))
    assert old
    assert not set(old) & set(entries(tmp_path))
    assert entries(tmp_path)


def test_no_question_is_needed_to_remove_deleted_samples(
    world: HistoryWorld, history: History, parts: ClosedParts, clock: ManualClock, tmp_path: Path
) -> None:
    """Nor does an entry stay that a reader of the version before has added since."""
    turn(world, clock, tmp_path)
    answers(cached(history, parts))
    old = {path: path.read_bytes() for path in entries(tmp_path)}
    one = SelectedDeletion(world.hdfs, '{rack="r1"}', T - HOUR, T, clock=clock)
    one.confirm(one.plan()[1])
    turn(world, clock, tmp_path)
    stop = threading.Event()
    for _ in range(2):
        open_parts(world.hdfs, tmp_path / "parts", 1 << 20, stop)
        eventually(lambda: not set(old) & set(entries(tmp_path)), "the entries are deleted")
        for path, data in old.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    other = tmp_path / "parts" / "another table" / "file"
    other.mkdir(parents=True)
    (other / "x.part").write_text("x")
    parts.sweep(world.hdfs)
    assert not other.exists()
    stop.set()
    assert open_parts(world.hdfs, tmp_path / "parts", 0, stop) is None
    assert not (tmp_path / "parts").exists()


def test_a_sweep_keeps_the_entries_of_live_files(
    world: HistoryWorld, history: History, parts: ClosedParts, clock: ManualClock, tmp_path: Path
) -> None:
    turn(world, clock, tmp_path)
    answers(cached(history, parts))
    held = entries(tmp_path)
    parts.sweep(world.hdfs)
    assert held == entries(tmp_path) != []


def test_damaged_entries_are_read_anew(
    world: HistoryWorld, history: History, parts: ClosedParts, clock: ManualClock, tmp_path: Path
) -> None:
    turn(world, clock, tmp_path)
    expected = answers(cached(history, parts))
    for number, path in enumerate(entries(tmp_path)):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes((data, data[: len(data) // 2], b"")[number % 3])
    assert files_cached(cached(history, parts), GRIDS[1]) == 0
    assert answers(cached(history, parts)) == expected


def test_the_disk_is_bounded_and_may_fail(
    world: HistoryWorld, history: History, clock: ManualClock, tmp_path: Path
) -> None:
    turn(world, clock, tmp_path)
    expected = plainly(history)
    limit = 30_000
    small = ClosedParts(tmp_path / "parts", limit)
    assert answers(cached(history, small)) == expected
    assert 0 < sum(path.stat().st_size for path in entries(tmp_path)) <= limit
    (tmp_path / "file").write_text("")
    assert answers(cached(history, ClosedParts(tmp_path / "file"))) == expected


def test_the_least_recently_used_entries_go(tmp_path: Path) -> None:
    part = CachedPart(np.arange(200), np.arange(200) ** 2, PartialBuckets())
    size = len(encode_part(part))
    made = ClosedParts(tmp_path / "parts", 6 * size)
    for n in range(6):
        made.store("t", f"f{n}", "shape", part)
    assert made.load("t", "f0", "shape") is not None
    made.store("t", "f6", "shape", part)
    held = [n for n in range(7) if made.load("t", f"f{n}", "shape") is not None]
    assert held[0] == 0
    assert held[-1] == 6
    assert len(held) <= 6
    assert made.load("t", "f0", "other") is None
    assert made.load("u", "f0", "shape") is None


def test_a_part_survives_its_encoding() -> None:
    part = CachedPart(np.array([1, 1, 2]), np.array([-5, 2**62, -5]), PartialBuckets(columns=3, samples=7))
    back = decode_part(encode_part(part))
    assert (back.source.tolist(), back.series.tolist()) == ([1, 1, 2], [-5, 2**62, -5])
    assert (back.piece.columns, back.piece.samples) == (3, 7)
    assert back.rows().tolist() == [-5, 2**62]
    assert back.holds(np.array([1, 2]), np.array([-5, 2**62])).tolist() == [True, False]
    assert len(renumber(back.piece, np.array([0, 1]), 5).rows) == 0
    for wrong, told in ((b"", "0 bytes are no part"), (b"\0" * 40, "the checksum differs")):
        with pytest.raises(ValueError, match=told):
            decode_part(wrong)
