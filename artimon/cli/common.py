"""Options, messages and server addresses that the commands share."""

from __future__ import annotations

import getpass
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from artimon.runtime.settings import Settings

T = TypeVar("T")


class Panel(StrEnum):
    """Headings of `--help`, in order."""

    MACHINE = "On this machine"
    QUERY = "Query"
    OPERATE = "Operate"
    PROCESS = "Run one process"


DataOption = Annotated[Path | None, typer.Option("--data", help="Data folder of the stack (ARTIMON_DATA).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ZookeeperOption = Annotated[
    str | None, typer.Option(help="ZooKeeper, host:port (ARTIMON_ZOOKEEPER, else the running stack's).")
]
KafkaOption = Annotated[str | None, typer.Option(help="Kafka, host:port (ARTIMON_KAFKA, else the running stack's).")]
HdfsOption = Annotated[str | None, typer.Option(help="URI of HDFS (ARTIMON_HDFS, else the running stack's).")]


def option_validator(*acts: Callable[[Any], object] | None) -> Callable[[Any], Any]:
    """Return an option callback that rejects a value if one of `acts` raises ValueError for it."""

    def check(value: Any) -> Any:
        for act in acts if value is not None else ():
            if act is not None:
                as_usage_error(act, value)
        return value

    return check


def as_usage_error(act: Callable[[Any], T], value: Any) -> T:
    """Return the result of `act`; its ValueError becomes a usage error (exit code 2)."""
    try:
        return act(value)
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None


def print_error(text: str) -> None:
    """Print a message on standard error."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def exits(*errors: type[Exception], code: int = 1, where: str = "") -> Iterator[None]:
    """Turn errors of these classes into a message and the exit code."""
    try:
        yield
    except errors as problem:
        print_error(f"artimon: {where}{problem}")
        raise typer.Exit(code) from None


@contextmanager
def exits_logged(*errors: type[Exception], code: int = 1) -> Iterator[None]:
    """Log an error of these classes and exit with `code`."""
    try:
        yield
    except errors as problem:
        logging.getLogger("artimon").error("%s", problem)
        raise SystemExit(code) from None


def escape_control(text: object) -> str:
    """Return a text from another process without terminal control characters."""
    return "".join(one if one.isprintable() else " " for one in str(text))


def user_name() -> str:
    """Return the name of the user, for logs of actions."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "?"


def locate_settings(data: Path | None = None) -> Settings:
    """See artimon.stack.stack_location.locate_settings."""
    from artimon.stack import stack_location as locate

    return locate.locate_settings(data)


def zookeeper_of_store(zookeeper: str | None, data: Path | None) -> str:
    """See artimon.stack.stack_location.zookeeper_of_store."""
    from artimon.stack import stack_location as locate

    return locate.zookeeper_of_store(zookeeper, data)
