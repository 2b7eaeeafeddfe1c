"""The buckets query: sends columns of fresh samples to the shards of the memory store, every second or two.

It keeps no state: the shards' answers give its start offsets and the backlog of each shard.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.feed_codec import FeedRange, concat_samples
from artimon.rawtable.table_state import Span
from artimon.runtime.partition_counts import PartitionCounts, confirmed_partitions
from artimon.runtime.supervision import RetryLoop
from pipeline.control.shard_directory import ShardDirectory, ShardGroup, ShardInfo, ShardsUnknownError
from pipeline.spark.feed_progress import FeedProgress
from pipeline.spark.feed_task import SHARD_CALLS, FeedPlan, FeedResult, ShardCalls, run_feed
from pipeline.spark.generations import SealTracker
from pipeline.spark.log_truncation import Truncation, TruncationDetector
from pipeline.spark.raw_task import run_task
from pipeline.spark.spark_settings import SparkConfig
from pipeline.spark.streaming_query import range_frame, remove_checkpoint, run_query, streaming_frame, task_slots
from pipeline.spark.suspects import SUSPECTS_FILE, Suspects, run_with_trial
from pipeline.spark.topic_client import LeaderChangedError, TopicClient, TopicError, TopicInfo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

CATCH_UP_MESSAGES = 500
"""Messages per partition in one step of a catch-up."""
CATCH_UP_PAUSE_S = 0.5
DRAIN_CHECK_S = 5.0
"""Seconds between two searches for shards that lack messages of an older generation of the topic."""
DRAIN_TIMEOUT_S = 60.0
"""Timeout of a shard that makes no progress in a replaced topic: then it is told that the rest is lost to it."""
MAX_CHECKS_ALONE = 3
"""Consecutive checks without a group that follows the query before it restarts at the furthest group."""


class _TopicReplaced(Exception):
    """A newer generation of the topic exists: the query restarts there. Not an error."""


class BucketsQuery:
    """Runs one query at a time, driven by `run`; `figures` may be called from any thread."""

    def __init__(
        self,
        config: SparkConfig,
        session: SparkSession,
        zookeeper: KazooClient,
        healthy: Callable[[], None],
        clock: Clock = SYSTEM_CLOCK,
        suspects: Suspects | None = None,
    ) -> None:
        self._config, self._session, self._healthy, self._clock = config, session, healthy, clock
        self._suspects = suspects or Suspects(config.data / SUSPECTS_FILE)
        self._directory = ShardDirectory(zookeeper)
        self._topic = TopicClient(config.kafka, config.samples_topic)
        self._counts = PartitionCounts(confirmed_partitions(zookeeper) if zookeeper is not None else None, clock)
        self._run: BucketsRun | None = None
        self._truncations = TruncationDetector("")
        self._seals = SealTracker(clock)
        self._drained: set[tuple[str, ShardInfo, int | None]] = set()
        """Topic id, and shards that have all of that topic, each with the virtual shards it held."""

    def run(self, stop: threading.Event) -> None:
        """Run the query from the shards' offsets until `stop` or a failure, which is raised."""
        while not stop.is_set():
            self._topic = self._topic.switched_to(self._topic.generations()[-1].topic)
            with suppress(_TopicReplaced):
                self._run_once(stop)

    def _run_once(self, stop: threading.Event) -> None:
        life, start = self.open()
        info = life.info
        log.info("buckets: reading %s (%s) from %s", info.topic, info.topic_id, start)
        checkpoint = self._config.data / "checkpoints" / f"buckets-{uuid.uuid4().hex}"
        ended = threading.Event()
        helpers = [
            threading.Thread(target=life.catch_up, args=(ended,), name="catch-up", daemon=True),
            threading.Thread(target=self._drain_older, args=(ended,), name="older-topics", daemon=True),
        ]
        for helper in helpers:
            helper.start()
        try:
            frame = streaming_frame(
                self._session, "buckets", self._config, info, start, self._config.bucket_messages, {}
            )
            every = self._config.bucket_interval_s
            run_query(self._session, "buckets", frame, life.on_batch, every, checkpoint, stop, lambda: self.check(life))
        finally:
            ended.set()
            for helper in helpers:
                helper.join(timeout=5)
            remove_checkpoint(checkpoint)
            self._topic.close()

    def open(self) -> tuple[BucketsRun, Mapping[int, int]]:
        """Begin a run and return its start offsets. Raises ShardsUnknownError, TopicError."""
        info = self._with_counted_partitions(self._topic.describe())
        if self._truncations.topic_id != info.topic_id:
            self._truncations = TruncationDetector(info.topic_id)
        life = self._run = self.make_run(info)
        life.rewind_truncated(self._truncations, info, life.ask_all(), self._clock.now_ms())
        return life, life.start_offsets()

    def make_run(self, info: TopicInfo) -> BucketsRun:
        """Return a run that reads this topic."""
        return BucketsRun(self._config, self._session, self._directory, self._topic, info, suspects=self._suspects)

    def figures(self) -> dict[str, Any]:
        """Return the figures that `artimon status` shows."""
        return {} if self._run is None else self._run.progress.figures(self._clock.now_ms())

    def check(self, life: BucketsRun) -> None:
        """Check every few seconds that the topic is the same and its log was not cut, and ask the shards. Raises
        TopicError, ShardsUnknownError."""
        info = life.info
        now = self._topic.describe().limited(info.partitions)
        if now.topic_id != info.topic_id:
            raise TopicError(f"{info.topic} was re-created: topic id {info.topic_id} is gone")
        bounds = self._topic.log_bounds(info.partitions)
        now_ms = self._clock.now_ms()
        life.progress.record_log_end({p: end for p, (_, end) in bounds.items()}, now_ms)
        life.rewind_truncated(self._truncations, now, bounds, now_ms)
        life.pass_deleted(bounds)
        life.check_shards()
        self._healthy()
        if self._topic.generations()[-1].topic != info.topic:
            raise _TopicReplaced

    def _with_counted_partitions(self, info: TopicInfo) -> TopicInfo:
        """Return the topic with the partitions that lanes are spread over."""
        return info.limited(self._counts.count(info.topic, info.topic_id, info.partitions))

    def _shards_to_drain(self, info: TopicInfo) -> list[ShardInfo]:
        """Return live shards that are not known to have all of an older generation."""
        live = self._directory.live_shards().values()
        return [shard for shard in live if (info.topic_id, shard, shard.vshards) not in self._drained]

    def _drain_older(self, ended: threading.Event) -> None:
        """Bring shards to the end of older generations, beside the query, until `ended`. The order of arrival does not
        matter to a shard."""
        self._session.sparkContext.setLocalProperty("spark.scheduler.pool", "catchup")
        while not ended.is_set():
            try:
                for older in self._topic.generations()[:-1]:
                    self._drain(older, ended)
            except Exception as error:  # no error may disturb live feeding
                log.warning("buckets: an older topic cannot be read yet: %s", str(error).splitlines()[:1])
            ended.wait(DRAIN_CHECK_S)

    def _drain(self, info: TopicInfo, stop: threading.Event) -> None:
        """Bring every live shard to the end of an older generation. A shard that fails is asked again later. For a
        shard that answers without progress, the rest of the generation is recorded as lost."""
        shards = self._shards_to_drain(info)
        if not shards:
            return
        beside = self._topic.sibling(info.topic)
        life = BucketsRun(
            self._config,
            self._session,
            self._directory,
            beside,
            self._with_counted_partitions(info),
            suspects=self._suspects,
        )
        try:
            sealed = self._seals.is_effective(beside, info)  # before the end is read: nothing comes after it
            life.drain(shards, DRAIN_TIMEOUT_S, stop, self._clock)
        finally:
            life.close()
        if sealed and not stop.is_set():
            self._drained |= {(info.topic_id, shard, shard.vshards) for shard in life.drained_shards(shards)}


class BucketsRun:
    """One run of the query, from a start to the next failure.

    Locks: a micro-batch holds `_handover` for its whole length, a catch-up for its last step only, so that a group
    that reaches the query's position misses nothing in between. The lock of Progress is taken inside."""

    def __init__(
        self,
        config: SparkConfig,
        session: SparkSession,
        directory: ShardDirectory,
        topic: TopicClient,
        info: TopicInfo,
        calls: ShardCalls = SHARD_CALLS,
        suspects: Suspects | None = None,
    ) -> None:
        self._suspects = suspects
        self._config, self._session, self._directory, self._calls = config, session, directory, calls
        self._topic, self.info = topic, info
        self._handover = threading.Lock()
        self._checks_alone = 0
        self.progress = FeedProgress(info.partitions)

    def ask_all(self) -> Mapping[int, Span]:
        """Ask every live shard; return the bounds of the log. Raises ShardsUnknownError if no shard holds anything."""
        self._read_groups(self._directory.live_shards().values())
        if not self.progress.has_groups():
            raise ShardsUnknownError("no shard answers, or none holds virtual shards yet")
        return self._topic.log_bounds(self.info.partitions)

    def start_offsets(self) -> Mapping[int, int]:
        """Return the start offsets: those of the group that is furthest ahead."""
        bounds = self._topic.log_bounds(self.info.partitions)
        self._skip_lost(self.progress.groups(), bounds)
        return self.progress.start_position(bounds)

    def check_shards(self) -> None:
        """Ask new, restarted, changed and failed shards; called every few seconds. Raises ShardsUnknownError if all
        groups lag, so that the query restarts at the furthest of them."""
        live = self._directory.live_shards()
        self.progress.retain(live)
        self._read_groups(self.progress.shards_to_ask(live))
        self._checks_alone = 0 if self.progress.has_followers() else self._checks_alone + 1
        if self._checks_alone >= MAX_CHECKS_ALONE or (
            self._checks_alone and self.progress.min_backlog() > CATCH_UP_MESSAGES
        ):
            raise ShardsUnknownError("every shard is behind the query: restarting at the one furthest ahead")

    def pass_deleted(self, bounds: Mapping[int, Span]) -> None:
        """Move the query up to the log start: messages that Kafka deleted unread are in no micro-batch. Groups below
        lag then, and the catch-up tells them the lost range. A running micro-batch may have read these messages: then
        nothing is moved before the next check."""
        if self._handover.acquire(blocking=False):
            try:
                self.progress.pass_deleted(bounds)
            finally:
                self._handover.release()

    def _read_groups(self, shards: Iterable[ShardInfo]) -> None:
        for shard in shards:
            told = self._calls.read_groups(shard, self.info.topic_id)
            if told is not None:
                self.progress.record_groups(shard, told)

    def rewind_truncated(
        self, cuts: TruncationDetector, info: TopicInfo, bounds: Mapping[int, Span], now_ms: int
    ) -> None:
        """Rewind every shard that is above a cut of the log. Raises TopicError for a new cut, so that the query too
        restarts below it."""
        try:
            epochs = self._topic.epochs(info, cuts.epochs) if info.epochs else {}
        except LeaderChangedError:  # between two requests: the next check finds it settled
            return
        fresh = cuts.check(epochs, bounds, self.progress.max_offsets(), now_ms)
        for cut in cuts.truncations:
            self._rewind_shards(cut)
        if fresh:
            told = ", ".join(f"{cut.partition} at {cut.offset}" for cut in fresh)
            raise TopicError(f"the log was cut, partition {told}: rewinding the shards and reading again from there")

    def _rewind_shards(self, cut: Truncation) -> None:
        for shard in self.progress.shards_above(cut.partition, cut.offset):
            if (shard.id, shard.incarnation) in cut.notified:
                continue
            if self._calls.rewind(shard, self.info.topic_id, cut.partition, cut.offset):
                log.warning("buckets: shard %s rewound to the cut of %d at %d", shard.id, cut.partition, cut.offset)
                cut.notified.add((shard.id, shard.incarnation))
            self._read_groups([shard])

    def drain(self, shards: Sequence[ShardInfo], patience_s: float, stop: threading.Event, clock: Clock) -> None:
        """Bring these shards to the end of the topic, which takes no more writes."""
        self._read_groups(shards)
        bounds = self._topic.log_bounds(self.info.partitions)
        self._skip_lost(self.progress.groups(), bounds)
        self.progress.set_position({p: end for p, (_, end) in bounds.items()})
        if self.progress.cohorts():
            log.info("buckets: reading %s to its end for %d shards", self.info.topic, len(shards))
        until = clock.monotonic() + patience_s
        while self.progress.cohorts() and not stop.is_set():
            if self.help_laggards():
                until = clock.monotonic() + patience_s
            elif clock.monotonic() > until:
                self._skip_lost(self.progress.groups(), {p: (end, end) for p, (_, end) in bounds.items()})
                return
            else:
                clock.wait(stop, CATCH_UP_PAUSE_S)

    def drained_shards(self, shards: Iterable[ShardInfo]) -> list[ShardInfo]:
        """Return those of the shards that answer and lack nothing."""
        lagging = {group.shard.id for cohort in self.progress.cohorts() for group in cohort}
        return [shard for shard in shards if self.progress.is_confirmed(shard) and shard.id not in lagging]

    def close(self) -> None:
        """Close the connections that only this run uses."""
        self._topic.close()

    def on_batch(self, frame: Any, _batch: int) -> None:
        """Handle one micro-batch (foreachBatch): feed every group that is at its start."""
        self.feed_next(lambda plan: self._feed_frame(frame.coalesce(task_slots(self._session)), plan))

    def feed_next(self, feed: Callable[[FeedPlan], list[FeedResult]]) -> None:
        """Feed the next part of the log with `feed`."""
        with self._handover:
            groups, behind = tuple(self.progress.groups()), self.progress.lagging_groups()
            plan = FeedPlan(self.info.topic_id, groups, behind, partitions=self.info.partitions)
            began = monotonic()
            for result in feed(plan):
                self.progress.record_fed(result)
            self.progress.count_batch(monotonic() - began)

    def _feed_frame(self, frame: Any, plan: FeedPlan) -> list[FeedResult]:
        suspects = self._suspects or Suspects(self._config.data / SUSPECTS_FILE)
        return run_with_trial(lambda plan: run_task(frame, lambda batches: run_feed(plan, batches)), plan, suspects)

    def catch_up(self, ended: threading.Event) -> None:
        """Bring every group that is behind to the query's position, from Kafka, step by step, until `ended`."""
        self._session.sparkContext.setLocalProperty("spark.scheduler.pool", "catchup")
        RetryLoop("catch-up").run(lambda: self._catch_up_steps(ended), ended)

    def _catch_up_steps(self, ended: threading.Event) -> None:
        while not ended.is_set():
            if not self.help_laggards():
                ended.wait(CATCH_UP_PAUSE_S)

    def help_laggards(self) -> bool:
        """Do one step for every group that is behind; return True if a group advanced."""
        self._read_groups(self.progress.changed())
        moved = False
        for cohort in self.progress.cohorts():
            try:
                moved = self._feed_step(cohort) or moved
            except Exception as error:  # no error may disturb live feeding
                names = ", ".join(sorted({group.shard.id for group in cohort}))
                log.warning("buckets: shard %s cannot catch up yet: %s", names, str(error).splitlines()[:1])
                self.progress.mark_doubtful(cohort)
        return moved

    def _feed_step(self, cohort: Sequence[ShardGroup]) -> bool:
        """Do one bounded step for groups at the same offsets; return True if a group advanced."""
        if self.progress.max_backlog(cohort) > CATCH_UP_MESSAGES:
            return self._refill(cohort)
        with self._handover:  # near: the query waits for this one step, then all are at the same offset
            moved = self._refill(cohort)
            # a shard merges its groups at the same offsets: learn that before the next micro-batch
            self._read_groups({group.shard.id: group.shard for group in cohort}.values())
            return moved

    def _refill(self, cohort: Sequence[ShardGroup]) -> bool:
        bounds = self._topic.log_bounds(self.info.partitions)
        self._skip_lost(cohort, bounds)
        start, end = self.progress.next_range(cohort, bounds, CATCH_UP_MESSAGES)
        moved = False
        if any(end[p] > start[p] for p in start):
            began = monotonic()
            plan = FeedPlan(self.info.topic_id, tuple(cohort), partitions=self.info.partitions)
            for result in self.read_again(plan, start, end):
                moved = self.progress.record_catch_up(result) or moved
            self.progress.count_catch_up(monotonic() - began)
        return moved

    def read_again(self, plan: FeedPlan, start: Mapping[int, int], end: Mapping[int, int]) -> list[FeedResult]:
        """Feed [start, end) of every partition from Kafka, in one task."""
        return self._feed_frame(range_frame(self._session, self._config, self.info, start, end).coalesce(1), plan)

    def _skip_lost(self, cohort: Iterable[ShardGroup], bounds: Mapping[int, Span]) -> None:
        """Tell groups below the log start about the lost range, as a range without entries. They continue above it and
        fetch what the raw table has of it by themselves."""
        for group in cohort:
            for partition, (start, until) in self.progress.lost_ranges(group, bounds).items():
                if start > 0:
                    log.error(
                        "buckets: shard %s lacks offsets %d to %d of partition %d and the log no longer has them",
                        group.shard.id, start, until, partition,
                    )  # fmt: skip
                nothing = FeedRange(self.info.topic_id, partition, start, until, (), concat_samples([]), group.vshards)
                outcome = self._calls.send(group.shard, nothing)
                self.progress.record_catch_up(FeedResult(partition, start, until, 0, {group.key: outcome}))
