"""Receiving end of a hop, for another agent's flow or any client of the collector's Thrift service.

`ok` means that this flow's channel has committed. Event batches keep identity and bytes, so the channel recognises and
drops repeats after a lost reply."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import Field

from artimon.model.batch import BatchError, BatchHeader, BatchId
from artimon.model.batch_codec import verify_limits
from artimon.runtime.zookeeper_client import EphemeralNode
from bookkeeper.rpc.framed_server import FramedServer
from pipeline.collector.collector_service import Holding
from pipeline.flows.context import Context
from pipeline.flows.event import EventBatch
from pipeline.flows.options import FramedOptions
from pipeline.flows.registry import ADDRESS, Component
from pipeline.flows.sources.byte_server import start_framed_server
from pipeline.flows.spi import ChannelFull, Figures, FlowError, Put
from pipeline.link.collector_choice import CollectorEndpoint
from pipeline.link.idl import collector_idl

FRAME_BYTES = 4 * 1024 * 1024 + 512 * 1024
MAX_MESSAGES = 2_000


def parse_id(text: str) -> BatchId | None:
    """Inverse of `str(id)`; None for anything else."""
    try:
        agent, epoch, lane, sequence = text.rsplit("/", 3)
        return BatchId(agent, int(epoch, 16), int(lane), int(sequence))
    except ValueError:
        return None


class AgentSourceOptions(FramedOptions):
    """`group`: name of the registration in ZooKeeper, by which senders find this agent ("": not registered).
    `held_bytes`: limit of the bytes of all calls together; beyond it a call waits with its sender, a small one is
    answered `full`."""

    group: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,64}$")
    held_bytes: int = Field(default=64 * 1024 * 1024, ge=1024 * 1024)


class AgentSource:
    """Locks: `_lock` guards the counts. The server runs a thread for each connection."""

    def __init__(self, options: AgentSourceOptions, context: Context) -> None:
        self._options, self._context = options, context
        self._is_delivered: Callable[[BatchId], bool] = context.shared.get("done", lambda _: False)
        self._put: Put | None = None
        self._lock = threading.Lock()
        self._in_flight = Holding(options.held_bytes)
        self.messages = self.bytes = 0
        self.nacks: Counter[str] = Counter()
        self._server: FramedServer | None = None
        self._registration: EphemeralNode | None = None

    @property
    def port(self) -> int:
        """Port of the server, 0 until it has started."""
        return self._server.port if self._server else 0

    def start(self, put: Put) -> None:
        """Raises OSError if the port is taken."""
        options, self._put = self._options, put
        self._server = start_framed_server(
            "agent", collector_idl().Collector, self, options, FRAME_BYTES, f"flow-{self._context.flow}"
        )
        if options.group:
            self._register()

    def stop(self, deadline_s: float) -> None:
        if self._registration is not None:
            self._registration.stop(deadline_s / 3)
        if self._server is not None:
            self._server.stop(deadline_s / 2)

    def figures(self) -> Figures:
        with self._lock:
            return {
                "port": self.port,
                "messages": self.messages,
                "bytes": self.bytes,
                "held_bytes": self._in_flight.bytes,
                "nacks": dict(self.nacks),
                "connections_refused": self._server.refused if self._server else 0,
            }

    # -- the service

    def send(self, messages: Sequence[bytes]) -> list[Any]:
        """Return one answer a message, in order. All intact messages are put together: all are kept or none."""
        size = sum(map(len, messages))
        if len(messages) > MAX_MESSAGES or not self._in_flight.take(size):
            return [self._nack("full: more messages or bytes in flight than this agent accepts") for _ in messages]
        try:
            return self._receive(messages)
        finally:
            self._in_flight.give_back(size)

    def delivered(self, ids: Sequence[str]) -> list[bool]:
        """Tell for each identity if every required sink of this flow has it."""
        return [(id := parse_id(text)) is not None and self._is_delivered(id) for text in ids]

    def _receive(self, messages: Sequence[bytes]) -> list[Any]:
        answers: list[Any] = [None] * len(messages)
        good: list[tuple[int, EventBatch]] = []
        for index, data in enumerate(messages):
            try:
                header: BatchHeader = verify_limits(data)
                good.append((index, EventBatch((), header.id, data)))
            except BatchError as error:
                answers[index] = self._nack(f"damaged: {error}")
        refused = self._put_batches([event_batch for _, event_batch in good])
        for index, event_batch in good:
            answers[index] = self._nack(refused) if refused else self._answer(event_batch)
        return answers

    def _put_batches(self, event_batches: list[EventBatch]) -> str:
        """Put event batches into the flow; return the reason of a refusal, "" if there is none."""
        if not event_batches:
            return ""
        if self._put is None:
            return "full: the flow has not started"
        try:
            self._put(event_batches)
        except ChannelFull as error:
            return f"full: {error}"
        except (FlowError, BatchError) as error:
            return f"failed: {error}"
        return ""

    def _answer(self, event_batch: EventBatch) -> Any:
        with self._lock:
            self.messages += 1
            self.bytes += len(event_batch.data or b"")
        return collector_idl().Answer(True, f"agent {self._context.agent}", self._context.flow, 0, 0, "", -1)

    def _nack(self, reason: str) -> Any:
        with self._lock:
            self.nacks[reason.split(":", 1)[0]] += 1
        return collector_idl().Answer(False, "", "", -1, -1, reason)

    def _register(self) -> None:
        group, endpoint = self._options.group, CollectorEndpoint(self._options.host, self.port)
        name = f"{self._context.agent}.{self._context.flow}".replace("/", "_")
        directory = self._context.directory("source agent", group)
        self._registration = directory.register(group, name, endpoint, pid=os.getpid())


AGENT = Component("agent", AgentSourceOptions, AgentSource, outside=ADDRESS)
