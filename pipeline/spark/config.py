"""What the Spark application needs to be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from artimon.runtime.process_options import Hdfs, Health, Kafka, KafkaQuota, Option, Zookeeper, in_seconds

LOCAL = "local[4,4]"
"""Spark's master where none is named: four threads, four attempts of each task."""


@dataclass(frozen=True, slots=True)
class SparkConfig:
    """Where everything is, and how much at once. `hdfs` is hdfs://HOST:PORT (tables go to /artimon there); `data` is
    a local folder for Spark's caches; `jars` are the paths of Spark's Kafka connector and what it needs."""

    zookeeper: Zookeeper
    kafka: Kafka
    hdfs: Hdfs
    data: Annotated[Path, Option("Local folder of the checkpoints.", place=lambda place: place.data / "spark")]
    health: Health = None
    jars: Annotated[
        list[str],
        Option("The connector's jars, by comma.", read=lambda text: list(filter(None, text.split(","))), usual=""),
    ] = field(default_factory=list)
    master: str = LOCAL
    """Spark's master; "": the application was handed to spark-submit, which has said it."""
    driver_memory: Annotated[str, Option("Heap of the driver's JVM.")] = "1g"
    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark's own settings; they come before ours. What is of one cluster stands here and nowhere else."""
    topic_prefix: Annotated[str, Option("What the names of the topics begin with.")] = "artimon"
    raw_interval_s: Annotated[float, in_seconds("How often the raw table gets an append.", "--raw-interval")] = 30.0
    """The raw query appends this often, or as soon as `raw_messages / 2` wait."""
    bucket_interval_s: float = 1.0
    raw_messages: int = 8_000
    """Messages per append at most: bounds memory and the size of a commit."""
    bucket_messages: int = 4_000
    """Messages per micro-batch of the buckets query at most."""
    acks_interval_s: float = 10.0
    kafka_keep_s: float = 76 * 3600.0
    """Messages that the table holds stay this long in Kafka: the reach of the coarsest level and some more, so that a
    shard that begins empty can be filled from there."""
    kafka_quota_bytes: KafkaQuota = 0
    """Bytes that the topic of samples may have; above half of it messages that the table holds go earlier. 0: any."""
    trim_interval_s: float = 10.0
    series_interval_s: float = 30.0
    """Announcements come into the table of series this often."""

    @property
    def samples_topic(self) -> str:
        return f"{self.topic_prefix}.samples"

    @property
    def series_topic(self) -> str:
        return f"{self.topic_prefix}.series"

    @property
    def deadletters_topic(self) -> str:
        return f"{self.topic_prefix}.deadletters"
