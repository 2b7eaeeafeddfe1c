"""Samples a second that an agent takes by remote write into its log, for each core that it uses.

Requests of 2,000 samples, four senders at a time, each series by one sender in the order of time. Measured once every
series was sent once, as series are new to a server only once. VictoriaMetrics takes the same bytes."""

from __future__ import annotations

import asyncio
import http.client
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import cramjam
import psutil

from artimon.model.clock import SYSTEM_CLOCK
from benchmarks.common import emit, say
from benchmarks.limits import carried_mb_s, emit_limit
from benchmarks.storage import find_peers
from pipeline.delivery.wal_sink import WalSink
from pipeline.wal.log import WriteAheadLog
from sources.artimon_source import ArtimonSource
from sources.delivery.source_config import SourceConfig
from sources.receive.protobuf_messages import MESSAGES

WRITTEN_SERIES, REQUEST_SAMPLES, ROUNDS, CONNECTIONS = 20_000, 2_000, 40, 4
STEP_MS = 15_000


def bodies(now_ms: int) -> Iterator[bytes]:
    """Yield requests of remote write 1.0: one sample of each series a round, in the order of time."""
    pack = MESSAGES["Label"]
    labels = [
        [
            pack(name=name, value=value).SerializeToString()
            for name, value in (("__name__", "bench_written_total"), ("host", f"host-{n:06}"), ("job", "bench"))
        ]
        for n in range(WRITTEN_SERIES)
    ]
    for turn in range(ROUNDS):
        time_ms = now_ms - (ROUNDS - turn) * STEP_MS
        for first in range(0, WRITTEN_SERIES, REQUEST_SAMPLES):
            sample = [MESSAGES["Sample"](value=float(turn * 7 + n), timestamp=time_ms) for n in range(REQUEST_SAMPLES)]
            series = [
                MESSAGES["Series1"](labels=labels[first + n], samples=[sample[n]]).SerializeToString()
                for n in range(REQUEST_SAMPLES)
            ]
            yield bytes(cramjam.snappy.compress_raw(MESSAGES["Request1"](series=series).SerializeToString()))


def _receive(pipe: Connection, place: Path, port: int) -> None:
    """Run an agent with a log of its own."""
    sink = WalSink(WriteAheadLog(place / "log", "bench", 2, lambda _: None, host="bench"), "bench", place / "log")
    address = f"127.0.0.1:{port}"
    config = SourceConfig("bench", "127.0.0.1:1", place / "data", host_metrics=False, receive=(address,))
    pipe.send("started")
    asyncio.run(ArtimonSource(config, sink, SYSTEM_CLOCK, hostname="bench").run(asyncio.Event()))


@contextmanager
def receiving(place: Path, port: int) -> Iterator[str]:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_receive, args=(theirs, place, port), daemon=True)
    process.start()
    try:
        if not ours.poll(60):
            raise TimeoutError("the agent does not start")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.join()


def write_all(address: str, sent: Sequence[bytes]) -> tuple[float, float]:
    """Send all bodies; return samples a second, and samples a second of CPU of the child processes, without the first
    sample of each series."""
    place = address.removeprefix("http://")
    _await(place)
    first = WRITTEN_SERIES // REQUEST_SAMPLES
    _send_all(place, sent[:first])
    before, began = _cpu_s(), time.perf_counter()
    _send_all(place, sent[first:])
    samples, seconds = len(sent[first:]) * REQUEST_SAMPLES, time.perf_counter() - began
    return samples / seconds, samples / (_cpu_s() - before)


def _send_all(place: str, sent: Sequence[bytes]) -> None:
    requests = WRITTEN_SERIES // REQUEST_SAMPLES
    of_senders = [
        [body for i, body in enumerate(sent) if i % requests % CONNECTIONS == n] for n in range(CONNECTIONS)
    ]  # the samples of a series come from one sender, in order
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(_send, [place] * CONNECTIONS, of_senders))


def _send(place: str, bodies: Sequence[bytes]) -> None:
    headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}
    connection = http.client.HTTPConnection(place, timeout=60)
    for body in bodies:
        connection.request("POST", "/api/v1/write", body, headers)
        answer = connection.getresponse()
        told = answer.read()
        if answer.status not in (200, 204):
            raise RuntimeError(f"status {answer.status}: {told[:300]!r}")
    connection.close()


def _await(place: str) -> None:
    until = time.monotonic() + 30
    while True:
        try:
            http.client.HTTPConnection(place, timeout=5).connect()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return


def _cpu_s() -> float:
    """CPU seconds of the child processes."""
    return sum(sum(child.cpu_times()[:2]) for child in psutil.Process().children(recursive=True))


def measure_remote_write(folder: Path, peers: bool, base_port: int) -> None:
    """Measure what an agent takes, and VictoriaMetrics."""
    sent = list(bodies(SYSTEM_CLOCK.now_ms()))
    with receiving(folder / "agent", base_port + 20) as address:
        say("ours: remote write")
        rate, per_core = write_all(address, sent)
    unit = f"samples/s of a core ({len(sent)} requests of {REQUEST_SAMPLES:,} samples, {WRITTEN_SERIES:,} known series)"
    taken: dict[str, tuple[float, float]] = {}
    for peer in find_peers(folder / "written", "promql.remote_write") if peers else []:
        if peer.name == "victoriametrics":
            say(f"{peer.name}: remote write")
            with peer.serve() as address:
                taken[peer.name] = write_all(address, sent)
    best = next(iter(taken), None)
    emit("promql.remote_write", per_core, unit, best, per_core / taken[best][1] if best else None)
    wall = f"samples/s ({CONNECTIONS} senders)"
    emit("promql.remote_write@wall", rate, wall, best, rate / taken[best][0] if best else None)
    sample_bytes = len(sent[-1]) / REQUEST_SAMPLES
    limit = carried_mb_s(folder, sent[-1], len(sent), 1) * 1e6 / sample_bytes
    emit_limit("promql.remote_write@wall", rate, limit, "samples/s (the bodies sent, and fsynced one by one)")
    for name, (peer_rate, peer_core) in taken.items():
        emit(f"peer.{name}.promql.remote_write", peer_core, unit, name)
        emit(f"peer.{name}.promql.remote_write@wall", peer_rate, wall, name)
