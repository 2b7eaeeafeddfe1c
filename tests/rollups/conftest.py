"""A history whose roll-ups are made two days after its samples."""

from __future__ import annotations

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


@pytest.fixture
def world(tmp_path: Path, clock: ManualClock) -> Iterator[HistoryWorld]:
    """Two hours of series of all types and kinds, with restarts, changes of type, ends and gaps."""
    with local_files(clock):
        made = HistoryWorld(f"file://{tmp_path}/files")
        put(made, some_series(11, SERIES, 120), files=3)
        yield made


@pytest.fixture
def store(world: HistoryWorld) -> Iterator[HistoryStore]:
    with History(world.hdfs) as history:
        yield HistoryStore(history, engine="local")
