"""Two questions about this machine, and whether the answers are those that the machine itself gives."""

from __future__ import annotations

from typing import Any

import numpy as np

from artimon.model.select import Store
from artimon.rawtable.schema import raw_uri, sources_uri
from artimon.rawtable.sources import read_sources
from artimon.rawtable.table_reader import read_raw
from query_dsl import Matrix, evaluate, parse, render_table
from scripts.proof.counts import MINUTE_MS
from scripts.proof.witness import Witness

CPU_POINTS = 0.02
"""How far the busy share may lie from what this module read itself."""
CPU_QUESTION = (
    "1 - fetch('host.cpu.ms{{mode=~\"idle|iowait\"}}').between({start}, {end}).increase().sum(by=['cpu'])"
    " / fetch('host.cpu.ms').between({start}, {end}).increase().sum(by=['cpu'])"
)
VOLUME_QUESTION = (
    "apply(div, fetch('host.volume.free.bytes').between({start}, {end}),"
    " fetch('host.volume.size.bytes').between({start}, {end}), on=['host', 'volume'])"
)
Times = np.ndarray[Any, np.dtype[np.int64]]


def report_host(store: Store, hdfs: str, start_ms: int, end_ms: int, witness: Witness, now_ms: int) -> bool:
    """Print busy share of each CPU and free share of each volume; True if both are right."""
    span = {"start": start_ms, "end": end_ms}
    cpu = evaluate(parse(CPU_QUESTION.format(**span)), store, now_ms)
    volumes = evaluate(parse(VOLUME_QUESTION.format(**span)), store, now_ms)
    print("busy share of each CPU")
    print(render_table(cpu))
    print("free share of each volume")
    print(render_table(volumes))
    times = _host_times(hdfs)
    return _check_cpu(cpu, times, witness) & _check_volumes(volumes, times, witness)


def _host_times(hdfs: str) -> Times:
    """Epoch ms at which this host was polled, from the raw table, ascending."""
    names = read_sources(sources_uri(hdfs))
    table = read_raw(raw_uri(hdfs), columns=["source", "time"])
    hosts = {number for number, name in names.items() if name.startswith("host/")}
    of_host = np.isin(table["source"].to_numpy(), list(hosts))
    return np.unique(table["time"].cast("int64").to_numpy()[of_host] // 1000)


def _check_cpu(answer: Matrix, times: Times, witness: Witness) -> bool:
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


def _check_volumes(answer: Matrix, times: Times, witness: Witness) -> bool:
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
