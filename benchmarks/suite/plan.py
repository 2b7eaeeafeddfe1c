"""Plan of the whole run: benchmarks in order, arguments, planned minutes, and the lines that each must print.

Line names are contracts: documents and decision notes refer to them. The whole run takes less than an hour on
two idle cores, each benchmark less than ten minutes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Form = Literal["usual", "small", "long"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One process of the run. `module` is its full name; `small` replaces the arguments in a trial run, which does not
    print the lines of `sized`; `long` replaces them in a run that may take more than an hour."""

    name: str
    module: str
    minutes: float
    arguments: tuple[str, ...] = ()
    small: tuple[str, ...] | None = None
    promised: tuple[str, ...] = ()
    sized: tuple[str, ...] = field(default=())
    """Promised lines that a small run may omit, because their names include a size."""
    long: tuple[str, ...] | None = None
    long_minutes: float = 0.0
    """Planned duration of the long form."""

    def minutes_of(self, form: Form) -> float:
        """Return the planned duration."""
        return self.long_minutes if form == "long" and self.long is not None else self.minutes

    def arguments_of(self, form: Form) -> tuple[str, ...]:
        """Return the arguments of the module."""
        other = {"small": self.small, "long": self.long}.get(form)
        return self.arguments if other is None else other

    def promised_of(self, form: Form) -> set[str]:
        """Return the lines that it must print."""
        return set(self.promised) | (set() if form == "small" else set(self.sized))


def _family(prefix: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{prefix}{name}" for name in names)


PEERS = ("victoriametrics", "prometheus")
QUESTIONS = (
    "single",
    "sum_by_rack",
    "rate_by_rack",
    "topk",
    "join_volumes",
    "join_volumes@reduced",
    "quantile",
    "3days",
)
WINDOWS = ("rate", "increase", "delta", "mean", "max", "last", "count")
PROMQL = ("single", "sum_by_rack", "rate_by_rack", "topk", "join_volumes", "quantile", "3days")
PLAN = (
    Entry(
        "increment",
        "benchmarks.increment",
        0.9,
        promised=(
            *_family("increment.", "handle", "call", "call@positional", "call@opentelemetry", "observe"),
            *_family("increment.", "handle@4threads", "call@4threads", "snapshot", "bytes", "web"),
            *_family("peer.prometheus_client.", "handle", "call", "observe", "bytes"),
            "peer.opentelemetry.call",
        ),
    ),
    Entry(
        "dropin",
        "benchmarks.dropin",
        0.7,
        promised=(
            *(f"{of}dropin.read{what}" for of in ("", "limit.") for what in ("", "@first")),
            "peer.prometheus_client.parse",
        ),
    ),
    Entry(
        "poll",
        "benchmarks.poll",
        5.0,
        small=("100", "1500"),
        sized=(
            *_family("poll.1000x1500", "", "@cpu", "@first"),
            *_family("poll.10000x150", "", "@cpu", "@first"),
            *_family("limit.poll.", "1000x1500", "10000x150"),
        ),
    ),
    Entry(
        "alerts",
        "benchmarks.alerts",
        2.4,
        promised=(*_family("alerts.10000", "", ".firing", ".load", ".questions"), "peer.prometheus.alerts.10000"),
    ),
    Entry(
        "alerts_delay",
        "benchmarks.alerts_delay",
        2.6,
        ("--minutes", "1"),
        ("--minutes", "1", "--applications", "4"),
        promised=_family("alerts.delay.", "p50", "p99", "p99@engine"),
    ),
    Entry(
        "api",
        "benchmarks.api",
        1.1,
        promised=(
            *(f"{of}api.{form}.queries" for of in ("", "limit.") for form in ("json", "json.gzip", "csv", "arrow")),
            *("peer.pandas.api.json.queries", "peer.pandas.api.csv.queries"),
            *("api.mean.by.rack.10000x60", "limit.api.mean.by.rack.10000x60"),
        ),
    ),
    Entry(
        "storage",
        "benchmarks.storage",
        4.6,
        ("--recorded", "--sources", "2"),
        ("--recorded", "--sources", "1"),
        promised=(
            *("storage.mixed", "storage.mixed@files", "storage.mixed@tables", "storage.mixed@append"),
            *("storage.walk", "storage.walk@append", "storage.walk@hour", "storage.walk@tables", "limit.storage.walk"),
            *("storage.read", "storage.read@first", "limit.storage.read", "limit.storage.read@first"),
            *(f"peer.{peer}.storage.{name}" for peer in PEERS for name in ("mixed", "walk", "read")),
        ),
    ),
    Entry(
        "varstore",
        "benchmarks.varstore",
        1.8,
        ("--only", "ingest,density"),
        ("--only", "ingest,density", "--minutes", "200"),
        promised=(
            *("varstore.ingest", "varstore.ingest@anywhere", "varstore.ingest.unknown", "limit.varstore.ingest"),
            *_family("varstore.density", "", "@series", "@anonymous", "@cells", "@disk", ".cold", ".cold@cached"),
            *_family("varstore.density.mixed", "", "@series", "@anonymous", "@cells", "@disk"),
        ),
    ),
    Entry(
        "varstore_rack",
        "benchmarks.varstore_rack",
        2.1,
        ("--seconds", "5"),
        ("--seconds", "3", "--series", "10000"),
        promised=(
            *_family("varstore.select", "", "@shard", "@client"),
            "limit.varstore.select",
            *_family("varstore.rack", "", "@again", "@wire", ".http", ".http@again"),
            *_family("varstore.windows.", *WINDOWS),
            *_family("limit.varstore.windows.", *WINDOWS),
            *_family("limit.varstore.rack", "", ".http"),
            *(f"peer.{peer}.varstore.rack.http" for peer in PEERS),
            *_family("varstore.together.", "ingest.p99", "rack.p99", "rack.rate"),
        ),
    ),
    Entry(
        "varstore_restart",
        "benchmarks.varstore_restart",
        2.8,
        ("--series", "400000"),
        ("--series", "15000"),
        long=(),
        long_minutes=8.5,
        promised=(
            *_family("varstore.", "restart", "snapshot", "snapshot.first", "snapshot.pause"),
            *_family("limit.varstore.", "restart", "snapshot", "snapshot.first"),
        ),
    ),
    Entry(
        "varstore_scaling",
        "benchmarks.varstore_scaling",
        1.2,
        ("--series", "10000,100000"),
        ("--series", "10000"),
    ),
    Entry(
        "query",
        "benchmarks.query",
        5.0,
        (),
        ("--series", "2000", "--many", "5000", "--seconds", "20"),
        promised=(
            *(f"{of}query.{name}" for of in ("", "limit.") for name in QUESTIONS),
            *(f"peer.{peer}.query.{name}" for peer in PEERS for name in QUESTIONS),
            *_family("query.users", "", "@p50", "@max"),
            *_family("query.history", "", "@cold", "@local"),
            *_family("limit.query.", "users@p50", "history", "history@local"),
        ),
        sized=tuple(
            f"{of}query.{name}@1500000"
            for of in ("", "limit.")
            for name in ("single", "sum_by_rack", "rate_by_rack", "topk", "quantile")
        ),
    ),
    Entry(
        "chart",
        "benchmarks.chart",
        0.4,
        small=("--series", "20", "--rounds", "3"),
        promised=_family("chart.", "drawn", "drawn@refresh", "shown", "shown@refresh"),
    ),
    Entry(
        "dashboards",
        "benchmarks.dashboards",
        1.5,
        small=("--series", "2000", "--seconds", "30"),
        promised=(
            *_family("dashboards.panel_p99", "", "@p50", "@max"),
            *_family("dashboards.", "open_p99", "refresh_p99", "requests", "refused", "memory", "memory@shard"),
            *_family("limit.dashboards.", "panel_p99@p50", "open_p99"),
        ),
        long=("--minutes", "30"),
        long_minutes=31.0,
    ),
    Entry(
        "history",
        "benchmarks.history",
        3.9,
        (
            "--only",
            "30d",
            "--only",
            "bytes",
            "--only",
            "import",
            "--only",
            "find",
            "--days",
            "7",
            "--series",
            "1000000",
        ),
        ("--only", "30d", "--only", "import", "--only", "find", "--days", "2", "--hosts", "3", "--series", "100000"),
        promised=(
            *("history.rollup", "limit.history.rollup", "history.import", "limit.history.import"),
            *_family("peer.victoriametrics.history.import", "", "@stored"),
        ),
        sized=(
            *("history.bytes", "history.bytes@5m", "history.bytes@mixed", "history.bytes@mixed,5m"),
            *_family("history.30d@7days", "", ",cold", ",parts"),
            *_family("limit.history.30d@7days", "", ",cold"),
            *_family("peer.victoriametrics.history.30d@7days", "", ",cold", ",cached"),
            *(
                f"{of}history.find@1000000{what}"
                for of in ("", "peer.victoriametrics.")
                for what in ("", ",pod", ",node")
            ),
            "limit.history.find@1000000",
        ),
    ),
    Entry(
        "promql",
        "benchmarks.promql",
        2.2,
        (),
        ("--series", "2000"),
        promised=(
            *(f"{of}promql.{name}" for of in ("", "limit.") for name in PROMQL),
            *(f"peer.{peer}.promql.{name}" for peer in PEERS for name in PROMQL),
            *("promql.remote_write", "promql.remote_write@wall", "limit.promql.remote_write@wall"),
            *_family("peer.victoriametrics.promql.remote_write", "", "@wall"),
        ),
    ),
    Entry(
        "fleet",
        "benchmarks.fleet",
        4.2,
        ("--agents", "50,200", "--processes", "0", "--simulated", "0", "--seconds", "60"),
        ("--agents", "20", "--processes", "0", "--simulated", "0", "--seconds", "60", "--collector-agents", "200"),
        promised=(
            *_family("fleet.zookeeper", ".steady", ".restart", ".process"),
            "fleet.append.state",
            *_family("fleet.collector.agents", "", ".p99", ".memory", ".cpu"),
            "limit.fleet.collector.agents.p99",
        ),
        sized=tuple(f"fleet.zookeeper.{name}@{n}" for name in ("steady", "restart", "process") for n in (50, 200)),
        long=("--agents", "50,200,800", "--processes", "50", "--simulated", "10000", "--seconds", "300"),
        long_minutes=14.0,
    ),
    Entry(
        "fleet_agent",
        "benchmarks.fleet_agent",
        2.0,
        ("--seconds", "40"),
        ("--seconds", "30"),
        promised=_family("fleet.agent.", "rss", "rss@anonymous", "rss@cgroup", "cpu", "install"),
    ),
    Entry(
        "stack",
        "benchmarks.stack",
        2.0,
        small=("--seconds", "10", "--rest", "5"),
        promised=(
            *_family("stack.", "up", "up@again", "resident", "cpu"),
            *_family("limit.stack.", "up", "up@again"),
        ),
    ),
    Entry(
        "transport",
        "benchmarks.transport",
        3.4,
        ("--samples", "12000000", "--log-bytes", "536870912"),
        ("--samples", "600000", "--agents", "1,4", "--rounds", "1", "--events", "20000", "--log-bytes", "16777216"),
        promised=(
            *(f"{of}transport.{n}" for of in ("", "limit.", "peer.flume.") for n in ("single", "polled@4")),
            *("transport.encoded", "transport.bytes", "transport.mixed"),
            *("limit.transport.encoded", "limit.transport.bytes"),
            *(f"{name}@{n}" for name in ("transport.encoded", "transport.cpu", "transport.cpu.kafka") for n in (1, 4)),
            *(f"peer.flume.transport.{name}@{n}" for name in ("encoded", "bytes") for n in (1, 4)),
            *_family("transport.latency.", "p50", "p99", "p50@half", "p99@half"),
            *("transport.log.accept", *_family("transport.restart.", "accept", "scan", "resend")),
        ),
        sized=("transport.encoded@16",),
    ),
    Entry(
        "transport_backlog",
        "benchmarks.transport",
        1.8,
        ("--backlog", "6"),
        ("--backlog", "2", "--sources", "40"),
        promised=_family("transport.backlog.", "hdfs", "buckets", "live.p50", "live.p99", "live.max"),
        long=("--backlog", "60"),
        long_minutes=10.0,
    ),
    Entry(
        "pipeline",
        "benchmarks.pipeline",
        3.9,
        ("--parts", "both,raw,stops", "--samples", "48000000", "--stop", "30"),
        ("--parts", "both,raw", "--samples", "600000", "--sources", "40"),
        promised=(
            "pipeline",
            "limit.pipeline",
            "pipeline.cpu",
            "pipeline.cpu@servers",
            "pipeline.memory",
            "pipeline.raw",
        ),
        sized=("pipeline@buckets_stopped", "pipeline@raw_stopped"),
    ),
    Entry(
        "lag",
        "benchmarks.lag",
        4.2,
        ("--minutes", "2"),
        ("--minutes", "2", "--sources", "40", "--hours", "0"),
        promised=(
            *_family("lag.hdfs.", "p50", "p99", "max", "files"),
            *_family("lag.buckets.", "p50", "p99", "max"),
        ),
        long=("--minutes", "30"),
        long_minutes=36.0,
    ),
)
