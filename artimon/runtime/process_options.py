"""Options of a process, declared once at the fields of its settings class. The command line is generated from them.

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
    """Flag, such as "--keep" or "--on/--off"; "": derived from the name of the field."""
    min: float | None = None
    max: float | None = None
    unit: int = 1
    """Unit of the command line in units of the field."""
    read: Callable[[Any], Any] | None = None
    """Convert the argument (text unless `kind` is set) to the value of the field. Raises ValueError."""
    show: Callable[[Any], str] = str
    """Inverse of `read`, for the default in the help."""
    check: Callable[[Any], object] | None = None
    """Validate a value. Raises ValueError."""
    kind: Any = None
    """Type of the argument; None: that of the field, or text for `read`."""
    multiple: bool = False
    """True if the option may be repeated: `read` gets a list of texts."""
    default: Any = None
    """Default argument of the command line, if the field has no default or another one."""
    default_of: Callable[[Settings], Any] | None = None
    """Default that depends on the addresses of the servers."""
    of_stack: bool = False
    """True if the option is the data folder of the stack whose servers are used."""


class BoundOption(NamedTuple):
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
        """Value of the field without an argument; MISSING if the option is required."""
        made = self.field.default_factory
        return self.field.default if made is MISSING else made()


@lru_cache(maxsize=64)
def bound_options(cls: type) -> tuple[BoundOption, ...]:
    """Return the options at the fields of a dataclass, without those of nested dataclasses."""
    hints = _hints(cls)
    found = []
    for field in fields(cls):
        base, *extras = get_args(hints[field.name]) if _is_annotated(hints[field.name]) else (hints[field.name],)
        found += [BoundOption(extra, field, base) for extra in extras if isinstance(extra, Option)]
    return tuple(found)


def nested_settings(cls: type) -> Iterator[tuple[str, type]]:
    """Yield the fields whose types are settings classes with options."""
    for name, hint in _hints(cls).items():
        if isinstance(hint, type) and is_dataclass(hint) and bound_options(hint):
            yield name, hint


def _hints(cls: type) -> dict[str, Any]:
    """Return the types of the fields, evaluated in the namespace of their module, which functions in them need."""
    return get_type_hints(cls, vars(sys.modules[cls.__module__]), {}, include_extras=True)


def _is_annotated(hint: Any) -> bool:
    return hasattr(hint, "__metadata__")


def in_seconds(help: str, flag: str = "", **more: Any) -> Option:
    """Option for a field in seconds; its argument is a duration of at least 1s."""
    return Option(help, flag, read=lambda text: parse_period(text) / 1000, show=lambda value: f"{value:g}s", **more)


def in_milliseconds(help: str, flag: str = "", **more: Any) -> Option:
    """`in_seconds` for a field in milliseconds."""
    return Option(help, flag, read=parse_period, show=lambda value: f"{value / 1000:g}s", **more)


def process_name(help: str, flag: str = "--id", usual: str | None = None) -> Option:
    return Option(help, flag, check=parse_process_name, default=usual)


Zookeeper = Annotated[
    str,
    Option("ZooKeeper, host:port (ARTIMON_ZOOKEEPER, else the running stack's).", default_of=attrgetter("zookeeper")),
]
Kafka = Annotated[
    str, Option("Kafka, host:port (ARTIMON_KAFKA, else the running stack's).", default_of=attrgetter("kafka"))
]
Hdfs = Annotated[
    str,
    Option("URI of the tables' store (ARTIMON_HDFS, else the stack's).", default_of=attrgetter("hdfs")),
]
KafkaQuota = Annotated[
    int,
    Option(
        "Quota of samples in Kafka in bytes, such as 20GiB (ARTIMON_KAFKA_QUOTA).",
        "--kafka-quota",
        read=parse_quota,
        default_of=attrgetter("kafka_quota_bytes"),
    ),
]
ListenHost = Annotated[
    str, Option("Address to listen on and to advertise; other machines cannot reach a loopback address.")
]
ListenPort = Annotated[int, Option("Port to listen on, 0 for any.", min=0, max=65_535)]
Insecure = Annotated[bool, Option("Listen beyond loopback without authentication (docs/security.md).", "--insecure")]
AccessFile = Annotated[
    Path | None, Option("File of users, roles and logins (docs/access.md); without it everybody is the administrator.")
]
Health = Annotated[Path | None, Option("File for the health of the process.")]
StackData = Annotated[
    Path, Option("Data folder of the stack (ARTIMON_DATA).", "--data", default_of=attrgetter("data"), of_stack=True)
]
