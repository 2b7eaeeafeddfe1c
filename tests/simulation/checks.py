"""Invariants of a run, at every step and at the end: the ledger of accepted batches against the table and every
shard."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from artimon.model.batch import BatchError, BatchHeader, BatchId, BatchKind
from artimon.model.batch_codec import parse_header
from artimon.model.ranges import LaneRanges
from artimon.rawtable.table_state import RawState
from pipeline.delivery.tracker import TrackedBatch
from pipeline.wal.shed_records import shed_batches
from tests.simulation.kafka import SERIES, SimKafka
from tests.simulation.payload import token_of
from tests.simulation.scheduler import Violation
from tests.simulation.shards import SimShard
from tests.simulation.table import Row, TableStore
from varstore.store.range_admission import vshard_of

MAX_COPIES = 4
"""Maximum of writes to Kafka for each batch on average, faults included."""


class Checks:
    """Ledger of the agents (agents.Ledger) with every check."""

    def __init__(self, kafka: SimKafka, store: TableStore) -> None:
        self._kafka, self._store = kafka, store
        self.data: dict[BatchId, bytes] = {}
        """Bytes of each identity that left its agent or was accepted."""
        self._given: dict[BatchId, bytes] = {}
        self._tokens: dict[BatchId, int] = {}
        self._poll: dict[int, BatchId] = {}
        self._accepted: dict[str, dict[BatchId, int]] = {}
        """By agent: accepted and not yet forgotten, with the token."""
        self.tokens: dict[int, BatchId] = {}
        """Every accepted poll."""
        self._announced: dict[bytes, str] = {}
        self._in_table: Counter[int] = Counter()
        self.rotten: set[str] = set()
        """Agents whose disk changed a bit, until their next start."""
        self._records: dict[BatchId, LaneRanges] = {}
        """Shed records, and the batches that each gives up."""
        self._durable: set[BatchId] = set()
        """Shed records that a log was seen to hold."""
        self.shed: set[int] = set()
        """Polls that a durable shed record gave up before they were acked."""
        self.shedders: set[str] = set()
        """Agents that give up their oldest batches when the log is full."""
        self.excused: set[int] = set()
        """Polls that a disk destroyed before they were acked."""
        self.wiped = False
        """ZooKeeper has lost everything: a driver suspended while publishing may meet a node of the same version that
        it read before, and write an older state over a newer one, once (docs/simulation.md)."""
        self._letters = 0
        self._dead: set[BatchId] = set()
        self._newest: dict[str, tuple[int, int]] = {}

    # -- agents

    def offered(self, agent: str, header: BatchHeader, data: bytes) -> None:
        """Check that an identity is not given to other bytes than those already known outside the agent."""
        if header.id in self.data and self.data[header.id] != data:
            raise Violation(f"{agent}: identity {header.id} is given to two batches")
        self._given[header.id] = data
        if header.kind == BatchKind.SAMPLES and len(given_up := shed_batches(header, data)):
            self._records[header.id] = given_up

    def sends(self, agent: str, items: Sequence[TrackedBatch], messages: Sequence[bytes]) -> None:
        """Check that the same bytes are sent each time."""
        for item, data in zip(items, messages, strict=True):
            if not item.is_series:
                self._know(agent, item.id, data)

    def _know(self, agent: str, id: BatchId, data: bytes) -> None:
        known = self.data.get(id)
        if known is None:
            header = parse_header(data)
            if header.id != id:
                raise Violation(f"{agent} sends {header.id} as {id}")
            self.data[id] = data
            self._tokens[id] = token_of(header)
        elif known != data:
            raise Violation(f"{agent}: identity {id} has two forms")

    def accepted(self, agent: str, header: BatchHeader) -> None:
        """Record a batch whose source was informed that it is accepted."""
        token = token_of(header)
        self._know(agent, header.id, self._given[header.id])
        self.tokens[token] = header.id
        self._accepted.setdefault(agent, {})[header.id] = token
        if header.id in self._records:
            self._gives_up(agent, header.id)

    def _gives_up(self, agent: str, record: BatchId) -> None:
        """Excuse the batches of a durable shed record: they need not be stored, as long as the record is."""
        self._durable.add(record)
        named, held = self._records[record], self._accepted.get(agent, {})
        for id in [id for id in held if named.contains(id.lane_id, id.sequence)]:
            self.shed.add(held.pop(id))

    def announced(self, agent: str, header: BatchHeader) -> None:
        """Record an announcement whose source was informed that it is accepted."""
        if agent not in self.shedders:  # announcements that an agent sheds are repeated daily
            self._announced[f"{header.source}/{header.block}/{header.poll_ms}".encode()] = agent

    def recovered(self, agent: str, found: set[BatchId]) -> None:
        """Check that all accepted and not forgotten batches are still there."""
        held = self._accepted.get(agent, {})
        for record in found & self._records.keys():
            self._gives_up(agent, record)
        lost = [id for id in held if id not in found]
        if agent in self.rotten:  # batches destroyed by the disk may or may not be in Kafka already
            self.rotten.discard(agent)
            for id in lost:
                self.excused.add(held.pop(id))
            self._announced = {key: by for key, by in self._announced.items() if by != agent}
        elif lost:
            raise Violation(f"{agent} accepted {lost[0]} and {len(lost) - 1} more, and a restart does not recover them")

    def forgets(self, agent: str, items: Sequence[TrackedBatch], level: str) -> None:
        """Check that only batches durable at the level are forgotten."""
        for item in items:
            if item.is_series:
                continue
            self._accepted.get(agent, {}).pop(item.id, None)
            if level == "kafka":
                self._check_in_kafka(agent, item)
            elif item.id not in self._store.stored and item.id not in self.dead():
                raise Violation(f"{agent} forgets {item.id}, which is not in the table")

    def _check_in_kafka(self, agent: str, item: TrackedBatch) -> None:
        where = item.position
        if where is not None and where.topic_id == self._kafka.samples_id:
            records = self._kafka.samples[where.partition].records
            if where.offset < len(records) and records[where.offset].record.value == self.data.get(item.id):
                return
        raise Violation(f"{agent} forgets {item.id}, which is not in Kafka")

    def damaged(self, agent: str, items: Sequence[TrackedBatch]) -> None:
        """Check that unreadable records are only those of a disk known to be damaged."""
        if not items:
            return
        if agent in self.rotten:
            for item in items:
                token = self._accepted.get(agent, {}).pop(item.id, None)
                if token is not None:
                    self.excused.add(token)
                self._announced = {key: by for key, by in self._announced.items() if by != agent}
            return
        raise Violation(f"{agent} can no longer read {items[0].id} in its log")

    def dead(self) -> set[BatchId]:
        """Return the batches that belong into the topic of dead letters, and are there."""
        for letter, value in self._kafka.letters[self._letters :]:
            try:
                header = parse_header(value or b"")
            except BatchError:
                continue
            if letter.reason.startswith("polled at"):
                self._dead.add(header.id)
        self._letters = len(self._kafka.letters)
        return self._dead

    # -- table

    def appended(self, before: RawState, after: RawState, rows: Sequence[Row]) -> None:
        """Check a commit: no poll twice, and no row that no agent made."""
        if rows and after.append != before.append + 1:
            raise Violation(f"append {after.append} stands on append {before.append}")
        for row in rows:
            if self._tokens.get(row.id) != row.token:
                raise Violation(f"the table holds {row.id} as poll {row.token}, which no agent made")
            self._in_table[row.token] += 1
            if self._in_table[row.token] > 1:
                raise Violation(f"poll {row.token} ({row.id}) stands in the table twice")

    def published(self, path: str, data: bytes, before: bytes | None) -> None:
        """Check that acks never move backwards."""
        if not path.startswith("/artimon/acks/"):
            return
        new = json.loads(data)
        before = None if self.wiped else before
        if before is not None:
            self._check_forward(path, json.loads(before), new)
        topic = next((t for t in self._store.head[1].topics if t.topic_id == new["topic_id"]), None)
        if topic is None:
            raise Violation(f"{path} names a topic that the table does not have")
        newest = max(self._newest.get(path, (0, 0)), (new["version"], new["append"]))
        if (new["version"], new["append"]) < newest and before is not None:
            raise Violation(f"{path} goes back from {newest} to {new['version'], new['append']}")
        self._newest[path] = newest

    @staticmethod
    def _check_forward(path: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        for partition, one in old["partitions"].items():
            now = new["partitions"].get(partition)
            if now is None or (now["until"] < one["until"] and now["epochs"] == one["epochs"]):
                raise Violation(f"{path}, partition {partition}: the ack goes back from {one} to {now}")

    # -- at the end

    def at_the_end(self, shards: Sequence[SimShard]) -> None:
        """Check that table, shards and announcements agree with the ledger."""
        dead = self.dead()
        for token, id in self.tokens.items():
            if self._in_table[token] == 1 or id in dead or token in self.excused:
                continue
            if token not in self.shed or not self._is_named(id):
                raise Violation(f"poll {token} ({id}) was accepted and is not in the table")
        for shard in shards:
            self._check_shard(shard)
        self._check_announced()
        copies = self._kafka.produced / max(1, len(self.data))
        if copies > MAX_COPIES:
            raise Violation(f"every batch was written {copies:.0f} times")

    def _is_named(self, id: BatchId) -> bool:
        """Return True if a shed record in the table, or one that a disk destroyed, names a batch."""
        return any(
            record in self._durable and named.contains(id.lane_id, id.sequence) and self._is_kept(record)
            for record, named in self._records.items()
        )

    def _is_kept(self, record: BatchId) -> bool:
        return record in self._store.stored or self._tokens[record] in self.excused

    def _check_shard(self, shard: SimShard) -> None:
        wanted = {row.token for row in self._store.rows if shard.vshards >> vshard_of(row.source) & 1}
        twice = [token for token, count in shard.applied.items() if count != 1]
        if twice:
            raise Violation(f"{shard.name} applied poll {twice[0]} {shard.applied[twice[0]]} times")
        lacks, more = wanted - shard.applied.keys(), shard.applied.keys() - wanted
        confirmed = self.tokens.keys() - self.excused - self.shed  # others were not confirmed, or were shed
        more = {token for token in more if token in confirmed}
        if shard.excused:  # behind the table when Kafka lost a part, it cannot read the rest anywhere
            lacks -= self._gone_from_kafka(lacks)
        if lacks or more:
            raise Violation(f"{shard.name} lacks polls {sorted(lacks)[:5]} and has {sorted(more)[:5]} too much")

    def _gone_from_kafka(self, tokens: set[int]) -> set[int]:
        values = {stored.record.value for log in self._kafka.samples for stored in log.records[log.start :]}
        ids = {row.token: row.id for row in self._store.rows}
        return {token for token in tokens if self.data[ids[token]] not in values}

    def _check_announced(self) -> None:
        there = set()
        for stored in self._kafka.topics[SERIES][1][0].records:
            header = parse_header(stored.record.value or b"")
            there.add(f"{header.source}/{header.block}/{header.poll_ms}".encode())
        for one in self._announced:
            if one not in there:
                raise Violation(f"announcement {one.decode()} was accepted and is not in Kafka")
