"""Aims of the lines: a limit of a figure, of its ratio to the peer or, as `limit.NAME`, to the limit of the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.suite.plan import WINDOWS
from benchmarks.suite.results import Record


@dataclass(frozen=True, slots=True)
class Aim:
    """Aim of a line. `least`: value or ratio must be at least `limit`; else at most. `long`: the aim holds only for the
    sizes of the long form."""

    limit: float
    least: bool = True
    ratio: bool = False
    long: bool = False

    def text(self, record: Record, form: str) -> str:
        """Return the aim and the verdict; a run with smaller sizes than the aim's gets no verdict."""
        sign = ">=" if self.least else "<="
        wanted = f"{sign} {self.limit:,g}{' x' if self.ratio else ''}"
        found = record.get("ratio" if self.ratio else "value")
        if form == "small" or (self.long and form != "long"):
            return f"{wanted} at {'the sizes of `--long`' if self.long else 'full size'}"
        if not isinstance(found, int | float):
            return f"{wanted}: not measured"
        met = found >= self.limit if self.least else found <= self.limit
        return f"{wanted}: {'met' if met else 'missed'}"


def _most(limit: float, long: bool = False) -> Aim:
    return Aim(limit, least=False, long=long)


def _times(limit: float) -> Aim:
    return Aim(limit, ratio=True)


AIMS: Mapping[str, Aim] = {
    "increment.handle": _times(4),
    "increment.call": _times(4),
    "increment.snapshot": _most(1),
    "increment.web": _most(1),
    "poll.1000x1500": _most(3),
    "alerts.10000": _most(1),
    "alerts.delay.p99": _most(8),
    "alerts.delay.p99@engine": _most(3),
    "storage.mixed": _times(1.11),
    "storage.walk": _times(1.11),
    "storage.read@first": _times(1),
    "varstore.ingest": Aim(5_000_000),
    "limit.varstore.ingest": _times(0.5),
    "varstore.ingest.unknown": Aim(2_000_000),
    "varstore.density": Aim(110_000),
    "varstore.density.mixed": Aim(600_000),
    "varstore.density.cold": _most(100),
    "varstore.rack": _most(20),
    "limit.varstore.rack": _times(0.3),
    **{f"limit.varstore.windows.{name}": _times(0.3) for name in WINDOWS},
    "varstore.rack.http": _times(20),
    "varstore.restart": _most(30, long=True),
    "varstore.snapshot.first.pause": _most(200),
    "varstore.snapshot.pause": _most(200),
    "query.single": _times(0.6),
    "query.sum_by_rack": _times(10),
    "query.rate_by_rack": _times(10),
    "query.topk": _times(1),
    "query.join_volumes": _times(4),
    "query.quantile": _times(10),
    "query.3days": _times(10),
    "query.users": _most(200),
    "query.history": _most(5),
    "chart.drawn": _most(100),
    "dashboards.panel_p99": _most(300),
    "dashboards.memory": _most(1.05, long=True),
    "dashboards.refused": _most(0),
    "history.30d@7days": _times(3),
    "history.bytes": _most(1.3),
    "history.import": _times(1),
    "history.find@1000000": _most(0.2),
    "fleet.zookeeper.steady": _most(6),
    "fleet.zookeeper.restart": _most(20),
    "fleet.zookeeper.process": _most(20),
    "fleet.append.state": _most(150_000),
    "fleet.collector.agents": Aim(5_000),
    "fleet.agent.rss@cgroup": _most(64),
    "fleet.agent.cpu": _most(1),
    "fleet.agent.install": _most(120),
    "stack.up": _most(10),
    "stack.resident": _most(2048),
    "stack.cpu": _most(3),
    "promql.single": _times(0.5),
    "promql.sum_by_rack": _times(10),
    "promql.rate_by_rack": _times(10),
    "promql.topk": _times(10),
    "promql.join_volumes": _times(1),
    "promql.quantile": _times(10),
    "promql.3days": _times(1),
    "promql.remote_write": _times(1),
    "transport.encoded": _times(20),
    "transport.bytes": _times(1.2),
    "transport.restart.accept": _most(2, long=True),
    "transport.restart.scan": _most(5, long=True),
    "transport.restart.resend": _most(40, long=True),
    "transport.backlog.hdfs": _most(180, long=True),
    "transport.backlog.buckets": _most(180, long=True),
    "transport.backlog.live.p99": _most(15),
    "pipeline": Aim(750_000),
    "limit.pipeline": _times(0.5),
    "lag.hdfs.p99": _most(45),
    "lag.hdfs.files": _most(120, long=True),
    "lag.buckets.p99": _most(3),
}
