"""Bounded work in threads off the event loop: further requests wait in a queue, then get 503."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

from artimon.api.api_errors import ApiError
from artimon.api.api_limits import ApiLimits

T = TypeVar("T")


class BoundedExecutor:
    """Bound to one event loop. Invariant: as many slots are taken as threads work, also for abandoned requests."""

    def __init__(self, limits: ApiLimits, running: int, name: str) -> None:
        self._limits, self._running = limits, running
        self._slots = asyncio.Semaphore(running)
        self._threads = ThreadPoolExecutor(running, thread_name_prefix=name)
        self._waiting = 0

    async def run(
        self,
        work: Callable[[], T],
        stop: threading.Event | None = None,
        gone: Awaitable[ApiError | None] | None = None,
        seconds: float | None = None,
    ) -> T:
        """Run `work` in a thread and return its result. Raises ApiError: 503 if no slot becomes free, 504 after
        `seconds` (default: query_s); if `gone` completes first its result, or 499. Sets `stop` at the end, so that the
        work can stop early."""
        left = None if gone is None else asyncio.ensure_future(gone)
        most_s = self._limits.query_s if seconds is None else seconds
        try:
            await self._enter()
            # the context has the principal of the request
            future = asyncio.get_running_loop().run_in_executor(self._threads, copy_context().run, work)
            future.add_done_callback(self._leave)
            awaited: set[asyncio.Future[Any]] = {future} if left is None else {future, left}
            await asyncio.wait(awaited, timeout=most_s, return_when=asyncio.FIRST_COMPLETED)
            if future.done():
                return future.result()
            if left is not None and left.done():
                raise left.result() or ApiError(499, "the client closed the connection")
            raise ApiError(504, f"no answer within query_s = {most_s:g} s: ask for less, or try again")
        finally:
            if stop is not None:
                stop.set()
            if left is not None:
                left.cancel()

    async def _enter(self) -> None:
        if not self._slots.locked():
            await self._slots.acquire()  # immediate, so it does not count as waiting
            return
        if self._waiting >= self._limits.waiting:
            raise ApiError(
                503,
                f"running = {self._running} requests run and waiting = {self._limits.waiting} wait: try again later",
            )
        self._waiting += 1
        try:
            async with asyncio.timeout(self._limits.wait_s):
                await self._slots.acquire()
        except TimeoutError as late:
            raise ApiError(
                503,
                f"running = {self._running} requests run; no turn within wait_s = {self._limits.wait_s:g} s: "
                "try again later",
            ) from late
        finally:
            self._waiting -= 1

    def _leave(self, future: asyncio.Future[T]) -> None:
        self._slots.release()
        if not future.cancelled():
            future.exception()  # marks the exception of an abandoned request as retrieved

    def close(self) -> None:
        """Start no more work; running work ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)
