"""Waits of a collector's calls for its store: what says that a collector lags."""

from __future__ import annotations

from artimon.model.batch import BatchId
from artimon.model.batch_codec import encode_samples
from artimon.model.clock import ManualClock
from pipeline.collector.collector import WINDOW_S, CallWaits, Collector
from tests.pipeline.helpers import samples
from tests.pipeline.link.test_write_queue import Cluster

WINDOW_MS = int(WINDOW_S * 1000)


def test_a_wait_is_reported_while_it_lasts_and_until_the_next_window_ends() -> None:
    clock = ManualClock()
    waits = CallWaits(clock)
    first, second = waits.begin(), waits.begin()
    clock.advance(7_000)
    assert waits.longest_ms == 7_000
    waits.end(first)
    waits.end(first)
    clock.advance(WINDOW_MS - 7_000)
    assert waits.longest_ms == WINDOW_MS
    waits.end(second)
    clock.advance(WINDOW_MS)
    assert waits.longest_ms == WINDOW_MS
    clock.advance(WINDOW_MS)
    assert waits.longest_ms == 0


def test_a_collector_whose_store_hangs_says_for_how_long() -> None:
    clock = ManualClock()
    collector = Collector(Cluster(), "t", clock)
    data = encode_samples(BatchId("agent-1", 77, 0, 0), "source", bytes(16), 0, 0, "default", samples(5)).data
    received = collector.begin([data])
    clock.advance(6_000)
    assert collector.figures()["longest_wait_ms"] == 6_000
    collector.finish(received, ["kafka: no answer"])
    clock.advance(2 * WINDOW_MS)
    assert collector.figures()["longest_wait_ms"] == 0
