"""Age of samples when the table on HDFS shows them. Every source is polled once a minute at its phase; its samples pass
the agent's log, the collector, Kafka and the raw query, while the shards are fed and the compactor runs.

Phases are those of the product (`sources.base.schedule.phase_ms`): all polls of a minute fall into its first ten
seconds, so 1.5 million samples a minute are bursts of some 165,000 samples a second.

The lag of a sample is the time at which a reader of the table sees its commit, less the poll time in the header of its
batch. Percentiles are over all samples of the run, the cold start in the first minute included. Before the run a whole
hour of the same load is written as if it had been appended, so that the compactor has work.
`lag.buckets.*`: the same until every shard that holds the source shows the batch.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from deltalake import DeltaTable

from artimon.model.batch import PollResult
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.hash_routing import DEFAULT_LANES, lane_of
from artimon.rawtable.head import HeadReader
from artimon.rawtable.schema import period_of, raw_uri
from artimon.rawtable.table_state import RawState
from artimon.stack.stack import Stack
from benchmarks.common import emit
from benchmarks.loads.hours import fill_hours
from benchmarks.loads.samples import SERIES_A_SOURCE, Source, capacity_of_two
from benchmarks.loads.visible import Visible
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from sources.base.schedule import phase_ms

BASE = ("zookeeper", "kafka", "hdfs", "shards", "collector-0")
REST = ("spark", "compactor")
AGENTS = 4
MINUTE_MS = 60_000
MINUTE_S = 60.0
LOOK_S = 0.2
DRAIN_S = 900.0
MAX_HOUR_FILES = 120
HOUR_FILES = 4


class LagError(RuntimeError):
    """The table does not hold the polled samples, or compaction did not finish."""


class Waiting:
    """Poll times of batches that the table does not show yet, and lags of those that it shows.

    Locks: `_lock` is held for every access; no call blocks while holding it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._polls: dict[tuple[str, int], list[int]] = {}
        """Per agent and lane: poll times in the order of the sequence numbers; a log begins at 0."""
        self._shown: dict[tuple[str, int], npt.NDArray[np.bool_]] = {}
        self._lags: list[int] = []

    def add(self, agent: str, lane: int, poll_ms: int) -> None:
        """Note an accepted batch."""
        with self._lock:
            self._polls.setdefault((agent, lane), []).append(poll_ms)

    def show(self, state: RawState, now_ms: int) -> None:
        """Note that the table shows this state now."""
        with self._lock:
            for lanes in state.lanes.values():
                for lane in lanes.lanes():
                    for start, end in lanes[lane]:
                        self._show_range((lane.agent, lane.lane), start, end, now_ms)

    def _show_range(self, lane: tuple[str, int], start: int, end: int, now_ms: int) -> None:
        """Note [start, end) of a lane; gaps are possible, as agents may send live data first."""
        polls = self._polls.get(lane, [])
        shown = self._shown.get(lane, np.zeros(0, bool))
        if len(shown) < len(polls):
            shown = self._shown[lane] = np.concatenate([shown, np.zeros(len(polls) - len(shown), bool)])
        for number in start + np.flatnonzero(~shown[start:end]):
            self._lags.append(now_ms - polls[number])
        shown[start:end] = True

    @property
    def batches(self) -> int:
        """Number of batches accepted so far."""
        with self._lock:
            return sum(map(len, self._polls.values()))

    @property
    def lags_ms(self) -> list[int]:
        """Lag of each shown batch."""
        with self._lock:
            return list(self._lags)


class Poller:
    """Agent with sources that it polls once a minute, each at its phase."""

    def __init__(self, number: int, sources: list[Source], folder: Path, zookeeper: str, waiting: Waiting) -> None:
        self.name = f"lag-{number}"
        self.agent = Agent(AgentConfig(self.name, folder / self.name, zookeeper))
        self._sources, self._waiting = sorted(sources, key=_phase_s), waiting
        self.phases = [_phase_s(source) for source in self._sources]
        """Phase of each source, in seconds after the start of a minute."""
        self.latest_s = 0.0
        """Greatest delay of a poll after its phase, in seconds."""

    def run(self, minutes: float, begin: float) -> None:
        """Poll each source `minutes` times; `begin` (monotonic) is the start of a minute of the wall clock."""
        rounds = max(1, round(minutes))
        for turn in range(rounds):
            at = 0
            while at < len(self._sources):
                due = begin + turn * MINUTE_S + self.phases[at]
                wait = due - time.monotonic()
                if wait > 0:
                    time.sleep(wait)
                self.latest_s = max(self.latest_s, -wait)
                until = at + 1
                while until < len(self._sources) and begin + turn * MINUTE_S + self.phases[until] <= time.monotonic():
                    until += 1
                self._poll(self._sources[at:until])
                at = until

    def _poll(self, sources: list[Source]) -> None:
        polled = []
        for source in sources:
            now = SYSTEM_CLOCK.now_ms()
            polled.append(PollResult(source.name, source.endpoint, source.birth_ms, now, source.poll(now)))
        for one in polled:
            self._waiting.add(self.name, lane_of(one.source, DEFAULT_LANES), one.poll_ms)
        self.agent.wal_sink.accept_now(polled)


def _phase_s(source: Source) -> float:
    return phase_ms(source.name, MINUTE_MS) / 1000


def next_minute() -> float:
    """Return the monotonic time of the next start of a minute of the wall clock, at least a second ahead."""
    left_ms = MINUTE_MS - (SYSTEM_CLOCK.now_ms() + 1000) % MINUTE_MS
    return time.monotonic() + 1 + left_ms / 1000


def watch(hdfs: str, waiting: Waiting, ended: threading.Event) -> None:
    """Watch the table for new commits until `ended`."""
    reader, seen = HeadReader(hdfs), -1
    while not ended.wait(LOOK_S):
        try:
            version, state = reader.head()
        except (OSError, RuntimeError) as error:
            print(f"# the table cannot be read: {error}", file=sys.stderr)
            continue
        if version != seen:
            waiting.show(state, SYSTEM_CLOCK.now_ms())
            seen = version


def measure(stack: Stack, folder: Path, sources: int, minutes: float, hours: int) -> None:
    """Fill closed hours, poll, wait for table and shards, check, print the lines."""
    began = time.monotonic()
    start_ms = SYSTEM_CLOCK.now_ms()
    old = fill_hours(stack.hdfs, start_ms, hours) if hours else 0
    print(f"# {old:,} rows of {hours} closed hours in {time.monotonic() - began:.0f} s", file=sys.stderr)
    for part in REST:
        stack.start_part(part)
    stack.wait_healthy(900.0, ["spark", "compactor"])
    generator = np.random.default_rng(7)
    made = [Source(i, generator, start_ms) for i in range(sources)]
    waiting, ended = Waiting(), threading.Event()
    pollers = [Poller(n, made[n::AGENTS], folder, stack.zookeeper, waiting) for n in range(AGENTS)]
    watcher = threading.Thread(target=watch, args=(stack.hdfs, waiting, ended), daemon=True)
    visible = Visible(stack.zookeeper, stack.kafka)
    visible.start()
    try:
        for poller in pollers:
            poller.agent.start()
        watcher.start()
        _poll_all(pollers, minutes)
        _until(lambda: len(visible.lags_ms) >= waiting.batches, "the shards show every batch", DRAIN_S)
        _until(lambda: len(waiting.lags_ms) >= waiting.batches, "the table shows every batch", DRAIN_S)
        if hours:
            _until(lambda: _old_files(stack.hdfs, start_ms) <= HOUR_FILES * hours, "old hours are compacted", DRAIN_S)
        _check(stack.hdfs, old + waiting.batches * SERIES_A_SOURCE)
    finally:
        ended.set()
        visible.stop()
        for poller in pollers:
            poller.agent.stop()
    unit = f"s ({minutes:g} minutes, {sources * SERIES_A_SOURCE:,} samples a minute, all within its first 10 s)"
    _show(waiting, pollers, stack.hdfs, unit)
    shown = np.array(visible.lags_ms) / 1000
    emit("lag.buckets.p50", float(np.percentile(shown, 50)), unit)
    emit("lag.buckets.p99", float(np.percentile(shown, 99)), unit)
    emit("lag.buckets.max", float(shown.max()), unit)


def _poll_all(pollers: list[Poller], minutes: float) -> None:
    failures: list[BaseException] = []
    begin = next_minute()

    def run(poller: Poller) -> None:
        try:
            poller.run(minutes, begin)
        except BaseException as error:  # any failure voids the measurement
            failures.append(error)

    threads = [threading.Thread(target=run, args=(poller,), daemon=True) for poller in pollers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _until(done: Callable[[], bool], what: str, deadline_s: float) -> None:
    until = time.monotonic() + deadline_s
    while not done():
        if time.monotonic() > until:
            raise LagError(f"{what}: not within {deadline_s:.0f} s")
        time.sleep(0.5)


def _live_files(hdfs: str) -> list[tuple[str, int]]:
    """Return period and rows of each live file."""
    actions = pa.table(DeltaTable(raw_uri(hdfs)).get_add_actions(flatten=True))
    columns = (actions.column(name).to_pylist() for name in ("partition.period", "num_records"))
    return list(zip(*columns, strict=True))


def _old_files(hdfs: str, start_ms: int) -> int:
    """Return the number of live files of hours before the run."""
    hour = period_of(start_ms)
    return sum(period < hour for period, _ in _live_files(hdfs))


def _check(hdfs: str, rows: int) -> None:
    found = sum(number for _, number in _live_files(hdfs))
    if found != rows:
        raise LagError(f"the table holds {found:,} rows, {rows:,} were written")


def _show(waiting: Waiting, pollers: list[Poller], hdfs: str, unit: str) -> None:
    lags = np.array(waiting.lags_ms) / 1000
    periods = [period for period, _ in _live_files(hdfs) if "T" in period]
    most = max(map(periods.count, set(periods)), default=0)
    late = max(poller.latest_s for poller in pollers)
    print(f"# {len(lags) * SERIES_A_SOURCE:,} samples; a poll was at most {late:.1f} s late", file=sys.stderr)
    emit("lag.hdfs.p50", float(np.percentile(lags, 50)), unit)
    emit("lag.hdfs.p99", float(np.percentile(lags, 99)), unit)
    emit("lag.hdfs.max", float(lags.max()), unit)
    emit("lag.hdfs.files", most, "live files of one hour, the most")
    if most > MAX_HOUR_FILES:
        raise LagError(f"{most} live files in one hour, at most {MAX_HOUR_FILES} are allowed")


def run_all(minutes: float, sources: int, hours: int, base_port: int, keep: bool = False) -> None:
    """Start a stack, measure, and remove its folder unless `keep`."""
    folder = Path(tempfile.mkdtemp(prefix="artimon-lag-"))
    capacity = capacity_of_two(sources)
    try:
        stack = Stack(folder / "stack", [*BASE, *REST], base_port=base_port, options={"capacity": str(capacity)})
        try:
            stack.start()
            for part in REST:
                stack.stop_part(part)
            stack.wait_healthy(900.0, ["zookeeper", "kafka", "namenode", "datanode", "collector-0"])
            measure(stack, folder, sources, minutes, hours)
        finally:
            stack.stop()
    finally:
        if keep:
            print(f"# kept: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def run(args: list[str]) -> None:
    """Run the command line; the module describes it."""
    parser = argparse.ArgumentParser(prog="benchmarks.lag", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="minutes in which every source is polled once")
    parser.add_argument("--sources", type=int, default=1_000, help="1,500 series each")
    parser.add_argument("--hours", type=int, default=1, help="closed hours of 90 million rows for the compactor")
    parser.add_argument("--base-port", type=int, default=25_300)
    parser.add_argument("--keep", action="store_true", help="keep the folder of data and logs")
    options = parser.parse_args(args)
    run_all(options.minutes, options.sources, options.hours, options.base_port, options.keep)


if __name__ == "__main__":
    run(sys.argv[1:])
