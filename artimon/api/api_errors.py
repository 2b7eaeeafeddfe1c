"""Errors of the API: a status and a text that says what is wrong, where and what to do; never a traceback."""

from __future__ import annotations

from artimon.model.select import SelectError
from artimon.runtime.http.http_limits import HttpError
from artimon.runtime.text import printable
from query_dsl import QueryError
from query_dsl.stores.query_limits import LimitExceeded
from varstore.cluster.varstore_client import StoreUnavailable


class ApiError(HttpError):
    """Answer other than 200; its text has no terminal control characters. `position`, `length`: characters of `q`."""

    def __init__(
        self, status: int, message: str, position: int | None = None, length: int | None = None, reason: str = ""
    ) -> None:
        """`reason`: error code for programs, if the status is ambiguous."""
        super().__init__(status, printable(message))
        self.position, self.length, self.reason = position, length, reason


class QueryTooLargeError(SelectError):
    """A query exceeds a limit of size."""


class QueryCancelledError(SelectError):
    """A query has timed out or its client has gone."""


_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (StoreUnavailable, 503),
    (QueryTooLargeError, 413),
    (LimitExceeded, 413),
    (QueryCancelledError, 504),
)


def to_api_error(error: QueryError | SelectError) -> ApiError:
    """Convert an error to an answer. The evaluator wraps errors of the store in QueryError, so causes are searched."""
    cause: BaseException | None = error
    while cause is not None:
        for kind, status in _STATUS:
            if isinstance(cause, kind):
                return ApiError(status, str(cause), reason="unavailable" if kind is StoreUnavailable else "")
        cause = cause.__cause__
    if isinstance(error, QueryError):
        length = None if error.position is None else error.length
        return ApiError(400, error.message, error.position, length)
    return ApiError(400, str(error))
