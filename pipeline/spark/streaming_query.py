"""Source of both queries: frames of Kafka messages, and one run of a streaming query over them."""

from __future__ import annotations

import json
import shutil
import threading
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash
from pyspark.errors import StreamingQueryException

from artimon.runtime.kafka_access import java_options
from pipeline.spark.spark_settings import SparkConfig
from pipeline.spark.topic_client import TopicInfo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ("partition", "offset", "timestamp", "value")
CHECK_INTERVAL_S = 5.0
WAIT_S = 1.0
"""Longest time in seconds until a query sees `stop`. Its own end wakes it at once."""


def task_slots(session: SparkSession) -> int:
    """Return the number of tasks that one query may run at once: half of all slots, so that a query whose tasks wait
    for a hanging server leaves room for the other."""
    return max(1, int(session.sparkContext.defaultParallelism) // 2)


def offsets_json(topic: str, positions: Mapping[int, int]) -> str:
    """Return offsets in the form that Spark's Kafka source reads."""
    return json.dumps({topic: {str(p): at for p, at in sorted(positions.items())}})


def streaming_frame(
    session: SparkSession,
    name: str,
    config: SparkConfig,
    info: TopicInfo,
    start: Mapping[int, int],
    messages: int,
    more: Mapping[str, str],
) -> Any:
    """Return a streaming frame of COLUMNS for the query `name`, from `start`, at most `messages` a micro-batch. Spark
    does not fail on lost offsets: we find them ourselves."""
    reader = session.readStream.format("kafka").options(**_options(config, info, name), **more)
    reader = reader.option("startingOffsets", offsets_json(info.topic, start)).option(
        "maxOffsetsPerTrigger", str(messages)
    )
    return reader.load().select(*COLUMNS)


def range_frame(
    session: SparkSession, config: SparkConfig, info: TopicInfo, start: Mapping[int, int], end: Mapping[int, int]
) -> Any:
    """Return a frame of COLUMNS with [start, end) of every partition."""
    reader = session.read.format("kafka").options(**_options(config, info, "catch-up"))
    reader = reader.option("startingOffsets", offsets_json(info.topic, start)).option(
        "endingOffsets", offsets_json(info.topic, end)
    )
    return reader.load().select(*COLUMNS)


def run_query(
    session: SparkSession,
    name: str,
    frame: Any,
    on_batch: Callable[[Any, int], None],
    every_s: float,
    checkpoint: Path,
    stop: threading.Event,
    look: Callable[[], None],
) -> None:
    """Run a query until `stop`; raise its failure. `look` is called every few seconds and may raise too."""
    failure: list[BaseException] = []

    def guarded(batch_frame: Any, number: int) -> None:
        try:
            on_batch(batch_frame, number)
        except BaseException as error:
            failure.append(error)
            raise

    session.sparkContext.setLocalProperty("spark.scheduler.pool", name)
    # a new name each time: a query that is slow to stop must not keep the next one from starting
    writer = (
        frame.writeStream.queryName(f"{name}-{uuid.uuid4().hex[:8]}")
        .foreachBatch(guarded)
        .option("checkpointLocation", checkpoint.absolute().as_uri())
    )
    query = writer.trigger(processingTime=f"{int(every_s * 1000)} milliseconds").start()
    waited = CHECK_INTERVAL_S
    try:
        while not stop.is_set():
            if waited >= CHECK_INTERVAL_S:
                look()
                waited = 0.0
            if _has_ended(query):
                raise failure[0] if failure else query.exception() or RuntimeError(f"query {name} ended by itself")
            waited += WAIT_S
    finally:
        query.stop()


def _has_ended(query: Any) -> bool:
    """Wait at most WAIT_S for the end of a query, with or without a failure."""
    try:
        return bool(query.awaitTermination(WAIT_S))
    except StreamingQueryException:
        return True


def remove_checkpoint(folder: Path) -> None:
    """Delete the checkpoint of a query; it may be gone already."""
    shutil.rmtree(folder, ignore_errors=True)


def _options(config: SparkConfig, info: TopicInfo, reader: str) -> dict[str, str]:
    """Return the options of a Kafka reader. The consumer group is named after reader and log. So Spark reuses its
    cached consumers, instead of new ones with full buffers that fill the heap during a long catch-up; and data
    prefetched from a topic that was made again, or from a log that was cut, is never taken for the present log. Nothing
    is committed or balanced by the group."""
    return {
        "kafka.group.id": f"artimon-{reader}-{_log_key(info)}",
        "kafka.bootstrap.servers": config.kafka,
        "assign": json.dumps({info.topic: list(range(info.partitions))}),
        "failOnDataLoss": "false",
        "kafka.max.partition.fetch.bytes": str(4 * 1024 * 1024),
        "kafka.fetch.max.bytes": str(16 * 1024 * 1024),
        "kafka.receive.buffer.bytes": str(1024 * 1024),
        **{f"kafka.{name}": value for name, value in java_options().items()},
    }


def _log_key(info: TopicInfo) -> str:
    """Return a name that stays the same while every offset of the topic holds the same message."""
    epochs = json.dumps(sorted(info.epochs.items())).encode()
    return f"{info.topic_id}-{xxhash.xxh3_64_hexdigest(epochs)}"
