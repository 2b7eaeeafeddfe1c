"""Dashboards of many users: 50 users, each with a board of 20 panels over 100,000 series, refreshed every 10 s.

Five users share a board; the boards have no text in common. A browser asks for the values of a variable and then for
the panels, at most six requests at a time over kept connections, compressed. Six panels of a board read the whole
fleet, eight a rack, four a host, two are PromQL. The first refresh asks for the whole range, later ones for the newest
points, as the page does; six panels of `topk` ask for the whole range each time. Meanwhile the shard is fed at the
phases of the product and the clock runs. ZooKeeper, shard, API and browsers are four processes on the same cores.

`panel_p99`: from sending the request of a panel to the last byte, in all refreshes but the first of each user.
`open_p99`: the same in the first, where nobody has asked before. `refresh_p99`: all requests of a refresh. `refused`:
answers with another status than 200, as a share. `memory`: resident memory of the API in the last fifth of the run, as
a ratio to the second fifth. `memory@shard`: the same of the shard, whose rings fill as time passes.

python -m benchmarks.dashboards [--seconds 60] [--minutes 30] [--age 0] [--series N]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.common import Parts, emit, say
from benchmarks.limits import emit_echo
from benchmarks.loads.dashboards import VARIABLES, board
from benchmarks.loads.queries import VOLUMES, QueryWorld
from benchmarks.query import end_ms
from benchmarks.serving.racks import Served

SERIES, MINUTES = 100_000, 75
USERS, SHARING, SECONDS, PAUSE_S = 50, 5, 60.0, 10.0
AGE_S = 120
"""Age that the page accepts, `SHARED_S` of dashboard_values.js."""
BASE_PORT = 23900
SAMPLES = 50
"""Samples of the memory in a run."""


def measure(folder: Path, series: int, seconds: float, age_s: int, base_port: int) -> None:
    """Measure and print the lines; `age_s`: age that answers may have."""
    hosts = series - 2 * min(VOLUMES, series // 4)
    made = partial(QueryWorld, hosts, MINUTES, end_ms(), long=False)
    with Served(made(), folder, base_port, made) as served:
        say(f"{USERS} users for {seconds:.0f} s")
        with served.living(seconds) as living:
            before = dict[int, int]()

            def paths(user: int) -> list[str]:
                now_ms = served.now_ms()
                found = [VARIABLES, *board(user // SHARING, hosts, now_ms, before.get(user))]
                before[user] = now_ms
                return found

            memory, stop = list[tuple[int, int]](), threading.Event()
            sampling = threading.Thread(target=sample_memory, args=(served, memory, seconds / SAMPLES, stop))
            sampling.start()
            browsers = served.users(paths, USERS, seconds, PAUSE_S, age_s)
            stop.set()
            sampling.join()
    opened = [browser.refreshes[0] for browser in browsers]
    later = [one for browser in browsers for one in browser.refreshes[1:]]
    first, took = (np.concatenate([one.took for one in many]) * 1000 for many in (opened, later))
    first_sizes, sizes = (np.concatenate([one.sizes for one in many]) for many in (opened, later))
    whole = np.array([one.seconds for one in later]) * 1000
    load = f"{USERS} users, {USERS // SHARING} boards of 20 panels, {series:,} series, {seconds:.0f} s"
    emit("dashboards.panel_p99", float(np.percentile(took, 99)), f"ms ({load}, {living.samples:,} samples fed), p99")
    emit("dashboards.panel_p99@p50", float(np.percentile(took, 50)), f"ms ({load}), p50")
    emit("dashboards.panel_p99@max", float(took.max()), f"ms ({load})")
    emit_echo("dashboards.panel_p99@p50", float(np.percentile(took, 50)), int(np.median(sizes)))
    emit_echo("dashboards.open_p99", float(np.percentile(first, 99)), int(np.percentile(first_sizes, 99)))
    emit("dashboards.open_p99", float(np.percentile(first, 99)), f"ms ({load}, first refresh of each user), p99")
    emit("dashboards.refresh_p99", float(np.percentile(whole, 99)), f"ms ({load}), p99 of all requests of a refresh")
    emit("dashboards.requests", len(took) / seconds, f"1/s ({load}, {len(took):,} requests)")
    refused = sum(one.refused for one in (*opened, *later))
    for problem in sorted({browser.problem for browser in browsers} - {""})[:3]:
        say(problem)
    emit("dashboards.refused", refused / (len(took) + len(first)), f"of all answers ({refused})")
    for name, of in (("dashboards.memory@shard", 0), ("dashboards.memory", 1)):
        sizes = np.array(memory)[:, of]
        fifth = len(sizes) // 5
        say(f"{name}, MB: {' '.join(f'{size / 1e6:.0f}' for size in sizes)}")
        before, after = sizes[fifth : 2 * fifth].mean(), sizes[-fifth:].mean()
        emit(name, after / before, f"x of the second fifth of the run ({before / 1e6:.0f} MB)")


def sample_memory(served: Served, found: list[tuple[int, int]], every_s: float, stop: threading.Event) -> None:
    """Append the memory of shard and API until `stop`."""
    while not stop.wait(every_s):
        found.append(served.memory())


def run(args: Sequence[str]) -> None:
    """Run the command line; the module describes it."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="benchmarks.dashboards", description=__doc__, formatter_class=form)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--minutes", type=float, help="duration in minutes, in place of --seconds")
    parser.add_argument("--age", type=int, default=AGE_S, help="seconds that answers may have, 0: nothing is shared")
    parser.add_argument("--series", type=int, default=SERIES)
    parser.add_argument("--base-port", type=int, default=BASE_PORT)
    options = parser.parse_args(args)
    seconds = options.seconds if options.minutes is None else options.minutes * 60
    folder, parts = Path(tempfile.mkdtemp(prefix="artimon-bench-")), Parts()
    measured = partial(measure, folder, options.series)
    try:
        parts.run("dashboards.panel_p99", lambda: measured(seconds, options.age, options.base_port))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    parts.finish()


if __name__ == "__main__":
    run(sys.argv[1:])
