"""What the commands share: options, messages, where the servers are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from artimon.settings import Settings

DataOption = Annotated[Path | None, typer.Option("--data", help="Data folder of the stack (ARTIMON_DATA).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ZookeeperOption = Annotated[str | None, typer.Option(help="host:port (ARTIMON_ZOOKEEPER, else the running stack's).")]
KafkaOption = Annotated[str | None, typer.Option(help="host:port (ARTIMON_KAFKA, else the running stack's).")]
HdfsOption = Annotated[str | None, typer.Option(help="URI (ARTIMON_HDFS, else the running stack's).")]


def keep_days(text: str) -> str:
    """Refuses at the command line what does not say how long classes of retention are kept."""
    from pipeline.compaction.config import KeepError, parse_keep

    try:
        parse_keep(text)
    except KeepError as problem:
        raise typer.BadParameter(str(problem)) from None
    return text


def keep_rules(texts: list[str] | None) -> list[str]:
    """Refuses at the command line what is no rule of retention."""
    from sources.state.keep_rules import KeepRuleError, parse_keep_rules

    try:
        parse_keep_rules(texts or ())
    except KeepRuleError as problem:
        raise typer.BadParameter(str(problem)) from None
    return texts or []


DaysOption = Annotated[
    str,
    typer.Option(
        "--keep",
        help="CLASS=DAYS, by comma: how long each class of samples is kept; * names all others.",
        callback=keep_days,
    ),
]
KeepClassOption = Annotated[
    list[str] | None,
    typer.Option(
        "--keep-class",
        help="PATTERN=CLASS: variables whose name fits are kept as `--keep` of the compactor says of the class; may be "
        "repeated, the first that fits holds.",
        callback=keep_rules,
    ),
]
HostOption = Annotated[
    str, typer.Option(help="Address to listen on and to be known by; others reach it only where it is not loopback.")
]
InsecureOption = Annotated[
    bool,
    typer.Option("--insecure", help="Listen beyond loopback without authentication (docs/security.md)."),
]


def _quota(text: str | None) -> str | None:
    """Refuses at the command line what is no quota."""
    from artimon.settings import SettingsError, parse_quota

    try:
        parse_quota(text or "0")
    except SettingsError as problem:
        raise typer.BadParameter(str(problem)) from None
    return text


QuotaOption = Annotated[
    str | None,
    typer.Option(help="Bytes that samples may take in Kafka, such as 20GiB (ARTIMON_KAFKA_QUOTA).", callback=_quota),
]
HealthOption = Annotated[Path | None, typer.Option(help="File in which the process says how it is.")]


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


def duration(text: str) -> str:
    """Refuses at the command line what is no period of at least a second."""
    from artimon.running import duration_ms

    try:
        good = duration_ms(text) >= 1000
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None
    if not good:
        raise typer.BadParameter(f"{text} is too short: use at least 1s")
    return text


def process_name(text: str) -> str:
    """Refuses at the command line what cannot name a process: it becomes the name of a znode, and of files."""
    if not text or len(text) > 200 or text in {".", ".."} or not text.isprintable() or set(text) & set("/, "):
        raise typer.BadParameter(f"{text!r} cannot be a name: use 1 to 200 letters, digits, dots, - and _")
    return text


def process_names(text: str) -> str:
    """As `process_name`, of several by comma."""
    for one in text.split(","):
        process_name(one)
    return text
