"""Collector: checks batches from agents, writes them to Kafka, answers with the offsets. It stores nothing itself."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from artimon.model.ack_state import Position
from artimon.model.batch import BatchError, BatchHeader
from artimon.model.batch_codec import verify_limits
from artimon.model.clock import SYSTEM_CLOCK, Clock
from pipeline.collector.collector_service import Holding
from pipeline.collector.kafka_quota import MESSAGE_OVERHEAD, KafkaQuotaGate
from pipeline.collector.kafka_writer import BatchWriter, KafkaMessage, KafkaWriteError, message_for
from pipeline.link.credits import CollectorCredits
from pipeline.link.idl import collector_idl

FRAME_BYTES = 4 * 1024 * 1024 + 512 * 1024
MAX_BYTES_IN_FLIGHT = 32 * 1024 * 1024
"""Limit of the bytes of all concurrent calls, from their first byte to their answer. Each is in memory about five
times, as received and inside requests to Kafka."""
MAX_MESSAGES = 2_000
BatchVerifier = Callable[[bytes], BatchHeader]


class CallInFlight(NamedTuple):
    """State of a call in flight: the answers known so far, one a message; the messages to write to Kafka, with their
    index in the call; and the bytes held for it."""

    answers: list[Any]
    accepted: list[tuple[int, KafkaMessage]]
    held_bytes: int
    agent: str = ""
    """Name of the sending agent, from the first intact message."""
    wait: int = -1
    """Number of its wait, -1 for a call that was refused."""


class Collector:
    """Decisions about calls, and counts. Stateless but for counts and for the bytes it holds, which are bounded.

    `begin` a call, write what it accepted to `broker`, `finish` it."""

    def __init__(
        self,
        broker: BatchWriter,
        topic_prefix: str = "artimon",
        clock: Clock = SYSTEM_CLOCK,
        quota: KafkaQuotaGate | None = None,
        check: BatchVerifier = verify_limits,
    ) -> None:
        """`check`: returns the header of a valid batch, else raises BatchError."""
        self._verify = check
        self.broker, self._clock, self._quota = broker, clock, quota or KafkaQuotaGate(0, clock)
        self._prefix, self._samples_topic = topic_prefix, f"{topic_prefix}.samples"
        self._lock = threading.Lock()
        """Guards the counts below."""
        self._in_flight = Holding(MAX_BYTES_IN_FLIGHT)
        self._credits = CollectorCredits(MAX_BYTES_IN_FLIGHT)
        self._waits = CallWaits(clock)
        self.calls, self.longest_ms, self.busy_ms = 0, 0, 0
        self.batches = self.bytes = self.last_answer_ms = 0
        self.nacks: Counter[str] = Counter()

    def begin(self, messages: Sequence[bytes]) -> CallInFlight:
        """Check a call and select its messages for Kafka. `finish` must follow, whatever the outcome."""
        if len(messages) > MAX_MESSAGES:
            many = f"full: {len(messages)} messages in a call, at most {MAX_MESSAGES}"
            return CallInFlight([self._nack(many) for _ in messages], [], 0)
        size = sum(map(len, messages))
        if not self._in_flight.take(size):
            full = f"full: the collector holds {self._in_flight.bytes} bytes, at most {MAX_BYTES_IN_FLIGHT}"
            return CallInFlight([self._nack(full) for _ in messages], [], 0)
        received = CallInFlight([None] * len(messages), [], size, wait=self._waits.begin())
        try:
            agent = self._admit_all(messages, received)
        except BaseException:
            self.finish(received, None)
            raise
        return received._replace(agent=agent)

    def finish(self, received: CallInFlight, results: Sequence[Position | str] | None) -> list[Any]:
        """Return the answers, given Kafka's result for each written message; None: the results will never be known."""
        for _, message in received.accepted:
            self._end_in_quota(message)
        self._in_flight.give_back(received.held_bytes)
        self._waits.end(received.wait)
        with self._lock:
            self.last_answer_ms = self._clock.now_ms()
        if results is not None:
            for (index, message), result in zip(received.accepted, results, strict=True):
                received.answers[index] = self._answer(message, result)
            self._grant(received)
        return received.answers

    def figures(self) -> dict[str, Any]:
        """Return the counts for the health file."""
        with self._lock:
            return {
                "batches": self.batches,
                "bytes": self.bytes,
                "held_bytes": self._in_flight.bytes,
                "agents": self._credits.agents,
                "calls": self.calls,
                "calls_ms": self.busy_ms,
                "longest_call_ms": self.longest_ms,
                "longest_wait_ms": self._waits.longest_ms,
                "nacks": dict(self.nacks),
                "last_answer_ms": self.last_answer_ms,
                "kafka": self._quota.figures(),
            }

    def _admit_all(self, messages: Sequence[bytes], received: CallInFlight) -> str:
        """Fill `received`; returns the name of the agent."""
        full = agent = ""
        for index, data in enumerate(messages):
            try:
                header = self._verify(data)
                agent = agent or header.id.agent
                message = message_for(self.broker, self._prefix, header, data)
                full = self._admit(message, full)
                if full and message.topic == self._samples_topic:
                    received.answers[index] = self._nack(full)
                else:
                    received.accepted.append((index, message))
            except BatchError as error:
                received.answers[index] = self._nack(f"damaged: {error}")
            except KafkaWriteError as error:
                received.answers[index] = self._nack(f"kafka: {error}")
        return agent

    def _grant(self, received: CallInFlight) -> None:
        """Put into the first answer the credit of the agent: the bytes it may have in flight from now on."""
        if received.agent and received.answers:
            with self._lock:
                received.answers[0].credit = self._credits.share(received.agent, self._clock.monotonic())

    def count_call(self, seconds: float) -> None:
        with self._lock:
            self.calls += 1
            self.busy_ms += round(seconds * 1000)
            self.longest_ms = max(self.longest_ms, round(seconds * 1000))

    def _admit(self, message: KafkaMessage, full: str) -> str:
        """Return the reason to refuse batches of samples, "" if there is none. Once refused, the rest of the call is
        refused as well, so that a lane stays in order. Announcements always pass: their topic is compacted."""
        if full or message.topic != self._samples_topic:
            return full
        return self._quota.admit(message.partition, len(message.value) + MESSAGE_OVERHEAD)

    def _end_in_quota(self, message: KafkaMessage) -> None:
        if message.topic == self._samples_topic:
            self._quota.mark_written(message.partition, len(message.value) + MESSAGE_OVERHEAD)

    def _answer(self, message: KafkaMessage, result: Position | str) -> Any:
        if isinstance(result, str):
            return self._nack(result)
        with self._lock:
            self.batches += 1
            self.bytes += len(message.value)
        return collector_idl().Answer(True, *result[:4], "", result.leader_epoch)

    def _nack(self, reason: str) -> Any:
        with self._lock:
            self.nacks[reason.split(":", 1)[0]] += 1
        return collector_idl().Answer(False, "", "", -1, -1, reason)


WINDOW_S = 60.0
"""Seconds of a window, an interval of polls: a wait that is over before the next poll is still reported."""


class CallWaits:
    """Longest wait of this window and of the one before; calls that still wait are included. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._numbers = itertools.count()
        self._waiting: dict[int, float] = {}
        """Beginning of each call in progress, oldest first."""
        self._window, self._longest_s, self._before_s = 0, 0.0, 0.0

    def begin(self) -> int:
        """Return the number of a call that begins; `end` must follow."""
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = self._clock.monotonic()
            return number

    def end(self, number: int) -> None:
        """Count the wait of a call. Another end of the same call is ignored."""
        with self._lock:
            began = self._waiting.pop(number, None)
            if began is not None:
                self._turn()
                self._longest_s = max(self._longest_s, self._clock.monotonic() - began)

    @property
    def longest_ms(self) -> int:
        with self._lock:
            self._turn()
            oldest = next(iter(self._waiting.values()), None)
            waits = 0.0 if oldest is None else self._clock.monotonic() - oldest
            return round(max(waits, self._longest_s, self._before_s) * 1000)

    def _turn(self) -> None:
        """Begin another window if it is time. Under `_lock`."""
        window = int(self._clock.monotonic() / WINDOW_S)
        if window != self._window:
            self._before_s = self._longest_s if window == self._window + 1 else 0.0
            self._window, self._longest_s = window, 0.0
