"""Metrics of OpenTelemetry (OTLP) to columns of samples, and OTLP over HTTP. Readers run in a thread.

https://opentelemetry.io/docs/specs/otel/metrics/data-model/ defines the points. Names keep their dots; a histogram
becomes series of cumulative buckets, as Prometheus has them."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any

import numpy as np
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1 import metrics_pb2 as otlp

from artimon.model.labels import LabelError
from artimon.model.values import STALE
from artimon.runtime.http.http_limits import HttpError
from sources.dropin.series_columns import DROPPED
from sources.receive.known_points import KnownPoints, point_kernels
from sources.receive.protobuf_messages import MESSAGES
from sources.receive.protocol import SENDER, Answer, Protocol
from sources.receive.received_columns import (
    BAD,
    BodyError,
    ReceivedColumns,
    ReceivedSamples,
    SampleColumns,
    bound_text,
    clean_labels,
    clean_name,
    gunzip,
    rule_label,
)
from sources.receive.received_source import Taken
from sources.state.relabel import RelabelRules
from sources.state.start_times import Flags

MAX_DECODED_BYTES = 8 * 1024 * 1024
"""Limit of a decompressed body."""
MAX_SCALE = 2
"""Greatest scale of exponential histograms: its buckets grow by 19 %. Finer ones are united, so that bounds repeat."""
MAX_BUCKETS = 400
"""Buckets of one exponential histogram."""
RESOURCE_LABELS: Mapping[str, str] = {
    "service.name": "context",
    "service.namespace": "namespace",
    "service.instance.id": "instance",
    "host.name": "host",
    "deployment.environment.name": "environment",
    "deployment.environment": "environment",
}
"""Attributes of resources that become labels; all are `__resource_<attribute>` for the rules."""
SCOPE = "otel_scope_name"
_NO_VALUE = otlp.DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
_DELTA = otlp.AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
_CUMULATIVE = otlp.AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
_MS = 1_000_000
_BUCKET = re.compile(r'(.*_bucket\{(?:.*,)?)le="([^"\\]*)"(.*)', re.DOTALL)
"""Canonical text of a bucket: before its bound, the bound, after it."""
Labels = dict[str, str]


class OtlpReader(ReceivedColumns):
    """Reads the bodies of one sender. `_bounds`: bounds of the buckets of each exponential histogram; `_known`: table
    of numbers and histograms, if the machine has its functions."""

    def __init__(self, rules: RelabelRules | None) -> None:
        super().__init__(rules)
        self._bounds: dict[tuple[str, str], set[float]] = {}

    def resume(self, texts: Iterable[str]) -> None:
        for text in texts:
            found = _BUCKET.fullmatch(text)
            if found is not None:
                with contextlib.suppress(ValueError):
                    self._bounds.setdefault((found[1], found[3]), set()).add(float(found[2]))

    def bounds_of(self, at: int) -> set[float]:
        """Return the known bounds of the histogram with a bucket of this column, to be extended."""
        found = None if at == DROPPED else _BUCKET.fullmatch(self.texts[at])
        return set() if found is None else self._bounds.setdefault((found[1], found[3]), set())

    def read(self, body: bytes, form: str) -> ReceivedSamples:
        """Read a body: form "protobuf" or "json", and ":gzip" if it is compressed. Raises BodyError."""
        kind, _, encoding = form.partition(":")
        data = gunzip(body, MAX_DECODED_BYTES) if encoding else body
        if len(data) > MAX_DECODED_BYTES:
            raise BodyError(f"the body has more than {MAX_DECODED_BYTES:,} bytes: send less at once")
        made = SampleColumns()
        known = self._known_points() if kind == "protobuf" else None
        found = known.read(data) if known is not None else None
        if known is None or found is None:
            self._add_points(_parse(data, kind), None, made)
        else:
            made.extend(*found[1:])
            if found.missed.any():
                columns = self._add_points(_parse(data, kind), found.missed, made)
                known.remember(data, len(found.missed), columns)
        return made.finish(self.metadata())

    def forget(self) -> None:
        super().forget()
        self._known: KnownPoints | None = None

    def _known_points(self) -> KnownPoints | None:
        if self._known is None and (kernels := point_kernels()) is not None:
            self._known = KnownPoints(kernels)
            self.tables.append(self._known)
        return self._known

    def _add_points(self, request: Any, wanted: Flags | None, made: SampleColumns) -> dict[int, list[int]]:
        """Add the points of a request that are in a mask, None: all. Return the columns of the samples of each by its
        place, without those that were refused."""
        columns: dict[int, list[int]] = {}
        first = 0
        for number, (metric, labels, key) in enumerate(_metrics(request), 1):
            points = _Points(self, made, metric, labels, key, number)
            last = first + len(points)
            places = range(len(points)) if wanted is None else np.flatnonzero(wanted[first:last]).tolist()
            if places:
                added = zip(places, points.take(places), strict=False)
                columns |= {first + place: found for place, found in added if found}
            first = last
        return columns


class _Points:
    """Points of one metric. `labels`: those of resource and scope; `key`: their bytes; `line`: number of the metric."""

    def __init__(
        self, columns: OtlpReader, made: SampleColumns, metric: Any, labels: Mapping[str, str], key: bytes, line: int
    ) -> None:
        self._columns, self._made, self._metric, self._line = columns, made, metric, line
        self._labels, self._key = labels, key
        self._name = clean_name(metric.name)
        self._kind = metric.WhichOneof("data") or ""
        self._data: Any = getattr(metric, self._kind) if self._kind else None
        self._delta = False
        self._added: list[int] = []
        """Columns of the samples of the point that is taken."""

    def __len__(self) -> int:
        return len(self._data.data_points) if self._kind else 0

    def take(self, places: Iterable[int]) -> Iterator[list[int]]:
        """Add the points at these places; refuse those that cannot be kept. Yield the columns of the samples of each;
        none if it is refused."""
        found = self._data
        if self._kind in ("sum", "histogram", "exponential_histogram"):
            if found.aggregation_temporality not in (_DELTA, _CUMULATIVE):
                self._refuse("bad metric", f"{self._name}: a sum without temporality", len(self))
                return
            self._delta = found.aggregation_temporality == _DELTA
        kinds = {"sum": "counter" if self._kind == "sum" and found.is_monotonic else "gauge"}
        kind = {**kinds, "exponential_histogram": "histogram"}.get(self._kind, self._kind)
        self._columns.take_family(self._name, kind, self._metric.description, self._metric.unit)
        for place in places:
            self._added = []
            self._take_point(found.data_points[place])
            yield self._added

    def _take_point(self, point: Any) -> None:
        take = {
            "gauge": self._number,
            "sum": self._number,
            "histogram": self._histogram,
            "exponential_histogram": self._exponential,
            "summary": self._summary,
        }[self._kind]
        try:
            take(point)
        except (LabelError, UnicodeError) as problem:
            self._added = []
            self._refuse(BAD, str(problem))

    def _refuse(self, reason: str, text: str, count: int = 1) -> None:
        self._made.rejected.add(reason, text, count, self._line)

    def _column(self, point: Any, name: str, more: Mapping[str, str]) -> int:
        """Return the column of a series. Raises LabelError."""
        attributes = [one.SerializeToString(deterministic=True) for one in point.attributes]
        key = (self._key, name, *attributes, *more.items())
        at = self._columns.known(key)
        if at is None:
            labels = {**self._labels, **_attributes(point.attributes), **more}
            at = self._columns.add(key, len(self._key) + len(name) + sum(map(len, attributes)), name, labels)
        return at

    def _add(self, point: Any, suffix: str, value: float, more: Mapping[str, str], counts: bool = True) -> None:
        """Add one sample; `counts`: it belongs to a count since the start of the point."""
        value = STALE if point.flags & _NO_VALUE else value
        at = self._column(point, self._name + suffix, more)
        self._added.append(at)
        if at == DROPPED:
            return
        birth_ms = point.start_time_unix_nano // _MS if counts else 0
        delta = self._delta and counts and not point.flags & _NO_VALUE
        self._made.add(at, point.time_unix_nano // _MS, value, self._line, birth_ms, delta)

    def _number(self, point: Any) -> None:
        value = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
        self._add(point, "", value, {}, counts=self._kind == "sum")

    def _histogram(self, point: Any) -> None:
        bounds, counts = list(point.explicit_bounds), list(point.bucket_counts)
        if counts and len(counts) != len(bounds) + 1:
            self._refuse("bad metric", f"{self._name}: {len(counts)} counts for {len(bounds)} bounds")
            return
        self._buckets(point, zip([*bounds, math.inf], counts, strict=False) if counts else [(math.inf, point.count)])

    def _exponential(self, point: Any) -> None:
        down = max(0, point.scale - MAX_SCALE)
        size = len(point.positive.bucket_counts) + len(point.negative.bucket_counts)
        if size > MAX_BUCKETS or not -20 <= point.scale <= 20:
            self._refuse("bad metric", f"{self._name}: {size} buckets of scale {point.scale}: at most {MAX_BUCKETS}")
            return
        width = 2.0 ** -(point.scale - down)
        below = [(-_power(at * width), count) for at, count in _united(point.negative, down)]
        above = [(_power((at + 1) * width), count) for at, count in _united(point.positive, down)]
        counts = dict.fromkeys(self._known_bounds(point) if self._delta else (), 0)
        for bound, count in (*below, (point.zero_threshold, point.zero_count), *above, (math.inf, 0)):
            counts[bound] = counts.get(bound, 0) + count
        if self._delta:
            self._known_bounds(point).update(counts)
        self._buckets(point, sorted(counts.items()))

    def _known_bounds(self, point: Any) -> set[float]:
        """Return the bounds of earlier points: an increase names the buckets of its own values only, but counts below
        all greater bounds."""
        return self._columns.bounds_of(self._column(point, f"{self._name}_bucket", {"le": bound_text(math.inf)}))

    def _buckets(self, point: Any, buckets: Iterable[tuple[float, int]]) -> None:
        """Add the cumulative counts of buckets by ascending upper bounds, count and sum."""
        found = list(buckets)
        for (bound, _), total in zip(found, accumulate(count for _, count in found), strict=True):
            self._add(point, "_bucket", total, {"le": bound_text(bound)})
        self._add(point, "_count", point.count, {})
        if point.HasField("sum"):
            self._add(point, "_sum", point.sum, {})

    def _summary(self, point: Any) -> None:
        for one in point.quantile_values:
            self._add(point, "", one.value, {"quantile": bound_text(one.quantile)}, counts=False)
        self._add(point, "_count", point.count, {})
        self._add(point, "_sum", point.sum, {})


def _parse(data: bytes, kind: str) -> Any:
    """Parse a request. Raises BodyError."""
    try:
        if kind == "protobuf":
            return ExportMetricsServiceRequest.FromString(data)
        return json_format.Parse(data, ExportMetricsServiceRequest(), ignore_unknown_fields=True)
    except (DecodeError, json_format.ParseError, UnicodeDecodeError, RecursionError) as problem:
        raise BodyError(
            f"the body cannot be parsed as ExportMetricsServiceRequest in {kind}: {problem!s:.200}"
        ) from None


def _metrics(request: Any) -> Iterator[tuple[Any, Labels, bytes]]:
    """Yield each metric with the labels of its resource and scope, and their bytes."""
    for resource in request.resource_metrics:
        of_resource = _resource(resource.resource.attributes)
        key = resource.resource.SerializeToString(deterministic=True)
        for scope in resource.scope_metrics:
            labels = {**of_resource, SCOPE: scope.scope.name} if scope.scope.name else of_resource
            for metric in scope.metrics:
                yield metric, labels, key + b"\0" + scope.scope.name.encode()


def _resource(attributes: Any) -> Labels:
    """Return the labels of a resource, and those for the rules."""
    labels: Labels = {}
    for one in attributes:
        value = _text(one.value)
        labels[rule_label("resource", one.key)] = value
        if one.key in RESOURCE_LABELS:
            labels.setdefault(RESOURCE_LABELS[one.key], value)
    return labels


def _attributes(attributes: Any) -> Labels:
    return clean_labels((one.key, _text(one.value)) for one in attributes)


def _text(value: Any) -> str:
    """Return the text of a value of an attribute; of an array or a map as JSON."""
    found = _plain(value)
    if isinstance(found, str):
        return found
    return (
        bound_text(found) if isinstance(found, float) else json.dumps(found, separators=(",", ":"), ensure_ascii=False)
    )


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(one) for one in value.array_value.values]
    if kind == "kvlist_value":
        return {one.key: _plain(one.value) for one in value.kvlist_value.values}
    if kind == "bytes_value":
        return bytes(value.bytes_value).hex()
    return "" if kind is None else getattr(value, kind)


def _united(buckets: Any, down: int) -> list[tuple[int, int]]:
    """Merge the buckets of an exponential histogram to a scale that is lower by `down`; return (index, count) by
    ascending index."""
    found: dict[int, int] = {}
    for place, count in enumerate(buckets.bucket_counts):
        at = (buckets.offset + place) >> down
        found[at] = found.get(at, 0) + count
    return sorted(found.items())


def _power(exponent: float) -> float:
    """Return 2 to the exponent, the same at each scale."""
    try:
        return float(2.0**exponent)
    except OverflowError:
        return math.inf


_FORMS = {"application/x-protobuf": "protobuf", "application/json": "json"}
_INVALID_ARGUMENT, _UNAVAILABLE = 3, 14
"""Codes of gRPC."""


class OtlpProtocol(Protocol):
    """Metrics in protobuf or JSON, plain or by gzip: https://opentelemetry.io/docs/specs/otlp/#otlphttp."""

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
