"""What the Spark application needs to be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SparkConfig:
    """Where everything is, and how much at once. `hdfs` is hdfs://HOST:PORT (tables go to /artimon there); `data` is
    a local folder for Spark's caches; `jars` are the paths of Spark's Kafka connector and what it needs."""

    zookeeper: str
    kafka: str
    hdfs: str
    data: Path
    health: Path | None = None
    jars: list[str] = field(default_factory=list)
    master: str = "local[4,4]"
    """Spark's master; "": the application was handed to spark-submit, which has said it."""
    driver_memory: str = "1g"
    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark's own settings; they come before ours. What is of one cluster stands here and nowhere else."""
    topic_prefix: str = "artimon"
    raw_interval_s: float = 30.0
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
    kafka_quota_bytes: int = 0
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
