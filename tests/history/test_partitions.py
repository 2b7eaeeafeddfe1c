"""Functions over partitions of samples in Spark: results, progress, cancellation, errors."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator

import pandas as pd
import pytest

from artimon.model.clock import ManualClock
from artimon.session import Session
from query_dsl import QueryError
from query_dsl.stores.history.engine import History
from query_dsl.stores.history.partition_map import HistorySelection
from query_dsl.stores.history.sample_query import HistoryError, HistoryInterrupted, TooMuchHistory
from tests.history.world import HOUR_MS, START_MS, HistoryWorld
from tests.query_dsl.plain_store import PlainStore
from tests.waiting import eventually

pytestmark = pytest.mark.stack
Frames = Iterator[pd.DataFrame]
SPAN = START_MS - 1, START_MS + 6 * HOUR_MS
PATIENCE_S = 15.0


@pytest.fixture
def selection(history: History) -> HistorySelection:
    """The samples of `rack.temp` as a session selects them."""
    session = Session(PlainStore(), "test", ManualClock(SPAN[1]), open_history=lambda: history)
    return session.history("rack.temp", *SPAN, lazy=True)


def test_each_partition_gives_its_results(selection: HistorySelection, history_world: HistoryWorld) -> None:
    def count(batches: Frames) -> Frames:
        for batch in batches:
            assert str(batch["integer"].dtype) == "Int64"
            yield batch.groupby(["rack", "source"], as_index=False).agg(
                samples=("time", "size"), most=("integer", "max")
            )

    told: list[float] = []
    rows = selection.map_partitions(count, labels=["rack"], progress=lambda done, _text: told.append(done))
    found: Counter[tuple[str, str]] = Counter()
    for rack, source, samples in zip(rows["rack"], rows["source"], rows["samples"], strict=True):
        found[rack, source] += samples
    wanted = [one for one in history_world.samples if one.series.startswith("rack.temp{")]
    assert found == Counter((one.series.split('rack="')[1].split('"')[0], one.source) for one in wanted)
    assert rows["most"].max() == max(one.value for one in wanted if isinstance(one.value, int))
    assert told
    assert all(0 <= done <= 1 for done in told)


@pytest.mark.slow
def test_a_function_that_yields_nothing_gives_an_empty_frame(selection: HistorySelection) -> None:
    assert len(selection.map_partitions(lambda batches: [batch for batch in batches if batch.empty])) == 0


def test_a_stop_cancels_the_jobs(selection: HistorySelection) -> None:
    def wait(batches: Frames) -> Frames:
        for batch in batches:
            time.sleep(PATIENCE_S)
            yield batch

    stop, began = threading.Event(), time.monotonic()
    with pytest.raises(HistoryInterrupted):
        selection.map_partitions(wait, stop=stop, progress=lambda _done, _text: stop.set())
    assert time.monotonic() - began < PATIENCE_S
    tracker = selection.history.session().sparkContext.statusTracker()
    eventually(lambda: not list(tracker.getActiveJobsIds()), "the jobs end", seconds=PATIENCE_S / 2)


def test_an_error_of_the_function_is_told(selection: HistorySelection) -> None:
    def fail(batches: Frames) -> Frames:
        for _ in batches:
            raise ZeroDivisionError("of mine")
        yield from ()

    with pytest.raises(HistoryError, match="ZeroDivisionError: of mine"):
        selection.map_partitions(fail)


@pytest.mark.slow
def test_results_have_a_limit(selection: HistorySelection) -> None:
    def one_row(batches: Frames) -> Frames:
        for batch in batches:
            yield batch[["source", "time"]].head(1)

    with pytest.raises(TooMuchHistory, match="more than 1 rows"):
        selection.map_partitions(one_row, rows=1)
    with pytest.raises(TooMuchHistory, match="more than 5 rows"):
        selection.map_partitions(lambda batches: batches, rows=5)


def test_a_label_named_like_a_column_is_refused(selection: HistorySelection) -> None:
    with pytest.raises(QueryError, match="label source has the name of a column"):
        selection.map_partitions(lambda batches: batches, labels=["source"])
