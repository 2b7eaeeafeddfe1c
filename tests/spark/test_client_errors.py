"""Loops that query Kafka survive any exception of its client."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from artimon.model.clock import ManualClock
from pipeline.collector.kafka_quota import KafkaQuotaGate, LogSizes, measure_until
from pipeline.spark.acks_publisher import AcksPublisher
from pipeline.spark.retention import TopicTrimmer
from pipeline.spark.spark_settings import SparkConfig
from tests.waiting import eventually

NOTHING: Any = None
UNEXPECTED = [AssertionError("client"), KeyError("cluster_id"), TypeError("bug"), RuntimeError("has no topic: make it")]


class Failing:
    """Raises on every call, and counts the calls."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.calls = 0

    def head(self) -> Any:
        self.calls += 1
        raise self._error

    def describe(self) -> Any:
        return self.head()

    def generations(self) -> Any:
        return self.head()

    def close(self) -> None:
        """Do nothing, because there is no connection."""

    def sizes(self) -> LogSizes:
        self.head()
        raise AssertionError


@contextmanager
def thread(run: Callable[[threading.Event], None], wake: Callable[[], None] = lambda: None) -> Iterator[None]:
    stop = threading.Event()
    made = threading.Thread(target=run, args=(stop,), daemon=True)
    made.start()
    yield
    stop.set()
    wake()
    made.join(10)
    assert not made.is_alive()


def config() -> SparkConfig:
    return SparkConfig("none", "none", "none", Path("/nonexistent"), acks_interval_s=0.01, trim_interval_s=0.01)


@pytest.mark.parametrize("error", UNEXPECTED, ids=lambda error: type(error).__name__)
def test_the_acks_loop_continues_after_an_error(error: Exception) -> None:
    away: Any = Failing(error)
    publisher = AcksPublisher(config(), NOTHING)
    publisher._head = away
    with thread(publisher.run, publisher.wake):
        eventually(lambda: away.calls > 3, "another turn")
        assert publisher.problem.startswith(type(error).__name__)


@pytest.mark.parametrize("error", UNEXPECTED, ids=lambda error: type(error).__name__)
def test_the_trimming_loop_continues_after_an_error(error: Exception) -> None:
    away: Any = Failing(error)
    retention = TopicTrimmer(config(), ManualClock(10**9))
    retention._topic = retention._head = away
    with thread(retention.run):
        eventually(lambda: away.calls > 3, "another turn")


@pytest.mark.parametrize("error", UNEXPECTED, ids=lambda error: type(error).__name__)
def test_the_quota_loop_continues_after_an_error(error: Exception) -> None:
    away = Failing(error)
    with thread(lambda stop: measure_until(KafkaQuotaGate(1_000), away.sizes, stop, ManualClock())):
        eventually(lambda: away.calls > 3, "another turn")
