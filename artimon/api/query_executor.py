"""Query executor. HTTP and Thrift share its slots, its queue and its timeout."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from artimon.api.api_errors import ApiError, to_api_error
from artimon.api.api_limits import ApiLimits
from artimon.api.bounded_executor import BoundedExecutor
from artimon.api.buffered_answer import ByteBudget
from artimon.api.limited_store import LimitedStore
from artimon.model.clock import Clock
from artimon.model.select import SelectError, Store
from query_dsl import QueryError
from query_dsl.stores.auto_store import AutoStore
from query_dsl.stores.engine_store import as_engine_store

log = logging.getLogger(__name__)
T = TypeVar("T")
GRACE_S = 5.0
ENGINES = ("auto", "memory", "history")
STORE_THREADS_PER_SLOT = 4
"""Threads for store calls per slot: an abandoned query occupies one until its store's own timeout, and must not block
the next query."""


class QueryExecutor:
    """Executes queries in threads. Bound to the event loop that opened it. Every failure becomes an ApiError."""

    def __init__(
        self, store: Store, clock: Clock, limits: ApiLimits, history: Callable[[], Store] | None = None
    ) -> None:
        """`history` opens the history as a store; called when a query needs it."""
        self.clock, self.limits, self._history = clock, limits, history
        self.budget = ByteBudget(limits.unsent_bytes)
        self._store = store
        self._executor: BoundedExecutor | None = None
        self._store_threads: ThreadPoolExecutor | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened = threading.Event()

    def open(self) -> None:
        """Start; called in the server's event loop."""
        self._executor = BoundedExecutor(self.limits, self.limits.running, "api-query")
        self._store_threads = ThreadPoolExecutor(
            STORE_THREADS_PER_SLOT * self.limits.running, thread_name_prefix="api-store"
        )
        self._loop = asyncio.get_running_loop()
        self._opened.set()

    def close(self) -> None:
        """Refuse new queries and shut the threads down."""
        gate, self._executor, self._loop = self._executor, None, None
        if gate is not None:
            gate.close()
        if self._store_threads is not None:
            self._store_threads.shutdown(wait=False, cancel_futures=True)

    def _engine(self, name: str | None) -> Store:
        """Return the store of an engine. Raises ApiError if there is none."""
        name = name or "auto"
        if name not in ENGINES:
            raise ApiError(400, f"unknown engine {name!r:.40}: use one of {', '.join(ENGINES)}")
        if self._history is None and name == "history":
            raise ApiError(400, "this API has no history: leave out engine=history")
        if self._history is None or name == "memory":
            return self._store
        return self._history() if name == "history" else AutoStore(self._store, self._history, self.clock)

    async def run(
        self, work: Callable[[LimitedStore], T], gone: Awaitable[object] | None = None, engine: str | None = "memory"
    ) -> T:
        """Run `work` on the store in a thread and return its result. Raises ApiError, 499 if `gone` completes first.
        `engine` None means auto: memory if it has the range, else the history."""
        stop = threading.Event()
        try:
            if self._executor is None:
                raise ApiError(503, "the server is starting or stopping: try again")
            store = LimitedStore(as_engine_store(self._engine(engine)), self.limits, stop, threads=self._store_threads)
        except ApiError:
            if isinstance(gone, Coroutine):
                gone.close()  # it will not be awaited
            raise
        return await self._executor.run(lambda: as_api_errors(lambda: work(store.cancellable())), stop, gone)

    def run_blocking(self, work: Callable[[LimitedStore], T]) -> T:
        """Run `work` as `run` does, for callers in other threads; waits at most as long as a query may take."""
        self._opened.wait(self.limits.wait_s)  # Thrift may listen before HTTP has opened the executor
        loop = self._loop
        if loop is None:
            raise ApiError(503, "the server is starting or stopping: try again")
        asked: Future[T] = asyncio.run_coroutine_threadsafe(self.run(work), loop)
        try:
            return asked.result(self.limits.wait_s + self.limits.query_s + GRACE_S)
        except TimeoutError as late:
            asked.cancel()
            raise ApiError(504, "no answer in time: try again") from late


def as_api_errors(work: Callable[[], T]) -> T:
    """Run `work` in a worker thread and convert every exception to an ApiError; details of defects go to the log."""
    try:
        return work()
    except ApiError:
        raise
    except (QueryError, SelectError) as problem:
        raise to_api_error(problem) from problem
    except MemoryError as problem:
        raise ApiError(413, "out of memory: add matchers, or ask for a shorter range") from problem
    except Exception as defect:
        log.exception("internal error while answering a query")
        raise ApiError(500, "internal error: see the log of the api") from defect
