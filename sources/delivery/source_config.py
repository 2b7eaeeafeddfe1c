"""Settings of an Artimon source: addresses, period and limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_network
from operator import attrgetter
from pathlib import Path
from typing import Annotated

from artimon.runtime.process_options import Option, in_milliseconds
from bookkeeper.rpc.security import Security
from sources.state.retention_rules import RetentionRule, parse_retention_rules
from sources.targets.bean_target import JmxTarget, parse_target

MEBIBYTE = 1 << 20


def check_networks(texts: Sequence[str]) -> None:
    """Raise ValueError for a text that is not a network."""
    for text in texts:
        try:
            ip_network(text)
        except ValueError as problem:
            raise ValueError(f"{problem}: write ADDRESS/BITS, as 10.244.3.0/24") from None


@dataclass(slots=True)
class SourceConfig:
    """Settings of `ArtimonSource`. Only `period_ms` may change while it runs (`ArtimonSource.set_period`)."""

    agent: str
    """Name of the agent, part of the source name `agent/<host>/<agent>`."""
    zookeeper: str
    """host:port of the ensemble, comma separated."""
    data: Path
    """Folder of the agent; the source keeps its state in `<data>/source`."""
    period_ms: Annotated[int, in_milliseconds("Period of the polls, such as 60s.", "--poll")] = 60_000
    deadline_s: float = 5.0
    """Timeout of one poll in seconds: connect, send the request, read the whole answer."""
    max_frame: int = 16 * MEBIBYTE
    max_series: int = 100_000
    """Series of one source; beyond this limit new series are refused and counted."""
    concurrency: int = 256
    """Concurrent polls. Endpoints whose last poll failed share a separate quarter of this number."""
    reconcile_s: float = 60.0
    """Seconds between checks of what the watches of ZooKeeper tell."""
    host_metrics: Annotated[bool, Option("Read this host's own figures too.")] = True
    rules: Annotated[Path | None, Option("Rules that give labels by address.", "--labels-rules")] = None
    """JSON or TOML: docs/sources.md."""
    goodbye_s: float = 6.0
    """Seconds from the deregistration of a process until it is checked; it serves for at most 5 s more."""
    vanished_ms: int = 3_600_000
    """Duration of `artimon.endpoint.up` = 0 for a process that ended without notice, in ms."""
    dropin: Annotated[
        Path | None, Option("Folder of drop-in files (ARTIMON_DROPIN).", default_of=attrgetter("dropin"))
    ] = None
    """None: drop-in files are not read."""
    jmx: Annotated[
        tuple[JmxTarget, ...],
        Option(
            "A bean server, CONTEXT=http://HOST:PORT/jmx; may be repeated.",
            read=lambda texts: tuple(map(parse_target, texts)),
            multiple=True,
        ),
    ] = ()
    jmx_rules: Annotated[tuple[Path, ...], Option("A file of mapping rules besides the shipped ones.")] = ()
    max_bean_series: int = 5_000
    """Series of one bean server."""
    sources: Annotated[
        Path | None, Option("File that names Prometheus pages, bean servers, scripts and rules (docs/foreign.md).")
    ] = None
    receive: Annotated[
        tuple[str, ...],
        Option(
            "Address at which this agent takes samples: HOST:PORT (remote write, OTLP, Influx over HTTP), "
            "otlp+grpc://HOST:PORT, statsd+udp://HOST:PORT, graphite+tcp://HOST:PORT and others "
            "(docs/howto/receive.md); may be repeated.",
            read=tuple,
            multiple=True,
        ),
    ] = ()
    receive_token: Annotated[
        Path | None,
        Option("File with the token of the senders; needed where other machines reach HOST."),
    ] = None
    keep: Annotated[
        tuple[RetentionRule, ...],
        Option(
            "PATTERN=CLASS: variables whose name fits are kept as `--keep` of the compactor says of the class; may be "
            "repeated, the first that fits holds.",
            "--keep-class",
            read=parse_retention_rules,
            multiple=True,
        ),
    ] = ()
    """A variable that no rule matches has the class `default`."""

    session_s: float = 10.0
    """Timeout of the ZooKeeper session in seconds: a killed or disconnected agent is noticed after it."""
    takeover_s: float = 15.0
    """Grace period in seconds before elected agents poll the processes of a host whose agent is gone."""
    host: Annotated[str, Option("Host key of this host (ARTIMON_HOST).", default_of=attrgetter("host"))] = ""
    """Key below which the processes of this host register; "": its address towards ZooKeeper."""
    own_networks: Annotated[
        tuple[str, ...],
        Option(
            "A network of this host, whose processes this agent polls: that of its containers, as 10.244.3.0/24.",
            "--own-network",
            check=check_networks,
        ),
    ] = ()
    """In addition to the networks of its interfaces."""
    wiped_s: float = 60.0
    """Seconds until the loss of most znodes at once is believed; processes register again in this time."""

    security: Security | None = None
    """TLS and tokens of polls (ARTIMON_SECURE_POLLS); None: neither."""

    @property
    def folder(self) -> Path:
        return self.data / "source"
