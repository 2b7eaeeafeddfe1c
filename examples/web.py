"""A web application that is counted without a line of its own about counting, under any ASGI server:

    eval "$(artimon env)"                                      # where ZooKeeper is
    export ARTIMON_CONTEXT=web ARTIMON_OPENMETRICS=9464-9479   # for a Prometheus, too
    uvicorn --app-dir examples web:app --workers 2

Then ask: artimon query "fetch('http.requests').rate('1m').sum(by=['route', 'status'])"
"""

from __future__ import annotations

import logging

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import bookkeeper
from bookkeeper.integrations import asgi, logs, runtime

log = logging.getLogger("web.shop")


async def item(request: Request) -> JSONResponse:
    """Something is looked at."""
    number = request.path_params["number"]
    if number > 1000:
        log.warning("no item %d", number)
        return JSONResponse({"error": "no such item"}, 404)
    bookkeeper.add_to_integer_var("web.items.seen", {"shelf": str(number % 10)}, 1)
    return JSONResponse({"item": number})


logging.getLogger().addHandler(logs.Handler())
runtime.install()
app = Starlette(routes=[Route("/items/{number:int}", item)], middleware=[Middleware(asgi.Middleware)])
