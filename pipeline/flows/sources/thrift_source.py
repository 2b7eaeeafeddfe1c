"""Events from programs in any language, over Thrift (events.thrift)."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import thriftpy2
import xxhash

from artimon.model.batch import BatchError, BatchId
from artimon.model.event_codec import encode_events
from bookkeeper.rpc.framed_server import FramedServer
from pipeline.flows.context import Context
from pipeline.flows.event import Event, EventBatch, batch_events
from pipeline.flows.options import FramedOptions
from pipeline.flows.registry import ADDRESS, Component
from pipeline.flows.sources.byte_server import start_framed_server
from pipeline.flows.spi import ChannelFull, Figures, FlowError, Put

FRAME_BYTES = 4 * 1024 * 1024
PRODUCER_BYTES = 64
REMEMBERED = 100_000
"""Calls of all programs together whose digests are in memory; about 20 MiB."""


class NumberUsed(ValueError):
    """The program has used this number before, for other events."""


class Calls:
    """Digests of the last calls by program and number, which detect a number that a program reuses for other events:
    the channel compares identities only, and would drop such a call as a repeat. Thread-safe."""

    def __init__(self, most: int = REMEMBERED) -> None:
        self._most, self._lock = most, threading.Lock()
        self._digests: OrderedDict[tuple[int, int], int] = OrderedDict()

    def claim(self, program: int, number: int, digest: int) -> bool:
        """Record a call; True if it is the first known with its number. Raises NumberUsed."""
        with self._lock:
            known = self._digests.get((program, number))
            if known is None:
                self._digests[program, number] = digest
                if len(self._digests) > self._most:
                    self._digests.popitem(last=False)
            elif known != digest:
                raise NumberUsed(f"number {number} was used before for other events: use a new number for each call")
            return known is None

    def release(self, program: int, number: int) -> None:
        """Free the number of a call of which nothing was kept."""
        with self._lock:
            self._digests.pop((program, number), None)


@lru_cache(maxsize=1)
def events_idl() -> Any:
    """Return the IDL, loaded once."""
    path = Path(__file__).parent.parent / "events.thrift"
    return thriftpy2.load(str(path), module_name="artimon_events_thrift")


class ThriftOptions(FramedOptions):
    """Data beyond `held_bytes` waits in the clients."""


class ThriftSource:
    """Event-driven. A call becomes one event batch (more if it is large), identified by producer and number."""

    def __init__(self, options: ThriftOptions, context: Context) -> None:
        self._options, self._context = options, context
        self._put: Put | None = None
        self._lock = threading.Lock()
        self._server: FramedServer | None = None
        self._digests = Calls()
        self.events = 0
        self.refused: dict[str, int] = {}

    @property
    def port(self) -> int:
        return self._server.port if self._server is not None else 0

    def start(self, put: Put) -> None:
        """Raises OSError if the port is taken."""
        options, self._put = self._options, put
        self._server = start_framed_server(
            "thrift", events_idl().Events, self, options, FRAME_BYTES, f"events-{self._context.flow}"
        )

    def stop(self, deadline_s: float) -> None:
        if self._server is not None:
            self._server.stop(deadline_s)

    def figures(self) -> Figures:
        with self._lock:
            return {"port": self.port, "events": self.events, "refused": dict(self.refused)}

    def append(self, producer: bytes, sequence: int, time_ms: int, events: Sequence[Any]) -> Any:
        """Method of the IDL."""
        try:
            self._put_batches(self._event_batches(producer, sequence, time_ms, events))
        except (BatchError, ValueError, TypeError, AttributeError) as error:
            return self._refuse("bad", error)
        except ChannelFull as error:
            return self._refuse("full", error)
        except FlowError as error:
            return self._refuse("failed", error)
        with self._lock:
            self.events += len(events)
        return events_idl().Taken(True, "")

    def _put_batches(self, event_batches: Sequence[EventBatch]) -> None:
        """Put all event batches of one call; the channel drops repeats. Raises NumberUsed and the errors of a put."""
        ids = [event_batch.id for event_batch in event_batches if event_batch.id is not None]
        if self._put is None:
            raise ChannelFull("the flow has not started")
        if not ids:
            return
        program, number = ids[0].epoch, ids[0].sequence
        first = self._digests.claim(program, number, _digest(event_batches))
        try:
            self._put(event_batches)
        except (ChannelFull, BatchError):
            if first:
                self._digests.release(program, number)
            raise

    def _event_batches(self, producer: bytes, sequence: int, time_ms: int, events: Sequence[Any]) -> list[EventBatch]:
        if not 0 < len(producer) <= PRODUCER_BYTES:
            raise ValueError(f"a producer of {len(producer)} bytes: 1 to {PRODUCER_BYTES}")
        if sequence < 0 or time_ms < 0:
            raise ValueError(f"sequence {sequence}, time_ms {time_ms}: both must be at least 0")
        agent, epoch = f"client/{self._context.agent}", xxhash.xxh3_64_intdigest(producer)
        source = f"thrift/{self._context.flow}"
        portions = batch_events(Event(dict(e.headers or {}), e.body or b"") for e in events)
        return [
            EventBatch(portion.events, id, encode_events(id, source, time_ms, portion.events).data)
            for lane, portion in enumerate(portions)
            for id in [BatchId(agent, epoch, lane, sequence)]
        ]

    def _refuse(self, word: str, error: Exception) -> Any:
        with self._lock:
            self.refused[word] = self.refused.get(word, 0) + 1
        return events_idl().Taken(False, f"{word}: {error}")


def _digest(event_batches: Sequence[EventBatch]) -> int:
    """Return the digest of the events of a call, independent of its time."""
    hasher = xxhash.xxh3_64()
    for event in (event for event_batch in event_batches for event in event_batch.events):
        hasher.update(b"%r %d:" % (sorted(event.headers.items()), len(event.body)))
        hasher.update(event.body)
    return hasher.intdigest()


THRIFT = Component("thrift", ThriftOptions, ThriftSource, outside=ADDRESS)
