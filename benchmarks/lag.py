"""Age of samples when the table on HDFS shows them. Every source is polled once a minute at its phase; its samples pass
the agent's log, the collector, Kafka and the raw query, while the shards are fed and the compactor runs.

Phases are those of the product (`sources.base.schedule.phase_ms`): all polls of a minute fall into its first ten
seconds, so 1.5 million samples a minute are bursts of some 165,000 samples a second.

The lag of a sample is the time at which a reader of the table sees its commit, less the poll time in the header of its
batch. Percentiles are over all samples of the run, the cold start in the first minute included. Before the run a whole
hour of the same load is written as if it had been appended, so that the compactor has work.
`lag.buckets.*`: the same until every shard that holds the source shows the batch.

With --users or --rules all series are announced beforehand. Two users share a board of 20 panels, 12 of them over all
sources, refreshed every 10 s: `lag.questions.p99`. Each fourth rule reads all sources: `lag.alerts`.
A run of three or more periods (--period) prints each on standard error, with processor time and resident memory of
every part, and `lag.FIGURE.slope`: the growth of a figure by least squares, without the first period, as a share of its
mean. `lag.cpu` and `lag.memory` are those of the stack, without this process, which makes the load and runs the agents.

python -m benchmarks.lag --minutes 30 --sources 5320 --users 10 --rules 200   # 133,000 samples a second
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from deltalake import DeltaTable

from artimon.model.batch import PollResult
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.grid import DEFAULT_LEVELS
from artimon.model.hash_routing import DEFAULT_LANES, lane_of
from artimon.rawtable.head import HeadReader
from artimon.rawtable.schema import period_of, raw_uri
from artimon.rawtable.table_state import RawState
from artimon.runtime.health import read_health
from artimon.stack.stack import Stack
from benchmarks.common import emit, say
from benchmarks.loads.hours import fill_hours
from benchmarks.loads.readers import refresh_boards, rule_file
from benchmarks.loads.samples import SERIES_A_SOURCE, Source, capacity_of_two
from benchmarks.loads.usage import OWN, UsageLog
from benchmarks.loads.values import announce
from benchmarks.loads.visible import Visible
from benchmarks.serving.racks import Refresh
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from sources.base.schedule import phase_ms
from varstore.cluster.varstore_client import VarstoreClient
from varstore.index.shard_limits import bytes_per_series

BASE = ("zookeeper", "kafka", "hdfs", "shards", "collector-0")
REST = ("spark", "compactor")
AGENTS = 4
MINUTE_MS = 60_000
MINUTE_S = 60.0
LOOK_S = 0.2
DRAIN_S = 900.0
MAX_HOUR_FILES = 120
HOUR_FILES = 4
SLOPE_MINUTES = 10.0
"""Slopes are shares of the mean in this time."""
MIN_PERIODS = 3
"""Least number of periods with slopes: the first one is left out."""


@dataclass(frozen=True, slots=True)
class Load:
    """Size of a run: minutes in which every source is polled once, closed hours for the compactor, and readers of the
    series. `period`: minutes of a row of usage."""

    minutes: float
    sources: int
    hours: int
    users: int = 0
    rules: int = 0
    period: float = 5.0

    @property
    def parts(self) -> tuple[str, ...]:
        """Parts that start after the hours are written."""
        return (*REST, *(("api",) if self.users else ()), *(("alerts",) if self.rules else ()))

    @property
    def periods(self) -> int:
        """Number of periods; 0 if too few for slopes."""
        periods = int(self.minutes // self.period)
        return periods if periods >= MIN_PERIODS else 0

    @property
    def series(self) -> int:
        """Number of series."""
        return self.sources * SERIES_A_SOURCE

    @property
    def unit(self) -> str:
        """Size of the load, for the unit of a line."""
        readers = f", {self.users} users, {self.rules} rules" if self.users or self.rules else ""
        return f"({self.minutes:g} minutes, {self.series:,} samples a minute, all within its first 10 s{readers})"


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
        self._lags: list[tuple[int, int]] = []

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
            self._lags.append((polls[number], now_ms - polls[number]))
        shown[start:end] = True

    @property
    def batches(self) -> int:
        """Number of batches accepted so far."""
        with self._lock:
            return sum(map(len, self._polls.values()))

    @property
    def lags(self) -> list[tuple[int, int]]:
        """Poll time and lag of each shown batch, ms."""
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


def measure(stack: Stack, folder: Path, load: Load) -> None:
    """Fill closed hours, poll, wait for table and shards, check, print the lines."""
    began = time.monotonic()
    start_ms = SYSTEM_CLOCK.now_ms()
    old = fill_hours(stack.hdfs, start_ms, load.hours) if load.hours else 0
    say(f"{old:,} rows of {load.hours} closed hours in {time.monotonic() - began:.0f} s")
    _start_rest(stack, load)
    generators = [np.random.default_rng(n) for n in range(AGENTS)]
    made = [Source(i, generators[i % AGENTS], start_ms) for i in range(load.sources)]
    waiting, ended = Waiting(), threading.Event()
    pollers = [Poller(n, made[n::AGENTS], folder, stack.zookeeper, waiting) for n in range(AGENTS)]
    watcher = threading.Thread(target=watch, args=(stack.hdfs, waiting, ended), daemon=True)
    visible, usage = Visible(stack.zookeeper, stack.kafka), UsageLog(stack)
    visible.start()
    try:
        for poller in pollers:
            poller.agent.start()
        watcher.start()
        usage.start()
        begin = next_minute()
        begin_ms = SYSTEM_CLOCK.now_ms() + round((begin - time.monotonic()) * 1000)
        refreshes = _poll_and_read(stack, pollers, load, begin)
        rules = _check_rules(stack, load) if load.rules else {}
        usage.stop()
        _until(lambda: len(visible.lags) >= waiting.batches, "the shards show every batch", DRAIN_S)
        _until(lambda: len(waiting.lags) >= waiting.batches, "the table shows every batch", DRAIN_S)
        if load.hours:
            few = HOUR_FILES * load.hours
            _until(lambda: _old_files(stack.hdfs, start_ms) <= few, "old hours are compacted", DRAIN_S)
        _check(stack.hdfs, old + waiting.batches * SERIES_A_SOURCE)
    finally:
        ended.set()
        visible.stop()
        for poller in pollers:
            poller.agent.stop()
    _show(waiting, pollers, stack.hdfs, f"s {load.unit}")
    shown = np.array(visible.lags)[:, 1] / 1000
    emit("lag.buckets.p50", float(np.percentile(shown, 50)), f"s {load.unit}")
    emit("lag.buckets.p99", float(np.percentile(shown, 99)), f"s {load.unit}")
    emit("lag.buckets.max", float(shown.max()), f"s {load.unit}")
    if refreshes:
        took = np.concatenate([one.took for one in refreshes]) * 1000
        emit("lag.questions.p99", float(np.percentile(took, 99)), f"ms, {len(took):,} answers {load.unit}")
    if rules:
        evaluated = f"the last of {rules['evaluations']} evaluations"
        emit("lag.alerts", rules["duration_ms"] / 1000, f"s, {evaluated} {load.unit}")
    times = {
        "hdfs": [((poll - begin_ms) / 1000, lag / 1000) for poll, lag in waiting.lags],
        "buckets": [((poll - begin_ms) / 1000, lag / 1000) for poll, lag in visible.lags],
        "questions": [(one.began_s - begin, took * 1000) for one in refreshes for took in one.took],
    }
    _show_periods(load, usage, begin, times)


def _start_rest(stack: Stack, load: Load) -> None:
    """Announce the series if there are readers, start the remaining parts, and wait until they know the series."""
    if load.rules:
        rules = stack.data / "alerts" / "rules"
        rules.mkdir(parents=True, exist_ok=True)
        (rules / "bench.yaml").write_text(rule_file(load.rules, load.sources))
    began = time.monotonic()
    if load.users or load.rules:
        announce(stack.kafka, list(range(load.sources)))
        say(f"{load.series:,} series announced in {time.monotonic() - began:.0f} s")
        with VarstoreClient(stack.zookeeper) as store:
            _until(lambda: _announced(store) == load.series, "the shards know the series", DRAIN_S)
        say(f"known to the shards after {time.monotonic() - began:.0f} s")
    for part in load.parts:
        stack.start_part(part)
    stack.wait_healthy(900.0, load.parts)
    if load.users or load.rules:
        _until(lambda: _series_written(stack) >= load.series, "the table of series is written", DRAIN_S)
        say(f"in the table of series after {time.monotonic() - began:.0f} s")


def _announced(store: VarstoreClient) -> int:
    try:
        return sum(int(one["series"]) for one in store.statuses().values())
    except ValueError:
        return 0


def _series_written(stack: Stack) -> int:
    health = read_health(stack.context.health("spark"))
    return int(health.figures.get("series", {}).get("series", 0)) if health else 0


def _poll_and_read(stack: Stack, pollers: list[Poller], load: Load, begin: float) -> list[Refresh]:
    """Poll and let the users refresh until the last minute is over; return the refreshes. Raises LagError."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        asked: Future[tuple[list[Refresh], str]] | None = None
        if load.users:
            seconds = begin - time.monotonic() + load.minutes * MINUTE_S
            asked = pool.submit(refresh_boards, stack.context.address("api.http"), load.sources, load.users, seconds)
        _poll_all(pollers, load.minutes, begin)
        if load.periods:
            time.sleep(max(0.0, begin + load.minutes * MINUTE_S - time.monotonic()))
        if asked is None:
            return []
        refreshes, problem = asked.result()
    if problem:
        raise LagError(f"an answer was refused: {problem}")
    return refreshes


def _poll_all(pollers: list[Poller], minutes: float, begin: float) -> None:
    failures: list[BaseException] = []

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
    lags = np.array(waiting.lags)[:, 1] / 1000
    periods = [period for period, _ in _live_files(hdfs) if "T" in period]
    most = max(map(periods.count, set(periods)), default=0)
    late = max(poller.latest_s for poller in pollers)
    say(f"{len(lags) * SERIES_A_SOURCE:,} samples; a poll was at most {late:.1f} s late")
    emit("lag.hdfs.p50", float(np.percentile(lags, 50)), unit)
    emit("lag.hdfs.p99", float(np.percentile(lags, 99)), unit)
    emit("lag.hdfs.max", float(lags.max()), unit)
    emit("lag.hdfs.files", most, "live files of one hour, the most")
    if most > MAX_HOUR_FILES:
        raise LagError(f"{most} live files in one hour, at most {MAX_HOUR_FILES} are allowed")


def _check_rules(stack: Stack, load: Load) -> dict[str, Any]:
    """Return the figures of the alert engine. Raises LagError if the rules were not evaluated each minute."""
    health = read_health(stack.context.health("alerts"))
    figures: dict[str, Any] = health.figures if health else {"problems": ["no health"]}
    if figures["problems"] or figures["missed"] or figures["evaluations"] < load.minutes - 1:
        told = {name: figures.get(name) for name in ("evaluations", "missed", "problems")}
        raise LagError(f"alerts: {told}")
    return figures


def _show_periods(load: Load, usage: UsageLog, begin: float, times: dict[str, list[tuple[float, float]]]) -> None:
    """Print usage and lags of each period, and the slopes; `times`: seconds since `begin` and a figure."""
    if not load.periods:
        return
    length = load.period * MINUTE_S
    found = {name: np.array(pairs) for name, pairs in times.items() if pairs}
    rows: dict[str, list[float]] = {}
    for number in range(load.periods):
        start, end = number * length, (number + 1) * length
        row = {
            f"{name}.p99": float(np.percentile(pairs[(start <= pairs[:, 0]) & (pairs[:, 0] < end), 1], 99))
            for name, pairs in found.items()
        }
        cpu = {part: usage.cores(part, begin + start, begin + end) for part in usage.parts}
        memory = {part: usage.bytes(part, begin + start, begin + end) / 2**20 for part in usage.parts}
        row["cpu"], row["memory"] = (sum(of.values()) - of[OWN] for of in (cpu, memory))
        shards = [part for part in memory if part.startswith("shard-")]
        row["memory@shards"] = sum(memory[part] for part in shards)
        row["memory@others"] = row["memory"] - row["memory@shards"]
        figures = ", ".join(f"{name} {value:.4g}" for name, value in row.items())
        say(f"minutes {start / 60:g} to {end / 60:g}: {figures}")
        say("  cores: " + " ".join(f"{part} {value:.3f}" for part, value in cpu.items()))
        say("  MiB: " + " ".join(f"{part} {value:.0f}" for part, value in memory.items()))
        for name, value in row.items():
            rows.setdefault(name, []).append(value)
    emit("lag.cpu", float(np.mean(rows["cpu"][1:])), f"cores {load.unit}")
    emit("lag.memory", rows["memory"][-1], f"MiB resident in the last {load.period:g} minutes {load.unit}")
    for name, values in rows.items():
        figure, _, of = name.partition("@")
        line = f"lag.{figure.removesuffix('.p99')}.slope{'@' if of else ''}{of}"
        emit(line, 100 * slope(values) * SLOPE_MINUTES / load.period, f"% in {SLOPE_MINUTES:g} minutes {load.unit}")


def slope(values: Sequence[float]) -> float:
    """Return the growth in one period by least squares, without the first period, as a share of the mean.

    >>> round(slope([50.0, 9.0, 10.0, 11.0]), 6)
    0.1
    """
    later = np.array(values[1:])
    return float(np.polyfit(np.arange(len(later)), later, 1)[0] / later.mean())


def run_all(load: Load, base_port: int, keep: bool = False) -> None:
    """Start a stack, measure, and remove its folder unless `keep`."""
    folder = Path(tempfile.mkdtemp(prefix="artimon-lag-"))
    capacity = capacity_of_two(load.sources)
    reserved = capacity * bytes_per_series(DEFAULT_LEVELS) // 2**20 + 1
    options = {"capacity": str(capacity), "memory": str(reserved)}
    try:
        stack = Stack(folder / "stack", [*BASE, *load.parts], base_port=base_port, options=options)
        try:
            stack.start()
            for part in load.parts:
                stack.stop_part(part)
            stack.wait_healthy(900.0, ["zookeeper", "kafka", "namenode", "datanode", "collector-0"])
            measure(stack, folder, load)
        finally:
            stack.stop()
    finally:
        if keep:
            say(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def run(args: list[str]) -> None:
    """Run the command line; the module describes it."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="benchmarks.lag", description=__doc__, formatter_class=form)
    parser.add_argument("--minutes", type=float, default=30.0, help="minutes in which every source is polled once")
    parser.add_argument("--sources", type=int, default=1_000, help="1,500 series each")
    parser.add_argument("--hours", type=int, default=1, help="closed hours of 90 million rows for the compactor")
    parser.add_argument("--users", type=int, default=0, help="users that refresh a board every 10 s")
    parser.add_argument("--rules", type=int, default=0, help="alert rules, evaluated each minute")
    parser.add_argument("--period", type=float, default=5.0, help="minutes of a period")
    parser.add_argument("--base-port", type=int, default=25_300)
    parser.add_argument("--keep", action="store_true", help="keep the folder of data and logs")
    options = parser.parse_args(args)
    size = (options.minutes, options.sources, options.hours, options.users, options.rules, options.period)
    run_all(Load(*size), options.base_port, options.keep)


if __name__ == "__main__":
    run(sys.argv[1:])
