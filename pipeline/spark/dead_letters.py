"""Dead letters: messages of the topic of samples that the program could not decode when it met them. The state of each
follows from the table and the letter itself and is recorded nowhere. See docs/formats/raw.md, section 5.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

import xxhash
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from artimon.model.ack_state import Position
from artimon.model.batch import BatchError, BatchHeader, BatchId, UnknownFormatError
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.hash_routing import partition_of
from artimon.rawtable.head import HeadReader
from artimon.rawtable.schema import TableError
from artimon.runtime.kafka_access import open_client
from artimon.runtime.topic_check import TopicsUnfitError, TopicsUnknownError, check_required_topics, required_topics
from pipeline.collector.kafka_writer import KafkaMessage, KafkaWriteError, KafkaWriter
from pipeline.spark import message_checks as messages
from pipeline.spark.decoder_trial import TrialDecoder
from pipeline.spark.raw_task import Decode

STALL_S = 15.0
"""Timeout of reading: no letter for this long, in seconds."""
BOOTSTRAP_MS = 5_000
MAX_REMEMBERED = 100_000
"""Letters remembered to recognise repeats; a repeat follows its first within one append."""
BATCH_BYTES, BATCH_LETTERS = 4 * 1024 * 1024, 200
"""Bytes and number of letters replayed at once: bounds memory."""
MAX_NAMED = 10


class DeadLetterError(RuntimeError):
    """Letters cannot be read or replayed. The text says which and what to do."""


class LetterState(StrEnum):
    """State of a letter, which says what can be done about it."""

    WAITING = "waiting"
    STORED = "stored"
    """A batch of its identity is in the table."""
    UNREADABLE = "unreadable"
    """Damaged, or never a batch of samples: a replay cannot help."""


class LetterAddress(NamedTuple):
    """Place of the message in the topic of samples."""

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> LetterAddress:
        """Parse the text that `str` makes. Raises ValueError."""
        partition, _, offset = text.partition(":")
        if not (partition.isdecimal() and offset.isdecimal()):
            raise ValueError(f"{text!r} is not an address: write PARTITION:OFFSET, as in `artimon deadletter list`")
        return cls(int(partition), int(offset))


@dataclass(frozen=True, slots=True)
class DeadLetterRecord:
    """One dead letter, without its bytes."""

    topic: str
    address: LetterAddress
    reason: str
    """Reason why the program that met it could not store it."""
    written_ms: int
    size: int
    state: LetterState
    objection: str
    """Reason why the present program cannot store it either; "" if it can, or if it is stored."""
    header: BatchHeader | None
    """None if the present program cannot read it."""


@dataclass(slots=True)
class LetterTally:
    """Number of letters in each state, and of records in the topic that are not letters."""

    states: dict[LetterState, int] = field(default_factory=lambda: dict.fromkeys(LetterState, 0))
    foreign: int = 0


class DeadLetters:
    """Reads the letters of one platform, oldest first. One reader at a time; `tally` is that of the last reading."""

    def __init__(self, kafka: str, hdfs: str, prefix: str = "artimon", clock: Clock = SYSTEM_CLOCK) -> None:
        self.kafka, self.clock = kafka, clock
        self.topic, self.samples_topic = f"{prefix}.deadletters", f"{prefix}.samples"
        self._hdfs = hdfs
        self.tally = LetterTally()

    def read(self, stop: threading.Event) -> Iterator[tuple[DeadLetterRecord, bytes | None]]:
        """Yield every letter now in the topic once, with its bytes; fewer on `stop`. Raises DeadLetterError."""
        stored = self._stored_predicate()
        self.tally = LetterTally()
        known: OrderedDict[int, None] = OrderedDict()
        with TrialDecoder(careful=True) as guard:
            for record in self._records(stop):
                found = _origin(record)
                if found is None:
                    self.tally.foreign += 1
                    continue
                if _is_repeat(known, record):
                    continue
                state, why, header = classify(record.value, self.clock.now_ms(), stored, guard.decode)
                self.tally.states[state] += 1
                topic, address, reason = found
                size = len(record.value or b"")
                yield DeadLetterRecord(topic, address, reason, record.timestamp, size, state, why, header), record.value

    def check_samples(self) -> None:
        """Check that the topic a replay writes to is fit for samples. Raises DeadLetterError."""
        prefix = self.samples_topic.removesuffix(".samples")
        try:
            check_required_topics(self.kafka, required_topics(prefix, ("samples",)))
        except (TopicsUnfitError, TopicsUnknownError) as error:
            raise DeadLetterError(str(error)) from error

    def partitions_of(self, topic_id: str) -> int | None:
        """Return the partitions with which the table began a topic; None if it has not, or cannot be read."""
        try:
            _, state = HeadReader(self._hdfs).head()
        except (FileNotFoundError, TableError, OSError, ValueError):
            return None
        return next((len(one.until) for one in state.topics if one.topic_id == topic_id), None)

    def _stored_predicate(self) -> Callable[[BatchId], bool]:
        """Return a predicate that is True for batches in the table, by its newest append. Raises DeadLetterError."""
        try:
            _, state = HeadReader(self._hdfs).head()
        except FileNotFoundError:
            return lambda _: False
        except (TableError, OSError, ValueError) as error:
            raise DeadLetterError(f"the state of the raw table cannot be read: {error}") from error
        partitions = len(state.until())

        def seen(id_: BatchId) -> bool:
            lanes = state.lanes.get(partition_of(*id_.lane_id, partitions)) if partitions else None
            return lanes is not None and lanes.contains(id_.lane_id, id_.sequence)

        return seen

    def _records(self, stop: threading.Event) -> Iterator[Any]:
        """Yield the records now in the topic; a few MiB are held at a time."""
        try:
            consumer = open_client(
                KafkaConsumer,
                bootstrap_servers=self.kafka,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                fetch_max_bytes=4 * 1024 * 1024,
                max_partition_fetch_bytes=2 * 1024 * 1024,
                max_poll_records=50,
                request_timeout_ms=int(STALL_S * 1000),
                bootstrap_timeout_ms=BOOTSTRAP_MS,
            )
        except (KafkaError, OSError) as error:
            raise DeadLetterError(f"Kafka at {self.kafka} does not answer: {error!r}") from error
        try:
            yield from self._read_records(consumer, stop)
        except (KafkaError, OSError) as error:
            raise DeadLetterError(f"Kafka at {self.kafka}, topic {self.topic}: {error!r}") from error
        finally:
            consumer.close(autocommit=False)

    def _read_records(self, consumer: Any, stop: threading.Event) -> Iterator[Any]:
        numbers = consumer.partitions_for_topic(self.topic)
        if not numbers:
            raise DeadLetterError(
                f"Kafka at {self.kafka} has no topic {self.topic}: `artimon topics check` says what is missing"
            )
        parts = [TopicPartition(self.topic, p) for p in sorted(numbers)]
        consumer.assign(parts)
        ends: Mapping[Any, int] = consumer.end_offsets(parts, timeout_ms=int(STALL_S * 1000))
        consumer.seek_to_beginning(*parts)
        last = self.clock.monotonic()
        while not stop.is_set() and any(consumer.position(part) < ends[part] for part in parts):
            polled = consumer.poll(timeout_ms=500)
            if polled:
                for part, records in polled.items():
                    yield from (record for record in records if record.offset < ends[part])
                last = self.clock.monotonic()
            elif self.clock.monotonic() - last > STALL_S:
                raise DeadLetterError(f"{self.topic}: no data for {STALL_S:.0f} s; check Kafka at {self.kafka}")


def classify(
    value: bytes | None, now_ms: int, stored: Callable[[BatchId], bool], decode: Decode = messages.decode
) -> tuple[LetterState, str, BatchHeader | None]:
    """Return the state of a letter, the present program's objection to a replay ("" if none), and the header.
    `decode`: that of a Guard, because the letters may include messages that killed a worker."""
    try:
        header = messages.parse_header(value)
    except UnknownFormatError as error:
        return LetterState.WAITING, str(error), None
    except BatchError as error:
        return LetterState.UNREADABLE, str(error), None
    if stored(header.id):
        return LetterState.STORED, "", header
    try:
        decode(messages.check_message(value, now_ms), value or b"")
    except BatchError as error:
        return LetterState.WAITING, str(error), header
    return LetterState.WAITING, "", header


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """Result of the replay of one letter. `position` is its new place, if it was written."""

    letter: DeadLetterRecord
    result: str
    """written, would be written, stored, refused, failed"""
    detail: str = ""
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Letters to replay: those at `addresses`, or all that wait. `force`: also those that the present program would
    refuse (the raw query may run another version), if the header can be trusted."""

    addresses: Collection[LetterAddress] = ()
    force: bool = False
    dry_run: bool = False


def replay(letters: DeadLetters, wish: ReplayRequest, stop: threading.Event) -> Iterator[ReplayOutcome]:
    """Write letters unchanged to the topic of samples, each to the partition of its lane; yield one outcome a letter.
    Table and shards drop repeats, so a replay may be stopped and started again at any point.

    Raises DeadLetterError, also at the end, for addresses without a letter."""
    letters.check_samples()
    broker = KafkaWriter(letters.kafka, letters.clock, letters.partitions_of)
    missing, others = set(wish.addresses), deque[LetterAddress](maxlen=MAX_NAMED)
    held: list[tuple[DeadLetterRecord, bytes]] = []
    try:
        for letter, value in letters.read(stop):
            if wish.addresses and letter.address not in wish.addresses:
                others.append(letter.address)
                continue
            missing.discard(letter.address)
            if not wish.addresses and letter.state != LetterState.WAITING:
                continue
            refusal = _skip_outcome(letter, wish)
            if refusal is not None:
                yield refusal
            elif wish.dry_run:
                yield ReplayOutcome(letter, "would be written")
            else:
                held.append((letter, value or b""))
                if len(held) >= BATCH_LETTERS or sum(len(message) for _, message in held) >= BATCH_BYTES:
                    yield from _write(letters.samples_topic, broker, held)
                    held = []
        if held and not stop.is_set():
            yield from _write(letters.samples_topic, broker, held)
    finally:
        broker.close()
    if missing and not stop.is_set():
        raise DeadLetterError(_missing_text(missing, others))


def _skip_outcome(letter: DeadLetterRecord, wish: ReplayRequest) -> ReplayOutcome | None:
    """Return the outcome of a letter that is not to be written; None if it is to be."""
    if letter.state == LetterState.STORED:
        return ReplayOutcome(letter, "stored", "its batch is in the table already")
    if letter.header is None or (letter.objection and not wish.force):
        return ReplayOutcome(letter, "refused", letter.objection)
    return None


def _write(topic: str, broker: KafkaWriter, held: Sequence[tuple[DeadLetterRecord, bytes]]) -> list[ReplayOutcome]:
    """Write letters at once. Raises DeadLetterError if Kafka took none of them."""
    try:
        info = broker.describe_topic(topic)
    except KafkaWriteError as error:
        raise DeadLetterError(str(error)) from error
    lanes = [letter.header.id.lane_id for letter, _ in held if letter.header is not None]
    wanted = [
        KafkaMessage(topic, partition_of(*lane, info.partitions), value, None, info.topic_id)
        for lane, (_, value) in zip(lanes, held, strict=True)
    ]
    results = broker.write(wanted)
    if all(isinstance(result, str) for result in results):
        raise DeadLetterError(f"nothing was written: {results[0]}; run it again, repeats are dropped")
    return [
        ReplayOutcome(letter, "failed", result)
        if isinstance(result, str)
        else ReplayOutcome(letter, "written", "", result)
        for (letter, _), result in zip(held, results, strict=True)
    ]


def _missing_text(missing: Collection[LetterAddress], others: Collection[LetterAddress]) -> str:
    shown = ", ".join(map(str, sorted(missing)[:MAX_NAMED]))
    there = f"there are {', '.join(map(str, others))}" if others else "there are no others"
    return f"no letter at {shown}; {there}; `artimon deadletter list --all` shows every one"


def _origin(record: Any) -> tuple[str, LetterAddress, str] | None:
    """Return topic, address and reason from the headers; None if the record is not a letter."""
    headers = dict(record.headers or ())
    try:
        address = LetterAddress(int(headers["partition"]), int(headers["offset"]))
        return headers["topic"].decode(), address, headers["reason"].decode()
    except (KeyError, ValueError, AttributeError):
        return None


def _is_repeat(known: OrderedDict[int, None], record: Any) -> bool:
    """Return True if this letter was in the topic before: the same place and the same bytes, because a topic that is
    made again reuses its offsets."""
    digest = xxhash.xxh3_64(record.value or b"")
    for name, text in record.headers:
        digest.update(f"\0{name}\0".encode() + text)
    key = digest.intdigest()
    if key in known:
        return True
    known[key] = None
    if len(known) > MAX_REMEMBERED:
        known.popitem(last=False)
    return False
