"""What the commands share: options, messages, where the servers are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from artimon.runtime.settings import Settings

T = TypeVar("T")


class Panel(StrEnum):
    """Headings of `--help`, in their order."""

    MACHINE = "On this machine"
    ASK = "Ask"
    OPERATE = "Look after"
    PROCESS = "Run one process"


DataOption = Annotated[Path | None, typer.Option("--data", help="Data folder of the stack (ARTIMON_DATA).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ZookeeperOption = Annotated[str | None, typer.Option(help="host:port (ARTIMON_ZOOKEEPER, else the running stack's).")]
KafkaOption = Annotated[str | None, typer.Option(help="host:port (ARTIMON_KAFKA, else the running stack's).")]
HdfsOption = Annotated[str | None, typer.Option(help="URI (ARTIMON_HDFS, else the running stack's).")]


def checking(*acts: Callable[[Any], object] | None) -> Callable[[Any], Any]:
    """Callback of an option that refuses what one of `acts` refuses by a ValueError."""

    def check(value: Any) -> Any:
        for act in acts if value is not None else ():
            if act is not None:
                refusing(act, value)
        return value

    return check


def refusing(act: Callable[[Any], T], value: Any) -> T:
    """Result of `act`; misuse of the command line if it raises ValueError."""
    try:
        return act(value)
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None


def _keep_days(text: str) -> object:
    from pipeline.compaction.config import parse_keep

    return parse_keep(text)


def _keep_rules(texts: list[str]) -> object:
    from sources.state.keep_rules import parse_keep_rules

    return parse_keep_rules(texts)


DaysOption = Annotated[
    str,
    typer.Option(
        "--keep",
        help="CLASS=DAYS, by comma: how long each class of samples is kept; * names all others.",
        callback=checking(_keep_days),
    ),
]
KeepClassOption = Annotated[
    list[str] | None,
    typer.Option(
        "--keep-class",
        help="PATTERN=CLASS: variables whose name fits are kept as `--keep` of the compactor says of the class; may be "
        "repeated, the first that fits holds.",
        callback=checking(_keep_rules),
    ),
]


def say(text: str) -> None:
    """A message to the person at the terminal."""
    print(text, file=sys.stderr, flush=True)


def plain(text: object) -> str:
    """Return a text from another process without characters that steer a terminal."""
    return "".join(one if one.isprintable() else " " for one in str(text))


def located(data: Path | None = None) -> Settings:
    """Settings in which the default places are replaced by those of the running stack on the data folder."""
    from artimon.stack import locate

    return locate.located(data)


def asked_store(zookeeper: str | None, data: Path | None) -> str:
    """Where questions go: the ZooKeeper named, else that of the stack on `data`; a folder named must have a stack."""
    from artimon.stack import locate

    return locate.asked_store(zookeeper, data)
