"""Settings of the Spark application, and Spark's own settings from a file or a command line, in the form that
spark-submit reads too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from artimon.runtime.process_options import Hdfs, Health, Kafka, KafkaQuota, Option, Zookeeper, in_seconds, process_name

LOCAL_MASTER = "local[4,4]"
"""Default Spark master: four threads, four attempts of each task."""
MAX_BYTES = 256 * 1024
_LINE = re.compile(r"(spark\.[^\s=:]+)\s*[=:\s]\s*(.*)")


@dataclass(frozen=True, slots=True)
class SparkConfig:
    """Addresses, folders and limits. `hdfs` is hdfs://HOST:PORT (tables go to /artimon there); `data` is a local folder
    for Spark's caches; `jars` are the paths of Spark's Kafka connector and its dependencies."""

    zookeeper: Zookeeper
    kafka: Kafka
    hdfs: Hdfs
    data: Annotated[Path, Option("Local folder of the checkpoints.", default_of=lambda place: place.data / "spark")]
    health: Health = None
    jars: Annotated[
        list[str],
        Option("Jars of the connector, by comma.", read=lambda text: list(filter(None, text.split(","))), default=""),
    ] = field(default_factory=list)
    master: str = LOCAL_MASTER
    """Spark's master; "" if the application was submitted with spark-submit, which has set it."""
    driver_memory: Annotated[str, Option("Heap of the driver's JVM.")] = "1g"
    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark's own settings; they override ours. Settings of one particular cluster belong here and nowhere else."""
    topic_prefix: Annotated[str, Option("Prefix of the topics' names.")] = "artimon"
    raw_interval_s: Annotated[float, in_seconds("Interval of appends to the raw table.", "--raw-interval")] = 30.0
    """The raw query appends at this interval, or as soon as a whole append waits (pipeline/spark/append_pace.py)."""
    bucket_interval_s: float = 1.0
    raw_messages: int = 120_000
    """Maximum number of messages per append: bounds memory and the size of a commit."""
    bucket_messages: int = 4_000
    """Maximum number of messages per micro-batch of the buckets query."""
    acks_interval_s: float = 10.0
    kafka_keep_s: float = 76 * 3600.0
    """Retention in Kafka of messages that the table holds: the reach of the coarsest level plus a margin, so that an
    empty shard can be filled from Kafka."""
    kafka_quota_bytes: KafkaQuota = 0
    """Quota of the topic of samples; above half of it, messages the table holds are deleted earlier. 0: no limit."""
    trim_interval_s: float = 10.0
    series_interval_s: float = 30.0
    """Interval at which announcements are written to the table of series."""
    id: Annotated[str, process_name("Name of this application.")] = "spark"

    @property
    def samples_topic(self) -> str:
        return f"{self.topic_prefix}.samples"

    @property
    def series_topic(self) -> str:
        return f"{self.topic_prefix}.series"

    @property
    def deadletters_topic(self) -> str:
        return f"{self.topic_prefix}.deadletters"


class PropertiesError(ValueError):
    """A setting that Spark could not read. The text says where and what."""


def read_properties(path: Path) -> dict[str, str]:
    """Read settings from a file with lines `spark.key value` or `spark.key=value`; `#` begins a comment line. The same
    file fits `spark-submit --properties-file`. Raises PropertiesError."""
    try:
        text = path.read_bytes()[: MAX_BYTES + 1].decode()
    except (OSError, UnicodeDecodeError) as error:
        raise PropertiesError(f"{path} cannot be read: {error}") from error
    if len(text) > MAX_BYTES:
        raise PropertiesError(f"{path} has more than {MAX_BYTES} bytes: is this a file of Spark's settings?")
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        plain = line.strip()
        if plain and not plain.startswith(("#", "!")):
            key, value = _parse_setting(plain, f"{path}:{number}")
            found[key] = value
    return found


def parse_conf(texts: Iterable[str]) -> dict[str, str]:
    """Parse the settings of a command line, `spark.key=value` each. Raises PropertiesError."""
    return dict(_parse_setting(text.strip(), "--conf") for text in texts)


def _parse_setting(text: str, where: str) -> tuple[str, str]:
    """
    >>> _parse_setting("spark.executor.cores = 2", "here")
    ('spark.executor.cores', '2')
    """
    matched = _LINE.fullmatch(text)
    if matched is None:
        raise PropertiesError(f"{where}: {text!r} is not a Spark setting: write spark.some.key=value")
    return matched[1], matched[2].strip()
