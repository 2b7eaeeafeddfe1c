"""Settings of the compactor."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from artimon.runtime.process_options import Hdfs, Health, Option, Zookeeper, in_seconds, process_name
from pipeline.compaction.merge import MergeLimits
from pipeline.compaction.plan import ClassRetention


class RetentionError(ValueError):
    """The retention of classes cannot be parsed."""


@dataclass(frozen=True, slots=True)
class CompactorConfig:
    """`hdfs` is hdfs://HOST:PORT; `data` a local folder for data that exceeds memory: up to 20 bytes for each row of
    the largest hour."""

    zookeeper: Zookeeper
    hdfs: Hdfs
    data: Annotated[
        Path,
        Option("Local folder for data that exceeds memory.", default_of=lambda place: place.data / "compactor"),
    ]
    health: Health = None
    keeping: Annotated[
        ClassRetention,
        Option(
            "CLASS=DAYS, comma-separated: retention of each class of samples; * names all others.",
            "--keep",
            read=lambda text: parse_keep(text),
            default="*=400",
        ),
    ] = field(default_factory=ClassRetention)
    interval_s: Annotated[float, in_seconds("Interval of checks of the table.", "--interval")] = 30.0
    sweep_s: float = 300.0
    """Interval between two searches for dead files, in seconds."""
    limits: MergeLimits = field(default_factory=MergeLimits)
    closed_ms: int = 0
    """Kafka append time before which the caller guarantees that no sample is missing; 0: only the table tells that."""
    id: Annotated[str, process_name("Name of this compactor.")] = "compactor"


def parse_keep(text: str) -> ClassRetention:
    """Parse "default=400,debug=7", the days that each class is kept; `*` names all others. Raises RetentionError."""
    days: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = part.partition("=")
        if not name or not number.isdigit() or int(number) < 1:
            raise RetentionError(f"{part!r} in {text!r}: write CLASS=DAYS, such as debug=7, days at least 1")
        days[name] = int(number)
    others = days.pop("*", ClassRetention().default_days)
    return ClassRetention(days, others)
