"""Month files: buckets of many days are read from few files, and give the answers of the samples after any change."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
from tests.history.engine_world import some_series
from tests.history.world import HistoryWorld
from tests.query_dsl.engine_worlds import made_of, request_of
from tests.query_dsl.test_pushdown import HOUR, NOW, T, Told
from tests.rollups.conftest import SERIES, copied
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


@pytest.fixture(scope="module")
def six_days(first_world: HistoryWorld, tmp_path_factory: pytest.TempPathFactory) -> HistoryWorld:
    """Six days of samples. Not to be changed."""
    with local_files(ManualClock(NOW + 2 * DAY_MS)):
        made = copied(first_world, tmp_path_factory.mktemp("months") / "files")
        fill(made)
    return made


@dataclass(frozen=True)
class Turned:
    """Six days of samples whose month has ended, after a turn of the compactor, and their answers before it."""

    world: HistoryWorld
    now_ms: int
    answers: list[Any]


@pytest.fixture(scope="module")
def turned(six_days: HistoryWorld, tmp_path_factory: pytest.TempPathFactory) -> Turned:
    """Not to be changed."""
    folder, clock = tmp_path_factory.mktemp("turned"), ManualClock(NOW + 32 * DAY_MS)
    with local_files(clock):
        made = copied(six_days, folder / "files")
        with History(made.hdfs) as history:
            answers = by_day(HistoryStore(history, engine="local"))
        turn(made, clock, folder)
    return Turned(made, clock.now_ms(), answers)


@pytest.fixture
def fresh(six_days: HistoryWorld, tmp_path: Path, clock: ManualClock) -> Iterator[HistoryWorld]:
    """A copy of `six_days`."""
    with local_files(clock):
        yield copied(six_days, tmp_path / "files")


@pytest.fixture
def fresh_store(fresh: HistoryWorld) -> Iterator[HistoryStore]:
    with History(fresh.hdfs) as history:
        yield HistoryStore(history, engine="local")


@pytest.fixture
def world(turned: Turned, tmp_path: Path, clock: ManualClock) -> Iterator[HistoryWorld]:
    """A copy of that of `turned`, at its time."""
    clock.advance(turned.now_ms - clock.now_ms())
    with local_files(clock):
        yield copied(turned.world, tmp_path / "files")


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


def test_a_month_is_one_file(world: HistoryWorld, store: HistoryStore, turned: Turned, opened: Opened) -> None:
    assert len(months(world)) == 1
    assert files_read(opened, world) == sorted(months(world))
    assert by_day(store) == turned.answers == without_months(world, store)
    one_day = request_of(["v.*"], Grid(MIDNIGHT + 3 * DAY_MS, DAY_MS, 1))
    opened.forget()
    assert len(store.select(one_day).series)
    assert not any(MONTHS_FOLDER in uri for uri in opened.files)


def test_of_an_open_month_ten_days_are_one_file(
    fresh: HistoryWorld, fresh_store: HistoryStore, clock: ManualClock, tmp_path: Path, opened: Opened
) -> None:
    clock.advance(11 * DAY_MS)
    expected = by_day(fresh_store)
    turn(fresh, clock, tmp_path)
    assert [span_of(path) for path in months(fresh)] == ["2027-01-1"]
    last = [file.path for file in rollups_of(fresh) if (file.level_ms, file.period) == (DAY_MS, "2027-01-20")]
    assert sorted(files_read(opened, fresh)) == sorted([*months(fresh), *last])
    assert by_day(fresh_store) == expected == without_months(fresh, fresh_store)
    clock.advance(30 * DAY_MS)
    turn(fresh, clock, tmp_path)
    assert [span_of(path) for path in months(fresh)] == ["2027-01"]


def test_a_month_of_many_rows_has_none(
    world: HistoryWorld, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(months(world)) == 1
    monkeypatch.setattr(rollup_table, "DAY_ROWS", 1)
    turn(world, clock, tmp_path)
    assert months(world) == set()


def test_a_month_is_written_once(world: HistoryWorld, clock: ManualClock, tmp_path: Path) -> None:
    """It is not taken for an orphan."""

    def written() -> list[tuple[str, int]]:
        folder = Path(rollups_uri(world.hdfs).removeprefix("file://")) / MONTHS_FOLDER
        return [(path.name, path.stat().st_mtime_ns) for path in folder.iterdir()]

    first = written()
    clock.advance(9 * DAY_MS)
    turn(world, clock, tmp_path).sweep()
    assert written() == first
    assert len(first) == 1


def test_month_files_count_among_the_bytes_of_roll_ups(
    fresh: HistoryWorld, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.advance(30 * DAY_MS)
    folder = Path(rollups_uri(fresh.hdfs).removeprefix("file://"))
    made = turn(fresh, clock, tmp_path)
    on_disk = {path: path.stat().st_size for path in folder.rglob("*.parquet")}
    copies = [size for path, size in on_disk.items() if path.parent == folder / MONTHS_FOLDER]
    table = RollupTable(fresh.hdfs)
    table.refresh()
    assert table.stored_bytes() == sum(on_disk.values())
    told = made.figures()["rollups"]
    assert (told["month_files"], told["month_bytes"]) == (1, sum(copies))
    assert told["live_bytes"] + told["month_bytes"] == sum(on_disk.values())
    clock.advance(DAY_MS)
    assert turn(fresh, clock, tmp_path).figures()["rollups"]["month_bytes"] == sum(copies)  # of an earlier turn
    monkeypatch.setattr(rollup_table, "DAY_ROWS", 1)
    assert turn(fresh, clock, tmp_path).figures()["rollups"]["month_files"] == 0
    assert table.stored_bytes() == sum(on_disk.values()) - sum(copies)


def test_a_month_that_was_not_finished_is_not_read(
    fresh: HistoryWorld, fresh_store: HistoryStore, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_uri: str, _to: str) -> None:
        raise OSError("refused by the test")

    clock.advance(30 * DAY_MS)
    with monkeypatch.context() as patch:
        patch.setattr(files, "rename_file", refused)
        with pytest.raises(OSError, match="refused"):
            turn(fresh, clock, tmp_path)
    assert len(months(fresh)) == 1
    assert months(fresh).isdisjoint(months_due(fresh))
    assert by_day(fresh_store) == of_samples(fresh, fresh_store, by_day)
    turn(fresh, clock, tmp_path)
    assert months(fresh) == months_due(fresh)


def test_a_month_that_is_deleted_while_it_is_read(
    world: HistoryWorld, store: HistoryStore, turned: Turned, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted = []

    def listed(uri: str) -> dict[str, int]:
        found = existing_months(uri)
        for path in found:
            files.delete_file(f"{uri}/{path}")
            deleted.append(path)
        return found

    monkeypatch.setattr(history_store, "existing_months", listed)
    assert by_day(store) == turned.answers
    assert deleted


def test_months_survive_their_samples(
    world: HistoryWorld, store: HistoryStore, turned: Turned, clock: ManualClock, tmp_path: Path, opened: Opened
) -> None:
    """Samples expire, then buckets are deleted, then days of roll-ups expire one after another."""
    expected = turned.answers
    clock.advance(20 * DAY_MS)
    turn(world, clock, tmp_path, keep="*=7")
    assert raw_names(world) == set()
    assert by_day(store) == expected
    old = months(world)
    deletion = SelectedDeletion(
        world.hdfs, '{rack="r1"}', MIDNIGHT + 2 * DAY_MS, MIDNIGHT + 3 * DAY_MS - 1, clock=clock
    )
    done = deletion.confirm(deletion.plan()[1])
    after = by_day(store)
    assert after != expected
    assert after == without_months(world, store)
    assert set(prove_deletion(world.hdfs, done.version, select).remaining) >= {
        f"{rollups_uri(world.hdfs)}/{path}" for path in old
    }
    turn(world, clock, tmp_path, keep="*=7")
    assert prove_deletion(world.hdfs, done.version, select).remaining == ()
    assert files_read(opened, world) == sorted(months_due(world)) == sorted(months(world)) != sorted(old)
    assert by_day(store) == after
    for left in (4, 3, 2):  # days with roll-ups
        days = (clock.now_ms() - MIDNIGHT) // DAY_MS - (DAYS + 1 - left)
        turn(world, clock, tmp_path, keep="*=7", rollups=f"1d={days}")
        assert len(rollups_of(world)) == left
        assert files_read(opened, world) == sorted(months_due(world)) == sorted(months(world))
        assert by_day(store) == without_months(world, store)
    turn(world, clock, tmp_path, keep="*=7", rollups="none")
    assert months(world) == set()


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
def test_any_changes_give_the_answers_of_samples(turned: Turned, tmp_path: Path, steps: list[tuple[str, int]]) -> None:
    """Beside the compactor, which changes no answer, with and without the cache of closed parts."""
    folder, clock, right = tmp_path / uuid.uuid4().hex, ManualClock(turned.now_ms), turned.answers
    with local_files(clock), History(f"file://{folder}/files") as history:
        world = copied(turned.world, folder / "files")
        changes = Changes(world, clock, folder)
        for step in [*steps, ("turn", 0)]:
            changes.apply(*step)
            store = HistoryStore(history, engine="local")  # one that has not looked up the series before
            if step[0] != "turn":
                right = of_samples(world, store, by_day)
            assert by_day(store) == right, step
            assert by_day(HistoryStore(history, engine="local", parts=ClosedParts(folder / "parts"))) == right, step
        assert months(world) == months_due(world) != set()
