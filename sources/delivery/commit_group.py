"""Group commit: polls that are ready at the same time share one hop to the log's thread and one fsync."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from artimon.model.batch import PollResult
from artimon.model.protocols import SinkRefusedError

MAX_GROUP_SAMPLES = 100_000
"""Maximum samples of a group; a group of a single poll may exceed it."""
CONCURRENT_GROUPS = 2
"""Concurrent groups: one is encoded while another waits for the disk."""


class AcceptSink(Protocol):
    """The part of a `Sink` that polls need."""

    async def accept(self, polled: Sequence[PollResult]) -> None: ...


class _WaitingBatches(NamedTuple):
    polled: Sequence[PollResult]
    accepted: asyncio.Future[None]


class GroupCommitSink:
    """Sink that combines concurrent `accept` calls into groups. Event loop only. If the sink behind refuses a group,
    each poll is offered again alone, so that one bad poll does not refuse the others."""

    def __init__(self, behind: AcceptSink) -> None:
        self._sink = behind
        self._waiting: deque[_WaitingBatches] = deque()
        self._drains: set[asyncio.Task[None]] = set()

    async def accept(self, polled: Sequence[PollResult]) -> None:
        """Return once the polls are durable. Cancellation does not withdraw them. Raises SinkRefusedError: none was
        kept."""
        waiting = _WaitingBatches(polled, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if len(self._drains) < CONCURRENT_GROUPS:
            drain = asyncio.create_task(self._drain())
            self._drains.add(drain)
            drain.add_done_callback(self._drains.discard)
        await waiting.accepted

    async def _drain(self) -> None:
        while self._waiting:
            await self._hand_over(self._next())

    def _next(self) -> list[_WaitingBatches]:
        group, samples = [self._waiting.popleft()], 0
        while self._waiting:
            samples += sum(len(part.samples) for part in group[-1].polled)
            if samples + sum(len(part.samples) for part in self._waiting[0].polled) > MAX_GROUP_SAMPLES:
                break
            group.append(self._waiting.popleft())
        return group

    async def _hand_over(self, group: list[_WaitingBatches]) -> None:
        try:
            await self._sink.accept([part for one in group for part in one.polled])
        except SinkRefusedError as error:
            if len(group) == 1:
                _resolve(group, error)
            else:
                for one in group:
                    await self._hand_over([one])
        except BaseException as error:  # a failed log or a cancelled task: every caller of the group gets it
            _resolve(group, error)
            if not isinstance(error, Exception):
                raise
        else:
            _resolve(group, None)


def _resolve(group: list[_WaitingBatches], error: BaseException | None) -> None:
    for one in group:
        if one.accepted.done():  # the caller was cancelled
            continue
        if error is None:
            one.accepted.set_result(None)
        elif isinstance(error, asyncio.CancelledError):
            one.accepted.cancel()
        else:
            one.accepted.set_exception(error)
