"""Source of both queries: frames of Kafka messages, and one life of a query over them."""

from __future__ import annotations

import json
import shutil
import threading
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from artimon.runtime.kafka_access import java_options
from pipeline.spark.config import SparkConfig
from pipeline.spark.topic import TopicInfo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ("partition", "offset", "timestamp", "value")
LOOK_S = 5.0


def share(session: SparkSession) -> int:
    """Tasks that one query may run at once: half of what runs at once at all, so that a query whose tasks wait for a
    server that hangs leaves room for the other."""
    return max(1, int(session.sparkContext.defaultParallelism) // 2)


def offsets(topic: str, positions: Mapping[int, int]) -> str:
    """Offsets as Spark's Kafka source reads them."""
    return json.dumps({topic: {str(p): at for p, at in sorted(positions.items())}})


def stream(
    session: SparkSession,
    name: str,
    config: SparkConfig,
    info: TopicInfo,
    start: Mapping[int, int],
    messages: int,
    more: Mapping[str, str],
) -> Any:
    """A streaming frame of COLUMNS of the query `name` that begins at `start`, at most `messages` a micro-batch. Lost
    offsets are found by us: Spark is told to go on."""
    reader = session.readStream.format("kafka").options(**_options(config, info, name), **more)
    reader = reader.option("startingOffsets", offsets(info.topic, start)).option("maxOffsetsPerTrigger", str(messages))
    return reader.load().select(*COLUMNS)


def batch(
    session: SparkSession, config: SparkConfig, info: TopicInfo, start: Mapping[int, int], end: Mapping[int, int]
) -> Any:
    """A frame of COLUMNS with [start, end) of every partition."""
    reader = session.read.format("kafka").options(**_options(config, info, "catch-up"))
    reader = reader.option("startingOffsets", offsets(info.topic, start)).option(
        "endingOffsets", offsets(info.topic, end)
    )
    return reader.load().select(*COLUMNS)


def follow(
    session: SparkSession,
    name: str,
    frame: Any,
    on_batch: Callable[[Any, int], None],
    every_s: float,
    checkpoint: Path,
    stop: threading.Event,
    look: Callable[[], None],
) -> None:
    """Run a query until `stop`; raises what ends it. `look` is called every few seconds and may raise too."""
    failure: list[BaseException] = []

    def guarded(batch_frame: Any, number: int) -> None:
        try:
            on_batch(batch_frame, number)
        except BaseException as error:
            failure.append(error)
            raise

    session.sparkContext.setLocalProperty("spark.scheduler.pool", name)
    # a name of its own each time: one that is slow to stop must not keep the next from starting
    writer = (
        frame.writeStream.queryName(f"{name}-{uuid.uuid4().hex[:8]}")
        .foreachBatch(guarded)
        .option("checkpointLocation", checkpoint.as_uri())
    )
    query = writer.trigger(processingTime=f"{int(every_s * 1000)} milliseconds").start()
    waited = LOOK_S
    try:
        while not stop.wait(0.25):
            if not query.isActive:
                raise failure[0] if failure else query.exception() or RuntimeError(f"query {name} ended by itself")
            waited += 0.25
            if waited >= LOOK_S:
                look()
                waited = 0.0
    finally:
        query.stop()


def remove_checkpoint(folder: Path) -> None:
    """Delete the checkpoint of a query; one that is gone already is fine."""
    shutil.rmtree(folder, ignore_errors=True)


def _options(config: SparkConfig, info: TopicInfo, reader: str) -> dict[str, str]:
    """The group is named after the reader and the log: consumers that Spark keeps are those of the last time and not
    new ones with full buffers each time, which fill the heap when a catch-up takes many steps; and what they have
    fetched of a topic that was made again since, or of a log that was cut, is never taken for what stands there now.
    Nothing is committed or balanced by it."""
    return {
        "kafka.group.id": f"artimon-{reader}-{_log_of(info)}",
        "kafka.bootstrap.servers": config.kafka,
        "assign": json.dumps({info.topic: list(range(info.partitions))}),
        "failOnDataLoss": "false",
        "kafka.max.partition.fetch.bytes": str(4 * 1024 * 1024),
        "kafka.fetch.max.bytes": str(16 * 1024 * 1024),
        "kafka.receive.buffer.bytes": str(1024 * 1024),
        **{f"kafka.{name}": value for name, value in java_options().items()},
    }


def _log_of(info: TopicInfo) -> str:
    """The same while every offset of the topic holds the same."""
    epochs = json.dumps(sorted(info.epochs.items())).encode()
    return f"{info.topic_id}-{xxhash.xxh3_64_hexdigest(epochs)}"
