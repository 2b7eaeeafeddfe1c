"""Duration of an evaluation of 10,000 rules, over a shard in a separate process with 10,000 series.

    alerts.10000          nothing changes: rules of four kinds, most with a selector of their own
    alerts.10000.firing   4,000 alerts begin to fire, and each puts a mail into the outbox
    alerts.10000.load     the rule file is read and checked for the first time
    peer.prometheus.alerts.10000  one evaluation of the same rules by Prometheus, as one group over the same series

An evaluation covers the rule files, queries over TCP, decisions, the fsynced commit and the JSON of the display.
"""

import json
import multiprocessing
import statistics
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any

from alerts.evaluation.alert_engine import AlertEngine, EngineConfig
from alerts.state.alert_database import open_database
from artimon.model.batch import BatchId, Samples, SeriesBlock, SeriesInfo
from artimon.model.clock import ManualClock
from artimon.model.feed_codec import FeedEntry, FeedRange, concat_samples
from artimon.model.fingerprint import fingerprint
from artimon.model.values import Kind, ValueType
from artimon.model.vshards import ALL_VSHARDS
from artimon.runtime.process_setup import gc_tuned
from artimon.runtime.settings import load as load_settings
from artimon.stack.port_leases import PortLeases
from benchmarks.common import emit, fail, say
from benchmarks.peers.prometheus_rules import INTERVAL_S, evaluation_seconds
from benchmarks.peers.series import PeerFailed
from bookkeeper.rpc.framed_server import FramedServer
from scripts.programs import ProgramsMissing, ensure
from varstore.cluster.cluster_directory import ClusterState, ShardAddress
from varstore.cluster.membership import Membership
from varstore.cluster.varstore_client import VarstoreClient
from varstore.shard.shard import Shard
from varstore.shard.shard_service import ShardService, idl

HOSTS = 5_000
START = 1_800_000_000_000
MINUTE = 60_000
PEER_PORT = 9090
WARM = 10
ROUNDS = 5


def texts() -> list[str]:
    """Canonical texts: two variables of every host."""
    return [f'bench.{name}{{host="h{i}",rack="r{i % 100}"}}' for name in ("requests", "up") for i in range(HOSTS)]


def rows(minute: int, down: bool) -> list[tuple[int, int, int, int]]:
    """One sample a series: requests grow, the first 4,000 hosts are down if `down`."""
    time_ms = START + minute * MINUTE - 5_000
    values = [minute * 600 + i for i in range(HOSTS)] + [int(not (down and i < 4_000)) for i in range(HOSTS)]
    return [(fingerprint(text), time_ms, START - MINUTE, v) for text, v in zip(texts(), values, strict=True)]


def feed(shard: Shard, minute: int, down: bool) -> None:
    """Feed one minute, as the buckets query does."""
    samples = Samples.of(rows(minute, down))
    batch = BatchId("bench", 1, 0, minute)
    append_ms = START + minute * MINUTE - 4_000
    entry = FeedEntry(minute, append_ms, batch, "bench", append_ms, len(samples), True, 0)
    shard.feed(FeedRange("bench", 0, minute, minute + 1, (entry,), concat_samples([samples])))


def serve(port: Connection) -> None:
    """Run the shard's process; each message (minute, down) feeds a minute, and None ends it."""
    shard = Shard("0", capacity=4 * HOSTS)
    infos = [SeriesInfo(text, ValueType.INTEGER, Kind.UNKNOWN) for text in texts()]
    for block in range(0, len(infos), 1_000):
        shard.announce(SeriesBlock("bench", block // 1_000, 1, tuple(infos[block : block + 1_000])))
    server = FramedServer(idl().Shard, ShardService(shard), "127.0.0.1", 0)
    port.send(server.start())
    while (order := port.recv()) is not None:
        feed(shard, *order)
        port.send(True)
    server.stop()


def rule_file() -> str:
    """10,000 rules as JSON, which is YAML: 4,000 by host, 3,000 rates by host, 2,000 by rack, 1,000 on one query."""
    rules = [rule(f"down-{i}", f"fetch('bench.up{{host=\"h{i}\"}}')", "< 1") for i in range(4_000)]
    rules += [rule(f"busy-{i}", f"fetch('bench.requests{{host=\"h{i}\"}}').rate('5m')", "> 1e9") for i in range(3_000)]
    rules += [
        rule(f"rack-{i}", f"fetch('bench.up{{rack=\"r{i % 100}\"}}').sum(by=['rack']) + {i}", "< 0")
        for i in range(2_000)
    ]
    rules += [rule(f"all-{i}", "fetch('bench.up').sum(by=['rack'])", f"< -{i + 1}") for i in range(1_000)]
    return json.dumps({"rules": rules}, indent=1)


def rule(name: str, expr: str, threshold: str) -> dict[str, Any]:
    """One rule."""
    return {"name": name, "expr": expr, "threshold": threshold, "for": "0s", "missing": "keep", "labels": {"a": "b"}}


def one(engine: AlertEngine, clock: ManualClock, port: Connection, minute: int, down: bool) -> float:
    """Evaluate one minute; return the seconds."""
    port.send((minute, down))
    port.recv()
    clock.advance(MINUTE)
    began = perf_counter()
    if not engine.evaluate_due():
        raise RuntimeError("nothing was due")
    engine.display({})
    took = perf_counter() - began
    if engine.result.failing or engine.result.problems:
        raise RuntimeError(f"{engine.result.failing} {engine.result.problems[:3]}")
    return took


def measure(port: Connection, folder: Path) -> float:
    """Print the lines of firing, loading and questions; return the seconds of an evaluation without a change."""
    (folder / "rules").mkdir()
    (folder / "rules" / "rules.yaml").write_text(rule_file())
    clock = ManualClock(START + 15_000)
    database, memory, _ = open_database(folder / "data", clock.now_ms())
    place = ShardAddress("0", "127.0.0.1", port.recv(), "bench", ALL_VSHARDS, ALL_VSHARDS)
    store = VarstoreClient(SimpleNamespace())  # the addresses are given below, so ZooKeeper is not used
    known = SimpleNamespace(read=lambda: ClusterState(Membership(("0",)), (place,)), forget=lambda: None, stale="")
    store._directory = known  # type: ignore[assignment]
    page = "http://127.0.0.1:8780"
    engine = AlertEngine(
        EngineConfig("bench", folder / "rules", ("a@localhost",), page), store, database, memory, clock
    )
    for minute in range(WARM):
        port.send((minute, False))
        port.recv()
        clock.advance(MINUTE)
    clock.advance(-MINUTE)
    first = one(engine, clock, port, WARM, False)
    steady = [one(engine, clock, port, WARM + i, False) for i in range(1, ROUNDS)]
    firing = one(engine, clock, port, WARM + ROUNDS, True)
    if engine.result.alerts != {"pending": 0, "firing": 4_000} or database.counts()["pending"] != 4_000:
        raise RuntimeError(f"expected 4,000 alerts and mails: {engine.result}, {database.counts()}")
    emit("alerts.10000.firing", firing, "s")
    emit("alerts.10000.load", first - statistics.median(steady), "s")
    emit("alerts.10000.questions", engine.result.queries, "selects")
    store.close()
    database.close()
    return statistics.median(steady)


def scraped(scrape: int) -> str:
    """The same 10,000 series as text; requests grow."""
    found = [f'bench_requests{{host="h{i}",rack="r{i % 100}"}} {scrape * 600 + i}' for i in range(HOSTS)]
    found += [f'bench_up{{host="h{i}",rack="r{i % 100}"}} 1' for i in range(HOSTS)]
    return "\n".join(found) + "\n"


def prometheus_rules() -> list[dict[str, Any]]:
    """The same 10,000 rules in PromQL; a rate reads five samples, as ours."""
    window = f"{5 * INTERVAL_S}s"
    found = [(f"down_{i}", f'bench_up{{host="h{i}"}} < 1') for i in range(4_000)]
    found += [(f"busy_{i}", f'rate(bench_requests{{host="h{i}"}}[{window}]) > 1e9') for i in range(3_000)]
    found += [(f"rack_{i}", f'sum by (rack) (bench_up{{rack="r{i % 100}"}}) + {i} < 0') for i in range(2_000)]
    found += [(f"all_{i}", f"sum by (rack) (bench_up) < -{i + 1}") for i in range(1_000)]
    return [{"alert": name, "expr": expr, "labels": {"a": "b"}} for name, expr in found]


def measure_prometheus(folder: Path) -> float | None:
    """Print the line of Prometheus and return its seconds; None without the program."""
    name = "peer.prometheus.alerts.10000"
    try:
        program = ensure(("prometheus",), load_settings().cache, say)["prometheus"]
        port = PortLeases().lease(PEER_PORT)  # held until this process ends
        seconds = evaluation_seconds(program, folder / "prometheus", port, scraped, prometheus_rules())
    except (ProgramsMissing, PeerFailed) as problem:
        fail(name, str(problem))
        return None
    emit(name, seconds, "s")
    return seconds


def main() -> None:
    """Start the shard and measure; then Prometheus."""
    ours, theirs = multiprocessing.Pipe()
    shard = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    shard.start()
    with tempfile.TemporaryDirectory() as folder:
        with gc_tuned():
            seconds = measure(ours, Path(folder))
        ours.send(None)
        shard.join(10)
        peer = measure_prometheus(Path(folder))
    emit("alerts.10000", seconds, "s", "prometheus" if peer else None, peer / seconds if peer else None)


if __name__ == "__main__":
    main()
