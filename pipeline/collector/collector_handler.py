"""Handler of a collector's Thrift service: what its server calls, in any thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from thriftpy2.thrift import TApplicationException

from artimon.model.ack_state import Position
from artimon.model.clock import SYSTEM_CLOCK, Clock
from pipeline.collector.collector import Collector
from pipeline.collector.notice_board import NoticeBoard
from pipeline.collector.server_connection import LongCall
from pipeline.collector.write_queue import WriteQueue
from pipeline.link.idl import collector_idl


class CollectorHandler:
    """Joins the parts of a collector: checks, writes, ack states and notices."""

    def __init__(
        self, collector: Collector, calls: int, board: NoticeBoard | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """`calls`: most calls of a connection at a time. `board`: notices for agents; without it they read
        ZooKeeper."""
        self._collector, self._calls, self._board, self._clock = collector, calls, board, clock
        self._queue = WriteQueue(collector.broker, clock)

    def open(self, _agent: str) -> Any:
        """Method of the IDL: begins a connection that carries several calls at a time."""
        return collector_idl().Welcome(self._calls)

    def send(self, messages: Sequence[bytes]) -> Future[list[Any]]:
        """Method of the IDL: returns one answer a message, in order."""
        began, answered = self._clock.monotonic(), Future[list[Any]]()
        received = self._collector.begin(messages)
        del messages

        def finish(results: Sequence[Position | str] | None) -> None:
            answers = self._collector.finish(received, results)
            self._collector.count_call(self._clock.monotonic() - began)
            if results is None:
                answered.set_exception(RuntimeError("the collector stopped, or failed to write"))
            else:
                answered.set_result(answers)

        if received.accepted:
            self._queue.put([message for _, message in received.accepted], finish)
        else:
            finish([])
        return answered

    def acks(self, versions: Mapping[str, int]) -> Any:
        """Method of the IDL: returns the ack states that an agent does not have."""
        if self._board is None:
            return collector_idl().AckDocuments(False, [], [])
        return self._board.acks.answer(versions)

    def watch(self, known: Any) -> LongCall:
        """Method of the IDL: waits until there is something that the agent does not know, and returns it."""
        if self._board is None:
            raise TApplicationException(TApplicationException.UNKNOWN_METHOD, "this collector has no news")
        return self._board.watch(known)

    def stop(self) -> None:
        """End the writes."""
        self._queue.stop()
