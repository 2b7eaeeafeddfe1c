"""The sending end of a hop: to the source `agent` of another agent, or to the platform's collectors.

Delivered means that the next one has committed; with `ack = "terminal"` that it has delivered in its turn."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from artimon.model.batch import BatchError, BatchId
from artimon.model.codec import verify
from bookkeeper.rpc.framed_server import CallTimeout
from pipeline.collectors import Collectors, Endpoint
from pipeline.connections import CALL_FAILURES, Connections
from pipeline.flows.context import Context
from pipeline.flows.event import Parcel
from pipeline.flows.hop import Discovery, parse_endpoint_text
from pipeline.flows.numbering import encoded
from pipeline.flows.options import Options
from pipeline.flows.spi import Figures, FlowError, SinkFailed
from pipeline.plane.groups import Followed
from pipeline.timer import AdaptiveTimer

CALL_BYTES = 4 * 1024 * 1024
CALL_MESSAGES = 2_000
_ASK_S = 0.05
_ASK_MOST_S = 1.0


class _Full(SinkFailed):
    """The next agent has no room for all of a call."""


class AgentSinkOptions(Options):
    """Either `to`, addresses of next agents, or `group`, a name under which they are registered in ZooKeeper
    (`collectors`: the platform's own). `ack`: delivered when the next one has committed, or when its sinks have it."""

    to: list[str] = Field(default_factory=list)
    group: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,64}$")
    ack: Literal["next", "terminal"] = "next"
    least_s: float = Field(default=5.0, gt=0, le=60)
    most_s: float = Field(default=60.0, gt=0, le=300)

    @field_validator("to")
    @classmethod
    def _addresses(cls, to: list[str]) -> list[str]:
        for text in to:
            parse_endpoint_text(text)
        return to

    @model_validator(mode="after")
    def _one_of(self) -> AgentSinkOptions:
        if bool(self.to) == bool(self.group):
            raise ValueError("say either `to` or `group`")
        return self


class AgentSink:
    """One call at a time. Its deadline follows measured answer times; an address that fails is left alone for up to
    10 s, and the next one is tried."""

    def __init__(self, options: AgentSinkOptions, context: Context) -> None:
        self._options, self._context, self._clock = options, context, context.clock
        self._agents = Collectors(context.agent)
        self._timer = AdaptiveTimer(least=options.least_s, most=options.most_s)
        self._connections = Connections()
        self._discovery: Discovery | Followed | None = None
        self._encoded: dict[BatchId, bytes] = {}
        """Bytes of parcels that came without and whose delivery has not ended: they must not change."""
        self._accepted: set[BatchId] = set()
        """Those of a delivery that has not ended which a next agent has: they need not go again, to it or another."""
        self._stop = threading.Event()
        self.sent = self.bytes = 0
        self.failures: Counter[str] = Counter()

    def start(self) -> None:
        """Raises FlowError for a group without ZooKeeper. Nobody need be reachable."""
        self._stop.clear()
        if self._options.group:
            address, groups = self._context.shared.get("zookeeper", ""), self._context.shared.get("groups")
            if not address and groups is None:
                raise FlowError(f"sink agent: group {self._options.group!r} needs ZooKeeper, and this agent has none")
            # the agent's own directory has the last known members on its disk, and one session for all sinks
            self._discovery = groups.follow(self._options.group) if groups else Discovery(address, self._options.group)
            self._discovery.start()
        else:
            self._agents.update({text: parse_endpoint_text(text) for text in self._options.to})

    def deliver(self, parcels: Sequence[Parcel]) -> None:
        parcels = self._with_bytes(parcels)
        for portion in _portions([parcel for parcel in parcels if parcel.id not in self._accepted]):
            self._send_all(portion)
        if self._options.ack == "terminal":
            self._await([parcel.id for parcel in parcels if parcel.id is not None])
        self._encoded.clear()
        self._accepted.clear()

    def stop(self, deadline_s: float) -> None:
        self._stop.set()
        if self._discovery is not None:
            self._discovery.stop(deadline_s / 2)
        self._connections.close()

    def figures(self) -> Figures:
        problem = self._discovery.problem if self._discovery else ""
        return {
            "sent": self.sent,
            "bytes": self.bytes,
            "failures": dict(self.failures),
            "agents": len(self._agents),
            "agents_up": self._agents.up(),
            "deadline_ms": round(self._timer.deadline() * 1000),
            "problems": [problem] if problem else [],
        }

    def _with_bytes(self, parcels: Sequence[Parcel]) -> list[Parcel]:
        """An identity always has the same bytes, so those made here are kept until they are delivered."""
        made = []
        for parcel in parcels:
            if parcel.data is None and parcel.id is not None:
                data = self._encoded.get(parcel.id)
                if data is None:
                    data = encoded(parcel, self._context.flow, self._clock.now_ms()).data or b""
                    self._encoded[parcel.id] = data
                parcel = Parcel(parcel.events, parcel.id, data)
            if parcel.data is None:
                raise SinkFailed("a parcel without identity: its channel gave it none", retry=False)
            made.append(parcel)
        return made

    def _send_all(self, parcels: list[Parcel]) -> None:
        """In halves, if the next agent has no room for all of them at once."""
        try:
            self._send(parcels)
        except _Full:
            if len(parcels) == 1:
                raise
            half = len(parcels) // 2
            self._send_all(parcels[:half])
            self._send_all(parcels[half:])

    def _send(self, parcels: list[Parcel]) -> None:
        endpoint = self._pick()
        answers = self._call(endpoint, "send", [parcel.data for parcel in parcels])
        if len(answers) != len(parcels):
            raise SinkFailed(f"{endpoint.host}:{endpoint.port}: {len(answers)} answers to {len(parcels)} messages")
        for parcel, answer in zip(parcels, answers, strict=True):
            if not answer.ok:
                self._refused(endpoint, parcel, answer.reason or "no reason given")
        self._accepted.update(parcel.id for parcel in parcels if parcel.id is not None)
        self._context.progress()
        self.sent += len(parcels)
        self.bytes += sum(len(parcel.data or b"") for parcel in parcels)

    def _refused(self, endpoint: Endpoint, parcel: Parcel, reason: str) -> None:
        kind = reason.split(":", 1)[0]
        self.failures[kind] += 1
        text = f"{endpoint.host}:{endpoint.port} refuses {parcel.id}: {reason}"
        if kind == "full":
            raise _Full(text)
        raise SinkFailed(text, retry=kind != "damaged" or _whole(parcel))

    def _await(self, ids: list[BatchId]) -> None:
        """Until the next agent's sinks have all of them; each time it is asked a little later."""
        wait, missing, last = _ASK_S, ids, self._clock.monotonic()
        while missing:
            if self._stop.is_set():
                raise SinkFailed("stopped before the end of the flow had them")
            answers = self._call(self._pick(), "delivered", [str(id) for id in missing])
            left = [id for id, fine in zip(missing, answers, strict=False) if not fine]
            now = self._clock.monotonic()
            last = now if len(left) < len(missing) else last
            missing = left
            if missing and now - last > self._options.most_s:
                raise SinkFailed(f"the end of the flow has not had {len(missing)} of {len(ids)} parcels yet")
            if missing:
                self._context.progress()
                self._clock.wait(self._stop, wait)
                wait = min(_ASK_MOST_S, wait * 1.5)

    def _pick(self) -> Endpoint:
        if self._discovery is not None:
            self._agents.update(dict(self._discovery.found()))
        endpoint = self._agents.pick(self._clock.monotonic())
        if endpoint is None:
            self.failures["nobody"] += 1
            raise SinkFailed(
                "no next agent can be reached" if len(self._agents) else "no next agent is known: is one registered?"
            )
        return endpoint

    def _call(self, endpoint: Endpoint, method: str, argument: Sequence[Any]) -> Any:
        client = self._connections.to(endpoint, self._agents.known)
        began = self._clock.monotonic()
        try:
            answers = client.call(method, argument, timeout=self._timer.deadline())
        except CALL_FAILURES as error:
            self.failures[type(error).__name__] += 1
            self._agents.failed(endpoint, self._clock.monotonic())
            if isinstance(error, CallTimeout):
                self._timer.timed_out()
            raise SinkFailed(f"{endpoint.host}:{endpoint.port}: {type(error).__name__}: {error}") from error
        self._agents.worked(endpoint)
        self._timer.answered(self._clock.monotonic() - began)
        return answers


def _portions(parcels: Sequence[Parcel]) -> Iterator[list[Parcel]]:
    """What one call carries."""
    portion: list[Parcel] = []
    size = 0
    for parcel in parcels:
        more = len(parcel.data or b"")
        if portion and (size + more > CALL_BYTES or len(portion) >= CALL_MESSAGES):
            yield portion
            portion, size = [], 0
        portion.append(parcel)
        size += more
    if portion:
        yield portion


def _whole(parcel: Parcel) -> bool:
    """Whether its bytes are right here: then they were damaged on the way."""
    try:
        verify(parcel.data or b"")
    except BatchError:
        return False
    return True
