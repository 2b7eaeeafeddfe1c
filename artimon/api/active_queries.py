"""Queries that run or wait, with the means to cancel them. Bounded by the slots and the queue of the executor."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from artimon.access.principal import LOCAL, Level, Principal
from artimon.api.api_errors import ApiError
from artimon.model.clock import Clock

T = TypeVar("T")
LISTED_CHARACTERS = 2_000
"""Characters of a text that the list shows."""


@dataclass(frozen=True, slots=True)
class QueryOrigin:
    """Text, language and client of a query, for the list."""

    text: str
    language: str = "artimon"
    client: str = ""
    user: str = ""


@dataclass(slots=True)
class ActiveQuery:
    """One query; `cancelled` completes with the error that ends it. `limits`: "soft" or "hard"."""

    id: str
    origin: QueryOrigin
    engine: str
    limits: str
    timeout_ms: int
    started_ms: int
    cancelled: asyncio.Future[ApiError]
    is_running: bool = False
    """False while it waits for a slot."""

    def running(self, work: Callable[[], T]) -> T:
        """Run `work` in the thread of the query, which then no longer waits."""
        self.is_running = True
        return work()

    def to_dict(self, now_ms: int) -> dict[str, Any]:
        return {
            "id": self.id,
            "query": self.origin.text[:LISTED_CHARACTERS],
            "language": self.origin.language,
            "client": self.origin.client,
            "user": self.origin.user,
            "engine": self.engine,
            "state": "running" if self.is_running else "waiting",
            "limits": self.limits,
            "timeout_ms": self.timeout_ms,
            "started_ms": self.started_ms,
            "running_ms": max(0, now_ms - self.started_ms),
        }


class ActiveQueries:
    """Table of the queries of one executor; used in its event loop only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: dict[str, ActiveQuery] = {}

    @contextmanager
    def entered(
        self, origin: QueryOrigin, engine: str, limits: str = "soft", seconds: float = 0.0
    ) -> Iterator[ActiveQuery]:
        """List a query for the duration of the block; `seconds` is its timeout."""
        cancelled: asyncio.Future[ApiError] = asyncio.get_running_loop().create_future()
        one = ActiveQuery(
            secrets.token_hex(8), origin, engine, limits, round(seconds * 1000), self._clock.now_ms(), cancelled
        )
        self._found[one.id] = one
        try:
            yield one
        finally:
            del self._found[one.id]

    def to_dicts(self, principal: Principal = LOCAL) -> list[dict[str, Any]]:
        """Return the queries, oldest first: all for an administrator, one's own for others."""
        now_ms, all_ = self._clock.now_ms(), principal.may(Level.ADMIN)
        return [one.to_dict(now_ms) for one in self._found.values() if all_ or one.origin.user == principal.user]

    def cancel(self, id_: str, principal: Principal = LOCAL) -> None:
        """End a query; its client gets 503. Raises ApiError 404, also for a query of another user below the level
        editor."""
        one = self._found.get(id_)
        if one is not None and one.origin.user != principal.user and not principal.may(Level.EDITOR):
            one = None
        if one is None:
            raise ApiError(404, f"no query {id_!r:.40} runs: GET /api/queries lists those that do")
        if not one.cancelled.done():
            one.cancelled.set_result(ApiError(503, "the query was cancelled by DELETE /api/queries", reason="canceled"))


async def first_end(gone: Awaitable[ApiError | None] | None, cancelled: asyncio.Future[ApiError]) -> ApiError | None:
    """Wait until the client is gone or the query is cancelled; return the error of the latter."""
    if gone is None:
        return await cancelled
    left = asyncio.ensure_future(gone)
    try:
        awaited: set[asyncio.Future[Any]] = {left, cancelled}
        await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        return cancelled.result() if cancelled.done() else left.result()
    finally:
        left.cancel()
