"""Settings of the compactor."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from artimon.rawtable.rollups import LEVELS_MS
from artimon.rawtable.schema import DAY_MS
from artimon.runtime.process_options import Hdfs, Health, Option, Zookeeper, in_seconds, process_name
from artimon.runtime.text import format_duration
from pipeline.compaction.merge import MergeLimits
from pipeline.compaction.plan import ClassRetention
from pipeline.compaction.rollup_plan import RollupRetention


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
    rollups: Annotated[
        RollupRetention,
        Option(
            "LEVEL=DAYS or LEVEL/CLASS=DAYS, comma-separated: retention of roll-ups of 5m, 1h and 1d, `ever` for no"
            " end; none: no roll-ups.",
            "--rollups",
            read=lambda text: parse_rollups(text),
            default="1h=3650,1d=3650",
        ),
    ] = field(default_factory=RollupRetention)
    interval_s: Annotated[float, in_seconds("Interval of checks of the table.", "--interval")] = 30.0
    sweep_s: float = 300.0
    """Interval between two searches for dead files, in seconds."""
    limits: MergeLimits = field(default_factory=MergeLimits)
    closed_ms: int = 0
    """Kafka append time before which the caller guarantees that no sample is missing; 0: only the table tells that."""
    id: Annotated[str, process_name("Name of this compactor.")] = "compactor"

    def since_ms(self, now_ms: int) -> int:
        """Return the time before which nothing is kept, neither samples nor roll-ups; 0 if roll-ups are kept for
        ever."""
        days = [self.keeping.default_days, *self.keeping.days.values(), *self.rollups.days.values()]
        known = [number for number in days if number is not None]
        return max(0, now_ms - max(known) * DAY_MS) if len(known) == len(days) else 0


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


def parse_rollups(text: str) -> RollupRetention:
    """Parse "5m=365,5m/debug=30,1h=ever", the days that the roll-ups of each level and class are kept; a level without
    an entry is not written. Raises RetentionError."""
    days: dict[tuple[int, str], int | None] = {}
    names = {format_duration(level): level for level in LEVELS_MS}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, number = part.partition("=")
        level, _, keep = name.partition("/")
        if level not in names or not (number == "ever" or (number.isdigit() and int(number) >= 1)):
            if part == "none" and text.strip() == part:
                continue
            known = " or ".join(names)
            raise RetentionError(f"{part!r} in {text!r}: write LEVEL=DAYS or LEVEL/CLASS=DAYS, the level {known}")
        days[names[level], keep or "*"] = None if number == "ever" else int(number)
    return RollupRetention(days)
