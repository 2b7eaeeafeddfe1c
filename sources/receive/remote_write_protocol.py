"""Prometheus remote write over HTTP: `POST /api/v1/write`, or `/api/v1/write/<sender>`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from artimon.runtime.http.http_error import HttpError
from sources.receive.protocol import SENDER, Answer, Protocol
from sources.receive.received_columns import ReceivedColumns
from sources.receive.received_source import Taken
from sources.receive.remote_write import RemoteWriteReader
from sources.state.relabel import RelabelRules

_KIND = re.compile(r"application/x-protobuf\s*(?:;\s*proto=([\w.]+))?\s*", re.IGNORECASE)
_FORMS = {None: "1", "prometheus.WriteRequest": "1", "io.prometheus.write.v2.Request": "2"}


class RemoteWriteProtocol(Protocol):
    """Versions 1.0 and 2.0."""

    name = "received"
    path = re.compile(rf"/api/v1/write(?:/(?P<sender>{SENDER}))?")

    def make_reader(self, rules: RelabelRules | None) -> ReceivedColumns:
        return RemoteWriteReader(rules)

    def form(self, headers: Mapping[bytes, bytes], query: Mapping[str, str]) -> str:  # noqa: ARG002
        kind = _KIND.fullmatch(headers.get(b"content-type", b"application/x-protobuf").decode("latin-1"))
        if kind is None or kind[1] not in _FORMS:
            raise HttpError(415, "send application/x-protobuf of remote write 1.0 or 2.0")
        if headers.get(b"content-encoding", b"snappy").lower() != b"snappy":
            raise HttpError(415, "the body must be compressed by snappy")
        return _FORMS[kind[1]]

    def answer(self, taken: Taken, form: str) -> Answer:  # noqa: ARG002
        headers = [
            (b"x-prometheus-remote-write-samples-written", str(taken.samples).encode()),
            (b"x-prometheus-remote-write-histograms-written", b"0"),
            (b"x-prometheus-remote-write-exemplars-written", b"0"),
        ]
        if not taken.fault:
            return Answer(204, b"", headers)
        text = f"{taken.samples} samples were accepted, {taken.refused} were not: {taken.fault}\n"
        return Answer(400, text.encode("utf-8", "backslashreplace"), headers)

    def error(self, problem: HttpError, form: str) -> Answer:  # noqa: ARG002
        return Answer(problem.status, f"{problem.message}\n".encode("utf-8", "backslashreplace"), [])
