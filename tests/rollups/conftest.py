"""A history whose roll-ups are made two days after its samples."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from artimon.model.clock import ManualClock
from artimon.rawtable.schema import DAY_MS
from query_dsl.stores.history.engine import History
from query_dsl.stores.history_store import HistoryStore
from tests.history.engine_world import put, some_series
from tests.history.world import HistoryWorld
from tests.query_dsl.test_pushdown import NOW
from tests.spark.local_files import local_files

SERIES = 15


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW + 2 * DAY_MS)


def copied(world: HistoryWorld, folder: Path) -> HistoryWorld:
    """Copy a history on a local folder to another one; the times of its files stay."""
    shutil.copytree(world.hdfs.removeprefix("file://"), folder)
    return HistoryWorld(f"file://{folder}", copied=world)


@pytest.fixture(scope="session")
def first_world(tmp_path_factory: pytest.TempPathFactory) -> HistoryWorld:
    """Two hours of series of all types and kinds, with restarts, changes of type, ends and gaps. Not to be changed."""
    with local_files(ManualClock(NOW + 2 * DAY_MS)):
        made = HistoryWorld(f"file://{tmp_path_factory.mktemp('rollups')}/files")
        put(made, some_series(11, SERIES, 120), files=3)
    return made


@pytest.fixture
def world(first_world: HistoryWorld, tmp_path: Path, clock: ManualClock) -> Iterator[HistoryWorld]:
    """A copy of `first_world`."""
    with local_files(clock):
        yield copied(first_world, tmp_path / "files")


@pytest.fixture
def store(world: HistoryWorld) -> Iterator[HistoryStore]:
    with History(world.hdfs) as history:
        yield HistoryStore(history, engine="local")
