"""Shard processes: the shipped groups, positions, repeats and refills; in place of cells they count which polls were
applied."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from artimon.model.batch import BatchError, BatchId
from artimon.model.feed import FeedAnswer, FeedEntry, FeedRange, concat_samples
from artimon.model.vshards import from_hex, union
from artimon.rawtable.schema import TableError
from pipeline.control.shards import GroupOffsets, ShardsUnknownError
from pipeline.control.shards import ShardGroup as FedGroup
from pipeline.control.shards import ShardInfo as Live
from pipeline.spark.feeding import FeedOutcome
from tests.simulation.kafka import SimKafka
from tests.simulation.scheduler import Process, Scheduler, Violation
from tests.simulation.table import TableStore
from varstore.snapshot.raw_state import RawHead
from varstore.snapshot.recovery import LogSpan, can_continue, prefers_table, table_has
from varstore.store.groups import FeedGroup, FeedGroups, LostRange, Partition
from varstore.store.positions import admit, advance, check_range, drop_repeats, vshard_of

FOLLOW_S = 2.0
HEAL_S = 5.0


class Died(OSError):
    """It does not answer any more."""


class SimShard(Process):
    """One process of the memory store. `snapshot` outlives it."""

    def __init__(self, name: str, vshards: int, scheduler: Scheduler, kafka: SimKafka, store: TableStore) -> None:
        super().__init__(name)
        self.vshards = vshards
        self._scheduler, self._kafka, self._store = scheduler, kafka, store
        self.snapshot: tuple[str, Counter[int], bool] | None = None
        self.groups = FeedGroups()
        self.applied: Counter[int] = Counter()
        self.hangs = False
        self._vshards: dict[int, int] = {}
        """Of each poll that was ever applied."""
        self.excused = False
        """It, or the one that took its snapshot, was alive when Kafka lost a part of its log."""

    # -- life

    def start(self) -> None:
        """Take up the newest snapshot, if Kafka still has what came since; else the table; else begin empty."""
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
        """What it is to hold and does not: from the table, or empty."""
        rest = self.vshards & ~self.groups.vshards
        try:
            span = self._span()
            if rest and not self._from_table(rest, span):
                self.groups.add(FeedGroup(rest, epochs=span.leaders()))
        except (TableError, OSError):
            self._scheduler.later(2.0, self._take_over, self)

    def _heal(self) -> None:
        """Every few seconds: let go of what lacks something that the table has."""
        self._scheduler.later(HEAL_S, self._heal, self)
        try:
            ripe = union(group.vshards for group in self.groups.lost if self._is_there(group.lost))
        except (TableError, OSError):
            return
        if ripe:
            self._drop(ripe)
            self._scheduler.later(self._scheduler.random.random(), self._take_over, self)

    def take_from(self, giver: SimShard, vshards: int, after_s: float) -> None:
        """Hold virtual shards as another one holds them now, once they are copied; as varstore.cluster.moving. They are
        groups of their own until they stand where the others stand."""
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
        """Polls of these virtual shards: times applied, and virtual shard of each."""
        known = self._vshards
        return {token: (n, known[token]) for token, n in self.applied.items() if vshards >> known[token] & 1}

    def _drop(self, vshards: int) -> None:
        self.groups.remove(vshards)
        self.applied = Counter({one: n for one, n in self.applied.items() if not vshards >> self._vshards[one] & 1})

    def _is_there(self, lost: Mapping[Partition, LostRange]) -> bool:
        """Whether the table has what Kafka deleted; else that is lost for everybody."""
        self._store.check()
        if not self._store.head[0]:
            raise TableError("there is no raw table yet")
        there = table_has(RawHead.of(self._store.head[1]), self._span(), lost)
        if not there:
            self.groups.excuse(lost)
        return there

    def _from_table(self, vshards: int, span: LogSpan) -> bool:
        """All that the table holds, and on from there, if it is there. Until the table has looked at a log that changed
        its leaders, its next append may hold what that log has lost."""
        self._store.check()
        if not self._store.head[0]:
            self.excused = self.excused or any(span.epochs.values())
            return False
        head = RawHead.of(self._store.head[1])
        self.excused = self.excused or not span.is_known_to(head)
        if not prefers_table(head, span):
            return False
        group = head.group(vshards)
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
        """Its memory is gone."""
        self.died()

    def take_snapshot(self) -> None:
        """All of it at one point: what was applied, positions, and numbers seen."""
        if self.up and self.groups.vshards:
            groups = [group.to_json() for group in self.groups.copies(self.groups.ready)]
            self.snapshot = json.dumps(groups), Counter(self.applied), self.excused

    @property
    def lags(self) -> bool:
        """It lacks something that Kafka has. (The shipped one says so only after a while.)"""
        topic_id, logs = self._kafka.topics["artimon.samples"]
        keys = [(Partition(topic_id, p), log.end) for p, log in enumerate(logs)]
        return any(group.next_offset(key) < end for group in self.groups for key, end in keys)

    @property
    def lacking(self) -> str:
        """What Kafka deleted before it was read."""
        return ", ".join(f"{lost.start} to {lost.until}" for group in self.groups.lost for lost in group.lost.values())

    def log_was_lost(self) -> None:
        """What the table has read of it nobody sends again."""
        self.excused = True
        if self.snapshot is not None:
            self.snapshot = self.snapshot[0], self.snapshot[1], True

    def _span(self) -> LogSpan:
        spans = {p: (log.start, log.end) for p, log in enumerate(self._kafka.samples)}
        epochs = {p: log.epochs[-1][0] for p, log in enumerate(self._kafka.samples)}
        return LogSpan(self._kafka.samples_id, spans, epochs)

    def _follow(self) -> None:
        """Every two seconds: was the log cut? (Only asked when a leader changed: else the answer is no.)"""
        self._scheduler.later(FOLLOW_S + self._scheduler.random.random(), self._follow, self)
        if not self._kafka.down and not self.hangs:
            self.follow_epochs()

    def follow_epochs(self) -> None:
        """Go back to where the log of each former leader ends."""
        topic_id, logs = self._kafka.topics["artimon.samples"]
        now = {p: log.epochs[-1][0] for p, log in enumerate(logs)}
        other = self.groups.other_epochs(topic_id, now)
        ends = {(p, epoch): logs[p].end_of(epoch) if epoch <= now[p] else 0 for p, epoch in other}
        self.groups.follow_epochs(topic_id, now, ends)

    def refuses_malformed(self, topic_id: str) -> None:
        """It says no, and nothing changes."""
        before = json.dumps([group.to_json() for group in self.groups])
        for group in list(self.groups):
            for range_ in malformed(topic_id, group.vshards):
                try:
                    self.feed(range_)
                except BatchError:
                    continue
                raise Violation(f"{self.name} took a malformed range: {range_}")
        if json.dumps([group.to_json() for group in self.groups]) != before:
            raise Violation(f"{self.name} changed by what it refused")

    # -- what it is asked (as varstore.shard.shard.Shard)

    def feed(self, range_: FeedRange) -> FeedAnswer:
        """Apply what is new of a range."""
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
    """Ranges of partition 0 of which nothing may be applied: offsets outside or falling, rows without an owner or
    without samples, no such group, batches that are owned and should not be, or the other way round."""

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
    """As pipeline.control.shards.ShardDirectory."""

    def __init__(self, shards: Sequence[SimShard], kafka: SimKafka) -> None:
        self.shards = {shard.name: shard for shard in shards}
        self._kafka = kafka

    def leader_epoch(self, topic_id: str, partition: int) -> int:
        """Of a partition; -1: the topic is gone."""
        return self._kafka.samples[partition].epochs[-1][0] if topic_id == self._kafka.samples_id else -1

    def live(self) -> dict[str, Live]:
        """Raises ShardsUnknown."""
        found = {
            name: Live(name, "sim", 1, str(shard.life), shard.groups.vshards, shard.lags)
            for name, shard in self.shards.items()
            if shard.up
        }
        if not found:
            raise ShardsUnknownError("no shard is alive")
        return found


class SimCalls:
    """How the buckets job speaks to shards (feeding.Calls): calls that are lost, repeated, late; answers that are."""

    def __init__(self, scheduler: Scheduler, directory: Directory, trouble: Callable[[], float]) -> None:
        self._scheduler, self._directory, self._trouble = scheduler, directory, trouble

    def _shard(self, live: Live) -> SimShard:
        shard = self._directory.shards[live.id]
        if not shard.up or shard.hangs:
            raise Died(f"{live.id} does not answer")
        return shard

    def groups(self, shard: Live, topic_id: str) -> GroupOffsets | None:
        """What it says of itself."""
        try:
            said = [group.summary() for group in self._shard(shard).groups]
        except Died:
            return None
        return [
            (FedGroup(shard, from_hex(one["vshards"])), {p: at for t, p, at in one["positions"] if t == topic_id})
            for one in said
        ]

    def rewind(self, shard: Live, topic_id: str, partition: int, offset: int) -> bool:
        """Whether it heard."""
        try:
            self._shard(shard).groups.rewind(Partition(topic_id, partition), offset)
        except Died:
            return False
        return not self._scheduler.chance(self._trouble())

    def send(self, shard: Live, range_: FeedRange) -> FeedOutcome:
        """One range."""
        chance, trouble = self._scheduler.random, self._trouble()
        if trouble and chance.random() < trouble:
            return self._troubled(shard, range_)
        return self.feed(shard, range_)

    def _troubled(self, shard: Live, range_: FeedRange) -> FeedOutcome:
        lot = self._scheduler.random.random()
        if lot < 0.3:  # the request is lost
            return FeedOutcome(None, "CallTimeout: no reply in time")
        again = _Late(self, shard, range_)
        if lot < 0.5:  # it arrives when nobody waits any more
            self._scheduler.later(1 + self._scheduler.random.random() * 20, again)
            return FeedOutcome(None, "CallTimeout: no reply in time")
        outcome = self.feed(shard, range_)
        if lot < 0.75:  # it arrives twice
            self._scheduler.later(self._scheduler.random.random() * 20, again)
            return outcome
        return FeedOutcome(None, "ConnectionLost: the answer is lost")

    def feed(self, shard: Live, range_: FeedRange) -> FeedOutcome:
        """It arrives."""
        try:
            answer = self._shard(shard).feed(range_)
        except (BatchError, Died) as error:
            return FeedOutcome(None, f"{type(error).__name__}: {error}")
        return FeedOutcome(answer.next_offset, "", answer.applied, answer.repeated)

    def leader_epoch(self, range_: FeedRange) -> int:
        """Under which the log of a range is led now; -1: there is no such topic any more."""
        return self._directory.leader_epoch(range_.topic_id, range_.partition)

    def at_once(self, work: Sequence[Callable[[], None]]) -> None:
        """One after another."""
        for one in work:
            one()


class _Late:
    """A range that arrives late. (Not after its log was cut: docs/simulation.md.)"""

    def __init__(self, calls: SimCalls, shard: Live, range_: FeedRange) -> None:
        self._calls, self._shard, self._range = calls, shard, range_
        self._epoch = calls.leader_epoch(range_)

    def __call__(self) -> None:
        if self._calls.leader_epoch(self._range) == self._epoch:
            self._calls.feed(self._shard, self._range)
