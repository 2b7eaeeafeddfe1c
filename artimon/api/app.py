"""The HTTP API: questions in the query language, answered with matrices as JSON. Routes hold no arithmetic."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from artimon.api.body import HEADERS, BoundedBody
from artimon.api.errors import ApiError, refusal
from artimon.api.gate import Gate
from artimon.api.guarded import GuardedStore, answer
from artimon.api.limits import Limits
from artimon.api.question import TIME_MAX_MS, Question, read_question
from artimon.model.clock import Clock
from artimon.model.labels import canonical
from artimon.model.select import SelectError, Store
from query_dsl import QueryError, parse, parse_selector

log = logging.getLogger(__name__)
LOCAL_HOSTS = ("127.0.0.1", "localhost")
STATUS_AT_ONCE = 2
T = TypeVar("T")
Status = Callable[[], Mapping[str, Any]]

TextParameter = Annotated[str | None, Query(description="The question, such as fetch('host.cpu.ms').rate(); 16 KiB")]
TimeParameter = Annotated[
    int | None, Query(ge=0, le=TIME_MAX_MS, description="As if it were this time, epoch milliseconds; default now")
]
BODY = {
    "requestBody": {
        "content": {
            kind: {
                "schema": {
                    "type": "object",
                    "required": ["q"],
                    "properties": {"q": {"type": "string"}, "time_ms": {"type": "integer"}},
                }
            }
            for kind in ("application/json", "application/x-www-form-urlencoded")
        }
    }
}


def make_app(
    store: Store, status: Status, clock: Clock, limits: Limits | None = None, hosts: Sequence[str] = LOCAL_HOSTS
) -> FastAPI:
    """The application. `status` gives what /api/status answers and may block; `hosts` are the values of the header
    Host that are served (a page of another site must not read through a name that it points at us)."""
    bounds = limits or Limits()
    routes = Routes(store, status, clock, bounds)
    app = FastAPI(title="Artimon", docs_url=None, redoc_url=None, lifespan=routes.lifespan)
    app.add_api_route("/api/query", routes.query, methods=["GET"])
    app.add_api_route("/api/query", routes.query_posted, methods=["POST"], openapi_extra=BODY)
    app.add_api_route("/api/find", routes.find, methods=["GET"])
    app.add_api_route("/api/status", routes.status, methods=["GET"])
    app.add_api_route("/api/health", routes.health, methods=["GET"])
    app.add_exception_handler(ApiError, _on_api_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
    app.add_middleware(BoundedBody, limits=bounds)
    return app


class Routes:
    """What the endpoints do. The gates are made when the server's loop runs."""

    def __init__(self, store: Store, status: Status, clock: Clock, limits: Limits) -> None:
        self._store, self._status, self._clock, self._limits = store, status, clock, limits

    @asynccontextmanager
    async def lifespan(self, _app: FastAPI) -> AsyncIterator[None]:
        """Threads of their own for status, so that it answers while questions keep the others busy."""
        self._questions = Gate(self._limits, self._limits.running, "api-query")
        self._statuses = Gate(self._limits, STATUS_AT_ONCE, "api-status")
        try:
            yield
        finally:
            self._questions.close()
            self._statuses.close()

    async def query(self, q: TextParameter = None, time_ms: TimeParameter = None) -> Response:
        """Evaluate `q`: a matrix on one grid; null is a missing value, "NaN" a value."""
        return await self._answer(Question(q, time_ms))

    async def query_posted(self, request: Request) -> Response:
        """The same with `q` and `time_ms` in a form or a JSON object."""
        return await self._answer(read_question(request.headers.get("content-type", ""), await request.body()))

    async def _answer(self, question: Question) -> Response:
        text = question.checked(self._limits)
        now_ms = self._clock.now_ms() if question.time_ms is None else question.time_ms
        stop = threading.Event()

        def work() -> str:
            return answer(parse(text), GuardedStore(self._store, self._limits, stop), now_ms).to_json()

        return _json(await self._questions.run(lambda: _guarded(work), stop))

    async def find(self, selector: str, limit: Annotated[int, Query(ge=1)] = 1_000) -> Response:
        """Series that fit a selector, in canonical order, whether or not they have samples now."""
        most = self._limits.found
        if limit > most:
            raise ApiError(413, f"limit {limit} is above the limit of {most} series: ask for fewer, or add matchers")
        text = Question(selector, None).checked(self._limits)

        def work() -> str:
            found = self._store.find(parse_selector(text).matchers, limit + 1)
            rows = [
                {
                    "series": canonical(one.name, one.labels),
                    "name": one.name,
                    "labels": dict(one.labels),
                    "type": one.type.name,
                    "kind": one.kind.name,
                }
                for one in found[:limit]
            ]
            return json.dumps({"series": rows, "truncated": len(found) > limit}, ensure_ascii=False)

        return _json(await self._questions.run(lambda: _guarded(work)))

    async def status(self) -> Response:
        """How every hop and shard is."""
        return _json(await self._statuses.run(lambda: _guarded(lambda: json.dumps(self._status()))))

    async def health(self) -> Response:
        """That this process answers; says nothing of the shards."""
        return _json('{"state": "ok"}')


def _guarded(work: Callable[[], T]) -> T:
    """In a worker's thread: whatever goes wrong becomes an answer; a defect is told to the log only."""
    try:
        return work()
    except (QueryError, SelectError) as problem:
        raise refusal(problem) from problem
    except MemoryError as problem:
        raise ApiError(413, "the query needs more memory than there is: ask for less") from problem
    except Exception as defect:
        log.exception("a defect while answering")
        raise ApiError(500, "internal error: the log of the api says more") from defect


def _json(text: str) -> Response:
    """A lone surrogate, which UTF-8 cannot hold, becomes the escape that JSON has for it."""
    return Response(text.encode("utf-8", "backslashreplace"), headers=_headers())


def _headers() -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in HEADERS}


def _error(problem: ApiError, extra: Mapping[str, str] | None = None) -> Response:
    return Response(problem.body(), problem.status, headers={**_headers(), **(extra or {})})


async def _on_api_error(_request: Request, problem: Exception) -> Response:
    if not isinstance(problem, ApiError):
        raise problem
    return _error(problem, {"retry-after": "5"} if problem.status == 503 else None)


async def _on_invalid(_request: Request, problem: Exception) -> Response:
    errors = problem.errors() if isinstance(problem, RequestValidationError) else []
    told = "; ".join(f"{'.'.join(map(str, error['loc'][1:]))}: {error['msg']}" for error in errors[:5])
    return _error(ApiError(400, f"bad parameters: {told}"))


async def _on_http_error(request: Request, problem: Exception) -> Response:
    if not isinstance(problem, HTTPException):
        raise problem
    told = f"{problem.detail}: {request.method} {request.url.path[:200]}; /openapi.json lists what there is"
    return _error(ApiError(problem.status_code, told), problem.headers)
