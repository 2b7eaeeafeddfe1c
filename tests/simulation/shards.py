"""Shard processes: the shipped groups, positions, repeats and refills; they count the applied polls instead of filling
cells."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from artimon.model.batch import BatchError, BatchId
from artimon.model.feed_codec import FeedAnswer, FeedEntry, FeedRange, concat_samples
from artimon.model.vshards import from_hex, union
from artimon.rawtable.schema import TableError
from pipeline.control.shard_directory import GroupOffsets, ShardsUnknownError
from pipeline.control.shard_directory import ShardGroup as FedGroup
from pipeline.control.shard_directory import ShardInfo as Live
from pipeline.spark.feed_task import FeedOutcome
from tests.simulation.kafka import SimKafka
from tests.simulation.scheduler import Process, Scheduler, Violation
from tests.simulation.table import TableStore
from varstore.snapshot.raw_head import RawHead
from varstore.snapshot.restore import LogSpan, can_continue, prefers_table, table_has
from varstore.store.feed_groups import FeedGroup, FeedGroups, LostRange, Partition
from varstore.store.range_admission import admit, advance, check_range, drop_repeats, vshard_of

FOLLOW_S = 2.0
HEAL_S = 5.0


class Died(OSError):
    """The shard does not answer any more."""


class SimShard(Process):
    """One process of the memory store. `snapshot` survives it."""

    def __init__(self, name: str, vshards: int, scheduler: Scheduler, kafka: SimKafka, store: TableStore) -> None:
        super().__init__(name)
        self.vshards = vshards
        self._scheduler, self._kafka, self._store = scheduler, kafka, store
        self.snapshot: tuple[str, Counter[int], bool] | None = None
        self.groups = FeedGroups()
        self.applied: Counter[int] = Counter()
        self.hangs = False
        self._vshards: dict[int, int] = {}
        """Virtual shard of each poll that was ever applied."""
        self.excused = False
        """This process, or the one that took its snapshot, was alive when Kafka lost a part of its log."""

    # -- start and end

    def start(self) -> None:
        """Load the newest snapshot, if Kafka still has the batches since; otherwise refill from the table, or begin
        empty."""
        self.started()
        self.hangs = False
        self.groups, self.applied, self.excused = FeedGroups(), Counter(), False
        if self.snapshot is not None:
            groups = [FeedGroup.from_json(one) for one in json.loads(self.snapshot[0])]
            if can_continue(self._span(), groups):
                for group in groups:
                    self.groups.add(group)
                self.applied, self.excused = Counter(self.snapshot[1]), self.snapshot[2]
        self._take_over()
        self._follow()
        self._scheduler.later(HEAL_S, self._heal, self)

    def _take_over(self) -> None:
        """Adopt the virtual shards that are missing, from the table or empty."""
        rest = self.vshards & ~self.groups.vshards
        try:
            span = self._span()
            if rest and not self._from_table(rest, span):
                self.groups.add(FeedGroup(rest, epochs=span.leaders()))
        except (TableError, OSError):
            self._scheduler.later(2.0, self._take_over, self)

    def _heal(self) -> None:
        """Every few seconds, drop groups whose lost ranges are in the table."""
        self._scheduler.later(HEAL_S, self._heal, self)
        try:
            ripe = union(group.vshards for group in self.groups.lost if self._is_there(group.lost))
        except (TableError, OSError):
            return
        if ripe:
            self._drop(ripe)
            self._scheduler.later(self._scheduler.random.random(), self._take_over, self)

    def take_from(self, giver: SimShard, vshards: int, after_s: float) -> None:
        """Adopt virtual shards with the current content of another shard, once they are copied; as
        varstore.cluster.rebalance. They are separate groups until they reach the offsets of the others."""
        groups, excused = giver.groups.copies(vshards & giver.groups.ready), giver.excused
        copied = union(group.vshards for group in groups)
        applied = giver.applied_of(copied)

        def adopt() -> None:
            self._drop(copied)
            for group in groups:
                self.groups.add(group)
            for token, (times, vshard) in applied.items():
                self.applied[token], self._vshards[token] = times, vshard
            self.excused = self.excused or excused

        if copied and not copied & ~self.vshards:
            self._scheduler.later(after_s, adopt, self)

    def applied_of(self, vshards: int) -> dict[int, tuple[int, int]]:
        """Return, for the polls of these virtual shards, the number of times applied and the virtual shard."""
        known = self._vshards
        return {token: (n, known[token]) for token, n in self.applied.items() if vshards >> known[token] & 1}

    def _drop(self, vshards: int) -> None:
        self.groups.remove(vshards)
        self.applied = Counter({one: n for one, n in self.applied.items() if not vshards >> self._vshards[one] & 1})

    def _is_there(self, lost: Mapping[Partition, LostRange]) -> bool:
        """Return True if the table has the batches that Kafka deleted; otherwise they are lost everywhere."""
        self._store.check()
        if not self._store.head[0]:
            raise TableError("there is no raw table yet")
        there = table_has(RawHead.of(self._store.head[1]), self._span(), lost)
        if not there:
            self.groups.clear_lost(lost)
        return there

    def _from_table(self, vshards: int, span: LogSpan) -> bool:
        """Adopt the rows of the table and continue from there, if the table can be used. Until the table has read the
        leaders of a changed log, its next append may hold records that the log has lost."""
        self._store.check()
        if not self._store.head[0]:
            self.excused = self.excused or any(span.epochs.values())
            return False
        head = RawHead.of(self._store.head[1])
        self.excused = self.excused or not span.is_known_to(head)
        if not prefers_table(head, span):
            return False
        group = head.make_group(vshards)
        group.ready = True
        self.groups.add(group)
        for row in self._store.rows:
            if vshards >> vshard_of(row.source) & 1:
                self._apply(row.token, row.source)
        return True

    def _apply(self, token: int, source: str) -> None:
        self.applied[token] += 1
        self._vshards[token] = vshard_of(source)

    def kill(self) -> None:
        """Lose the memory."""
        self.died()

    def take_snapshot(self) -> None:
        """Save everything at one point: applied polls, positions, and numbers seen."""
        if self.up and self.groups.vshards:
            groups = [group.to_json() for group in self.groups.copies(self.groups.ready)]
            self.snapshot = json.dumps(groups), Counter(self.applied), self.excused

    @property
    def lags(self) -> bool:
        """True if it misses a record that Kafka has. (The shipped shard reports it only after a while.)"""
        topic_id, logs = self._kafka.topics["artimon.samples"]
        keys = [(Partition(topic_id, p), log.end) for p, log in enumerate(logs)]
        return any(group.next_offset(key) < end for group in self.groups for key, end in keys)

    @property
    def lacking(self) -> str:
        """Offsets that Kafka deleted before they were read."""
        return ", ".join(f"{lost.start} to {lost.until}" for group in self.groups.lost for lost in group.lost.values())

    def log_was_lost(self) -> None:
        """Record that batches already read by the table are not sent again."""
        self.excused = True
        if self.snapshot is not None:
            self.snapshot = self.snapshot[0], self.snapshot[1], True

    def _span(self) -> LogSpan:
        spans = {p: (log.start, log.end) for p, log in enumerate(self._kafka.samples)}
        epochs = {p: log.epochs[-1][0] for p, log in enumerate(self._kafka.samples)}
        return LogSpan(self._kafka.samples_id, spans, epochs)

    def _follow(self) -> None:
        """Check every two seconds for truncation. (Only queried when a leader changed: otherwise the answer is no.)"""
        self._scheduler.later(FOLLOW_S + self._scheduler.random.random(), self._follow, self)
        if not self._kafka.down and not self.hangs:
            self.follow_epochs()

    def follow_epochs(self) -> None:
        """Rewind to the end of the log of each former leader."""
        topic_id, logs = self._kafka.topics["artimon.samples"]
        now = {p: log.epochs[-1][0] for p, log in enumerate(logs)}
        other = self.groups.other_epochs(topic_id, now)
        ends = {(p, epoch): logs[p].end_of(epoch) if epoch <= now[p] else 0 for p, epoch in other}
        self.groups.follow_epochs(topic_id, now, ends)

    def refuses_malformed(self, topic_id: str) -> None:
        """Check that malformed ranges are refused and change nothing."""
        before = json.dumps([group.to_json() for group in self.groups])
        for group in list(self.groups):
            for range_ in malformed(topic_id, group.vshards):
                try:
                    self.feed(range_)
                except BatchError:
                    continue
                raise Violation(f"{self.name} took a malformed range: {range_}")
        if json.dumps([group.to_json() for group in self.groups]) != before:
            raise Violation(f"{self.name} changed although it refused the ranges")

    # -- requests (as varstore.shard.shard.Shard)

    def feed(self, range_: FeedRange) -> FeedAnswer:
        """Apply the new batches of a range."""
        check_range(range_)
        admitted = admit(self.groups, range_, self.name)
        if isinstance(admitted, FeedAnswer):
            return admitted
        pieces, repeated = drop_repeats(admitted.group, range_)
        for piece in pieces:
            for token in range_.samples.fingerprint[piece.start : piece.end].tolist():
                self._apply(token, piece.entry.source)
        advance(self.groups, admitted, range_)
        return FeedAnswer(range_.until, len(pieces), repeated)


def malformed(topic_id: str, vshards: int) -> list[FeedRange]:
    """Return invalid ranges of partition 0: offsets outside or falling, rows without an owner or without samples, an
    unknown group, and batches that are wrongly owned or not owned."""

    def entry(offset: int, owned: bool, rows: int, source: str = "s") -> FeedEntry:
        return FeedEntry(offset, 0, BatchId("nobody", 1, 0, offset), source, 0, rows, owned, 0)

    def range_(*entries: FeedEntry, mask: int = vshards, until: int = 1 << 40) -> FeedRange:
        return FeedRange(topic_id, 0, 0, until, entries, concat_samples([]), mask)

    source = next(f"s{n}" for n in range(1_000) if vshards >> vshard_of(f"s{n}") & 1)
    other = next(f"s{n}" for n in range(1_000) if not vshards >> vshard_of(f"s{n}") & 1)
    return [
        range_(entry(1 << 41, True, 0)),
        range_(entry(5, True, 0), entry(4, True, 0)),
        range_(entry(5, False, 1)),
        range_(entry(5, True, 1)),
        range_(mask=vshards ^ 1),
        range_(entry(5, True, 0, other)),
        range_(entry(5, False, 0, source)),
        range_(until=-1),
    ]


class Directory:
    """Stand-in for pipeline.control.shard_directory.ShardDirectory."""

    def __init__(self, shards: Sequence[SimShard], kafka: SimKafka) -> None:
        self.shards = {shard.name: shard for shard in shards}
        self._kafka = kafka

    def leader_epoch(self, topic_id: str, partition: int) -> int:
        """Return the leader epoch of a partition; -1: the topic is gone."""
        return self._kafka.samples[partition].epochs[-1][0] if topic_id == self._kafka.samples_id else -1

    def live_shards(self) -> dict[str, Live]:
        """Return the live shards. Raises ShardsUnknownError."""
        found = {
            name: Live(name, "sim", 1, str(shard.life), shard.groups.vshards, shard.lags)
            for name, shard in self.shards.items()
            if shard.up
        }
        if not found:
            raise ShardsUnknownError("no shard is alive")
        return found


class SimCalls:
    """Calls of the buckets job to shards (feeding.ShardCalls); calls and answers may be lost, repeated or late."""

    def __init__(self, scheduler: Scheduler, directory: Directory, trouble: Callable[[], float]) -> None:
        self._scheduler, self._directory, self._trouble = scheduler, directory, trouble

    def _shard(self, live: Live) -> SimShard:
        shard = self._directory.shards[live.id]
        if not shard.up or shard.hangs:
            raise Died(f"{live.id} does not answer")
        return shard

    def read_groups(self, shard: Live, topic_id: str) -> GroupOffsets | None:
        """Return the groups that a shard reports."""
        try:
            summaries = [group.summary() for group in self._shard(shard).groups]
        except Died:
            return None
        return [
            (FedGroup(shard, from_hex(one["vshards"])), {p: at for t, p, at in one["positions"] if t == topic_id})
            for one in summaries
        ]

    def rewind(self, shard: Live, topic_id: str, partition: int, offset: int) -> bool:
        """Return True if the shard received the request and answered."""
        try:
            self._shard(shard).groups.rewind(Partition(topic_id, partition), offset)
        except Died:
            return False
        return not self._scheduler.chance(self._trouble())

    def send(self, shard: Live, range_: FeedRange) -> FeedOutcome:
        """Send one range."""
        chance, trouble = self._scheduler.random, self._trouble()
        if trouble and chance.random() < trouble:
            return self._troubled(shard, range_)
        return self.feed(shard, range_)

    def _troubled(self, shard: Live, range_: FeedRange) -> FeedOutcome:
        lot = self._scheduler.random.random()
        if lot < 0.3:  # the request is lost
            return FeedOutcome(None, "CallTimeout: no reply in time")
        again = _LateRange(self, shard, range_)
        if lot < 0.5:  # it arrives after the timeout
            self._scheduler.later(1 + self._scheduler.random.random() * 20, again)
            return FeedOutcome(None, "CallTimeout: no reply in time")
        outcome = self.feed(shard, range_)
        if lot < 0.75:  # it arrives twice
            self._scheduler.later(self._scheduler.random.random() * 20, again)
            return outcome
        return FeedOutcome(None, "ConnectionLost: the answer is lost")

    def feed(self, shard: Live, range_: FeedRange) -> FeedOutcome:
        """Deliver a range."""
        try:
            answer = self._shard(shard).feed(range_)
        except (BatchError, Died) as error:
            return FeedOutcome(None, f"{type(error).__name__}: {error}")
        return FeedOutcome(answer.next_offset, "", answer.applied, answer.repeated)

    def leader_epoch(self, range_: FeedRange) -> int:
        """Return the current leader epoch of the log of a range; -1: the topic is gone."""
        return self._directory.leader_epoch(range_.topic_id, range_.partition)

    def run_concurrently(self, work: Sequence[Callable[[], None]]) -> None:
        """Run the work items one after another."""
        for one in work:
            one()


class _LateRange:
    """A range that arrives late. (Not after its log was truncated: docs/simulation.md.)"""

    def __init__(self, calls: SimCalls, shard: Live, range_: FeedRange) -> None:
        self._calls, self._shard, self._range = calls, shard, range_
        self._epoch = calls.leader_epoch(range_)

    def __call__(self) -> None:
        if self._calls.leader_epoch(self._range) == self._epoch:
            self._calls.feed(self._shard, self._range)
