"""What an Artimon source is told: where to look, how often, and its limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from operator import attrgetter
from pathlib import Path
from typing import Annotated

from artimon.runtime.process_options import Option, in_milliseconds
from bookkeeper.rpc.security import Security
from sources.state.keep_rules import KeepRule, parse_keep_rules
from sources.targets.bean_target import JmxTarget, parse_target

MEBIBYTE = 1 << 20


def check_networks(texts: Sequence[str]) -> None:
    """Raises ValueError for a text that is no network."""
    for text in texts:
        try:
            ip_network(text)
        except ValueError as problem:
            raise ValueError(f"{problem}: write ADDRESS/BITS, as 10.244.3.0/24") from None


@dataclass(slots=True)
class SourceConfig:
    """Settings of `ArtimonSource`; every field with a default may be left alone. Only `period_ms` may change while it
    runs (`ArtimonSource.set_period`)."""

    agent: str
    """Name of the agent, part of the source name `agent/<host>/<agent>`."""
    zookeeper: str
    """host:port of the ensemble, comma separated."""
    data: Path
    """Folder of the agent; the source keeps its state in `<data>/source`."""
    period_ms: Annotated[int, in_milliseconds("Period of the polls, such as 60s.", "--poll")] = 60_000
    deadline_s: float = 5.0
    """For one poll: connect, ask, read the whole answer."""
    max_frame: int = 16 * MEBIBYTE
    max_series: int = 100_000
    """Per source; beyond it new series are refused and counted."""
    concurrency: int = 256
    """Polls under way at once; endpoints that failed last time share a quarter as many places of their own."""
    reconcile_s: float = 45.0
    """The whole tree in ZooKeeper is listed this often, beside the watches."""
    host_metrics: Annotated[bool, Option("Read this host's own figures too.")] = True
    rules: Annotated[Path | None, Option("Rules that give labels by address.", "--labels-rules")] = None
    """JSON or TOML: docs/sources.md."""
    goodbye_s: float = 6.0
    """A process that takes leave serves for at most 5 s: after this time it is asked whether it is gone."""
    vanished_ms: int = 3_600_000
    """How long `artimon.endpoint.up` says 0 for a process that went without goodbye."""
    dropin: Annotated[Path | None, Option("Folder of drop-in files (ARTIMON_DROPIN).", place=attrgetter("dropin"))] = (
        None
    )
    """None: none are read."""
    jmx: Annotated[
        tuple[JmxTarget, ...],
        Option(
            "A bean server, CONTEXT=http://HOST:PORT/jmx; may be repeated.",
            read=lambda texts: tuple(map(parse_target, texts)),
            many=True,
        ),
    ] = ()
    jmx_rules: Annotated[tuple[Path, ...], Option("A file of mapping rules besides the shipped ones.")] = ()
    max_bean_series: int = 5_000
    """Per bean server."""
    sources: Annotated[
        Path | None, Option("File that names Prometheus pages, bean servers, scripts and rules (docs/foreign.md).")
    ] = None
    keep: Annotated[
        tuple[KeepRule, ...],
        Option(
            "PATTERN=CLASS: variables whose name fits are kept as `--keep` of the compactor says of the class; may be "
            "repeated, the first that fits holds.",
            "--keep-class",
            read=parse_keep_rules,
            many=True,
        ),
    ] = ()
    """What no rule fits is of the class `default`."""

    session_s: float = 10.0
    """ZooKeeper notices after this time that an agent was killed or cut off."""
    takeover_s: float = 15.0
    """So long an agent that went is waited for before others poll the processes of its host."""
    own_networks: Annotated[
        tuple[str, ...],
        Option(
            "A network of this host, whose processes this agent polls: that of its containers, as 10.244.3.0/24.",
            "--own-network",
            check=check_networks,
        ),
    ] = ()
    """Besides those of its interfaces."""
    wiped_s: float = 60.0
    """Most of all znodes gone at once: that is believed after this time, in which processes register again."""

    security: Security | None = None
    """What endpoints are shown and must show (ARTIMON_SECURE_POLLS); None: nothing."""

    @property
    def folder(self) -> Path:
        return self.data / "source"
