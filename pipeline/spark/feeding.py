"""What a task of the buckets query does with the rows of one or more Kafka partitions: it decodes them once and sends
each shard the identities of all batches and the columns of those that the shard owns. The shard's answer is the only
truth."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
import xxhash
from thriftpy2.thrift import TException

from artimon.model.batch import BatchError, Samples
from artimon.model.codec import samples_of
from artimon.model.feed import FeedEntry, FeedRange, encode_range, join_samples
from artimon.model.routing import virtual_shard
from bookkeeper.framed import FramedClient, FramedError
from pipeline.spark import messages
from pipeline.spark.shards import Shard, service
from pipeline.spark.tasks import Record, records_of

MAX_SAMPLES = 256 * 1024
"""Samples for one shard in one request: 33 bytes each, so about 8 MiB."""
MAX_STRING_BYTES = 4 * 1024 * 1024
MAX_ENTRIES = 4_096
SEND_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class FeedPlan:
    """What every task of one micro-batch needs to know."""

    topic_id: str
    shards: tuple[Shard, ...]
    skip: frozenset[tuple[str, int]] = frozenset()
    """(shard, partition) that are behind this micro-batch: a catch-up brings them up."""


@dataclass(slots=True)
class ShardOutcome:
    """What became of one partition's range at one shard. `next` is its own word; None if it never answered."""

    next: int | None = None
    error: str = ""
    applied: int = 0
    repeated: int = 0
    late: int = 0
    future: int = 0


@dataclass(slots=True)
class FeedResult:
    """What a task answers for its partition."""

    partition: int
    first: int
    until: int
    newest_append_ms: int = 0
    shards: dict[str, ShardOutcome] = field(default_factory=dict)

    def to_json(self) -> str:
        plain = {id_: [o.next, o.error, o.applied, o.repeated, o.late, o.future] for id_, o in self.shards.items()}
        return json.dumps([self.partition, self.first, self.until, self.newest_append_ms, plain])

    @classmethod
    def from_json(cls, text: str) -> FeedResult:
        partition, first, until, newest, plain = json.loads(text)
        return cls(partition, first, until, newest, {id_: ShardOutcome(*outcome) for id_, outcome in plain.items()})


def run_feed(plan: FeedPlan, batches: Iterable[Any]) -> Iterator[Any]:
    """The function of the buckets query's mapInArrow: one result row for each Kafka partition that has rows."""
    feeder: _Feeder | None = None
    silent: dict[str, str] = {}
    for partition, record in records_of(batches):
        if feeder is None or feeder.result.partition != partition:
            if feeder is not None:
                yield _row(feeder.finish())
            feeder = _Feeder(plan, partition, record.offset, silent)
        feeder.take(record)
    if feeder is not None:
        yield _row(feeder.finish())


def _row(result: FeedResult) -> Any:
    return pa.record_batch([pa.array([result.to_json()], pa.utf8())], names=["result"])


class _Feeder:
    """Takes the records of one partition in offset order and sends them in ranges of bounded size."""

    def __init__(self, plan: FeedPlan, partition: int, first: int, silent: dict[str, str]) -> None:
        """`silent`: shards that did not answer this task, and why: nobody waits for them once more."""
        self._plan, self._silent = plan, silent
        self.result = FeedResult(partition, first, first)
        self._start = first
        wanted = [shard for shard in plan.shards if (shard.id, partition) not in plan.skip]
        self.result.shards = {shard.id: ShardOutcome(None, silent.get(shard.id, "")) for shard in wanted}
        self._targets = [shard for shard in wanted if shard.id not in silent]
        self._clear()

    def _clear(self) -> None:
        self._entries: list[tuple[FeedEntry, int]] = []
        self._columns: dict[str, list[Samples]] = {shard.id: [] for shard in self._targets}
        self._rows = dict.fromkeys(self._columns, 0)
        self._string_bytes = 0

    def take(self, record: Record) -> None:
        try:
            header = messages.check(record.value, record.append_ms)
            body = messages.decode(header, record.value or b"")
        except BatchError:
            entry = FeedEntry(record.offset, record.append_ms, None, "", 0, 0, False, 0)
            self._entries.append((entry, -1))
        else:
            samples = samples_of(body)
            vshard, rows = virtual_shard(header.source), len(samples)
            block = xxhash.xxh3_64_intdigest(samples.fingerprint.data)
            entry = FeedEntry(
                record.offset, record.append_ms, header.id, header.source, header.poll_ms, rows, True, block
            )
            self._entries.append((entry, vshard))
            self._keep(vshard, samples)
        self.result.until = record.offset + 1
        self.result.newest_append_ms = max(self.result.newest_append_ms, record.append_ms)
        if (
            len(self._entries) >= MAX_ENTRIES
            or self._string_bytes >= MAX_STRING_BYTES
            or max(self._rows.values(), default=0) >= MAX_SAMPLES
        ):
            self._flush()

    def _keep(self, vshard: int, samples: Samples) -> None:
        for shard in self._targets:
            if vshard in shard.owned:
                self._columns[shard.id].append(samples)
                self._rows[shard.id] += len(samples)
                self._string_bytes += sum(map(len, samples.strings))

    def _flush(self) -> None:
        if self._start >= self.result.until:
            return
        for shard in list(self._targets):
            outcome = self.result.shards[shard.id]
            self._send(shard, outcome)
            if outcome.error or outcome.next is None or outcome.next < self.result.until:
                self._targets.remove(shard)  # it lags: nothing more for it in this task
        self._start = self.result.until
        self._clear()

    def _send(self, shard: Shard, outcome: ShardOutcome) -> None:
        entries = tuple(
            entry if vshard in shard.owned else replace(entry, rows=0, owned=False) for entry, vshard in self._entries
        )
        columns = join_samples(self._columns[shard.id])
        range_ = FeedRange(self._plan.topic_id, self.result.partition, self._start, self.result.until, entries, columns)
        sent = send(shard, range_)
        if sent.next is None:
            self._silent[shard.id] = sent.error
        outcome.next, outcome.error = sent.next, sent.error
        outcome.applied += sent.applied
        outcome.repeated += sent.repeated
        outcome.late += sent.late
        outcome.future += sent.future

    def finish(self) -> FeedResult:
        self._flush()
        return self.result


def send(shard: Shard, range_: FeedRange) -> ShardOutcome:
    """Send one range; a shard that cannot be reached or refuses is an outcome, not an exception."""
    try:
        answer = _client(shard.host, shard.port, shard.incarnation).call("feed", encode_range(range_))
    except (OSError, FramedError, TException) as error:
        return ShardOutcome(None, f"{type(error).__name__}: {error}"[:300])
    return ShardOutcome(answer.next_offset, "", answer.applied, answer.repeated, answer.late, answer.future)


@lru_cache(maxsize=64)
def _client(host: str, port: int, _incarnation: str) -> FramedClient:
    """One connection for each shard and Python worker; it connects again by itself."""
    return FramedClient(service(), host, port, SEND_TIMEOUT_S)
