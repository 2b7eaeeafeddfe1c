"""Queries to the memory store: selection, reduction in the shard, and the same over our HTTP API beside VictoriaMetrics
and Prometheus that hold the same samples. All answers are compared before a line is printed.

`varstore.select`: 10,000 of 1.5 million series by labels, 10 buckets, from the request to decoded series.
`varstore.rack`: mean by rack of 100,000 series x 60 buckets in the shard, with a new text each time, so that no cache
helps; `@again`: with a repeated text. `varstore.rack.http`: the same, from the client's request to the last byte of
JSON: client, API and shard are three processes. `varstore.windows.*`: sum by rack of a function of five minutes,
100,000 series x 60 windows, with new texts; processor time. `varstore.together.*`: 25,000 samples/s fed while four
clients send new queries without a pause. `@control`: the four clients query another API and shard with the same data,
which separates the cost of sharing two cores from that of waiting for each other inside the shard.

python -m benchmarks.varstore_rack [--only select|rack|windows|http|together] [--no-peers]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter, thread_time

import numpy as np

from artimon.compute.aggregate import AggregateRequest, decode_aggregate, encode_aggregate
from artimon.compute.reduction import WindowPlan
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.grid import Grid
from artimon.model.select import NAME, Matcher, SelectRequest, decode_buckets, encode_buckets
from benchmarks.common import Parts, emit, say
from benchmarks.limits import AT_MEMORY_SPEED, emit_echo, emit_limit, read_rate
from benchmarks.loads.many import ManyNames
from benchmarks.loads.racks import MINUTE_MS, RackWorld, loaded_shard
from benchmarks.loads.racks import NAME as RACK_NAME
from benchmarks.serving import racks
from benchmarks.storage import find_peers
from benchmarks.suite.plan import WINDOWS

SERIES, BUCKETS = 100_000, 60
SELECTED, ALL_SERIES, SELECT_BUCKETS = 10_000, 1_500_000, 10
ROUNDS = 25
WIDTH = 5
CELL_BYTES = 8
BASE_PORT = 34_000
PARTS = ["select", "rack", "windows", "http", "together"]


class WrongAnswer(RuntimeError):
    """An answer differs from the samples that were fed."""


def measure_select(series: int = ALL_SERIES) -> None:
    """Measure the lines of `varstore.select`."""
    say(f"select: announcing {series:,} series")
    world = ManyNames(series, now_ms() - MINUTE_MS)
    shard = world.loaded(SELECT_BUCKETS)
    grid = Grid(world.end_ms, MINUTE_MS, SELECT_BUCKETS)
    request = SelectRequest((Matcher(NAME, "prefix", "bench."), Matcher("module", "=", "m7")), grid, ("last", "count"))
    took, in_shard, decoding = [], [], []
    for _ in range(ROUNDS):
        began = perf_counter()
        found = shard.select(request)
        selected = perf_counter()
        encoded = encode_buckets(found)
        at = perf_counter()
        texts = decode_buckets(encoded).series
        count = len(list(texts.texts())) if hasattr(texts, "texts") else len(texts)
        took.append(perf_counter() - began)
        in_shard.append(selected - began)
        decoding.append(perf_counter() - at)
    if count != world.of_module or not (found.statistics["count"] == 1).all():
        raise WrongAnswer(f"{count} series selected, {world.of_module} expected")
    unit = f"ms ({count:,} of {series:,} series, {SELECT_BUCKETS} buckets, 2 statistics"
    emit("varstore.select", _ms(took), f"{unit}; selected, encoded, decoded)")
    least_ms = count * SELECT_BUCKETS * CELL_BYTES / read_rate() * 1000
    emit_limit("varstore.select", _ms(took), least_ms, f"ms (its cells {AT_MEMORY_SPEED})", more=False)
    emit("varstore.select@shard", _ms(in_shard), f"{unit}; in the shard, not encoded)")
    emit("varstore.select@client", _ms(decoding), f"{unit}; decoded, labels as text)")


def rack_request(end_ms: int) -> AggregateRequest:
    """Return the request that the query `mean by rack` pushes down."""
    grid = Grid(end_ms, MINUTE_MS, BUCKETS)
    return AggregateRequest((Matcher(NAME, "=", RACK_NAME),), grid, WindowPlan("last", BUCKETS), "mean", ("rack",))


def measure_rack(series: int = SERIES) -> None:
    """Measure the lines of `varstore.rack`."""
    world = RackWorld(series, BUCKETS, now_ms())
    say(f"rack: {series:,} series x {BUCKETS} buckets in the shard")
    shard = loaded_shard(world)
    request = rack_request(world.end_ms)
    anew, again, wire = [], [], []
    for i in range(ROUNDS):
        # a matcher of an unused label makes a new query, which no cache of the shard holds
        fresh = replace(request, matchers=(*request.matchers, Matcher(f"none{i}", "=", "")))
        began = perf_counter()
        shard.aggregate(fresh)
        anew.append(perf_counter() - began)
        began = perf_counter()
        found = shard.aggregate(request)
        again.append(perf_counter() - began)
        decode_aggregate(encode_aggregate(found))
        wire.append(perf_counter() - began)
    if found.values.sums is None:
        raise WrongAnswer("no sums")
    means = found.values.sums.high / found.values.count
    order = np.argsort([dict(class_)["rack"] for class_ in found.classes])
    if not np.allclose(means[order], world.means(), rtol=1e-12, atol=0.0):
        raise WrongAnswer("the means are not those of the samples")
    unit = f"ms (mean by rack, {series:,} series x {BUCKETS} buckets, in the shard"
    emit("varstore.rack", _ms(anew), f"{unit}, asked anew)")
    least_ms = series * BUCKETS * CELL_BYTES / read_rate() * 1000
    emit_limit("varstore.rack", _ms(anew), least_ms, f"ms (its cells {AT_MEMORY_SPEED})", more=False)
    emit("varstore.rack@best", min(anew) * 1000, f"{unit}, asked anew, the quickest of {ROUNDS})")
    emit("varstore.rack@again", _ms(again), f"{unit}, asked before)")
    emit("varstore.rack@wire", _ms(wire), f"{unit}, asked before, encoded and decoded)")


def measure_windows(series: int = SERIES) -> None:
    """Measure the lines of `varstore.windows`."""
    world = RackWorld(series, BUCKETS + WIDTH - 1, now_ms())
    say(f"windows: {BUCKETS} windows of {WIDTH} buckets of {series:,} series in the shard")
    shard = loaded_shard(world)
    grid = Grid(world.end_ms, MINUTE_MS, BUCKETS + WIDTH - 1)
    for function in WINDOWS:
        windows = WindowPlan(function, BUCKETS, WIDTH, WIDTH - 1, max_gap_ms=WIDTH * MINUTE_MS)
        request = AggregateRequest((Matcher(NAME, "=", RACK_NAME),), grid, windows, "sum", ("rack",))
        took = []
        for i in range(ROUNDS // 3):
            fresh = replace(request, matchers=(*request.matchers, Matcher(f"none{function}{i}", "=", "")))
            began = thread_time()
            found = shard.aggregate(fresh)
            took.append(thread_time() - began)
        if found.counts.sampled != series:
            raise WrongAnswer(f"{found.counts.sampled} series of {series}")
        unit = f"core-us a series (sum by rack of {function} of {WIDTH} minutes, {BUCKETS} windows, asked anew)"
        emit(f"varstore.windows.{function}", _ms(took) * 1_000 / series, unit)
        least_us = (BUCKETS + WIDTH - 1) * CELL_BYTES / read_rate() * 1e6
        least = f"core-us a series (its cells {AT_MEMORY_SPEED})"
        emit_limit(f"varstore.windows.{function}", _ms(took) * 1_000 / series, least_us, least, more=False)


def measure_http(folder: Path, base_port: int, with_peers: bool, series: int = SERIES) -> None:
    """Measure the lines of `varstore.rack.http` and of its peers."""
    world = RackWorld(series, BUCKETS, now_ms())
    with racks.Served(world, folder, base_port) as served:
        say(f"http: {series:,} series x {BUCKETS} buckets behind our API")
        ours, again = served.ask(ROUNDS, anew=True), served.ask(ROUNDS, anew=False)
    expected = world.means()
    racks.check("ours", ours.means, expected)
    racks.check("ours again", again.means, expected)
    unit = f"ms (mean by rack, {series:,} series x {BUCKETS} buckets, HTTP to the last byte of JSON)"
    theirs: dict[str, racks.Asked] = {}
    for peer in find_peers(folder / "peers", "varstore.rack.http") if with_peers else []:
        say(f"http: {peer.name} {peer.version} stores the same")
        peer.store(world.peer_series())
        theirs[peer.name] = racks.ask_peer(peer, world)
        racks.check(peer.name, theirs[peer.name].means, expected)
    best = min(theirs, key=lambda name: theirs[name].ms, default=None)
    emit("varstore.rack.http", ours.ms, unit, best, theirs[best].ms / ours.ms if best else None)
    emit_echo("varstore.rack.http", ours.ms, ours.size)
    emit("varstore.rack.http@again", again.ms, f"{unit}, a question that was asked before")
    for name, asked in theirs.items():
        emit(f"peer.{name}.varstore.rack.http", asked.ms, unit, name, asked.ms / ours.ms)


def measure_together(folder: Path, base_port: int, seconds: float = 20.0, series: int = SERIES) -> None:
    """Measure the lines of `varstore.together`: feeding and querying, each alone and both at once."""
    world = RackWorld(series, BUCKETS, now_ms())
    with racks.Served(world, folder, base_port) as served:
        alone_feed = served.together(seconds, clients=0)
        alone_ask = served.together(seconds, clients=4, feeding=False)
        both = served.together(seconds, clients=4)
        with racks.Served(RackWorld(series, BUCKETS, world.end_ms), folder / "other", base_port + 50) as other:
            control = served.together(seconds, clients=4, asked=other)
    rate = f"{racks.FEED_RATE:,} samples/s"
    emit("varstore.together.ingest.p99", both.feed_p99, f"ms a range of {racks.FEED_ROWS:,} samples, {rate}, 4 clients")
    emit("varstore.together.ingest.p99@alone", alone_feed.feed_p99, f"ms, {rate}, nobody asks")
    emit("varstore.together.ingest.p99@control", control.feed_p99, f"ms, {rate}, 4 clients ask another API and shard")
    emit("varstore.together.rack.rate@control", control.asked_s, f"questions/s of the other shard, {rate} fed")
    emit("varstore.together.rack.p99", both.ask_p99, f"ms a question, 4 clients at once, {rate} fed")
    emit("varstore.together.rack.p99@alone", alone_ask.ask_p99, "ms a question, 4 clients at once, nothing fed")
    emit("varstore.together.rack.rate", both.asked_s, f"questions/s, 4 clients, {rate} fed")
    emit("varstore.together.rack.rate@alone", alone_ask.asked_s, "questions/s, 4 clients, nothing fed")


def now_ms() -> int:
    """Return the newest full minute: peers refuse future samples."""
    return SYSTEM_CLOCK.now_ms() // MINUTE_MS * MINUTE_MS


def _ms(seconds: Sequence[float]) -> float:
    return float(np.median(seconds)) * 1000


def run(args: Sequence[str]) -> None:
    """Run the command line; the module describes it."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="benchmarks.varstore_rack", description=__doc__, formatter_class=form)
    parser.add_argument("--only", choices=PARTS, help="omit the others")
    parser.add_argument("--series", type=int, default=SERIES)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--base-port", type=int, default=BASE_PORT)
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of each part of `together`")
    options = parser.parse_args(args)
    folder = Path(tempfile.mkdtemp(prefix="artimon-bench-"))
    wanted = [options.only] if options.only else PARTS
    series, parts = options.series, Parts()
    peers = not options.no_peers
    measured: dict[str, Callable[[], None]] = {
        "select": lambda: measure_select(series * ALL_SERIES // SERIES),
        "rack": lambda: measure_rack(series),
        "windows": lambda: measure_windows(series),
        "http": lambda: measure_http(folder / "http", options.base_port, peers, series),
        "together": lambda: measure_together(folder / "together", options.base_port, options.seconds, series),
    }
    try:
        for part in wanted:
            parts.run(f"varstore.{part}", measured[part])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    parts.finish()


if __name__ == "__main__":
    run(sys.argv[1:])
