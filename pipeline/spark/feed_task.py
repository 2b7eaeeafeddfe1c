"""Task of the buckets query: decodes the rows of one or more Kafka partitions once and sends each group of virtual
shards the identities of all batches and the columns of those that the group holds. The shard's answer is the only
truth about its offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, Protocol

import xxhash
from thriftpy2.thrift import TException

from artimon.model.batch import BatchError, BatchHeader, Samples
from artimon.model.feed_codec import GROUP_CHANGED, FeedEntry, FeedRange, concat_samples, encode_range
from artimon.model.hash_routing import virtual_shard
from artimon.model.sample_columns import samples_from_body
from artimon.runtime.settings import security
from bookkeeper.rpc.framed_server import FramedClient, FramedError
from pipeline.control.shard_directory import GroupOffsets, ShardGroup, ShardInfo, read_groups, rewind_shard, shard_idl
from pipeline.spark import message_checks as messages
from pipeline.spark.decoder_trial import TrialDecoder
from pipeline.spark.raw_task import Decode, KafkaRecord, records_of, result_row

MAX_SAMPLES = 256 * 1024
"""Samples for one group in one request: 33 bytes each, about 8 MiB."""
MAX_STRING_BYTES = 4 * 1024 * 1024
MAX_ENTRIES = 4_096
SEND_TIMEOUT_S = 5.0
"""Timeout of a request. A hanging shard delays others once; it must then report its offsets before it is fed."""
MAX_CONCURRENT_SHARDS = 8


class ShardCalls(Protocol):
    """Calls of a task to shards."""

    def read_groups(self, shard: ShardInfo, topic_id: str) -> GroupOffsets | None:
        """Return the groups of a shard with their next offsets; None if it does not answer."""
        ...

    def rewind(self, shard: ShardInfo, topic_id: str, partition: int, offset: int) -> bool:
        """Tell a shard that the log was cut at `offset`; True if it answered."""
        ...

    def send(self, shard: ShardInfo, range_: FeedRange) -> FeedOutcome:
        """Send one range. An unreachable or refusing shard is an outcome, not an exception."""
        ...

    def run_concurrently(self, work: Sequence[Callable[[], None]]) -> None:
        """Do all of this work, for different shards, concurrently."""
        ...


@dataclass(frozen=True, slots=True)
class FeedPlan:
    """Parameters of all tasks of one micro-batch."""

    topic_id: str
    groups: tuple[ShardGroup, ...]
    skip: frozenset[tuple[str, int]] = frozenset()
    """(key of a group, partition) that are behind this micro-batch: a catch-up feeds them."""
    suspects: frozenset[str] = frozenset()
    """As in RawPlan."""
    try_all: bool = False
    partitions: int = 0
    """Partitions that lanes are spread over; 0: any lane may be in any partition."""


@dataclass(slots=True)
class FeedOutcome:
    """Result of one partition's range at one group. `next` is the shard's own answer; None if it never answered."""

    next: int | None = None
    error: str = ""
    applied: int = 0
    repeated: int = 0
    late: int = 0
    future: int = 0

    @property
    def changed(self) -> bool:
        """True if the shard's groups differ from those of the plan."""
        return GROUP_CHANGED in self.error


@dataclass(slots=True)
class FeedResult:
    """Result of a task for one partition."""

    partition: int
    first: int
    until: int
    newest_append_ms: int = 0
    groups: dict[str, FeedOutcome] = field(default_factory=dict)
    """By key of the group."""
    refused: int = 0
    """Messages that are not storable batches; the raw query makes dead letters of the same messages."""
    poison: list[str] = field(default_factory=list)
    """Digests of messages that kill their decoder, of this task up to this partition."""


def run_feed(plan: FeedPlan, batches: Iterable[Any]) -> Iterator[Any]:
    """Body of the buckets query's mapInArrow: one result row for each Kafka partition that has rows."""
    with TrialDecoder(plan.suspects, plan.try_all) as guard:

        def read(header: BatchHeader, value: bytes) -> tuple[Samples, int]:
            return read_batch(header, value, guard.decode)

        for result in feed_records(plan, records_of(batches), read=read):
            result.poison = guard.poison
            yield result_row(result)


def feed_records(
    plan: FeedPlan,
    records: Iterable[tuple[int, KafkaRecord]],
    calls: ShardCalls | None = None,
    read: BatchDecoder | None = None,
) -> Iterator[FeedResult]:
    """Feed (partition, record) pairs, sorted by partition and offset; yield one result for each partition."""
    calls, read = calls or SHARD_CALLS, read or read_batch
    feeder: _RangeFeeder | None = None
    silent: dict[str, str] = {}
    for partition, record in records:
        if feeder is None or feeder.result.partition != partition:
            if feeder is not None:
                yield feeder.finish()
            feeder = _RangeFeeder(plan, partition, record.offset, silent, calls, read)
        feeder.add(record)
    if feeder is not None:
        yield feeder.finish()


class _RangeFeeder:
    """Takes the records of one partition in offset order and sends them in ranges of bounded size."""

    def __init__(
        self, plan: FeedPlan, partition: int, first: int, silent: dict[str, str], calls: ShardCalls, read: BatchDecoder
    ) -> None:
        """`silent`: shards that did not answer this task, with the error; no second timeout is spent on them."""
        self._plan, self._unanswered, self._calls, self._read = plan, silent, calls, read
        self.result = FeedResult(partition, first, first)
        self._start = first
        wanted = [group for group in plan.groups if (group.key, partition) not in plan.skip]
        self.result.groups = {group.key: FeedOutcome(None, silent.get(group.shard.id, "")) for group in wanted}
        self._targets = [group for group in wanted if group.shard.id not in silent]
        self._clear()

    def _clear(self) -> None:
        self._entries: list[tuple[FeedEntry, int]] = []
        self._columns: dict[str, list[Samples]] = {group.key: [] for group in self._targets}
        self._rows = dict.fromkeys(self._columns, 0)
        self._string_bytes = 0

    def add(self, record: KafkaRecord) -> None:
        try:
            header = messages.check_message(record.value, record.append_ms)
            messages.check_partition(header, self.result.partition, self._plan.partitions)
            samples, block = self._read(header, record.value or b"")
        except BatchError:
            self.result.refused += 1
            entry = FeedEntry(record.offset, record.append_ms, None, "", 0, 0, False, 0)
            self._entries.append((entry, -1))
        else:
            vshard, rows = virtual_shard(header.source), len(samples)
            entry = FeedEntry(
                record.offset, record.append_ms, header.id, header.source, header.poll_ms, rows, True, block
            )
            self._entries.append((entry, vshard))
            self._buffer(vshard, samples)
        self.result.until = record.offset + 1
        self.result.newest_append_ms = max(self.result.newest_append_ms, record.append_ms)
        if (
            len(self._entries) >= MAX_ENTRIES
            or self._string_bytes >= MAX_STRING_BYTES
            or max(self._rows.values(), default=0) >= MAX_SAMPLES
        ):
            self._flush()

    def _buffer(self, vshard: int, samples: Samples) -> None:
        for group in self._targets:
            if group.vshards >> vshard & 1:
                self._columns[group.key].append(samples)
                self._rows[group.key] += len(samples)
                self._string_bytes += sum(map(len, samples.strings))

    def _flush(self) -> None:
        """Send to all shards concurrently and to the groups of one shard in turn: a hanging shard delays no other."""
        if self._start >= self.result.until:
            return
        by_shard: dict[str, list[ShardGroup]] = {}
        for group in self._targets:
            by_shard.setdefault(group.shard.id, []).append(group)
        self._calls.run_concurrently([partial(self._send_all, some) for some in by_shard.values()])
        self._targets = [group for group in self._targets if self._accepts_more(self.result.groups[group.key])]
        self._start = self.result.until
        self._clear()

    def _accepts_more(self, outcome: FeedOutcome) -> bool:
        """Return True if the group gets more in this task; a group that lags is caught up elsewhere."""
        return not outcome.error and outcome.next is not None and outcome.next >= self.result.until

    def _send_all(self, groups: list[ShardGroup]) -> None:
        """Send to the groups of one shard. Runs in a thread; changes only their outcomes and the shard's entry in
        `_unanswered`."""
        for group in groups:
            outcome = self.result.groups[group.key]
            if group.shard.id in self._unanswered:
                outcome.error = self._unanswered[group.shard.id]
            else:
                self._send(group, outcome)

    def _send(self, group: ShardGroup, outcome: FeedOutcome) -> None:
        entries = tuple(
            entry if vshard >= 0 and group.vshards >> vshard & 1 else replace(entry, rows=0, owned=False)
            for entry, vshard in self._entries
        )
        columns = concat_samples(self._columns[group.key])
        until = self.result.until
        range_ = FeedRange(
            self._plan.topic_id, self.result.partition, self._start, until, entries, columns, group.vshards
        )
        sent = self._calls.send(group.shard, range_)
        if sent.next is None and not sent.changed:
            self._unanswered[group.shard.id] = sent.error
        outcome.next, outcome.error = sent.next, sent.error
        outcome.applied += sent.applied
        outcome.repeated += sent.repeated
        outcome.late += sent.late
        outcome.future += sent.future

    def finish(self) -> FeedResult:
        self._flush()
        return self.result


def read_batch(header: BatchHeader, value: bytes, decode: Decode = messages.decode) -> tuple[Samples, int]:
    """Return the samples of a checked batch and the hash of their fingerprints. Raises BatchError."""
    samples = samples_from_body(decode(header, value))
    return samples, xxhash.xxh3_64_intdigest(samples.fingerprint.data)


BatchDecoder = Callable[[BatchHeader, bytes], tuple[Samples, int]]


def send_range(shard: ShardInfo, range_: FeedRange) -> FeedOutcome:
    """Send one range; an unreachable or refusing shard is an outcome, not an exception."""
    try:
        answer = _client(shard.host, shard.port, shard.incarnation).call("feed", encode_range(range_))
    except (OSError, FramedError, TException) as error:
        text = getattr(error, "message", None) or error
        return FeedOutcome(None, f"{type(error).__name__}: {text}"[:300])
    return FeedOutcome(answer.next_offset, "", answer.applied, answer.repeated, answer.late, answer.future)


@lru_cache(maxsize=64)
def _client(host: str, port: int, _incarnation: str) -> FramedClient:
    """Return the one connection of this Python worker to a shard process; it reconnects by itself."""
    return FramedClient(shard_idl(), host, port, SEND_TIMEOUT_S, security=security())


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    """Return the thread pool of this Python worker."""
    return ThreadPoolExecutor(MAX_CONCURRENT_SHARDS, thread_name_prefix="feed")


class _ThriftShardCalls:
    """Calls over Thrift."""

    read_groups, rewind, send = staticmethod(read_groups), staticmethod(rewind_shard), staticmethod(send_range)

    def run_concurrently(self, work: Sequence[Callable[[], None]]) -> None:
        if len(work) > 1:
            list(_threads().map(lambda one: one(), work))
        else:
            for one in work:
                one()


SHARD_CALLS: ShardCalls = _ThriftShardCalls()
