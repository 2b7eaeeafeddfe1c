"""OTLP over HTTP: `POST /v1/metrics`, `/api/v1/otlp/v1/metrics` or `/api/v1/otlp/<sender>/v1/metrics`.

https://opentelemetry.io/docs/specs/otlp/#otlphttp defines answers and errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from artimon.runtime.http.http_error import HttpError
from sources.receive.otlp import OtlpReader
from sources.receive.protobuf_messages import MESSAGES
from sources.receive.protocol import SENDER, Answer, Protocol
from sources.receive.received_columns import ReceivedColumns
from sources.receive.received_source import Taken
from sources.state.relabel import RelabelRules

_FORMS = {"application/x-protobuf": "protobuf", "application/json": "json"}
_INVALID_ARGUMENT, _UNAVAILABLE = 3, 14
"""Codes of gRPC."""


class OtlpProtocol(Protocol):
    """Metrics in protobuf or JSON, plain or by gzip."""

    name = "otlp"
    path = re.compile(rf"(?:/api/v1/otlp(?:/(?P<sender>{SENDER}))?)?/v1/metrics")

    def make_reader(self, rules: RelabelRules | None) -> ReceivedColumns:
        return OtlpReader(rules)

    def form(self, headers: Mapping[bytes, bytes], query: Mapping[str, str]) -> str:  # noqa: ARG002
        kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
        encoding = headers.get(b"content-encoding", b"identity").lower()
        if kind not in _FORMS or encoding not in (b"identity", b"gzip"):
            raise HttpError(415, "send application/x-protobuf or application/json, plain or compressed by gzip")
        return _FORMS[kind] + (":gzip" if encoding == b"gzip" else "")

    def answer(self, taken: Taken, form: str) -> Answer:
        return _answer(200, partial_success(taken), form)

    def error(self, problem: HttpError, form: str) -> Answer:
        code = _UNAVAILABLE if problem.status == 503 else _INVALID_ARGUMENT
        message = problem.message.encode("utf-8", "replace").decode()
        return _answer(problem.status, MESSAGES["Status"](code=code, message=message), form)


def partial_success(taken: Taken) -> Any:
    """Return the answer to a request that was taken, in part or whole."""
    told = ExportMetricsServiceResponse()
    if taken.fault:
        told.partial_success.rejected_data_points = taken.refused
        told.partial_success.error_message = taken.fault.encode("utf-8", "replace").decode()
    return told


def _answer(status: int, told: Any, form: str) -> Answer:
    if form.startswith("json"):
        return Answer(status, json_format.MessageToJson(told).encode(), [(b"content-type", b"application/json")])
    return Answer(status, told.SerializeToString(), [(b"content-type", b"application/x-protobuf")])
