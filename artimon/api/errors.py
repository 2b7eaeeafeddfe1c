"""Errors as the API says them: a status and a text that tells what, where and what to do; never a traceback."""

from __future__ import annotations

import json

from artimon.model.select import SelectError
from query_dsl import QueryError
from query_dsl.results.render import printable
from query_dsl.stores.limits import LimitExceeded
from varstore.cluster.client import StoreUnavailable


class ApiError(Exception):
    """An answer other than 200; its text moves no terminal's cursor. `position`, `length` count characters of `q`."""

    def __init__(
        self, status: int, message: str, position: int | None = None, length: int | None = None, reason: str = ""
    ) -> None:
        """`reason`: a word for programs where the status alone does not say it."""
        message = printable(message)
        super().__init__(message)
        self.status, self.message, self.position, self.length = status, message, position, length
        self.reason = reason

    def body(self) -> bytes:
        """The JSON that is answered."""
        error = {"message": self.message, "position": self.position, "length": self.length}
        return json.dumps({"error": error}).encode()  # ASCII: a text of lone surrogates must not break the answer


class TooLarge(SelectError):
    """More is asked than one answer may hold."""


class Abandoned(SelectError):
    """The time of a query is over: nobody waits for its answer any more."""


_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (StoreUnavailable, 503),
    (TooLarge, 413),
    (LimitExceeded, 413),
    (Abandoned, 504),
)


def refusal(error: QueryError | SelectError) -> ApiError:
    """What to answer; the evaluator hides what the store said behind a QueryError, so causes are looked through."""
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
