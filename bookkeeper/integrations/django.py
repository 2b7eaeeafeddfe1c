"""Middleware for Django, sync and async. Put it first, so that it sees the answers of the others:

MIDDLEWARE = ["bookkeeper.integrations.django.middleware", ...]
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from bookkeeper.integrations.web import NO_ANSWER, UNMATCHED, RequestVariables

Handler = Callable[[Any], Any]


def middleware(get_response: Handler) -> Handler:
    """Counts requests by the pattern of Django's resolver, in the variables of bookkeeper/integrations/web.py.

    A request ends when its response object exists; the body of a streaming response is not timed."""
    requests = RequestVariables()
    if iscoroutinefunction(get_response):

        async def later(request: Any) -> Any:
            begun, status = requests.begin(), NO_ANSWER  # for example, the client disconnected
            try:
                response = await get_response(request)
                status = str(response.status_code)
            finally:
                requests.end(begun, request.method or "", _pattern(request), status)
            return response

        return later

    def now(request: Any) -> Any:
        begun, status = requests.begin(), NO_ANSWER
        try:
            response = get_response(request)
            status = str(response.status_code)
        finally:
            requests.end(begun, request.method or "", _pattern(request), status)
        return response

    return now


middleware.sync_capable = middleware.async_capable = True  # type: ignore[attr-defined]


def _pattern(request: Any) -> str:
    match = getattr(request, "resolver_match", None)
    return UNMATCHED if match is None or match.route is None else "/" + str(match.route)
