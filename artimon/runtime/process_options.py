"""Options of a process: declared once, at the fields of its settings class. The command line is made from them.

    @dataclass(frozen=True)
    class ShardConfig:
        port: Annotated[int, Option("Port to listen on, 0 for any.", least=0, most=65_535)] = 0

gives `artimon shard` the option `--port`, with this help, this default and these bounds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import lru_cache
from keyword import iskeyword
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

from artimon.runtime.settings import Settings, parse_quota
from artimon.runtime.text import parse_period, parse_process_name

MiB = 1 << 20


@dataclass(frozen=True, slots=True)
class Option:
    """Option of the command line that fills a field."""

    help: str
    flag: str = ""
    """As written, "--keep" or "--on/--off"; "": made from the name of the field."""
    least: float | None = None
    most: float | None = None
    unit: int = 1
    """The command line counts in so many of the field's own unit."""
    read: Callable[[Any], Any] | None = None
    """From what was written, a text unless `kind` says otherwise, to the value of the field. Raises ValueError."""
    show: Callable[[Any], str] = str
    """Inverse of `read`, for the default in the help."""
    check: Callable[[Any], object] | None = None
    """Refuses a value: raises ValueError."""
    kind: Any = None
    """Type of what is written; None: that of the field, or a text for `read`."""
    many: bool = False
    """May be repeated: `read` gets a list of texts."""
    usual: Any = None
    """Default on the command line, as written, where the field has none or another one."""
    place: Callable[[Settings], Any] | None = None
    """Default that depends on where the servers are."""
    of_stack: bool = False
    """Names the data folder of the stack whose servers are meant."""


class Bound(NamedTuple):
    """Option, the field that it fills and the type of that field."""

    option: Option
    field: Field[Any]
    hint: Any

    @property
    def name(self) -> str:
        """Name of the parameter: that of the flag, else of the field."""
        flag = self.option.flag.partition("/")[0].lstrip("-").replace("-", "_") or self.field.name
        return f"{flag}_" if iskeyword(flag) else flag

    @property
    def default(self) -> Any:
        """Value of the field where nothing is written; MISSING if it must be written."""
        made = self.field.default_factory
        return self.field.default if made is MISSING else made()


@lru_cache(maxsize=64)
def bound_options(cls: type) -> tuple[Bound, ...]:
    """Options at the fields of a dataclass, without those of the dataclasses in it."""
    hints = _hints(cls)
    found = []
    for field in fields(cls):
        base, *extras = get_args(hints[field.name]) if _is_annotated(hints[field.name]) else (hints[field.name],)
        found += [Bound(extra, field, base) for extra in extras if isinstance(extra, Option)]
    return tuple(found)


def nested_settings(cls: type) -> Iterator[tuple[str, type]]:
    """Fields that hold settings classes with options of their own."""
    for name, hint in _hints(cls).items():
        if isinstance(hint, type) and is_dataclass(hint) and bound_options(hint):
            yield name, hint


def _hints(cls: type) -> dict[str, Any]:
    """Types of the fields. They are evaluated among the names of the module alone, which functions in them use too."""
    return get_type_hints(cls, vars(sys.modules[cls.__module__]), {}, include_extras=True)


def _is_annotated(hint: Any) -> bool:
    return hasattr(hint, "__metadata__")


def in_seconds(help: str, flag: str = "", **more: Any) -> Option:
    """Option whose field counts seconds; a duration of at least 1s is written."""
    return Option(help, flag, read=lambda text: parse_period(text) / 1000, show=lambda value: f"{value:g}s", **more)


def in_milliseconds(help: str, flag: str = "", **more: Any) -> Option:
    """As `in_seconds`, for a field that counts milliseconds."""
    return Option(help, flag, read=parse_period, show=lambda value: f"{value / 1000:g}s", **more)


def process_name(help: str, flag: str = "--id", usual: str | None = None) -> Option:
    """Option that names a process."""
    return Option(help, flag, check=parse_process_name, usual=usual)


Zookeeper = Annotated[
    str, Option("host:port (ARTIMON_ZOOKEEPER, else the running stack's).", place=attrgetter("zookeeper"))
]
Kafka = Annotated[str, Option("host:port (ARTIMON_KAFKA, else the running stack's).", place=attrgetter("kafka"))]
Hdfs = Annotated[str, Option("URI (ARTIMON_HDFS, else the running stack's).", place=attrgetter("hdfs"))]
KafkaQuota = Annotated[
    int,
    Option(
        "Bytes that samples may take in Kafka, such as 20GiB (ARTIMON_KAFKA_QUOTA).",
        "--kafka-quota",
        read=parse_quota,
        place=attrgetter("kafka_quota_bytes"),
    ),
]
ListenHost = Annotated[
    str, Option("Address to listen on and to be known by; others reach it only where it is not loopback.")
]
ListenPort = Annotated[int, Option("Port to listen on, 0 for any.", least=0, most=65_535)]
Insecure = Annotated[bool, Option("Listen beyond loopback without authentication (docs/security.md).", "--insecure")]
Health = Annotated[Path | None, Option("File in which the process says how it is.")]
StackData = Annotated[
    Path, Option("Data folder of the stack (ARTIMON_DATA).", "--data", place=attrgetter("data"), of_stack=True)
]
