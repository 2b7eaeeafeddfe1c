"""Answers that equal requests share: of clients that send `Cache-Control: max-age=SECONDS`, as dashboards do.

One evaluation serves all equal requests that wait for it, and later ones that accept its age. An answer is renewed
while it is used: once a bucket has settled since, or half of the accepted age has passed, the request gets it at once
and a new evaluation starts. Requests are equal if path, parameters, encoding, visible series and limits are."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

from fastapi import Request, Response

from artimon.access.principal import LOCAL, current_principal
from artimon.api.api_errors import ApiError
from artimon.api.buffered_answer import BufferedAnswer, BufferedResponse, ByteBudget
from artimon.model.clock import Clock
from artimon.runtime.http.body_limit import HEADERS
from query_dsl.stores.levels import SETTLE_MS

Gone = Awaitable[ApiError | None]
Evaluate = Callable[[Gone | None], Awaitable[tuple[BufferedAnswer, Mapping[str, str]]]]
"""Evaluation of a request, which ends early once the awaitable completes; it returns the answer and its headers."""
MAX_AGE_S = 120
"""Maximum age of a shared answer in seconds, whatever age the client accepts."""
STEP_MS = 60_000
"""Step of the finest level: the live part of an answer changes when such a bucket settles."""
RENEWED_AT_ONCE = 2
"""Evaluations at once that no request waits for: they leave the other slots of the executor to those that wait."""
KEPT_PART = 16
"""One answer may fill this part of the memory of all; a larger one serves only requests that wait for it."""
ENTRY_BYTES = 2_048
"""Bytes of an entry beside the answer and the parameters."""
_MAX_AGE = re.compile(r"(?:^|[\s,])max-age=(\d{1,6})(?:$|[\s,])")


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """Bytes and headers of an answer. `size`: bytes that it occupies."""

    pieces: tuple[bytes, ...]
    size: int
    is_gzipped: bool
    headers: Mapping[str, str]


@dataclass(slots=True)
class _Entry:
    """Newest answer to equal requests, from an evaluation that began at `began` (monotonic seconds) with the buckets up
    to `settled`, and the evaluation that runs. `waiting`: requests that wait for it."""

    cost: int
    answer: KeptAnswer | None = None
    began: float = 0.0
    settled: int = 0
    task: asyncio.Task[KeptAnswer] | None = None
    waiting: int = 0


class SharedAnswers:
    """Answers of one process, at most `most` bytes; used in its event loop only."""

    def __init__(self, clock: Clock, budget: ByteBudget, most: int) -> None:
        self._clock, self._budget, self._most = clock, budget, most
        self._entries: dict[Hashable, _Entry] = {}
        """By request, the oldest answer first."""
        self._renewing = asyncio.Semaphore(RENEWED_AT_ONCE)
        self.size = 0
        """Bytes of the answers that are kept."""

    @property
    def waiting(self) -> int:
        """Requests that wait for an evaluation."""
        return sum(entry.waiting for entry in self._entries.values())

    async def respond(self, request: Request, evaluate: Evaluate, limits: Hashable = None) -> Response:
        """Answer a request; `limits`: those that the evaluation has. Raises ApiError as `evaluate` does."""
        accepted_s = accepted_age_s(request)
        if not accepted_s:
            found, headers = await evaluate(wait_disconnect(request))
            return BufferedResponse(found, {**plain_headers(), **headers})
        key = _key_of(request, limits)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(ENTRY_BYTES + len(request.scope["query_string"]))
        kept, age_s = entry.answer, self._clock.monotonic() - entry.began
        if kept is None or age_s > accepted_s:
            task = entry.task or self._start(key, entry, evaluate)
            kept, age_s = await self._wait(key, entry, task, request), 0.0
        elif entry.task is None and (entry.settled != self._settled() or age_s > accepted_s / 2):
            self._start(key, entry, evaluate, self._renewing)
        answer = BufferedAnswer(self._budget)
        for piece in kept.pieces:
            answer.add(piece)
        answer.gzipped = kept.is_gzipped
        return BufferedResponse(answer, {**plain_headers(), **kept.headers, "age": str(int(age_s))})

    def _settled(self) -> int:
        return (self._clock.now_ms() - SETTLE_MS) // STEP_MS

    def _start(
        self, key: Hashable, entry: _Entry, evaluate: Evaluate, turn: asyncio.Semaphore | None = None
    ) -> asyncio.Task[KeptAnswer]:
        """Start an evaluation, after its `turn` if no request waits for it."""

        async def evaluated() -> KeptAnswer:
            async with turn or nullcontext():
                began, settled = self._clock.monotonic(), self._settled()
                found, headers = await evaluate(None)
            size, pieces = found.size, list[bytes]()
            while (piece := found.pop()) is not None:
                pieces.append(piece)
            kept = KeptAnswer(tuple(pieces), size + entry.cost, found.gzipped, dict(headers))
            self._keep(key, entry, kept)
            entry.began, entry.settled = began, settled
            return kept

        entry.task = asyncio.ensure_future(evaluated())
        entry.task.add_done_callback(partial(self._done, key, entry))
        return entry.task

    async def _wait(self, key: Hashable, entry: _Entry, task: asyncio.Task[KeptAnswer], request: Request) -> KeptAnswer:
        """Return the answer of an evaluation; the last client that leaves ends it. Raises ApiError, 499 if the client
        leaves."""
        left = asyncio.ensure_future(wait_disconnect(request))
        entry.waiting += 1
        try:
            await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ApiError(499, "the client closed the connection")
            return task.result()
        finally:
            left.cancel()
            entry.waiting -= 1
            if not entry.waiting and not task.done():
                self._done(key, entry, task)  # a request that comes now does not join it
                task.cancel()

    def _done(self, key: Hashable, entry: _Entry, task: asyncio.Task[KeptAnswer]) -> None:
        """Forget an evaluation, and its entry if that has no answer."""
        if task.done() and not task.cancelled():
            task.exception()  # marks the exception of an abandoned evaluation as retrieved
        if entry.task is task:
            entry.task = None
            if entry.answer is None and self._entries.get(key) is entry:
                del self._entries[key]

    def _keep(self, key: Hashable, entry: _Entry, kept: KeptAnswer) -> None:
        """Keep an answer in place of the one before it, unless it is large, and drop the oldest."""
        if self._entries.get(key) is not entry:
            return
        self._drop(key)
        if kept.size * KEPT_PART > self._most:
            return
        entry.answer, self._entries[key] = kept, entry
        self.size += kept.size
        oldest = self._clock.monotonic() - MAX_AGE_S
        for old, one in list(self._entries.items()):
            if self.size <= self._most and one.began > oldest:
                break
            if one is not entry and one.answer is not None:
                self._drop(old)

    def _drop(self, key: Hashable) -> None:
        entry = self._entries.pop(key)
        self.size -= entry.answer.size if entry.answer else 0
        entry.answer = None


def _key_of(request: Request, limits: Hashable) -> Hashable:
    headers, scope = request.headers, request.scope
    sees = (current_principal() or LOCAL).role.sees
    return scope["path"], scope["query_string"], headers.get("accept"), headers.get("accept-encoding"), sees, limits


def accepted_age_s(request: Request) -> int:
    """Return the age in seconds that a GET request accepts by Cache-Control, at most MAX_AGE_S; 0: a new answer."""
    found = _MAX_AGE.search(request.headers.get("cache-control", "")) if request.method == "GET" else None
    return min(int(found[1]), MAX_AGE_S) if found else 0


async def wait_disconnect(request: Request) -> None:
    """Return when the client closes the connection. The body was read before; the next message is the disconnect."""
    while (await request.receive())["type"] != "http.disconnect":
        continue


def plain_headers() -> dict[str, str]:
    """Return the headers of every JSON answer."""
    return {name.decode(): value.decode() for name, value in HEADERS}
