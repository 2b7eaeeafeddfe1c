"""Runs one query of the application inside a test, and waits for its progress."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from artimon.model.failpoints import Failpoint, no_failpoint
from artimon.runtime.supervision import SupervisedThread
from pipeline.spark.buckets_query import BucketsQuery
from pipeline.spark.raw_query import RawQuery
from pipeline.spark.spark_settings import SparkConfig
from pipeline.spark.suspects import Suspects


@contextmanager
def running(name: str, run: Callable[[threading.Event], None]) -> Iterator[SupervisedThread]:
    """Run `run` under its supervisor, as in the application."""
    stop = threading.Event()
    thread = SupervisedThread(name, run, stop)
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        thread.join(30)


@contextmanager
def raw_query(
    config: SparkConfig,
    session: SparkSession,
    probe: Failpoint = no_failpoint,
    name: str = "raw",
    suspects: Suspects | None = None,
) -> Iterator[RawQuery]:
    threads: list[SupervisedThread] = []
    query = RawQuery(config, session, lambda: threads[0].healthy() if threads else None, probe=probe, suspects=suspects)
    with running(name, query.run) as thread:
        threads.append(thread)
        yield query


@contextmanager
def buckets_query(
    config: SparkConfig, session: SparkSession, client: KazooClient, suspects: Suspects | None = None
) -> Iterator[BucketsQuery]:
    query = BucketsQuery(config, session, client, lambda: None, suspects=suspects)
    with running("buckets", query.run):
        yield query


def reached(query: RawQuery, batches: int) -> Callable[[], bool]:
    """Return a condition that holds once the table has that many batches."""

    def done() -> bool:
        figures: dict[str, Any] = query.figures()
        return bool(figures["batches"] >= batches)

    return done
