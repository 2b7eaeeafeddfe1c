"""Query executor. HTTP and Thrift share its slots, its queue and its timeout."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from artimon.access.audit_log import AuditLog
from artimon.access.principal import LOCAL, Principal, Role, current_principal
from artimon.access.scoped_store import restrict
from artimon.api.active_queries import ActiveQueries, QueryOrigin, first_end
from artimon.api.api_errors import ApiError, to_api_error
from artimon.api.api_limits import ApiLimits
from artimon.api.bounded_executor import BoundedExecutor
from artimon.api.buffered_answer import ByteBudget
from artimon.api.limited_store import LimitedStore
from artimon.api.shared_answers import SharedAnswers
from artimon.model.clock import Clock
from artimon.model.select import SelectError, Store
from query_dsl import QueryError
from query_dsl.evaluation.host_acks import LiveAgents
from query_dsl.stores.auto_store import AutoStore
from query_dsl.stores.engine_store import as_engine_store

log = logging.getLogger(__name__)
T = TypeVar("T")
GRACE_S = 5.0
ENGINES = ("auto", "memory", "history")
STORE_THREADS_PER_SLOT = 4
"""Threads for store calls per slot: an abandoned query occupies one until its store's own timeout, and must not block
the next query."""


class RoleLimits:
    """Soft and hard limits by role; as many as the access file has roles and users. The objects stay the same."""

    def __init__(self, soft: ApiLimits, hard: ApiLimits) -> None:
        self._soft, self._hard = soft, hard
        self._of_role: dict[int, tuple[Role, ApiLimits, ApiLimits]] = {}
        """By the principal of the role object, which the entry keeps alive."""

    def soft(self, principal: Principal | None) -> ApiLimits:
        return self._soft if principal is None else self._limits(principal.role)[1]

    def hard(self, principal: Principal | None) -> ApiLimits:
        """Return the hard limits, at least the soft ones."""
        return self._hard if principal is None else self._limits(principal.role)[2]

    def _limits(self, role: Role) -> tuple[Role, ApiLimits, ApiLimits]:
        if not role.limits and not role.hard_limits:
            return role, self._soft, self._hard
        if id(role) not in self._of_role:
            hard = replace(self._hard, **self._lowest(role.hard_limits, self._hard, self._hard))
            given = {**{name: getattr(self._soft, name) for name in role.hard_limits}, **role.limits}
            self._of_role[id(role)] = role, replace(self._soft, **self._lowest(given, self._soft, hard)), hard
        return self._of_role[id(role)]

    def _lowest(self, given: Mapping[str, float], types: ApiLimits, most: ApiLimits) -> dict[str, Any]:
        """Return the values, at most those of `most`, in the types of `types`."""
        return {name: type(getattr(types, name))(min(value, getattr(most, name))) for name, value in given.items()}


class QueryExecutor:
    """Executes queries in threads. Bound to the event loop that opened it. Every failure becomes an ApiError."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        limits: ApiLimits,
        history: Callable[[], Store] | None = None,
        hard: ApiLimits | None = None,
        audit: AuditLog | None = None,
        agents: LiveAgents | None = None,
    ) -> None:
        """`history` opens the history as a store; called when a query needs it. `hard`: limits of queries that ask for
        them, by default those of `ApiLimits.hard`. `audit`: log of expensive queries; with it a request without an
        principal is refused. `agents`: see `add_host_states`."""
        self.agents = agents
        self.clock, self._history, self._audit = clock, history, audit
        self._role_limits = RoleLimits(limits, hard or limits.hard())
        self._of_user: Counter[str] = Counter()
        self.active = ActiveQueries(clock)
        self.budget = ByteBudget(limits.unsent_bytes)
        self.shared = SharedAnswers(clock, self.budget, limits.shared_bytes)
        self._store = store
        self._executor: BoundedExecutor | None = None
        self._store_threads: ThreadPoolExecutor | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened = threading.Event()

    @property
    def limits(self) -> ApiLimits:
        """Soft limits of the principal of the request, else of the process."""
        return self._role_limits.soft(current_principal())

    @property
    def hard(self) -> ApiLimits:
        """Hard limits, as `limits`."""
        return self._role_limits.hard(current_principal())

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
        self,
        work: Callable[[LimitedStore], T],
        gone: Awaitable[ApiError | None] | None = None,
        engine: str | None = "memory",
        *,
        origin: QueryOrigin | None = None,
        limits: ApiLimits | None = None,
        seconds: float | None = None,
    ) -> T:
        """Run `work` on the store in a thread and return its result. Raises ApiError, 499 if `gone` completes first.
        `engine` None means auto: memory if it has the range, else the history. `origin` lists the query, so that it can
        be cancelled; `limits` and `seconds` replace the soft ones."""
        stop, bounds = threading.Event(), limits or self.limits
        try:
            if self._executor is None:
                raise ApiError(503, "the server is starting or stopping: try again")
            principal = self._principal()
            self._require_turn(principal)
            seen = restrict(as_engine_store(self._engine(engine)), principal.role.sees)
            store = LimitedStore(seen, bounds, stop, threads=self._store_threads)
        except ApiError:
            if isinstance(gone, Coroutine):
                gone.close()  # it will not be awaited
            raise
        most_s = bounds.query_s if seconds is None else seconds
        job = partial(as_api_errors, lambda: work(store.cancellable()))
        try:
            with self._turn(principal):
                if origin is None:
                    return await self._executor.run(job, stop, gone, most_s)
                origin = replace(origin, user=principal.user)
                entry = self.active.entered(origin, engine or "auto", "hard" if bounds is self.hard else "soft", most_s)
                with self._audited(principal, origin, bounds), entry as one:
                    ended = first_end(gone, one.cancelled)
                    return await self._executor.run(partial(one.running, job), stop, ended, most_s)
        except ApiError as problem:
            raise self._with_hint(problem, bounds) from problem

    def _principal(self) -> Principal:
        """Return the principal of the request. Raises ApiError if it passed no guard."""
        found = current_principal()
        if found is None and self._audit is not None:
            raise ApiError(403, "the request has no principal")
        return found or LOCAL

    def _require_turn(self, principal: Principal) -> None:
        """Raise ApiError 429 if the user runs as many queries as the role allows."""
        most = principal.role.queries
        if most and self._of_user[principal.user] >= most:
            raise ApiError(429, f"{principal.user} runs {most} queries, the limit `queries`: wait until one has ended")

    @contextmanager
    def _turn(self, principal: Principal) -> Iterator[None]:
        """Count a query of a user."""
        self._of_user[principal.user] += 1
        try:
            yield
        finally:
            self._of_user[principal.user] -= 1
            if not self._of_user[principal.user]:
                del self._of_user[principal.user]

    @contextmanager
    def _audited(self, principal: Principal, origin: QueryOrigin, bounds: ApiLimits) -> Iterator[None]:
        """Write a query to the audit log if it took long, or used the hard limits."""
        began, status = self.clock.monotonic(), 200
        try:
            yield
        except ApiError as problem:
            status = problem.status
            raise
        finally:
            took_ms = round((self.clock.monotonic() - began) * 1000)
            if self._audit is not None and (took_ms >= self._audit.settings.query_ms or bounds is self.hard):
                told = {"query": origin.text, "language": origin.language, "took_ms": took_ms, "status": status}
                self._audit.write("query.expensive", principal, **told)

    def _with_hint(self, problem: ApiError, bounds: ApiLimits) -> ApiError:
        """Add the parameter that raises a limit."""
        if problem.status == 413 and bounds is self.limits and bounds != self.hard:
            problem.message += "; the parameter limits=hard allows more"
        return problem

    def run_blocking(self, work: Callable[[LimitedStore], T], origin: QueryOrigin | None = None) -> T:
        """Run `work` as `run` does, for callers in other threads; waits at most as long as a query may take."""
        self._opened.wait(self.limits.wait_s)  # Thrift may listen before HTTP has opened the executor
        loop = self._loop
        if loop is None:
            raise ApiError(503, "the server is starting or stopping: try again")
        asked: Future[T] = asyncio.run_coroutine_threadsafe(self.run(work, origin=origin), loop)
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
