"""Agent to collector to Kafka, beside Flume NG; real processes, all on this machine.

Like for like: `transport.single`, `transport.polled@N`: 1 and N agents beside Flume with as many connections, equal
batches, from polled values, encoding included; `transport.encoded.bytes@N`: equal batches, prepared. Our time runs
from the first append to the log until the last batch is acked at level `kafka`; the log is fsynced, and the counts in
Kafka are verified. Flume's time runs from the first value or frame until the last byte is in its files.

`transport.encoded@N`: samples a second of prepared batches of 1,500 different samples; `transport.encoded`: the best of
them, beside Flume's best with one sample an event; `transport.bytes`: the same in MB/s, beside Flume's best with our
batches as events. `transport.cpu`, `transport.memory.*`: usage of the same runs. `transport.latency.*`: accepted to
acked, at 1.5 million samples a minute and at half the rate of `transport.encoded`. `transport.mixed`: prepared batches
with a fifth doubles and integers of larger steps, 17 bytes a sample. `transport.log.*`, `transport.restart.*`: a log
of 1 GiB, see benchmarks.transport_log; `transport.restart.resend`: until Kafka has all of it. `peer.flume.*`: the best
round. A part that fails becomes a failed line; the others continue.
`--backlog` alone: an hour of backlog on a whole stack, see benchmarks.carrying.backlog; about eight minutes.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from artimon.stack.stack import Stack
from benchmarks import transport_log
from benchmarks.carrying import backlog, bodies, flume_runs
from benchmarks.carrying.driver import Orders
from benchmarks.carrying.servers import Collectors, Run, carry, ends, fresh, verify
from benchmarks.common import Parts, emit
from benchmarks.lag import LagError
from benchmarks.limits import carried_mb_s, emit_limit, polled_rate
from benchmarks.loads.samples import SERIES_A_SOURCE, Source
from benchmarks.loads.world import WrongCounts
from benchmarks.peers.series import PeerFailed
from pipeline.wal.recovery import records_of, segments_in
from pipeline.wal.segment_format import RecordType

NOMINAL = 1_500_000 / 60
"""Samples a second."""
PARTS = ("encoded", "mixed", "single", "latency", "log", "flume")
LATENCY_S = 20.0
LIMIT_GROUP = 32
"""Batches between two fsyncs of the limit, as the agents append them."""
GIB = 1024**3


@dataclass(slots=True)
class Bench:
    """State shared by the runs."""

    stack: Stack | None
    folder: Path
    prepared: bodies.Bodies
    path: Path
    collectors: int
    flume: flume_runs.Best = field(default_factory=flume_runs.Best)
    best: float = 0.0
    best_mb_s: float = 0.0

    def run(self, agents: int, part: float = 1.0, mode: str = "encoded", pace: float = 0.0) -> Run:
        """Run `agents` that share the prepared batches, or a `part` of them; `pace`: total batches a second."""
        if self.stack is None:
            raise WrongCounts("no servers")
        folder = fresh(self.folder, f"agents-{agents}")
        share = max(1, round(agents / part))
        orders = [
            Orders(
                name=f"{folder.name}-{number}",
                data=str(folder / str(number)),
                zookeeper=self.stack.zookeeper,
                bodies=str(self.path),
                share=number,
                of=share,
                mode=mode,
                pace=pace / agents,
            )
            for number in range(agents)
        ]
        try:
            return carry(self.stack, self.folder, orders, self.collectors)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def note(text: str) -> None:
    """Print a note to standard error."""
    print(f"# {text}", file=sys.stderr, flush=True)


def _told(run: Run) -> None:
    gigabytes = run.bytes / 1e9
    note(
        f"{run.samples:,} samples, {run.bytes / 1e6:.0f} MB in {run.seconds:.2f} s; core-seconds a GB: agents"
        f" {run.agents_cpu_s / gigabytes:.1f}, collectors {run.collectors_cpu_s / gigabytes:.1f}, Kafka"
        f" {run.kafka_cpu_s / gigabytes:.1f}; in the log after {max(r.accepted_s for r in run.reports):.2f} s;"
        f" p50 {run.latency_ms(0.5):.0f} ms, p99 {run.latency_ms(0.99):.0f} ms"
        if run.reports[0].latencies_ms
        else ""
    )


def encoded(bench: Bench, agents: int, rounds: int) -> None:
    """Measure `transport.encoded@N` with its processor time and memory, the best of `rounds`."""
    runs = [bench.run(agents) for _ in range(rounds)]
    for run in runs:
        _told(run)
    run = max(runs, key=lambda one: one.rate)
    if run.rate > bench.best:
        bench.best, bench.best_mb_s = run.rate, run.bytes / 1e6 / run.seconds
    emit(f"transport.encoded@{agents}", run.rate, "samples/s")
    mb_s, theirs = run.bytes / 1e6 / run.seconds, bench.flume.mb_s.get(agents)
    peer = f"Flume NG, the same batches as events, {agents} connections" if theirs else None
    emit(f"transport.encoded.bytes@{agents}", mb_s, "MB/s", peer, mb_s / theirs[0] if theirs else None)
    cpu = run.agents_cpu_s + run.collectors_cpu_s
    emit(f"transport.cpu@{agents}", cpu / (run.bytes / 1e9), "core-seconds/GB, agents and collectors")
    emit(f"transport.cpu.kafka@{agents}", run.kafka_cpu_s / (run.bytes / 1e9), "core-seconds/GB")
    emit(f"transport.memory.agent@{agents}", run.agent_mb, "MiB of its own, the largest agent at the end")
    emit(f"transport.memory.collector@{agents}", run.collector_mb, "MiB resident, the largest collector, peak")


def polled(bench: Bench, agents: int, rounds: int) -> None:
    """Measure `transport.single`, `transport.polled@N`."""
    rate = max(bench.run(agents, 1 / flume_runs.POLLED_PART, "polled").rate for _ in range(rounds))
    theirs = bench.flume.polled.get(agents)
    peer = f"Flume NG, the same from polled values, {agents} connections" if theirs else None
    unit = f"samples/s from polled values, encoded, logged and acked, {agents} agents"
    emit(flume_runs.polled_line(agents), rate, unit, peer, rate / theirs[0] if theirs else None)
    batches = len(bench.prepared) // flume_runs.POLLED_PART
    least = polled_rate(bench.folder, bench.prepared[0], batches, LIMIT_GROUP, agents)
    what = f"samples/s (columns compressed, every {LIMIT_GROUP} batches fsynced, sent over loopback, written)"
    emit_limit(flume_runs.polled_line(agents), rate, least, what)


def mixed(bench: Bench, options: argparse.Namespace) -> None:
    """Measure `transport.mixed`."""
    path = bench.folder / "mixed.bin"
    other = replace(bench, prepared=bodies.make(path, options.samples // 2 // SERIES_A_SOURCE, Source), path=path)
    run = other.run(options.agents[0])
    _told(run)
    emit("transport.mixed", run.rate, f"samples/s, {run.bytes / run.samples:.1f} bytes a sample")
    path.unlink()


def restarted(bench: Bench, size: int) -> None:
    """Measure `transport.log.*`, `transport.restart.*`."""
    if bench.stack is None:
        raise WrongCounts("no servers")
    folder = fresh(bench.folder, "log")
    try:
        data = transport_log.report(folder, size)
        held = _batches_in(data / "log")
        before = ends(bench.stack.kafka)
        with Collectors(bench.stack, bench.folder, bench.collectors):
            seconds, _ = transport_log.resend(data, bench.stack.zookeeper)
        verify(bench.stack.kafka, before, held + 1)  # plus the one accepted after the restart
        emit(
            "transport.restart.resend",
            seconds,
            f"s from the start of the process, {size / GIB:g} GiB, {held:,} batches in Kafka",
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _batches_in(log: Path) -> int:
    records = (record for segment in segments_in(log) for record, _ in records_of(log, segment))
    return sum(record.type == RecordType.BATCH for record in records)


def compared(ours: Bench) -> None:
    """Print `transport.encoded` and `transport.bytes`, beside Flume if it was measured."""
    best = ours.flume
    peer = "Flume NG 1.11, {}, into its files" if best.events else None
    for name, value, other, unit, what in (
        ("transport.encoded", ours.best, flume_runs.of_all(best.events), "samples/s", "one sample an event"),
        ("transport.bytes", ours.best_mb_s, flume_runs.of_all(best.mb_s), "MB/s", "the same batches as events"),
    ):
        if value:
            emit(name, value, unit, peer and peer.format(what), value / other if other else None)
    if ours.best_mb_s:
        batch = bytes(ours.prepared[0])
        mb_s = carried_mb_s(ours.folder, batch, len(ours.prepared), LIMIT_GROUP)
        what = f"every {LIMIT_GROUP} batches fsynced, sent over loopback, written"
        emit_limit("transport.bytes", ours.best_mb_s, mb_s, f"MB/s ({what})")
        sample_bytes = ours.prepared.bytes / len(ours.prepared) / SERIES_A_SOURCE
        emit_limit("transport.encoded", ours.best, mb_s * 1e6 / sample_bytes, f"samples/s ({what})")


def latency(bench: Bench) -> None:
    """Measure `transport.latency.*`."""
    for name, rate in (("", NOMINAL), ("@half", bench.best / 2)):
        if not rate:
            continue
        wanted = rate * LATENCY_S / SERIES_A_SOURCE
        run = bench.run(4, min(1.0, wanted / len(bench.prepared)), pace=rate / SERIES_A_SOURCE)
        _told(run)
        for part, label in ((0.5, "p50"), (0.99, "p99")):
            emit(f"transport.latency.{label}{name}", run.latency_ms(part), f"ms at {rate:,.0f} samples/s")


def measure(bench: Bench, options: argparse.Namespace, parts: Parts) -> None:
    """Run all parts of ours that the options name."""
    if "single" in options.parts:
        for agents in flume_runs.POLLED_AGENTS:
            parts.run(flume_runs.polled_line(agents), partial(polled, bench, agents, options.rounds))
    if "encoded" in options.parts:
        for agents in options.agents:
            parts.run(f"transport.encoded@{agents}", partial(encoded, bench, agents, options.rounds))
        parts.run("transport.encoded", partial(compared, bench))
    if "mixed" in options.parts:
        parts.run("transport.mixed", lambda: mixed(bench, options))
    if "latency" in options.parts:
        parts.run("transport.latency.p50", lambda: latency(bench))
    if "log" in options.parts:
        parts.run("transport.log.accept", lambda: restarted(bench, options.log_bytes))


def parse(args: list[str]) -> argparse.Namespace:
    """Parse the command line; the module describes it."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="benchmarks.transport", description=__doc__, formatter_class=form)
    parser.add_argument("--samples", type=int, default=24_000_000)
    parser.add_argument("--agents", default="1,4,16")
    parser.add_argument("--collectors", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--parts", default=",".join(PARTS), help=f"which of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--events", type=int, default=300_000, help="samples, one an event, for Flume")
    parser.add_argument("--log-bytes", type=int, default=GIB, help="size of the log for the restart")
    parser.add_argument("--base-port", type=int, default=25_600)
    parser.add_argument("--keep", action="store_true", help="keep the folder of data and logs")
    parser.add_argument("--backlog", type=int, default=0, metavar="MINUTES", help="only this: minutes of backlog")
    parser.add_argument("--sources", type=int, default=1_000, help="sources of the backlog, 1,500 series each")
    parser.add_argument("--folder", type=Path, default=None, help="working folder (default: a temporary one)")
    options = parser.parse_args(args)
    options.parts, options.agents = set(options.parts.split(",")), [int(n) for n in options.agents.split(",")]
    if unknown := options.parts - set(PARTS):
        parser.error(f"--parts: {', '.join(sorted(unknown))} is none of {', '.join(PARTS)}")
    return options


def run(args: list[str]) -> None:
    """Run all parts that the options name."""
    options = parse(args)
    folder = Path(tempfile.mkdtemp(prefix="artimon-transport-", dir=options.folder))
    try:
        if options.backlog:
            backlog.run(folder, options.sources, options.backlog, options.base_port)
        else:
            _run_parts(folder, options)
    finally:
        if options.keep:
            note(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _run_parts(folder: Path, options: argparse.Namespace) -> None:
    path, parts = folder / "bodies.bin", Parts()
    prepared = bodies.make(path, options.samples // SERIES_A_SOURCE)
    note(f"{len(prepared):,} batches, {prepared.bytes / len(prepared) / SERIES_A_SOURCE:.2f} bytes a sample")
    bench = Bench(None, folder, prepared, path, options.collectors)

    def peer() -> None:
        bench.flume = flume_runs.measure(folder, path, prepared, options.events, options.rounds, options.agents)

    if "flume" in options.parts:
        parts.run("peer.flume.transport", peer)
    if options.parts - {"flume"}:
        with Stack(folder / "stack", ["zookeeper", "kafka"], base_port=options.base_port) as stack:
            bench.stack = stack
            measure(bench, options, parts)
    parts.finish()


if __name__ == "__main__":
    try:
        run(sys.argv[1:])
    except (WrongCounts, PeerFailed, LagError) as error:
        sys.exit(f"benchmarks.transport: {error}")
