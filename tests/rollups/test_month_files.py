"""Month files: buckets of many days are read from few files, and give the answers of the samples after any change."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from artimon.cli.history_deletion import SelectedDeletion, select
from artimon.cli.history_relabel import SelectedRelabel, read_rules
from artimon.model.clock import ManualClock
from artimon.model.grid import Grid
from artimon.rawtable import rollups as rollup_table
from artimon.rawtable.rollups import (
    MONTHS_FOLDER,
    RollupTable,
    existing_months,
    month_files,
    rollups_uri,
    span_of,
)
from artimon.rawtable.schema import DAY_MS
from artimon.runtime import file_access as files
from pipeline.history.deletion import prove_deletion
from query_dsl.stores import history_store
from query_dsl.stores.closed_parts import ClosedParts
from query_dsl.stores.history.engine import History
from query_dsl.stores.history_store import HistoryStore
from tests.history.engine_world import put, some_series
from tests.history.world import HistoryWorld
from tests.query_dsl.engine_worlds import made_of, request_of
from tests.query_dsl.test_pushdown import HOUR, NOW, T, Told
from tests.rollups.conftest import SERIES
from tests.rollups.test_open_tables import Opened
from tests.rollups.test_reading import later, of_samples, put_at, raw_names, rollups_of, turn
from tests.spark.local_files import local_files

MIDNIGHT = T // DAY_MS * DAY_MS
DAYS = 5
"""The samples of the first day come again on this many days."""
GRIDS = [Grid(MIDNIGHT + 8 * DAY_MS, DAY_MS, 9), Grid(MIDNIGHT + 8 * DAY_MS, 2 * DAY_MS, 5)]


def on_day(day: int) -> list[Told]:
    """The series of one type, whose samples are some days later."""
    return [
        replace(
            one, samples=tuple((at + day * DAY_MS, birth + day * DAY_MS, value) for at, birth, value in one.samples)
        )
        for one in some_series(11, SERIES, 120)
        if len({type(value) for *_, value in one.samples if value is not None}) == 1
    ]


def fill(world: HistoryWorld) -> None:
    for day in range(1, DAYS + 1):
        put_at(world, on_day(day), T + day * DAY_MS)


@pytest.fixture
def ended(world: HistoryWorld, clock: ManualClock) -> HistoryWorld:
    """Six days of samples; their month has ended."""
    fill(world)
    clock.advance(30 * DAY_MS)
    return world


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    return Opened(monkeypatch)


def by_day(store: HistoryStore) -> list[Any]:
    return [made_of(store.select(request_of(["v.*"], grid))) for grid in GRIDS]


def months(world: HistoryWorld) -> set[str]:
    return set(existing_months(rollups_uri(world.hdfs)))


def months_due(world: HistoryWorld) -> set[str]:
    """Paths of the file of the month with the samples, as of the newest roll-ups."""
    return {path for path in month_files(rollups_of(world)) if span_of(path) == "2027-01"}


def files_read(opened: Opened, world: HistoryWorld) -> list[str]:
    """Paths of the files of roll-ups that a new history reads."""
    opened.forget()
    with History(world.hdfs) as history:
        HistoryStore(history, engine="local").select(request_of(["v.*"], GRIDS[0]))
    root = f"{rollups_uri(world.hdfs)}/"
    return [uri.removeprefix(root) for uri in opened.files if uri.startswith(root) and "_delta_log" not in uri]


def without_months(world: HistoryWorld, store: HistoryStore) -> list[Any]:
    """The answers of the files of days."""
    folder = Path(rollups_uri(world.hdfs).removeprefix("file://")) / MONTHS_FOLDER
    aside = folder.rename(folder.with_name("aside"))
    try:
        return by_day(store)
    finally:
        aside.rename(folder)


def test_a_month_is_one_file(
    ended: HistoryWorld, store: HistoryStore, clock: ManualClock, tmp_path: Path, opened: Opened
) -> None:
    expected = by_day(store)
    turn(ended, clock, tmp_path)
    assert len(months(ended)) == 1
    assert files_read(opened, ended) == sorted(months(ended))
    assert by_day(store) == expected == without_months(ended, store)
    one_day = request_of(["v.*"], Grid(MIDNIGHT + 3 * DAY_MS, DAY_MS, 1))
    opened.forget()
    assert len(store.select(one_day).series)
    assert not any(MONTHS_FOLDER in uri for uri in opened.files)


def test_of_an_open_month_ten_days_are_one_file(
    world: HistoryWorld, store: HistoryStore, clock: ManualClock, tmp_path: Path, opened: Opened
) -> None:
    fill(world)
    clock.advance(11 * DAY_MS)
    expected = by_day(store)
    turn(world, clock, tmp_path)
    assert [span_of(path) for path in months(world)] == ["2027-01-1"]
    last = [file.path for file in rollups_of(world) if (file.level_ms, file.period) == (DAY_MS, "2027-01-20")]
    assert sorted(files_read(opened, world)) == sorted([*months(world), *last])
    assert by_day(store) == expected == without_months(world, store)
    clock.advance(30 * DAY_MS)
    turn(world, clock, tmp_path)
    assert [span_of(path) for path in months(world)] == ["2027-01"]


def test_a_month_of_many_rows_has_none(
    ended: HistoryWorld, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn(ended, clock, tmp_path)
    assert len(months(ended)) == 1
    monkeypatch.setattr(rollup_table, "DAY_ROWS", 1)
    turn(ended, clock, tmp_path)
    assert months(ended) == set()


def test_a_month_is_written_once(ended: HistoryWorld, clock: ManualClock, tmp_path: Path) -> None:
    """It is not taken for an orphan."""

    def written() -> list[tuple[str, int]]:
        folder = Path(rollups_uri(ended.hdfs).removeprefix("file://")) / MONTHS_FOLDER
        return [(path.name, path.stat().st_mtime_ns) for path in folder.iterdir()]

    turn(ended, clock, tmp_path)
    first = written()
    clock.advance(9 * DAY_MS)
    turn(ended, clock, tmp_path).sweep()
    assert written() == first
    assert len(first) == 1


def test_month_files_count_among_the_bytes_of_roll_ups(
    ended: HistoryWorld, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(rollups_uri(ended.hdfs).removeprefix("file://"))
    made = turn(ended, clock, tmp_path)
    on_disk = {path: path.stat().st_size for path in folder.rglob("*.parquet")}
    copies = [size for path, size in on_disk.items() if path.parent == folder / MONTHS_FOLDER]
    table = RollupTable(ended.hdfs)
    table.refresh()
    assert table.stored_bytes() == sum(on_disk.values())
    told = made.figures()["rollups"]
    assert (told["month_files"], told["month_bytes"]) == (1, sum(copies))
    assert told["live_bytes"] + told["month_bytes"] == sum(on_disk.values())
    clock.advance(DAY_MS)
    assert turn(ended, clock, tmp_path).figures()["rollups"]["month_bytes"] == sum(copies)  # of an earlier turn
    monkeypatch.setattr(rollup_table, "DAY_ROWS", 1)
    assert turn(ended, clock, tmp_path).figures()["rollups"]["month_files"] == 0
    assert table.stored_bytes() == sum(on_disk.values()) - sum(copies)


def test_a_month_that_was_not_finished_is_not_read(
    ended: HistoryWorld, store: HistoryStore, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_uri: str, _to: str) -> None:
        raise OSError("refused by the test")

    with monkeypatch.context() as patch:
        patch.setattr(files, "rename_file", refused)
        with pytest.raises(OSError, match="refused"):
            turn(ended, clock, tmp_path)
    assert len(months(ended)) == 1
    assert months(ended).isdisjoint(months_due(ended))
    assert by_day(store) == of_samples(ended, store, by_day)
    turn(ended, clock, tmp_path)
    assert months(ended) == months_due(ended)


def test_a_month_that_is_deleted_while_it_is_read(
    ended: HistoryWorld, store: HistoryStore, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = by_day(store)
    turn(ended, clock, tmp_path)
    deleted = []

    def listed(uri: str) -> dict[str, int]:
        found = existing_months(uri)
        for path in found:
            files.delete_file(f"{uri}/{path}")
            deleted.append(path)
        return found

    monkeypatch.setattr(history_store, "existing_months", listed)
    assert by_day(store) == expected
    assert deleted


def test_months_survive_their_samples(
    ended: HistoryWorld, store: HistoryStore, clock: ManualClock, tmp_path: Path, opened: Opened
) -> None:
    """Samples expire, then buckets are deleted, then days of roll-ups expire one after another."""
    expected = by_day(store)
    clock.advance(20 * DAY_MS)
    turn(ended, clock, tmp_path, keep="*=7")
    assert raw_names(ended) == set()
    assert by_day(store) == expected
    old = months(ended)
    deletion = SelectedDeletion(
        ended.hdfs, '{rack="r1"}', MIDNIGHT + 2 * DAY_MS, MIDNIGHT + 3 * DAY_MS - 1, clock=clock
    )
    done = deletion.confirm(deletion.plan()[1])
    after = by_day(store)
    assert after != expected
    assert after == without_months(ended, store)
    assert set(prove_deletion(ended.hdfs, done.version, select).remaining) >= {
        f"{rollups_uri(ended.hdfs)}/{path}" for path in old
    }
    turn(ended, clock, tmp_path, keep="*=7")
    assert prove_deletion(ended.hdfs, done.version, select).remaining == ()
    assert files_read(opened, ended) == sorted(months_due(ended)) == sorted(months(ended)) != sorted(old)
    assert by_day(store) == after
    for left in (4, 3, 2):  # days with roll-ups
        days = (clock.now_ms() - MIDNIGHT) // DAY_MS - (DAYS + 1 - left)
        turn(ended, clock, tmp_path, keep="*=7", rollups=f"1d={days}")
        assert len(rollups_of(ended)) == left
        assert files_read(opened, ended) == sorted(months_due(ended)) == sorted(months(ended))
        assert by_day(store) == without_months(ended, store)
    turn(ended, clock, tmp_path, keep="*=7", rollups="none")
    assert months(ended) == set()


class Changes:
    """Changes of one history, each at a time after its month has ended."""

    def __init__(self, world: HistoryWorld, clock: ManualClock, folder: Path) -> None:
        self._world, self._clock, self._folder, self._version = world, clock, folder, 0

    def apply(self, kind: str, day: int) -> None:
        self._version += 1
        self._clock.advance(HOUR)
        start = MIDNIGHT + day * DAY_MS
        where = (self._world.hdfs, f'{{rack="r{day % 4}"}}', start, start + DAY_MS)
        match kind:
            case "late":
                put_at(self._world, later(on_day(day), self._version), self._clock.now_ms())
            case "import":
                put_at(self._world, later(on_day(day), self._version), T + day * DAY_MS)
            case "delete":
                self._confirm(SelectedDeletion(*where, clock=self._clock))
            case "relabel":
                rules = self._folder / "rules.yaml"
                # A repetition must not move what was moved: `check` of the moves refuses chains.
                rules.write_text(
                    "relabel: [{source_labels: [k], regex: '([^x].*)', target_label: k, replacement: 'x-$1'}]"
                )
                rows = self._folder / f"rows-{self._version}"
                self._confirm(SelectedRelabel(*where, read_rules(rules), rows, clock=self._clock))
            case "turn":
                turn(self._world, self._clock, self._folder)

    def _confirm(self, one: SelectedDeletion | SelectedRelabel) -> None:
        one.confirm(one.plan()[1])


@pytest.mark.timeout(300)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["late", "import", "delete", "relabel", "turn"]), st.integers(0, DAYS)),
        min_size=2,
        max_size=5,
    )
)
@example(steps=[("relabel", 0), ("relabel", 0)])
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_changes_give_the_answers_of_samples(tmp_path: Path, steps: list[tuple[str, int]]) -> None:
    """Beside the compactor, with and without the cache of closed parts."""
    folder, clock = tmp_path / uuid.uuid4().hex, ManualClock(NOW + 40 * DAY_MS)
    folder.mkdir()
    with local_files(clock), History(f"file://{folder}/files") as history:
        world = HistoryWorld(history.hdfs)
        put(world, on_day(0), files=3)
        fill(world)
        changes = Changes(world, clock, folder)
        for step in [("turn", 0), *steps, ("turn", 0)]:
            changes.apply(*step)
            store = HistoryStore(history, engine="local")  # one that has not looked up the series before
            right = of_samples(world, store, by_day)
            assert by_day(store) == right, step
            assert by_day(HistoryStore(history, engine="local", parts=ClosedParts(folder / "parts"))) == right, step
        assert months(world) == months_due(world) != set()
