"""Writes of InfluxDB over HTTP: `/write`, `/api/v2/write`, `/api/v3/write_lp`, also below `/influx/<sender>`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime.http.http_error import HttpError
from sources.receive.influx import PER_MS, InfluxReader
from sources.receive.protocol import SENDER, Answer, Protocol
from sources.receive.received_columns import ReceivedColumns
from sources.receive.received_source import Taken
from sources.state.relabel import RelabelRules

_PRECISIONS = {"n": "ns", "u": "us", "nanosecond": "ns", "microsecond": "us", "millisecond": "ms", "second": "s"}
_DATABASE = re.compile(r"[^:\x00-\x1f]{0,200}")


class InfluxProtocol(Protocol):
    """Lines, plain or by gzip. Times without a precision are nanoseconds; for `write_lp` their magnitude decides on the
    unit."""

    name, schemes = "influx", (b"Bearer", b"Token")
    path = re.compile(rf"(?:/influx/(?P<sender>{SENDER}))?/(?:write|api/v2/write|api/v3/write_lp)")

    def make_reader(self, rules: RelabelRules | None) -> ReceivedColumns:
        return InfluxReader(rules)

    def form(self, headers: Mapping[bytes, bytes], query: Mapping[str, str]) -> str:
        encoding = headers.get(b"content-encoding", b"identity").lower()
        if encoding not in (b"identity", b"gzip"):
            raise HttpError(415, "send lines, plain or compressed by gzip")
        given = query.get("precision") or "ns"
        precision = _PRECISIONS.get(given, given)
        if precision not in PER_MS and precision != "auto":
            raise HttpError(400, f"no precision {given!r:.40}: there are {', '.join(PER_MS)}")
        database = query.get("db") or query.get("bucket") or ""
        if not _DATABASE.fullmatch(database):
            raise HttpError(400, "the name of a database has at most 200 characters and no colon")
        return f"{SYSTEM_CLOCK.now_ms()}:{precision}:{database}:{'gzip' if encoding == b'gzip' else ''}"

    def answer(self, taken: Taken, form: str) -> Answer:
        if not taken.fault:
            return Answer(204, b"", [])
        text = f"{taken.samples} fields were accepted, {taken.refused} were not: {taken.fault}"
        return self.error(HttpError(400, text), form)

    def error(self, problem: HttpError, form: str) -> Answer:  # noqa: ARG002
        code = {401: "unauthorized", 413: "request too large", 503: "unavailable"}.get(problem.status, "invalid")
        told = json.dumps({"code": code, "message": problem.message, "error": problem.message})
        return Answer(problem.status, told.encode(), [(b"content-type", b"application/json")])
