"""The raw query: samples from Kafka into the Delta table on HDFS, each exactly once.

The table is the truth. At every start its newest append gives the offsets to continue at and the batches seen; Spark's
checkpoint is a new folder each time and may vanish at any moment. A driver that was overtaken by another loses its
next commit and starts again.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.failpoints import Failpoint, no_failpoint
from artimon.model.ranges import LaneId
from artimon.rawtable import table_state as states
from artimon.rawtable.commit import RawTable
from artimon.rawtable.delta import StartTime
from artimon.rawtable.sources import SourcesTable
from artimon.rawtable.table_state import Epochs, Increment, LogGap, RawState, TableTotals
from pipeline.spark import gap_report as told
from pipeline.spark.append_pace import APPEND_ROWS, DEFAULT_ROWS, AppendPace, message_limit
from pipeline.spark.generations import Succession, generation_to_read
from pipeline.spark.raw_task import RawPlan, RawResult, run_raw, run_task
from pipeline.spark.source_numbers import KnownNumbers
from pipeline.spark.spark_settings import SparkConfig
from pipeline.spark.streaming_query import remove_checkpoint, run_query, streaming_frame, task_slots
from pipeline.spark.suspects import SUSPECTS_FILE, Suspects, run_with_trial
from pipeline.spark.topic_client import DeadLetter, LeaderChangedError, TopicClient, TopicError, TopicInfo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

MAX_UNREACHED = 1_000
RECOVERED_APPENDS = 8
"""Small appends in a row after which they are made large again."""
PAUSE_STEP_S = 0.25
MAX_CUT_CHECKS = 5
CUT_PAUSE_S = 3.0


class MissingOffsetsError(RuntimeError):
    """The rows of a micro-batch do not continue the table: the query must start again from it."""


class _LimitRecovered(Exception):
    """Restarts the query with appends of another size; not an error."""


class _TopicReplaced(Exception):
    """The topic was read to its end and a newer generation follows: the query restarts there. Not an error."""


class RunStart(NamedTuple):
    """One run of the query: its start offsets, the maximum number of messages of an append, whether that was reduced,
    and Spark's checkpoint."""

    run: RawRun
    start: Mapping[int, int]
    limit: int
    is_reduced: bool
    checkpoint: Path


class RawQuery:
    """Runs one query at a time, driven by `run`; `figures` may be called from any thread."""

    def __init__(
        self,
        config: SparkConfig,
        session: SparkSession,
        healthy: Callable[[], None],
        on_append: Callable[[], None] = lambda: None,
        clock: Clock = SYSTEM_CLOCK,
        probe: Failpoint = no_failpoint,
        suspects: Suspects | None = None,
    ) -> None:
        """`probe`: called at the points "written" and "committed"."""
        self._suspects = suspects or Suspects(config.data / SUSPECTS_FILE)
        self._config, self._session, self._healthy, self._on_append = config, session, healthy, on_append
        self._clock, self._probe = clock, probe
        self._topic = TopicClient(config.kafka, config.samples_topic)
        self._missing: set[tuple[str, LogGap]] = set()
        self._version, self._last_commit_ms = 0, 0
        self._state = RawState()
        self._log_end: Mapping[int, int] = {}
        self._log_start: Mapping[int, int] = {}
        self._appended, self._appends = TableTotals(), 0
        self._recent = TableTotals()
        """Counts of the last appends, each with half the weight of the next: the size of batches to come."""
        self._append_ms = self._appends_ms = 0.0
        self._unreached: deque[tuple[int, Mapping[int, int]]] = deque()
        """Log ends seen, as (time in ms, ends), oldest first; only those that the table has not reached."""
        self._last_ends: tuple[str, Mapping[int, int]] = "", {}
        """Topic id, and the log ends that this process saw last."""
        self._gaps_named = told.count_by_kind(())
        self._succession = Succession(clock)
        self._is_begun = False
        self._barren_runs = 0
        """Consecutive runs that ended before their first append."""

    def run(self, stop: threading.Event) -> None:
        """Run the query from the head of the table until `stop` or a failure, which is raised."""
        while not stop.is_set():
            self._run_once(stop)

    def _run_once(self, stop: threading.Event) -> None:
        """Run the query once. It ends by itself once RECOVERED_APPENDS reduced appends have succeeded."""
        reading = self.open(stop)
        life, limit = reading.run, reading.limit
        every = min(1.0, self._config.raw_interval_s / 4)
        try:
            frame = streaming_frame(
                self._session, "raw", self._config, life.info, reading.start, limit, self._trigger_options(limit)
            )
            with suppress(_LimitRecovered, _TopicReplaced):
                look = partial(self._check, life.info, life, reading.is_reduced)
                run_query(self._session, "raw", frame, life.on_batch, every, reading.checkpoint, stop, look)
        finally:
            self.close(reading)

    def open(self, stop: threading.Event) -> RunStart:
        """Begin a run at the offsets of the table, with a new checkpoint folder. `close` must follow.
        Raises TableError, TopicError, OSError."""
        life = self.begin(stop)
        state, info = life.state, life.info
        most, like = self._config.raw_messages, self._recent if self._recent.batches else state.totals
        limit = message_limit(most, like.rows, like.batches, self._barren_runs)
        small = limit < message_limit(most, like.rows, like.batches)
        log.info(
            "raw: append %d, reading %s (%s) from %s", state.append, info.topic, info.topic_id, dict(state.until())
        )
        checkpoint = self._config.data / "checkpoints" / f"raw-{uuid.uuid4().hex}"
        life.limit = limit
        return RunStart(life, state.until(), limit, small, checkpoint)

    def close(self, reading: RunStart) -> None:
        """End a run: stop its batches, free the broadcast, delete the checkpoint."""
        life = reading.run
        self._barren_runs = 0 if life.appends else self._barren_runs + 1
        life.is_ended = True
        life.free_sources()
        remove_checkpoint(reading.checkpoint)
        self._topic.close()

    def begin(self, stop: threading.Event) -> RawRun:
        """Return the run that continues the head of the table, after a commit named gaps between table and log.
        Raises TableError, TopicError, OSError."""
        table = self.open_table()
        version, state = table.head()
        if not self._is_begun:
            self._is_begun = True
            now_ms = self._clock.now_ms()
            self._gaps_named += told.count_by_kind(named.gap for named in told.recent(state, now_ms, told.COUNTED_MS))
        self._topic = self._topic.switched_to(generation_to_read(state, self._topic.generations()).topic)
        info = self._succession.limited_to_begun(state, self._topic.describe())
        state = self._close_gaps(table, state, info, stop)
        self._set_state(version, state)
        following = self._succession.successor(self._topic, info, state, self._log_end)
        if following is not None:
            state, info = self._begin_next(table, state, following)
        pace = AppendPace(self._config.raw_interval_s, Counter(table.partitions()))
        return self.make_run(table, state, info, pace, stop)

    def make_run(
        self,
        table: RawTable,
        state: RawState,
        info: TopicInfo,
        pace: AppendPace,
        stop: threading.Event,
    ) -> RawRun:
        """Return the run that continues `state`."""
        return RawRun(self, table, state, info, pace, stop)

    def open_table(self) -> RawTable:
        """Open the table for one run."""
        return RawTable(self._config.hdfs, self._clock)

    def figures(self) -> dict[str, Any]:
        """Return the figures that `artimon status` shows."""
        state = self._state
        return {
            "version": self._version,
            "append": state.append,
            **asdict(state.totals),
            "since_start": {
                **asdict(self._appended),
                "appends": self._appends,
                "appends_ms": round(self._appends_ms),
                "gaps": dict(self._gaps_named),
            },
            "gaps": told.to_figures(state, self._clock.now_ms()),
            "append_ms": round(self._append_ms),
            "interval_ms": round(self._config.raw_interval_s * 1000),
            "behind": sum(max(0, end - state.until().get(p, 0)) for p, end in self._log_end.items()),
            "until": {str(p): at for p, at in state.until().items()},
            "log_end": {str(p): at for p, at in self._log_end.items()},
            "last_commit_ms": self._last_commit_ms,
            "lag_ms": self._lag_ms(),
        }

    def problems(self) -> list[str]:
        """Return the gaps named in the last 24 hours, from the table itself, and an altered topic."""
        succession = [self._succession.problem] if self._succession.problem else []
        return [*told.problem_texts(self._state, self._clock.now_ms()), *succession]

    def _trigger_options(self, limit: int) -> dict[str, str]:
        """Return options that make Spark wait for a whole append or the interval, whichever comes first: a backlog
        drains at full speed."""
        return {
            "minOffsetsPerTrigger": str(limit),
            "maxTriggerDelay": f"{int(self._config.raw_interval_s * 1000)}ms",
        }

    def _check(self, info: TopicInfo, life: RawRun, small: bool = False) -> None:
        """Check every few seconds that the topic is the same; read its ends. `small`: this run's appends are small."""
        try:
            self._check_topic(info)
            self._check_deleted(life)
            if (small and life.appends >= RECOVERED_APPENDS) or life.is_too_large:
                raise _LimitRecovered
        except BaseException:
            life.is_ended = True  # before the query is stopped: a batch that pauses must not delay that
            raise

    def _check_topic(self, info: TopicInfo) -> None:
        # ends before leaders: messages that a new leader got meanwhile must not count as lost by the old one
        bounds = self._topic.log_bounds(info.partitions)
        ends = {p: end for p, (_, end) in bounds.items()}
        now = self._topic.describe()
        if now.topic_id != info.topic_id:
            raise TopicError(f"{info.topic} was re-created: topic id {info.topic_id} is gone")
        if now.limited(info.partitions).epochs != info.epochs:
            raise LeaderChangedError(f"{info.topic}: partitions have new leaders; checking that their logs are whole")
        self._log_end = ends
        self._log_start = {p: start for p, (start, _) in bounds.items()}
        self._last_ends = info.topic_id, ends
        if len(self._unreached) < MAX_UNREACHED:
            self._unreached.append((self._clock.now_ms(), self._log_end))
        self._healthy()
        if self._succession.successor(self._topic, info, self._state, ends) is not None:
            raise _TopicReplaced

    def _begin_next(self, table: RawTable, state: RawState, info: TopicInfo) -> tuple[RawState, TopicInfo]:
        """Commit the end of the topic and switch to the next one."""
        self._topic = self._topic.switched_to(info.topic)
        epochs = self._topic.epochs(info, {}) if info.epochs else {}
        after = states.begin_next_topic(state, uuid.uuid4().hex, info.topic_id, info.partitions, epochs)
        self._set_state(table.append([], state, after), after)
        self._last_ends, self._log_end = (info.topic_id, {}), {}
        log.info("raw: the previous topic was read to its end; %s (%s) is next", info.topic, info.topic_id)
        return after, info

    def _check_deleted(self, life: RawRun) -> None:
        """Raise MissingOffsetsError if Kafka deleted messages that the table lacks: no batch shows that until a newer
        one comes. A batch in progress may have read them earlier: then the next check decides."""
        until = life.state.until()
        gone = {p: start for p, start in self._log_start.items() if until.get(p, 0) < start}
        if gone and not life.is_appending:
            told = "; ".join(str(LogGap("lost", p, until.get(p, 0), start)) for p, start in sorted(gone.items()))
            raise MissingOffsetsError(f"{life.info.topic}: {told}; restarting above")

    def _lag_ms(self) -> int:
        """Return the milliseconds since the log was first seen to end beyond the table; 0 if the table reached it."""
        until = self._state.until()
        while self._unreached and all(end <= until.get(p, 0) for p, end in self._unreached[0][1].items()):
            self._unreached.popleft()
        return self._clock.now_ms() - self._unreached[0][0] if self._unreached else 0

    def _close_gaps(self, table: RawTable, state: RawState, info: TopicInfo, stop: threading.Event) -> RawState:
        """Return the state from which the log can be read; a commit names lost ranges and new leader epochs."""
        fresh = states.begins_topic(state, info.topic_id)
        if not fresh and len(state.until()) != info.partitions:
            raise TopicError(
                f"{info.topic} has {info.partitions} partitions, the table has read {len(state.until())}: "
                "a lane would change its partition; create a new topic instead"
            )
        known = {} if fresh or state.current is None else state.current.epochs
        epochs = self._topic.epochs(info, known) if info.epochs else {}
        gaps = self._find_gaps(state, info, epochs)
        for _ in range(MAX_CUT_CHECKS):  # right after a broker's start, log ends may look too low
            if not any(gap.kind == "cut" for gap in gaps) or self._clock.wait(stop, CUT_PAUSE_S):
                break
            gaps = self._find_gaps(state, info, epochs)
        if stop.is_set() or not (gaps or fresh or (epochs and epochs != dict(known))):
            return state
        for gap in gaps:
            log.error("raw: %s, %s", info.topic, gap)
        writer, now_ms = uuid.uuid4().hex, self._clock.now_ms()
        name = self._config.samples_topic  # same name for all generations
        after = states.close_gaps(
            state, writer, info.cluster, name, info.topic_id, info.partitions, gaps, epochs, now_ms
        )
        self._set_state(table.append([], state, after), after)
        self._last_ends = info.topic_id, {}  # until the next check, which knows the leaders
        self._gaps_named.update(told.count_by_kind(gaps))
        return after

    def _find_gaps(self, state: RawState, info: TopicInfo, epochs: Mapping[int, Epochs]) -> list[LogGap]:
        bounds = self._topic.log_bounds(info.partitions)
        if self._topic.describe().topic_id != info.topic_id:  # then the bounds are those of another log
            raise TopicError(f"{info.topic} was re-created while it was checked")
        self._log_end = {p: end for p, (_, end) in bounds.items()}
        topic_id, seen = self._last_ends
        return states.find_gaps(state, info.topic_id, bounds, epochs, seen if topic_id == info.topic_id else None)

    def _count_append(self, counts: TableTotals, took_s: float) -> None:
        """Count one append and its duration, from its first task to its commit."""
        self._appended, self._appends = self._appended.add(counts), self._appends + 1
        self._recent = TableTotals(self._recent.rows // 2, self._recent.batches // 2).add(counts)
        self._append_ms = took_s * 1000
        self._appends_ms += self._append_ms

    def _set_state(self, version: int, state: RawState) -> None:
        self._version, self._state = version, state
        self._last_commit_ms = self._clock.now_ms()
        self._on_append()


class RawRun:
    """One run of the query, from a start to the next failure. `state` is the append that the next one must continue."""

    open_sources: Callable[[str], SourcesTable] = SourcesTable
    """Opens the table of sources in a task."""

    def __init__(
        self,
        query: RawQuery,
        table: RawTable,
        state: RawState,
        info: TopicInfo,
        pace: AppendPace | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self._query, self._table = query, table
        self.state, self.info = state, info
        self._pace, self._stop = pace or AppendPace(query._config.raw_interval_s), stop or threading.Event()
        self._rows_a_message = float(DEFAULT_ROWS)
        self.limit = query._config.raw_messages
        """Most messages of an append."""
        self.appends = 0
        self.is_too_large = False
        """True if batches became larger: appends of as many messages would hold too many rows."""
        self._writer = uuid.uuid4().hex
        self._numbers = KnownNumbers(self.broadcast_sources)
        self.is_ended = False
        self.is_appending = False
        """True while a batch is read that is not in `state` yet."""

    def on_batch(self, frame: Any, _batch: int) -> None:
        """Handle one micro-batch (foreachBatch): run the tasks, then commit the files they wrote."""
        self.is_appending = True
        try:
            appended = self._append(frame)
        finally:
            self.is_appending = False
        if appended:
            self._pause()

    def _append(self, frame: Any) -> bool:
        """Run the tasks and commit their files; False if Kafka returned no messages."""
        began = StartTime.of(self._query._clock)
        results = self._run_tasks(frame)
        if not results:
            return False
        step = self._plan_append(results)
        self._write_dead_letters(results)
        self._check_owned()
        self._query._probe("written")
        after = states.advance(self.state, self._writer, step)
        written = [f for r in results for f in r.files]
        version = self._table.append(written, self.state, after, began)
        self._query._probe("committed")
        self.state, self.appends = after, self.appends + 1
        self._query._set_state(version, after)
        self._query._gaps_named.update(told.count_by_kind(step.lost))
        self._query._count_append(step.counts, self._query._clock.monotonic() - began.monotonic)
        log.info(
            "raw: append %d, version %d, %d rows of %d batches",
            after.append,
            version,
            step.counts.rows,
            step.counts.batches,
        )
        messages = sum(result.until - result.first for result in results)
        # Spark shares the limit out among partitions and rounds down
        self._pace.record(written, messages > self.limit - len(self.state.until()))
        self.is_too_large = step.counts.rows > 2 * APPEND_ROWS
        if step.counts.batches:
            self._rows_a_message = step.counts.rows / step.counts.batches
        return True

    def _pause(self) -> None:
        """Pause while files of this hour are scarce, so that the next append is larger."""
        clock = self._query._clock
        pause = self._pace.pause_s(clock.now_ms())
        if pause:
            log.debug("raw: %.0f s until the next append: this hour has many files already", pause)
        until = clock.monotonic() + pause
        while not self.is_ended and (left := until - clock.monotonic()) > 0:
            if clock.wait(self._stop, min(left, PAUSE_STEP_S)):
                return

    def free_sources(self) -> None:
        """Free the broadcast."""
        if self._numbers.last is not None:
            self._numbers.last.unpersist(blocking=False)

    def _run_tasks(self, frame: Any) -> list[RawResult]:
        sources, old = self._numbers.sent(self._query._clock.monotonic())
        if old is not None:
            old.unpersist(blocking=False)
        plan = RawPlan(
            self._table.uri,
            self.state.lanes,
            sources,
            self._numbers.recent,
            self._query._config.hdfs,
            self.open_sources,
            append=self.state.append + 1,
            partitions=len(self.state.until()),
        )
        results = sorted(self.run_tasks(frame, plan), key=lambda result: result.partition)
        for result in results:
            self._numbers.add(result.sources)
        return results

    def broadcast_sources(self, ids: Mapping[str, int]) -> Any:
        """Broadcast numbers of sources to the tasks."""
        return self._query._session.sparkContext.broadcast(ids)

    def run_tasks(self, frame: Any, plan: RawPlan) -> list[RawResult]:
        """Run the tasks in Spark and return their results, one for each partition."""
        joined = frame.coalesce(self._task_count())

        return run_with_trial(
            lambda plan: run_task(joined, lambda batches: run_raw(plan, batches)), plan, self._query._suspects
        )

    def _task_count(self) -> int:
        """Return the number of tasks for the rows that wait; each reads several Kafka partitions into shared files. The
        log end is some seconds old, which is accurate enough."""
        until = self.state.until()
        waiting = sum(max(0, end - until.get(p, 0)) for p, end in self._query._log_end.items())
        rows = int(min(waiting, self._query._config.raw_messages) * self._rows_a_message)
        return self._pace.task_count(rows, task_slots(self._query._session))

    def _plan_append(self, results: list[RawResult]) -> Increment:
        lost = tuple(gap for result in results for gap in self._lost_ranges(result))
        last_ms: dict[LaneId, int] = {}
        for result in results:
            last_ms.update(result.last_ms)
        counts = TableTotals(
            sum(r.rows for r in results),
            sum(r.batches for r in results),
            sum(r.duplicates for r in results),
            sum(len(r.dead_letters) for r in results),
        )
        newest = max(r.newest_append_ms for r in results)
        until, seen = {r.partition: r.until for r in results}, {r.partition: r.accepted for r in results}
        return Increment(until, seen, last_ms, counts, newest, lost, self._query._clock.now_ms())

    def _lost_ranges(self, result: RawResult) -> list[LogGap]:
        """Return lost offset ranges. A missing range restarts the query once; if it is missing again, it is lost."""
        expected = self.state.until().get(result.partition)
        if expected is None or result.first < expected:
            raise MissingOffsetsError(
                f"partition {result.partition} begins at {result.first}, the table ends at {expected}"
            )
        spans = ([(expected, result.first)] if result.first > expected else []) + result.missing
        gaps = [LogGap("lost", result.partition, start, end) for start, end in spans]
        fresh = [gap for gap in gaps if (self.info.topic_id, gap) not in self._query._missing]
        self._query._missing.update((self.info.topic_id, gap) for gap in fresh)
        if fresh:
            raise MissingOffsetsError(f"{self.info.topic}: {'; '.join(map(str, fresh))}; reading them again")
        for gap in gaps:
            log.error("raw: %s, %s", self.info.topic, gap)
        return gaps

    def _write_dead_letters(self, results: list[RawResult]) -> None:
        letters = [DeadLetter(r.partition, offset, reason) for r in results for offset, reason in r.dead_letters]
        for letter in letters[:10]:
            log.error("raw: dead letter at partition %d offset %d: %s", letter.partition, letter.offset, letter.reason)
        if letters:
            self._query._topic.copy_to(letters, self._query._config.deadletters_topic)

    def _check_owned(self) -> None:
        """Check that this run has not been stopped, and that the topic is still the one whose offsets are committed."""
        if self.is_ended:
            raise MissingOffsetsError("this query was stopped while a batch was in progress")
        if self._query._topic.describe().topic_id != self.info.topic_id:
            raise TopicError(f"{self.info.topic} was re-created while it was read")
        if self.info.epochs:
            self._query._topic.check_leaders(self.info)
