"""The application that gunicorn serves in the tests: WSGI, counted by the middleware; says which process answered."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import bookkeeper
import bookkeeper.integrations.uwsgi  # does nothing elsewhere than in uWSGI
from bookkeeper.integrations.wsgi import ROUTE, Middleware


def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    environ[ROUTE] = "/"
    bookkeeper.add_to_integer_var("served.answers", {}, 1)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]


application = Middleware(answer)
