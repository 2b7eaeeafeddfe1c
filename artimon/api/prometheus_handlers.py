"""Parts that the handlers of the API of Prometheus share: parameters, selectors, limits, answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fastapi import Request, Response

from artimon.api.active_queries import QueryOrigin
from artimon.api.api_errors import ApiError
from artimon.api.api_limits import ApiLimits
from artimon.api.buffered_answer import BufferedAnswer, buffer_answer
from artimon.api.limited_store import LimitedStore
from artimon.api.pages import accepts_gzip
from artimon.api.prometheus_format import Fields
from artimon.api.query_executor import QueryExecutor
from artimon.api.query_parameters import parse_hard
from artimon.api.routes import require_plain
from artimon.api.shared_answers import Gone, plain_headers
from artimon.model.select import Matcher
from query_dsl.promql import PromqlError, Query, parse
from query_dsl.promql.promql_settings import PromqlSettings
from query_dsl.promql.similar_names import similar_matchers
from query_dsl.promql.tree import Selector

Work = Callable[[LimitedStore], BufferedAnswer]
DEFAULTS = PromqlSettings()


class PrometheusHandlers:
    """Base of the handlers."""

    def __init__(self, executor: QueryExecutor, promql: PromqlSettings = DEFAULTS) -> None:
        self._executor, self._promql = executor, promql

    @property
    def _limits(self) -> ApiLimits:
        """Limits of the principal of the request."""
        return self._executor.limits

    def _bounds(self, fields: Fields) -> ApiLimits:
        """Return the limits that a request asks for. Raises ApiError."""
        return self._executor.hard if parse_hard(fields.one("limits")) else self._limits

    def _entries(self, fields: Fields) -> int:
        """Return the limit of entries of a list: the soft one, or what is asked for up to the hard one."""
        return min(fields.limit() or self._limits.found, self._executor.hard.found)

    async def _answer(
        self,
        request: Request,
        work: Work,
        engine: str | None = "memory",
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Response:
        """Run `work` in the executor and return its answer; `more`: see `QueryExecutor.run`."""

        async def evaluate(gone: Gone | None) -> tuple[BufferedAnswer, Mapping[str, str]]:
            return await self._executor.run(work, gone, engine, **more), headers or {}

        return await self._executor.shared.respond(request, evaluate, self._limits)

    def _selectors(self, fields: Fields, required: bool = False) -> list[tuple[Matcher, ...]]:
        """Parse the selectors of `match[]`. Raises ApiError."""
        return [self._matchers(one) for one in parse_selectors(fields, required)]

    def _matchers(self, given: tuple[Matcher, ...]) -> tuple[Matcher, ...]:
        """Return matchers that find similar names, too, if the process has that setting."""
        return similar_matchers(given) if self._promql.similar_names else given

    def _packed(self, request: Request, pieces: Iterable[bytes], *, gzip: bool = True) -> BufferedAnswer:
        """Collect an answer; `gzip`: compressed if the client takes that."""
        wanted = gzip and accepts_gzip(request.headers.get("accept-encoding", ""))
        return buffer_answer(pieces, self._executor.budget, most=self._limits.answer_bytes, gzip=wanted)


def origin_of(request: Request, text: str) -> QueryOrigin:
    """Return the origin of a query, for the list."""
    return QueryOrigin(text, "promql", request.client.host if request.client else "")


async def read_fields(request: Request) -> Fields:
    """Read the parameters of the URL and of a form. Raises ApiError."""
    require_plain(request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await request.body()
    if body and kind != "application/x-www-form-urlencoded":
        raise ApiError(415, "send application/x-www-form-urlencoded")
    return Fields(request.scope["query_string"], body)


def parse_selectors(fields: Fields, required: bool = False) -> list[tuple[Matcher, ...]]:
    """Parse the selectors of `match[]`. Raises ApiError."""
    found = []
    for text in fields.many("match[]"):
        node = parse_query(text, "match[]").node
        if not isinstance(node, Selector) or node.range_ms or node.offset_ms or node.at:
            raise ApiError(400, f'invalid parameter "match[]": {text!r:.100} is not a vector selector')
        found.append(node.matchers)
    if required and not found:
        raise ApiError(400, "no match[] parameter provided")
    return found


def parse_query(text: str, parameter: str = "query") -> Query:
    """Parse PromQL. Raises ApiError."""
    try:
        return parse(text)
    except PromqlError as problem:
        raise ApiError(400, f'invalid parameter "{parameter}": {problem.message}') from problem


def json_response(body: bytes) -> Response:
    """Return a small answer."""
    return Response(body, headers=plain_headers())
