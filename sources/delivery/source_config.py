"""Settings of the source of an agent: places, periods and limits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bookkeeper.rpc.security import Security
from sources.state.keep_rules import KeepRule
from sources.targets.bean_target import JmxTarget

MEBIBYTE = 1 << 20


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
    period_ms: int = 60_000
    deadline_s: float = 5.0
    """For one poll: connect, ask, read the whole answer."""
    max_frame: int = 16 * MEBIBYTE
    max_series: int = 100_000
    """Per source; beyond it new series are refused and counted."""
    concurrency: int = 256
    """Polls under way at once; endpoints that failed last time share a quarter as many places of their own."""
    reconcile_s: float = 45.0
    """The whole tree in ZooKeeper is listed this often, beside the watches."""
    host_metrics: bool = True
    rules: Path | None = None
    """Placement rules, JSON or TOML: docs/sources.md."""
    goodbye_s: float = 6.0
    """A process that takes leave serves for at most 5 s: after this time it is asked whether it is gone."""
    vanished_ms: int = 3_600_000
    """How long `artimon.endpoint.up` says 0 for a process that went without goodbye."""
    dropin: Path | None = None
    """Folder of drop-in files; None: none are read."""
    jmx: tuple[JmxTarget, ...] = ()
    """Bean servers that are polled."""
    jmx_rules: tuple[Path, ...] = ()
    """Files of mapping rules besides the shipped ones."""
    max_bean_series: int = 5_000
    """Per bean server."""
    sources: Path | None = None
    """File that names Prometheus pages, bean servers and scripts, and rules for all series: docs/foreign.md."""
    keep: tuple[KeepRule, ...] = ()
    """Classes of retention by name; what no rule fits is of the class `default`."""

    session_s: float = 10.0
    """ZooKeeper notices after this time that an agent was killed or cut off."""
    takeover_s: float = 15.0
    """So long an agent that went is waited for before others poll the processes of its host."""
    own_networks: tuple[str, ...] = ()
    """Networks (or addresses) of this host besides those of its interfaces: those of its containers."""
    wiped_s: float = 60.0
    """Most of all znodes gone at once: that is believed after this time, in which processes register again."""

    security: Security | None = None
    """What endpoints are shown and must show (ARTIMON_SECURE_POLLS); None: nothing."""

    @property
    def folder(self) -> Path:
        return self.data / "source"
