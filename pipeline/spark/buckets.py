"""The buckets query: columns of fresh samples to the shards of the memory store, every second or two.

It keeps no state: where to begin, and what a shard still lacks, is what the shards themselves say.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Any

from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.feed import FeedRange, join_samples
from pipeline.spark.config import SparkConfig
from pipeline.spark.feeding import FeedPlan, FeedResult, run_feed, send
from pipeline.spark.progress import Progress
from pipeline.spark.raw import remove
from pipeline.spark.shards import Shard, ShardDirectory, ShardsUnknown, positions
from pipeline.spark.source import batch, follow, share, stream
from pipeline.spark.state import Span
from pipeline.spark.tasks import RESULT_SCHEMA
from pipeline.spark.topic import Topic, TopicError, TopicInfo

log = logging.getLogger(__name__)

CATCH_UP_MESSAGES = 500
"""Messages per partition in one step of a catch-up."""
CATCH_UP_PAUSE_S = 0.5


class BucketsQuery:
    """One query at a time, driven by `run`; `figures` may be read from any thread."""

    def __init__(
        self,
        config: SparkConfig,
        session: SparkSession,
        zookeeper: KazooClient,
        healthy: Callable[[], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._config, self._session, self._healthy, self._clock = config, session, healthy, clock
        self._directory = ShardDirectory(zookeeper)
        self._topic = Topic(config.kafka, config.samples_topic)
        self._life: _Life | None = None

    def run(self, stop: threading.Event) -> None:
        """One life of the query: from what the shards say until `stop` or a failure, which is raised."""
        info = self._topic.describe()
        life = self._life = _Life(self._config, self._session, self._directory, self._topic, info)
        start = life.begin()
        log.info("buckets: reading %s (%s) from %s", info.topic, info.topic_id, start)
        checkpoint = self._config.data / "checkpoints" / f"buckets-{uuid.uuid4().hex}"
        ended = threading.Event()
        helper = threading.Thread(target=life.catch_up, args=(ended,), name="catch-up", daemon=True)
        helper.start()
        try:
            frame = stream(self._session, self._config, info, start, self._config.bucket_messages, {})
            every = self._config.bucket_interval_s
            follow(
                self._session, "buckets", frame, life.on_batch, every, checkpoint, stop, lambda: self._look(info, life)
            )
        finally:
            ended.set()
            helper.join(timeout=5)
            remove(checkpoint)
            self._topic.close()

    def figures(self) -> dict[str, Any]:
        """What `artimon status` shows."""
        return {} if self._life is None else self._life.progress.figures(self._clock.now_ms())

    def _look(self, info: TopicInfo, life: _Life) -> None:
        if self._topic.describe().topic_id != info.topic_id:
            raise TopicError(f"{info.topic} was made again: no longer {info.topic_id}")
        ends = {p: end for p, (_, end) in self._topic.bounds(info.partitions).items()}
        life.progress.log_end(ends, self._clock.now_ms())
        life.look()
        self._healthy()


class _Life:
    """The query between one start and the next failure.

    Locks: `_handover` is held by a micro-batch for its whole length, and by a catch-up for its last step only, so
    that a shard that has caught up to where the query stands misses nothing in between. Progress has a lock of its
    own, taken inside."""

    def __init__(
        self, config: SparkConfig, session: SparkSession, directory: ShardDirectory, topic: Topic, info: TopicInfo
    ) -> None:
        self._config, self._session, self._directory = config, session, directory
        self._topic, self._info = topic, info
        self._handover = threading.Lock()
        self.progress = Progress(info.partitions)

    def begin(self) -> Mapping[int, int]:
        """Offsets to start at: the furthest that any live shard is. Raises ShardsUnknown."""
        self._ask(self._directory.live())
        if not self.progress.known():
            raise ShardsUnknown("no shard answers")
        bounds = self._topic.bounds(self._info.partitions)
        for shard in self.progress.shards():
            self._skip_lost(shard, bounds)
        return self.progress.begin(bounds)

    def look(self) -> None:
        """Every few seconds: new shards, new incarnations, those that failed. Raises ShardsUnknown when all of them
        lag, so that the query starts again where the furthest of them is."""
        live = self._directory.live()
        self.progress.only(live)
        self._ask({id_: shard for id_, shard in live.items() if self.progress.is_doubtful(shard)})
        if not self.progress.followers():
            raise ShardsUnknown("every shard is behind the query: it begins again at the furthest of them")

    def _ask(self, shards: Mapping[str, Shard]) -> None:
        for shard in shards.values():
            at = positions(shard, self._info.topic_id)
            if at is not None:
                self.progress.say(shard, at)

    def on_batch(self, frame: Any, _batch: int) -> None:
        """foreachBatch: feed every shard that stands where this micro-batch begins."""
        with self._handover:
            plan = FeedPlan(self._info.topic_id, tuple(self.progress.shards()), self.progress.behind())
            began = monotonic()
            for result in self._run(frame.coalesce(share(self._session)), plan):
                self.progress.moved(result)
            self.progress.ran(monotonic() - began)

    def _run(self, frame: Any, plan: FeedPlan) -> list[FeedResult]:
        def task(batches: Iterable[Any]) -> Iterable[Any]:
            return run_feed(plan, batches)

        return [FeedResult.from_json(row.result) for row in frame.mapInArrow(task, RESULT_SCHEMA).collect()]

    def catch_up(self, ended: threading.Event) -> None:
        """Until `ended`: bring every shard that is behind to where the query stands, from Kafka, step by step."""
        self._session.sparkContext.setLocalProperty("spark.scheduler.pool", "catchup")
        while not ended.is_set():
            busy = False
            for shard in self.progress.laggards():
                try:
                    busy = self._step(shard) or busy
                except Exception as error:  # whatever it is, live feeding must not notice
                    log.warning("buckets: shard %s cannot catch up yet: %s", shard.id, str(error).splitlines()[:1])
                    self.progress.doubt(shard.id)
            if not busy:
                ended.wait(CATCH_UP_PAUSE_S)

    def _step(self, shard: Shard) -> bool:
        """One bounded step for one shard; whether it moved."""
        at = positions(shard, self._info.topic_id)
        if at is None:
            return False
        self.progress.say(shard, at)
        if self.progress.missing(shard.id) > CATCH_UP_MESSAGES:
            return self._refill(shard)
        with self._handover:  # near: let the query wait for this one step, then both stand at the same offset
            return self._refill(shard)

    def _refill(self, shard: Shard) -> bool:
        bounds = self._topic.bounds(self._info.partitions)
        self._skip_lost(shard, bounds)
        start, end = self.progress.chunk(shard.id, bounds, CATCH_UP_MESSAGES)
        moved = False
        if any(end[p] > start[p] for p in start):
            plan = FeedPlan(self._info.topic_id, (shard,))
            frame = batch(self._session, self._config, self._info, start, end)
            for result in self._run(frame.coalesce(1), plan):
                moved = self.progress.refilled(shard.id, result) or moved
        return moved

    def _skip_lost(self, shard: Shard, bounds: Mapping[int, Span]) -> None:
        """Tell a shard that the log begins above its next offset: nothing will ever come for what lies between."""
        for partition, (start, until) in self.progress.below(shard.id, bounds).items():
            if start > 0:
                log.error(
                    "buckets: shard %s lacks offsets %d to %d of partition %d and the log no longer has them",
                    shard.id, start, until, partition,
                )  # fmt: skip
            outcome = send(shard, FeedRange(self._info.topic_id, partition, start, until, (), join_samples([])))
            self.progress.refilled(shard.id, FeedResult(partition, start, until, 0, {shard.id: outcome}))
