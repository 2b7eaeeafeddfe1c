"""Transactions of a channel for third-party components: begin, put or take, commit or rollback, close."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Literal

from pipeline.flows.event import EventBatch
from pipeline.flows.spi import Channel, FlowError, Take

Phase = Literal["new", "open", "committed", "rolled back", "closed"]


class TransactionPhaseError(FlowError):
    """The call is not allowed in this phase. Nothing was changed."""


class Transaction:
    """Transaction of one thread, of puts or of takes. Put event batches are in the channel once `commit` has returned,
    and not before; taken ones leave it then. As a context manager it commits at the end and rolls back on an
    exception."""

    def __init__(self, channel: Channel, deadline_s: float = 10.0) -> None:
        self._channel, self._deadline_s = channel, deadline_s
        self.phase: Phase = "new"
        self._put: list[EventBatch] = []
        self._taken: list[Take] = []

    def begin(self) -> None:
        self._expect("new")
        self.phase = "open"

    def put(self, event_batches: Sequence[EventBatch]) -> None:
        """Hold event batches in memory until `commit`."""
        self._expect("open")
        if self._taken:
            raise TransactionPhaseError("this transaction has taken event batches: put with another one")
        self._put += event_batches

    def take(self, most: int, wait_s: float) -> tuple[EventBatch, ...]:
        """Take the next event batches; () if none came within `wait_s`."""
        self._expect("open")
        if self._put:
            raise TransactionPhaseError("this transaction has put event batches: take with another one")
        take = self._channel.take(most, wait_s)
        self._taken.append(take)
        return take.event_batches

    def commit(self) -> None:
        """Raises the errors of `Channel.put` and `Take.commit`; after ChannelFull it may be retried."""
        self._expect("open")
        if self._put:
            self._channel.put(self._put, self._deadline_s)
        for take in self._taken:
            take.commit()
        self.phase = "committed"

    def rollback(self) -> None:
        self._expect("open")
        for take in reversed(self._taken):
            take.rollback()
        self.phase = "rolled back"

    def close(self) -> None:
        """End in any phase; an open transaction is rolled back."""
        if self.phase == "open":
            self.rollback()
        self.phase = "closed"

    def __enter__(self) -> Transaction:
        self.begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if kind is None and self.phase == "open":
                self.commit()
        finally:
            self.close()

    def _expect(self, phase: Phase) -> None:
        if self.phase != phase:
            raise TransactionPhaseError(
                f"the transaction is {self.phase}, not {phase}: begin, put or take, commit or rollback"
            )
