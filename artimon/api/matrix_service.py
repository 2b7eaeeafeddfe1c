"""Thrift service of the API: artimon/api/matrix.thrift over framed connections, with the query executor of HTTP."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import thriftpy2

from artimon.access.authenticator import Authenticator
from artimon.access.principal import LOCAL, Area, Level, Principal, acting_as
from artimon.access.route_rules import AccessError, RouteRule
from artimon.api.active_queries import QueryOrigin
from artimon.api.api_errors import ApiError, QueryTooLargeError
from artimon.api.buffered_answer import ByteBudget
from artimon.api.limited_store import LimitedStore, evaluate_query
from artimon.api.query_executor import QueryExecutor
from artimon.api.query_parameters import TIME_MAX_MS, QueryParameters
from artimon.model.labels import LabelError, validate_labels, validate_name
from artimon.model.values import CONTENTS, CellContent, ValueType
from artimon.runtime.exposure import KEEP_LOCAL, require_protection
from artimon.runtime.http.http_limits import HttpError
from bookkeeper.rpc.framed_server import FramedServer, caller_names
from bookkeeper.rpc.security import Security
from query_dsl import Expr, Matrix, fetch
from query_dsl.tree.calendar_units import grid_fields
from query_dsl.tree.selector import quote

PREFIX = ".*"
THRIFT = "thrift"
"""Address of clients over Thrift in limits and logs."""
REQUIRE_TLS = "tokens would be sent in clear: set ARTIMON_TLS_CERT, _KEY and _CA (docs/security.md)"
_LISTS: Mapping[CellContent, tuple[str, int | float | bool | str, int]] = {
    CellContent.INT64: ("integers", 0, 9),
    CellContent.FLOAT64: ("doubles", 0.0, 9),
    CellContent.FLAG: ("booleans", False, 2),
    CellContent.TEXT: ("strings", "", 5),
}
"""Field of the values in the IDL, stand-in for a missing value, and bytes of a cell."""
_REASONS = {
    400: "bad",
    401: "unauthorized",
    403: "forbidden",
    429: "busy",
    413: "large",
    503: "busy",
    504: "late",
    500: "defect",
}


@lru_cache(maxsize=1)
def idl() -> Any:
    """Load matrix.thrift: `.Matrix` is the service, `.Answer`, `.Row`, `.Grid`, `.Refused` its structs."""
    return thriftpy2.load(str(Path(__file__).with_name("matrix.thrift")), module_name="artimon_matrix_thrift")


class MatrixServer:
    """Server of the service Matrix on a separate port; `start` once, `stop` once."""

    def __init__(
        self,
        desk: QueryExecutor,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        insecure: bool = False,
        access: Authenticator | None = None,
        security: Security | None = None,
    ) -> None:
        """`access`: verifier of tokens and of names in certificates. `security`: certificates of the connections.

        Raises UnprotectedError if other machines reach `host` without a login by TLS, unless `insecure`."""
        has_tls = access is not None and security is not None and security.tls is not None
        self.warnings = require_protection(
            "the service Matrix",
            host,
            security if has_tls else None,
            insecure=insecure,
            remedy=REQUIRE_TLS if access else KEEP_LOCAL,
        )
        limits, handler = desk.limits, MatrixService(desk, access)
        self._server = FramedServer(
            idl().Matrix,
            handler,
            host,
            port,
            max_frame=limits.thrift_request_bytes,
            max_reply=limits.thrift_answer_bytes,
            max_connections=limits.thrift_connections,
            idle_timeout=limits.thrift_idle_s,
            request_timeout=limits.write_s,
            name="api-thrift",
            on_reply=handler.on_reply,
            security=security if has_tls else None,
        )
        self.port = 0

    def start(self) -> None:
        """Listen and serve. Raises OSError if the port is in use."""
        self.port = self._server.start()

    def stop(self) -> None:
        """Stop listening; running calls get some seconds to finish."""
        self._server.stop()


class MatrixService:
    """Handler of the service Matrix. Every failure is a Refused: a text for users, an error code for programs.

    A thread serves one connection: the bytes of its reply count in the executor's budget until the reply is sent, or
    the thread ends."""

    def __init__(self, desk: QueryExecutor, access: Authenticator | None = None) -> None:
        self._executor, self._access = desk, access
        self._reserved, self._connection = threading.local(), threading.local()

    def authenticate(self, token: str | None) -> None:
        """See the IDL. The token holds for the connection, which has a thread of its own."""
        try:
            if self._access is not None:
                self._access.by_token(token or "", THRIFT)
                self._connection.token = token
        except HttpError as problem:
            raise _to_thrift_error(ApiError(problem.status, problem.message)) from problem

    def _principal(self) -> Principal:
        """Return the principal of the connection; its token is verified at each call. Raises AccessError."""
        if self._access is None:
            return LOCAL
        if token := getattr(self._connection, "token", ""):
            found: Principal | None = self._access.by_token(token, THRIFT)
        else:
            found = self._access.by_certificate(caller_names(), THRIFT)
        if found is None:
            raise AccessError(401, "call authenticate with a token first: `artimon tokens create` makes one")
        RouteRule(Level.VIEWER, Area.QUERY).check(found)
        return found

    def query(self, q: str | None, time_ms: int | None) -> Any:
        """See the IDL. A missing argument is None."""
        try:
            text = QueryParameters(q).validate(self._executor.limits)
            return self._answer(lambda: text, _instant(time_ms), text)
        except ApiError as problem:
            raise _to_thrift_error(problem) from problem

    def fetch(self, name: str | None, labels: Mapping[str, str] | None, last_ms: int | None) -> Any:
        """See the IDL."""
        try:
            return self._answer(lambda: _fetch(name or "", labels or {}, last_ms), 0, f"fetch of {name}")
        except ApiError as problem:
            raise _to_thrift_error(problem) from problem

    def on_reply(self, _method: str) -> None:
        """Release the bytes of a reply that was passed to the kernel."""
        self._reserved.reply = None

    def _answer(self, question: Callable[[], str | Expr], time_ms: int, told: str) -> Any:
        now_ms = time_ms or self._executor.clock.now_ms()
        try:
            principal = self._principal()
        except HttpError as problem:
            raise ApiError(problem.status, problem.message) from problem
        with acting_as(principal):
            return self._run(question, now_ms, told)

    def _run(self, question: Callable[[], str | Expr], now_ms: int, told: str) -> Any:
        limits, purse = self._executor.limits, self._executor.budget

        def work(store: LimitedStore) -> tuple[Any, _Reservation]:
            matrix = evaluate_query(question(), store, now_ms)
            size = answer_size(matrix)
            if size > limits.thrift_answer_bytes:
                raise QueryTooLargeError(
                    f"the answer has {size} bytes, more than the limit of {limits.thrift_answer_bytes} "
                    "(thrift_answer_bytes): reduce by labels, add matchers, ask for a shorter range, or ask over HTTP"
                )
            held = _Reservation(purse, size)
            return to_thrift(matrix), held

        found, self._reserved.reply = self._executor.run_blocking(work, QueryOrigin(told, client="thrift"))
        return found


class _Reservation:
    """Bytes of the budget, held for the lifetime of this object."""

    def __init__(self, purse: ByteBudget, size: int) -> None:
        purse.reserve(size)
        self._budget, self._size = purse, size

    def __del__(self) -> None:
        if hasattr(self, "_budget"):
            self._budget.release(self._size)


def _instant(time_ms: int | None) -> int:
    found = time_ms or 0
    if not 0 <= found <= TIME_MAX_MS:
        raise ApiError(400, f"time_ms is {found}: give epoch milliseconds, 0 to {TIME_MAX_MS}; 0 is now")
    return found


def _fetch(name: str, labels: Mapping[str, str], last_ms: int | None) -> Expr:
    """Build a `fetch` expression from validated parts, so that no text of a caller becomes syntax."""
    try:
        validate_name(name.removesuffix(PREFIX))
        validate_labels(labels)
    except LabelError as problem:
        raise ApiError(400, str(problem)) from problem
    if not last_ms or last_ms < 0:
        raise ApiError(400, f"last_ms is {last_ms}: give milliseconds, such as 600000 for the last ten minutes")
    pairs = ",".join(f"{label}={quote(value)}" for label, value in sorted(labels.items()))
    return fetch(f"{name}{{{pairs}}}").range(f"{last_ms}ms")


def _to_thrift_error(problem: ApiError) -> Any:
    position, length = problem.position, problem.length
    return idl().Refused(
        message=_text(problem.message),
        position=-1 if position is None else position,
        length=0 if position is None else length or 1,
        reason=problem.reason or _REASONS.get(problem.status, "bad"),
    )


def to_thrift(matrix: Matrix) -> Any:
    """Convert a matrix to the Answer of the IDL."""
    return idl().Answer(
        grid=idl().Grid(**grid_fields(matrix.grid)),
        rows=[_row(matrix, i, series) for i, series in enumerate(matrix.series)],
        notes=[_text(note) for note in matrix.notes],
        complete=matrix.complete,
        partial=matrix.partial,
    )


def _row(matrix: Matrix, i: int, series: str) -> Any:
    key, kind = matrix.keys[i], ValueType(int(matrix.types[i]))
    field, blank, _ = _LISTS[CONTENTS[kind]]
    values = [blank if value is None else value for value in matrix.tolist(i)]
    if CONTENTS[kind] is CellContent.TEXT:
        values = [_text(str(value)) for value in values]
    row = idl().Row(
        series=_text(series),
        name=_text(key.name),
        labels={_text(label): _text(value) for label, value in key.labels},
        type=int(kind),
        present=matrix.present[i].tolist(),
    )
    setattr(row, field, values)
    return row


def _text(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode, with escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def answer_size(matrix: Matrix) -> int:
    """Estimate the bytes of the reply: an upper bound, at most 100 per series too high."""
    size = 200 + sum(4 + _length(note) for note in matrix.notes)
    lengths = np.array([*(_length(text) for text in matrix.strings), 0], np.int64)
    for i, (series, key) in enumerate(zip(matrix.series, matrix.keys, strict=True)):
        kind = ValueType(int(matrix.types[i]))
        size += 100 + _length(series) + _length(key.name) + matrix.grid.n * _LISTS[CONTENTS[kind]][2]
        size += sum(8 + _length(label) + _length(value) for label, value in key.labels)
        if CONTENTS[kind] is CellContent.TEXT:
            size += int(lengths[np.where(matrix.present[i], matrix.cells[i], -1)].sum())
    return size


def _length(text: str) -> int:
    return len(text.encode("utf-8", "backslashreplace"))
