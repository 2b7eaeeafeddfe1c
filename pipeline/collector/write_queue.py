"""Queue between the calls of agents and the store: the messages of many calls are written together.

A write to Kafka costs about the same for one batch as for a hundred, and every agent of a fleet sends few at a time.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from artimon.model.ack_state import Position
from artimon.model.clock import Clock
from pipeline.collector.kafka_writer import WRITE_DEADLINE_S, BatchWriter, KafkaMessage, KafkaWriteError

log = logging.getLogger(__name__)

MAX_WRITE_BYTES = 4 * 1024 * 1024
MAX_WRITE_MESSAGES = 2_000
WRITERS = 8
WRITES_PER_NODE = 4
"""Writes in progress to one node of the cluster, so that a node that hangs leaves writers for the others."""
MAX_WAIT_S = WRITE_DEADLINE_S
"""Seconds after which a call that was not begun is refused: its agent sends it again by then."""
_ANY_NODE = -1
WriteDone = Callable[[Sequence[Position | str] | None], None]
"""Takes the result of each message; None if they will never be known."""


@dataclass(frozen=True, slots=True)
class _Write:
    messages: Sequence[KafkaMessage]
    size: int
    queued_at: float
    done: WriteDone


@dataclass(slots=True)
class _Node:
    """Writes that wait for a node, and the number of writes in progress."""

    waiting: deque[_Write] = field(default_factory=deque)
    busy: int = 0


class WriteQueue:
    """`put` never waits; the caller bounds the bytes. Threads: up to WRITERS, begun when they are needed.

    Locks: `_cond` guards everything below; nothing is written and no `done` is called under it."""

    def __init__(self, broker: BatchWriter, clock: Clock, writers: int = WRITERS) -> None:
        self._broker, self._clock, self._most = broker, clock, writers
        self._cond = threading.Condition()
        self._nodes: dict[int, _Node] = {}
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._stopped = False
        self.writes = 0

    def put(self, messages: Sequence[KafkaMessage], done: WriteDone) -> None:
        """Write messages, those of a partition in order; `done` is called in another thread."""
        write = _Write(messages, sum(len(one.value) for one in messages), self._clock.monotonic(), done)
        node = self._node_of(messages)
        with self._cond:
            stopped = self._stopped
            if not stopped:
                self._nodes.setdefault(node, _Node()).waiting.append(write)
                self._begin_thread()
                self._cond.notify()
        if stopped:
            done(None)

    def stop(self, timeout_s: float = 2.0) -> None:
        """End the threads; writes that hang are abandoned (the threads are daemons), those that wait are dropped."""
        with self._cond:
            self._stopped = True
            left = [write for node in self._nodes.values() for write in node.waiting]
            self._nodes.clear()
            self._cond.notify_all()
        for write in left:
            write.done(None)
        until = self._clock.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, until - self._clock.monotonic()))

    def _begin_thread(self) -> None:
        """Begin one more thread if none is idle. Under `_cond`."""
        if not self._idle and len(self._threads) < self._most:
            self._threads.append(threading.Thread(target=self._run, name="write", daemon=True))
            self._threads[-1].start()

    def _node_of(self, messages: Sequence[KafkaMessage]) -> int:
        """Return the node that leads the partitions of all messages; _ANY_NODE if there are several, or none."""
        partitions = {(one.topic, one.partition) for one in messages}
        try:
            nodes = {self._broker.describe_topic(topic).leaders.get(number, _ANY_NODE) for topic, number in partitions}
        except KafkaWriteError:
            return _ANY_NODE
        return nodes.pop() if len(nodes) == 1 else _ANY_NODE

    def _run(self) -> None:
        while True:
            with self._cond:
                self._idle += 1
                found = self._next()
                while found is None and not self._stopped:
                    self._cond.wait()
                    found = self._next()
                self._idle -= 1
                if found is None:
                    return
                number, writes = found
                self.writes += 1
                if self._ready():  # a `put` may have counted on this thread
                    self._begin_thread()
                    self._cond.notify()
            try:
                self._write(writes)
            except Exception:  # a thread that dies would silently reduce the throughput
                log.exception("write")
            finally:
                self._end(number)

    def _ready(self) -> list[tuple[int, _Node]]:
        """Return the nodes with writes that may begin. Under `_cond`."""
        return [(n, node) for n, node in self._nodes.items() if node.waiting and node.busy < WRITES_PER_NODE]

    def _next(self) -> tuple[int, list[_Write]] | None:
        """Take the writes of the node whose oldest has waited longest, as many as go together. Under `_cond`."""
        ready = self._ready()
        if not ready:
            return None
        number, node = min(ready, key=lambda one: one[1].waiting[0].queued_at)
        writes, size, count = [node.waiting.popleft()], 0, 0
        size, count = writes[0].size, len(writes[0].messages)
        while node.waiting:
            size, count = size + node.waiting[0].size, count + len(node.waiting[0].messages)
            if size > MAX_WRITE_BYTES or count > MAX_WRITE_MESSAGES:
                break
            writes.append(node.waiting.popleft())
        node.busy += 1
        return number, writes

    def _end(self, number: int) -> None:
        with self._cond:
            node = self._nodes.get(number)
            if node is None:
                return
            node.busy -= 1
            if node.waiting:
                self._cond.notify()
            elif not node.busy:
                del self._nodes[number]

    def _write(self, writes: Sequence[_Write]) -> None:
        now = self._clock.monotonic()
        late = [write for write in writes if now - write.queued_at > MAX_WAIT_S]
        for write in late:
            waited = f"kafka: not begun within {MAX_WAIT_S:g} s: earlier writes keep the broker busy"
            write.done([waited] * len(write.messages))
        writes = [write for write in writes if now - write.queued_at <= MAX_WAIT_S]
        messages = [message for write in writes for message in write.messages]
        results: list[Position | str] | None = None
        try:
            results = self._broker.write(messages) if messages else []
        finally:
            at = 0
            for write in writes:
                end = at + len(write.messages)
                write.done(None if results is None else results[at:end])
                at = end
