"""Driver processes: the shipped raw query, publisher of acks, retention and buckets query; Spark is replaced by a loop
that reads new records, runs the tasks in this process, and dies with any of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from artimon.model.failpoints import Failpoint
from artimon.rawtable.commit import RawTable
from artimon.runtime.supervision import FIRST_PAUSE_S, MAX_PAUSE_S
from pipeline.spark import buckets_query as buckets
from pipeline.spark import raw_query as raw
from pipeline.spark.acks_publisher import AcksPublisher
from pipeline.spark.feed_task import FeedPlan, FeedResult, feed_records
from pipeline.spark.raw_task import KafkaRecord, PartitionReader, RawPlan, RawResult, numbers_of
from pipeline.spark.retention import TopicTrimmer
from pipeline.spark.spark_settings import SparkConfig
from pipeline.spark.topic_client import TopicInfo
from tests.simulation.kafka import SimKafka, SimTopic
from tests.simulation.payload import decode, read
from tests.simulation.scheduler import Killed, Process, Scheduler, SimClock
from tests.simulation.shards import Directory, SimCalls
from tests.simulation.table import SimHead, SimOutput, SimSources, SimTable, TableStore
from tests.simulation.zookeeper import SimClient, SimZookeeper

FAILURES = (RuntimeError, OSError, ValueError)
LOOK_S = 5.0
RAW_S = 6.0
BUCKETS_S = 5.0
ACKS_S = 10.0
TRIM_S = 15.0


class Broadcast:
    """Stand-in for Spark's broadcast."""

    def __init__(self, value: Mapping[str, int]) -> None:
        self.value = value

    def unpersist(self, blocking: bool) -> None:
        """Do nothing, because there is nothing to free."""


class SimRawRun(raw.RawRun):
    """The shipped run of the raw query; its tasks run in this process."""

    simulated: SimRaw

    def broadcast_sources(self, ids: Mapping[str, int]) -> Any:
        return Broadcast(ids)

    def run_tasks(self, frame: Any, plan: RawPlan) -> list[RawResult]:
        return self.simulated.run_tasks(frame, plan)


class SimRaw(raw.RawQuery):
    """The shipped query on a simulated topic and table."""

    def __init__(
        self,
        config: SparkConfig,
        clock: SimClock,
        topic: SimTopic,
        store: TableStore,
        scheduler: Scheduler,
        owner: Process,
        on_append: Callable[[], None],
        probe: Failpoint,
    ) -> None:
        nothing: Any = None
        super().__init__(config, nothing, lambda: None, on_append, clock, probe)
        self._topic = topic
        self._store, self._scheduler, self._owner, self._sim_clock = store, scheduler, owner, clock

    def open_table(self) -> RawTable:
        return SimTable(self._store, self._scheduler, self._owner, self._sim_clock)

    def make_run(self, *parts: Any) -> raw.RawRun:
        life = SimRawRun(self, *parts)
        life.simulated = self
        life.open_sources = lambda _hdfs: SimSources(self._store, self._sim_clock, self._probe)
        return life

    def run_tasks(self, records: list[tuple[int, KafkaRecord]], plan: RawPlan) -> list[RawResult]:
        """Run the tasks, as tasks.run_raw."""
        sources = numbers_of(plan)
        output: Any = SimOutput(self._store, sources)
        results: list[RawResult] = []
        reader: PartitionReader | None = None
        for partition, record in records:
            if reader is None or reader.result.partition != partition:
                reader = PartitionReader(plan, output, partition, record.offset, decode)
                results.append(reader.result)
            reader.add(record)
        if results:
            results[-1].files, results[-1].sources = output.close(), sources.learned
        return results


class RawDriver(Process):
    """The process of the raw query, with its publisher and its retention."""

    def __init__(
        self,
        name: str,
        scheduler: Scheduler,
        kafka: SimKafka,
        store: TableStore,
        zookeeper: SimZookeeper,
        config: SparkConfig,
    ) -> None:
        super().__init__(name)
        self._scheduler, self._kafka, self._store = scheduler, kafka, store
        self._zookeeper, self._config = zookeeper, config
        self.checkpoints: dict[Path, dict[int, int]] = {}
        """Offsets that Spark saved in each checkpoint folder; they survive the process."""
        self.at_point: dict[str, list[Callable[[], None]]] = {}
        """Actions at the next points of that name."""
        self.restarts = 0

    def start(self) -> None:
        """Start a new process without memory of the old one."""
        self.started()
        clock = SimClock(self._scheduler, self)
        self._query = SimRaw(
            self._config, clock, self._topic(), self._store, self._scheduler, self, self._wake, self._probe
        )
        client: Any = SimClient(self._zookeeper, self._scheduler, self)
        self._publisher = AcksPublisher(self._config, client, clock)
        self._publisher._topic = self._topic()
        head: Any = SimHead(self._store, self._scheduler, self)
        self._publisher._head = head
        self._retention = TopicTrimmer(self._config, clock)
        self._retention._topic, self._retention._head = self._topic(), head
        self._reading: raw.RunStart | None = None
        self._pause = FIRST_PAUSE_S
        self._publishing = self._woken = self._publish_again = False
        self._stop = threading.Event()
        self._scheduler.later(0.1, self._begin, self)
        self._scheduler.later(1.0, self._publish_in_turn, self)
        self._scheduler.later(TRIM_S, self._trim, self)

    def kill(self) -> None:
        """End, at any point."""
        self.died()

    def lose_checkpoints(self) -> None:
        """Delete Spark's folders; a query that uses one of them fails."""
        self.checkpoints.clear()

    def _topic(self) -> SimTopic:
        return SimTopic(self._kafka, self._scheduler, self)

    def _probe(self, point: str) -> None:
        actions, life = self.at_point.get(point), self.life
        if actions:
            actions.pop()()
        if self.life != life:
            raise Killed

    # -- the raw query

    def _guarded(self, action: Callable[[], None]) -> None:
        life = self.life
        try:
            action()
        except Killed:
            if self.life == life:  # the simulation is over
                raise
        except raw._LimitRecovered:
            self._fail()
        except FAILURES as error:
            if self._scheduler.tracing:
                self._scheduler.say(f"{self.name}: {type(error).__name__}: {error}")
            self._fail()

    def _fail(self) -> None:
        if self._reading is not None:
            self._query.close(self._reading)
            self._reading = None
        self.restarts += 1
        self._scheduler.later(self._pause, self._begin, self)
        self._pause = min(self._pause * 2, MAX_PAUSE_S)

    def _begin(self) -> None:
        self._guarded(self._open)

    def _open(self) -> None:
        self._reading = self._query.open(self._stop)
        folder = self._reading.checkpoint
        self._at = self.checkpoints.setdefault(folder, dict(self._reading.start))
        self._scheduler.later(LOOK_S, self._look, self)
        self._scheduler.later(0.5, self._trigger, self)

    def _look(self) -> None:
        if self._reading is None:
            return
        reading = self._reading
        self._scheduler.later(LOOK_S, lambda: self._look_again(reading), self)
        if not self.blocked:
            self._guarded(lambda: self._query._check(reading.run.info, reading.run, reading.is_reduced))

    def _look_again(self, reading: raw.RunStart) -> None:
        if self._reading is reading:
            self._look()

    def _trigger(self) -> None:
        reading, life = self._reading, self.life
        if reading is None:
            return
        if not self.blocked:
            self._guarded(lambda: self._micro_batch(reading))
        if self._reading is reading and self.life == life:
            pause = RAW_S * (0.3 + self._scheduler.random.random())
            self._scheduler.later(pause, lambda: self._trigger_again(reading), self)
            if self._at == self._kafka.ends():
                self._pause = FIRST_PAUSE_S

    def _trigger_again(self, reading: raw.RunStart) -> None:
        if self._reading is reading:
            self._trigger()

    def _micro_batch(self, reading: raw.RunStart) -> None:
        """Read the next offsets, call foreachBatch, then save the checkpoint, as Spark does."""
        if reading.checkpoint not in self.checkpoints:
            raise RuntimeError("the checkpoint is gone")
        if self._kafka.down:
            return
        at = self._at
        end = {p: min(e, at.get(p, 0) + reading.limit) for p, e in self._kafka.ends().items()}
        records = self._kafka.read({p: at.get(p, 0) for p in end}, end, whole=False)
        if not records:
            return
        reading.run.on_batch(records, 0)
        self._at = self.checkpoints[reading.checkpoint] = {p: max(e, at.get(p, 0)) for p, e in end.items()}

    # -- acks, retention

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._scheduler.later(0.1, self.publish, self)

    def _publish_in_turn(self) -> None:
        self._scheduler.later(ACKS_S, self._publish_in_turn, self)
        self.publish()

    def publish(self) -> None:
        """Run one turn of the publisher."""
        self._woken = False
        if self._publishing:
            self._publish_again = True
            return
        self._publishing = True
        life = self.life
        try:
            self._publisher._publish_all()
        except Killed:
            pass
        if self.life != life:
            return
        self._publishing = False
        if self._publish_again or self._publisher._wake.is_set():
            self._publish_again = False
            self._publisher._wake.clear()
            self._wake()

    def _trim(self) -> None:
        self._scheduler.later(TRIM_S, self._trim, self)
        try:
            self._retention.check_settings()
            self._retention.trim()
        except (*FAILURES, Killed):
            pass


class SimBucketsRun(buckets.BucketsRun):
    """The shipped run of the buckets query, which reads the simulated log."""

    kafka: SimKafka
    calls: SimCalls

    def read_again(self, plan: FeedPlan, start: Mapping[int, int], end: Mapping[int, int]) -> list[FeedResult]:
        return self.feed(plan, self.kafka.read(start, end))

    def feed(self, plan: FeedPlan, records: Iterable[tuple[int, KafkaRecord]]) -> list[FeedResult]:
        """Feed records, as feeding.run_feed."""
        return list(feed_records(plan, records, self.calls, read))


class SimBuckets(buckets.BucketsQuery):
    """The shipped query on a simulated topic and simulated shards."""

    def __init__(
        self,
        config: SparkConfig,
        clock: SimClock,
        topic: SimTopic,
        directory: Directory,
        kafka: SimKafka,
        calls: SimCalls,
    ) -> None:
        nothing: Any = None
        super().__init__(config, nothing, nothing, lambda: None, clock)
        stand_in: Any = directory
        self._topic, self._directory = topic, stand_in
        self._kafka, self._calls = kafka, calls

    def make_run(self, info: TopicInfo) -> SimBucketsRun:
        nothing: Any = None
        life = SimBucketsRun(self._config, nothing, self._directory, self._topic, info, self._calls)
        life.kafka, life.calls = self._kafka, self._calls
        return life


class FeedDriver(Process):
    """The process of the buckets query."""

    def __init__(
        self,
        scheduler: Scheduler,
        kafka: SimKafka,
        directory: Directory,
        config: SparkConfig,
        trouble: Callable[[], float],
    ) -> None:
        super().__init__("buckets")
        self._scheduler, self._kafka, self._directory, self._config = scheduler, kafka, directory, config
        self._calls = SimCalls(scheduler, directory, trouble)
        self.restarts = 0

    def start(self) -> None:
        """Start a new process."""
        self.started()
        self._life: Any = None
        clock, topic = SimClock(self._scheduler, self), SimTopic(self._kafka, self._scheduler, self)
        self._query = SimBuckets(self._config, clock, topic, self._directory, self._kafka, self._calls)
        self._pause = FIRST_PAUSE_S
        self._scheduler.later(0.2, self._begin, self)

    def kill(self) -> None:
        """End the process."""
        self.died()

    def _guarded(self, action: Callable[[], None]) -> None:
        life = self.life
        try:
            action()
        except Killed:
            if self.life == life:
                raise
        except FAILURES as error:
            if self._scheduler.tracing:
                self._scheduler.say(f"{self.name}: {type(error).__name__}: {error}")
            self._life = None
            self.restarts += 1
            self._scheduler.later(self._pause, self._begin, self)
            self._pause = min(self._pause * 2, MAX_PAUSE_S)

    def _begin(self) -> None:
        self._guarded(self._open)

    def _open(self) -> None:
        life, start = self._query.open()
        self._life, self._at = life, dict(start)
        self._scheduler.later(LOOK_S, lambda: self._look(life), self)
        self._scheduler.later(0.5, lambda: self._trigger(life), self)

    def _look(self, life: Any) -> None:
        if self._life is not life:
            return
        self._scheduler.later(LOOK_S, lambda: self._look(life), self)
        if not self.blocked:
            self._guarded(lambda: self._query.check(life))

    def _trigger(self, life: Any) -> None:
        if self._life is not life:
            return
        self._scheduler.later(BUCKETS_S * (0.3 + self._scheduler.random.random()), lambda: self._trigger(life), self)
        if not self.blocked:
            self._guarded(life.help_laggards if self._kafka.down else lambda: self._micro_batch(life))

    def _micro_batch(self, life: Any) -> None:
        """Feed the new records in one task, as Spark does; then run a step of the catch-up."""
        ends = self._kafka.ends()
        start = {p: self._at.get(p, 0) for p in ends}
        records = self._kafka.read(start, ends)
        if records:
            life.feed_next(lambda plan: life.feed(plan, records))
        self._at = {p: max(end, start[p]) for p, end in ends.items()}
        life.help_laggards()
        if self._at == ends:
            self._pause = FIRST_PAUSE_S
