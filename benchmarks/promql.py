"""PromQL over HTTP and remote write, beside VictoriaMetrics and Prometheus.

The queries and samples are those of `benchmarks.query`, asked in PromQL of all sides by `query_range`. Answers are
compared before a line is printed, within 1e-9; rates of VictoriaMetrics, which extrapolates otherwise, within 5 %.
`promql.3days` is not asked: memory holds raw samples of an hour.

`promql.remote_write`: samples a second that an agent takes into its log, for each core that it uses; 2,000 samples a
request, four senders at a time. VictoriaMetrics takes the same bytes.

python -m benchmarks.promql [--series N] [--only NAME] [--no-peers]
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import multiprocessing
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import cramjam
import psutil

from artimon.api.api_limits import ApiLimits
from artimon.model.clock import SYSTEM_CLOCK
from benchmarks.common import Parts, emit, fail
from benchmarks.loads.queries import QueryWorld
from benchmarks.peers.series import Peer
from benchmarks.query import (
    HOST,
    MINUTES,
    QUESTIONS,
    RATES,
    ROUNDS,
    SERIES,
    SINGLE_ROUNDS,
    Question,
    ask_peer,
    end_ms,
    median_ms,
    news,
)
from benchmarks.serving.racks import Got, Served, get_of_peer
from benchmarks.storage import find_peers, say
from pipeline.delivery.wal_sink import WalSink
from pipeline.wal.log import WriteAheadLog
from sources.artimon_source import ArtimonSource
from sources.delivery.source_config import SourceConfig
from sources.receive.protobuf_messages import MESSAGES

ASKED = tuple(question for question in QUESTIONS if question.name != "3days" and "@" not in question.name)
STEP_MS = 60_000
CLOSE = 1e-9
LIMITS = ApiLimits(series=2 * SERIES, cells_read=60_000_000, query_s=120.0)
WRITTEN_SERIES, REQUEST_SAMPLES, ROUNDS_WRITTEN, CONNECTIONS = 20_000, 2_000, 20, 4
BASE_PORT = 23900
_METRIC = re.compile(r"\b(bench|disk)_(\w+)(?:\{\{(.*?)\}\})?")


def our_text(question: Question) -> str:
    """Return a template of the query on our names, with the placeholder {new} in its selectors."""
    return _METRIC.sub(
        lambda found: f'{{{{"{found[1]}.{found[2]}",{{new}}{"," + found[3] if found[3] else ""}}}}}', question.theirs
    )


def minutes_of(question: Question) -> int:
    """Return the steps of a query, which memory holds with the windows before them."""
    return 60 if "[" not in question.theirs else 50


def paths(question: Question, last_ms: int) -> list[str]:
    """Return the paths of distinct queries to us."""
    start, end = last_ms // 1000 - 60 * (minutes_of(question) - 1), last_ms // 1000
    rounds = SINGLE_ROUNDS if question.single else ROUNDS
    texts = question.texts(our_text(question), news(), rounds)
    return [f"/api/v1/query_range?query={quote(text)}&start={start}&end={end}&step=60" for text in texts]


def as_matrix(answer: dict[str, Any], question: Question, last_ms: int) -> dict[str, Any]:
    """Return an answer of `query_range` in the form of /api/query, for the comparison with peers."""
    minutes = minutes_of(question)
    places = {last_ms // 1000 - 60 * (minutes - 1 - i): i for i in range(minutes)}
    rows = []
    for one in answer["data"]["result"]:
        values: list[float | None] = [None] * minutes
        for time_s, text in one["values"]:
            values[places[int(time_s)]] = float(text)
        rows.append({"labels": one["metric"], "values": values})
    grid = {"start_ms": last_ms - minutes * STEP_MS, "end_ms": last_ms, "step_ms": STEP_MS}
    return {"grid": grid, "series": rows}


def tolerance(question: Question, peer: Peer) -> float:
    """Return the relative difference of equal values: VictoriaMetrics extrapolates rates otherwise."""
    return RATES if "rate" in question.theirs and peer.name != "prometheus" else CLOSE


def measure_queries(
    folder: Path, series: int, wanted: Sequence[Question], peers: bool, base_port: int, parts: Parts
) -> None:
    """Measure one line a query and peer."""
    world = QueryWorld(series, MINUTES, end_ms(), long=False)
    made = partial(QueryWorld, series, MINUTES, world.end_ms, long=False)
    ours: dict[str, Got] = {}
    with Served(world, folder / "ours", base_port, made, LIMITS) as served:
        for question in wanted:
            say(f"ours: {question.name}")
            got = get_of_peer(served.address, paths(question, world.end_ms))
            ours[question.name] = replace(got, answer=as_matrix(got.answer, question, world.end_ms))
    theirs: dict[str, dict[str, Got]] = {question.name: {} for question in wanted}
    wrong: dict[str, str] = {}
    for peer in find_peers(folder / "peers", "promql") if peers and wanted else []:
        asked = [replace(one, within=tolerance(one, peer)) for one in wanted]
        parts.run(f"peer.{peer.name}.promql", partial(ask_peer, peer, world, asked, ours, theirs, wrong, "promql"))
    for question in wanted:
        if question.name in wrong:
            parts.failed += 1
            fail(f"promql.{question.name}", wrong[question.name])
            continue
        took = {name: median_ms(got) for name, got in theirs[question.name].items()}
        ms = median_ms(ours[question.name])
        best = min(took, key=lambda name: took[name], default=None)
        unit = f"ms ({question.theirs.format(host=HOST, new='')}; {series:,} series, HTTP to the last byte of JSON)"
        emit(f"promql.{question.name}", ms, unit, best, took[best] / ms if best else None)
        for name, peer_ms in took.items():
            emit(f"peer.{name}.promql.{question.name}", peer_ms, unit, name, peer_ms / ms)


# --- remote write


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
    for turn in range(ROUNDS_WRITTEN):
        time_ms = now_ms - (ROUNDS_WRITTEN - turn) * 15_000
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
    config = SourceConfig("bench", "127.0.0.1:1", place / "data", host_metrics=False, receive=address)
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
    """Send all bodies; return samples a second, and samples a second of CPU of all child processes but this one."""
    place = address.removeprefix("http://")
    headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}

    def send(mine: Sequence[bytes]) -> None:
        connection = http.client.HTTPConnection(place, timeout=60)
        for body in mine:
            connection.request("POST", "/api/v1/write", body, headers)
            answer = connection.getresponse()
            told = answer.read()
            if answer.status not in (200, 204):
                raise RuntimeError(f"status {answer.status}: {told[:300]!r}")
        connection.close()

    _await(place)
    before, began = _cpu_s(), time.perf_counter()
    requests = WRITTEN_SERIES // REQUEST_SAMPLES
    of_senders = [
        [body for i, body in enumerate(sent) if i % requests % CONNECTIONS == n] for n in range(CONNECTIONS)
    ]  # the samples of a series come from one sender, in order
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(send, of_senders))
    samples, seconds = len(sent) * REQUEST_SAMPLES, time.perf_counter() - began
    return samples / seconds, samples / (_cpu_s() - before)


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
    unit = f"samples/s of a core ({len(sent)} requests of {REQUEST_SAMPLES:,} samples, {WRITTEN_SERIES:,} series)"
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
    for name, (peer_rate, peer_core) in taken.items():
        emit(f"peer.{name}.promql.remote_write", peer_core, unit, name)
        emit(f"peer.{name}.promql.remote_write@wall", peer_rate, wall, name)


def run(args: Sequence[str]) -> None:
    """Run the command line; the module describes it."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="benchmarks.promql", description=__doc__, formatter_class=form)
    names = [question.name for question in ASKED]
    parser.add_argument("--series", type=int, default=SERIES)
    parser.add_argument("--only", action="append", choices=[*names, "remote_write"])
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--base-port", type=int, default=BASE_PORT)
    options = parser.parse_args(args)
    folder, parts = Path(tempfile.mkdtemp(prefix="artimon-bench-")), Parts()
    only = set(options.only or (*names, "remote_write"))
    wanted = [question for question in ASKED if question.name in only]
    measure = partial(measure_queries, folder, options.series, wanted, not options.no_peers, options.base_port, parts)
    try:
        if "remote_write" in only:
            write = partial(measure_remote_write, folder, not options.no_peers, options.base_port)
            parts.run("promql.remote_write", write)
        if wanted:
            parts.run("promql.queries", measure)
        if not options.only:
            fail("promql.3days", "not asked: memory holds raw samples of an hour, and there is no history here")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    parts.finish()


if __name__ == "__main__":
    run(sys.argv[1:])
