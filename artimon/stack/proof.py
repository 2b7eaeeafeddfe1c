"""The proof at the end of `artimon up --prove N`: what was accepted is in the raw table and in the buckets, sample for
sample, and two questions get the answers that the machine itself gives."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.health import read_health
from artimon.settings import child_environment
from artimon.stack.counts import (
    MINUTE_MS,
    Row,
    accepted_counts,
    bucket_counts,
    closed_minutes,
    compare,
    raw_counts,
)
from artimon.stack.witness import Witness
from pipeline.spark.table import raw_uri, read_raw, read_sources, sources_uri
from query_dsl import Matrix, evaluate, parse, render_table
from varstore.client import VarstoreClient

if TYPE_CHECKING:
    from artimon.stack.stack import Stack

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "hello.py"
CPU_POINTS = 0.02
"""How far the busy share may lie from what this module read itself."""
MINUTES = 2
"""So many whole minutes at least are proven, however short the run is asked to be."""
STORE_S = 120.0
"""How long after the end everything accepted may take to be in the table."""

CPU_QUESTION = (
    "1 - fetch('host.cpu.ms{{mode=~\"idle|iowait\"}}').between({start}, {end}).increase().sum(by=['cpu'])"
    " / fetch('host.cpu.ms').between({start}, {end}).increase().sum(by=['cpu'])"
)
VOLUME_QUESTION = (
    "apply(div, fetch('host.volume.free.bytes').between({start}, {end}),"
    " fetch('host.volume.size.bytes').between({start}, {end}), on=['host', 'volume'])"
)
Say = Callable[[str], None]


def prove_stack(stack: Stack, seconds: float, stop: threading.Event, clock: Clock = SYSTEM_CLOCK) -> int:
    """Let the stack collect this machine and an example application for `seconds`, then compare. 0: all equal."""
    witness = Witness()
    witness.start()
    started_ms = clock.now_ms()
    example = _start_example(stack)
    _say(f"collecting this machine and {EXAMPLE.name} for {seconds:.0f} s")
    try:
        if clock.wait(stop, seconds):
            return 130
        while len(closed_minutes(started_ms, clock.now_ms())) < MINUTES:  # an increase needs the minute before
            if clock.wait(stop, 1.0):
                return 130
    finally:
        example.terminate()
        example.wait(20)
    minutes = closed_minutes(started_ms, clock.now_ms())
    rows = _compare_until_equal(stack, minutes, stop, clock)
    witness.stop()
    good = _report_counts(rows)
    _report_lags(stack)
    return 0 if _report_answers(stack, minutes, witness, clock.now_ms()) and good else 1


def _start_example(stack: Stack) -> subprocess.Popen[bytes]:
    environment = child_environment({"ARTIMON_ZOOKEEPER": stack.zookeeper})
    return subprocess.Popen([sys.executable, str(EXAMPLE)], env=environment, stdin=subprocess.DEVNULL)


def _compare_until_equal(stack: Stack, minutes: list[int], stop: threading.Event, clock: Clock) -> list[Row]:
    """The rows of the comparison, as soon as they are equal, at the latest STORE_S from now."""
    deadline = clock.monotonic() + STORE_S
    while True:
        rows = _compare_once(stack, minutes)
        if (rows and all(row.equal for row in rows)) or clock.monotonic() > deadline or clock.wait(stop, 2.0):
            return rows


def _compare_once(stack: Stack, minutes: list[int]) -> list[Row]:
    accepted = accepted_counts(stack.data / "agent" / "accepted")
    raw = raw_counts(read_raw(raw_uri(stack.hdfs)), read_sources(sources_uri(stack.hdfs)))
    with VarstoreClient(stack.zookeeper) as store:
        buckets = bucket_counts(store, raw.source_of, minutes)
    return compare(accepted, raw.counts, buckets, minutes)


def _report_counts(rows: list[Row]) -> bool:
    print(f"{'minute':>20}  {'source':<40} {'accepted':>9} {'raw':>9} {'buckets':>9}")
    for row in rows:
        mark = "" if row.equal else "  DIFFERS"
        end = np.datetime64(row.minute_ms, "ms").astype("datetime64[s]")
        print(f"{end!s:>20}  {row.source:<40} {row.accepted:>9} {row.raw:>9} {row.buckets:>9}{mark}")
    sums = [sum(getattr(row, name) for row in rows) for name in ("accepted", "raw", "buckets")]
    equal = bool(rows) and all(row.equal for row in rows)
    print(f"accepted {sums[0]:,} = raw table {sums[1]:,} = buckets {sums[2]:,}: {'equal' if equal else 'NOT EQUAL'}")
    return equal


def _report_lags(stack: Stack) -> None:
    """Lag of each hop, from what the processes say of themselves."""
    figures: dict[str, dict[str, Any]] = {}
    for part in ("agent", "collector-0", "spark"):
        health = read_health(stack.context.health(part))
        figures[part] = health.figures if health else {}
    agent, collector, spark = figures["agent"], figures["collector-0"], figures["spark"]
    print("lag of each hop, ms:")
    print(f"  agent      oldest batch not acked  {agent.get('oldest_unacked_ms', '?')}")
    answered = SYSTEM_CLOCK.now_ms() - int(collector.get("last_answer_ms", 0))
    print(f"  collector  since its last answer   {answered}")
    print(f"  raw table  append to commit        {spark.get('raw', {}).get('lag_ms', '?')}")
    print(f"  buckets    append to applied       {spark.get('buckets', {}).get('lag_ms', '?')}")


def _report_answers(stack: Stack, minutes: list[int], witness: Witness, now_ms: int) -> bool:
    span = {"start": minutes[0] - MINUTE_MS, "end": minutes[-1]}
    with VarstoreClient(stack.zookeeper) as store:
        cpu = evaluate(parse(CPU_QUESTION.format(**span)), store, now_ms)
        volumes = evaluate(parse(VOLUME_QUESTION.format(**span)), store, now_ms)
    print("busy share of each CPU")
    print(render_table(cpu))
    print("free share of each volume")
    print(render_table(volumes))
    times = _host_times(stack)
    return _check_cpu(cpu, times, witness) & _check_volumes(volumes, times, witness)


def _host_times(stack: Stack) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Epoch ms at which this host was polled, from the raw table, ascending."""
    names = read_sources(sources_uri(stack.hdfs))
    table = read_raw(raw_uri(stack.hdfs), columns=["source", "time"])
    hosts = {number for number, name in names.items() if name.startswith("host/")}
    of_host = np.isin(table["source"].to_numpy(), list(hosts))
    return np.unique(table["time"].cast("int64").to_numpy()[of_host] // 1000)


def _check_cpu(answer: Matrix, times: np.ndarray[Any, np.dtype[np.int64]], witness: Witness) -> bool:
    """Each bucket's share against /proc/stat between the same two polls."""
    good, checked = True, 0
    for labels, end, value in answer.points():
        until = times[times <= end]
        before = times[times <= end - MINUTE_MS]
        if not len(before) or not isinstance(value, float):
            continue
        expected = witness.busy_share(labels["cpu"], float(before[-1]), float(until[-1]))
        if np.isnan(expected):
            continue
        checked += 1
        if abs(value - expected) > CPU_POINTS:
            good = False
            print(f"cpu {labels['cpu']} at {end}: answer {value:.3f}, /proc/stat says {expected:.3f}")
    print(f"busy share checked against /proc/stat at {checked} points: {'right' if good and checked else 'WRONG'}")
    return good and checked > 0


def _check_volumes(answer: Matrix, times: np.ndarray[Any, np.dtype[np.int64]], witness: Witness) -> bool:
    """Each bucket's share against statvfs around the poll that gave the bucket its last value."""
    good, checked = True, 0
    for labels, end, value in answer.points():
        polls = times[(times <= end) & (times > end - MINUTE_MS)]
        if not isinstance(value, float) or not len(polls):
            continue
        low, high = witness.free_share(labels["volume"], int(polls[-1]))
        if np.isnan(low):
            continue
        checked += 1
        if not low - 1e-9 <= value <= high + 1e-9:
            good = False
            print(f"volume {labels['volume']} at {end}: answer {value:.6f}, statvfs says {low:.6f} to {high:.6f}")
    print(f"free share checked against statvfs at {checked} points: {'right' if good and checked else 'WRONG'}")
    return good and checked > 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
