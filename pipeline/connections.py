"""Connections to collectors, and to agents that answer as they do: one an endpoint, made when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from thriftpy2.thrift import TException

from artimon.settings import security
from bookkeeper.rpc.framed_server import FramedClient, FramedError
from pipeline.acks import Position
from pipeline.collectors import Endpoint
from pipeline.credits import NOT_TOLD
from pipeline.idl import collector_idl
from pipeline.tracker import Answer

CALL_FAILURES = (FramedError, TException, OSError)
"""What a call raises that was not answered as it should be."""


class Connections:
    """Those of one thread, or of threads that take turns."""

    def __init__(self) -> None:
        self._open: dict[Endpoint, FramedClient] = {}

    def to(self, endpoint: Endpoint, known: Callable[[], Collection[Endpoint]]) -> FramedClient:
        """The one to this endpoint. Whenever one is made those to endpoints are closed that are no longer `known`: a
        collector that was started again listens elsewhere, and nobody would ever close what led to it before."""
        client = self._open.get(endpoint)
        if client is None:
            there = known()
            for gone in [one for one in self._open if one not in there]:
                self._open.pop(gone).close()
            client = self._open[endpoint] = client_of(endpoint)
        return client

    def close(self) -> None:
        """All of them."""
        for client in self._open.values():
            client.close()
        self._open.clear()


def client_of(endpoint: Endpoint) -> FramedClient:
    """A client of the collector's service, secured as this process is; connects when it is first used."""
    return FramedClient(collector_idl().Collector, endpoint.host, endpoint.port, security=security())


def send(client: FramedClient, messages: Sequence[bytes], timeout_s: float) -> list[Answer]:
    """What the collector says of each message, in order. Raises CALL_FAILURES."""
    answers = [answer_of(raw) for raw in client.call("send", messages, timeout=timeout_s)]
    if len(answers) != len(messages):
        raise FramedError(f"{len(answers)} answers to {len(messages)} messages")
    return answers


def answer_of(raw: Any) -> Answer:
    """What one answer of a collector says."""
    credit = NOT_TOLD if raw.credit is None else raw.credit
    if raw.ok:
        epoch = -1 if raw.leader_epoch is None else raw.leader_epoch
        return Answer(Position(raw.cluster, raw.topic_id, raw.partition, raw.offset, epoch), credit=credit)
    reason = raw.reason or "no reason given"
    return Answer(None, reason, ours=reason.startswith("damaged:"), credit=credit)
