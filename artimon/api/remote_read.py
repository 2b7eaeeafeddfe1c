"""Remote read of Prometheus: requests, and answers as samples or as streamed chunks.

https://prometheus.io/docs/prometheus/latest/querying/remote_read_api/ defines both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import crc32c
from google.protobuf.message import DecodeError

from artimon.api.api_errors import ApiError
from artimon.api.xor_chunks import encode_chunks, varint
from artimon.model.select import Matcher, SelectError
from artimon.runtime.remote_read_messages import MESSAGES
from artimon.runtime.snappy_block import SnappyError, compress_block, decompress_block
from query_dsl.promql.samples import SeriesSamples
from varstore.index.matchers import compile_matcher

MAX_DECODED_BYTES = 1024 * 1024
MAX_QUERIES = 16
MAX_MATCHERS = 100
"""Matchers of one query."""
STREAMED = 1
"""Number of the response type STREAMED_XOR_CHUNKS; 0 are samples."""
XOR = 1
_OPS = ("=", "!=", "=~", "!~")
_TIME_MAX_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """Samples at times in (after_ms, until_ms] of the series that match."""

    matchers: tuple[Matcher, ...]
    after_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class ReadRequest:
    queries: tuple[ReadQuery, ...]
    streamed: bool
    """Answer in chunks."""


def parse_read_request(body: bytes) -> ReadRequest:
    """Parse a compressed request. Raises ApiError."""
    try:
        request = MESSAGES["ReadRequest"].FromString(decompress_block(body, MAX_DECODED_BYTES))
        if len(request.queries) > MAX_QUERIES:
            raise ApiError(400, f"the request has {len(request.queries)} queries, at most {MAX_QUERIES}: send fewer")
        queries = tuple(_query(MESSAGES["ReadQuery"].FromString(raw)) for raw in request.queries)
    except SnappyError as problem:
        raise ApiError(400, str(problem)) from problem
    except DecodeError as problem:
        raise ApiError(400, f"the body cannot be parsed as a ReadRequest: {problem}") from problem
    accepted = next((kind for kind in request.accepted_response_types if kind in (0, STREAMED)), 0)
    return ReadRequest(queries, accepted == STREAMED)


def _query(one: Any) -> ReadQuery:
    if len(one.matchers) > MAX_MATCHERS:
        raise ApiError(400, f"a query has {len(one.matchers)} matchers, at most {MAX_MATCHERS}: send fewer")
    if not any(found.value for found in one.matchers):
        raise ApiError(400, "a query needs a matcher with a value: add one")
    matchers = []
    for found in one.matchers:
        if found.type >= len(_OPS):
            raise ApiError(400, f"a matcher has the type {found.type}: use 0 to {len(_OPS) - 1}")
        matchers.append(_checked(Matcher(found.name, _OPS[found.type], found.value)))
    start_ms, end_ms = (max(-_TIME_MAX_MS, min(_TIME_MAX_MS, ms)) for ms in _times(one))
    if end_ms < start_ms:
        raise ApiError(400, "the end of a query is before its start")
    return ReadQuery(tuple(matchers), start_ms - 1, end_ms)


def _checked(matcher: Matcher) -> Matcher:
    """Return a matcher whose pattern is valid. Raises ApiError."""
    try:
        compile_matcher(matcher)
    except SelectError as problem:
        raise ApiError(400, str(problem)) from problem
    return matcher


def _times(one: Any) -> tuple[int, int]:
    return one.start_timestamp_ms, one.end_timestamp_ms


def encode_samples(results: Sequence[SeriesSamples]) -> bytes:
    """Encode an answer of samples, compressed."""
    response = MESSAGES["ReadResponse"]()
    for result in results:
        found = response.results.add()
        for labels, a, b in _series(result):
            series = found.timeseries.add()
            _add_labels(series, labels)
            for time_ms, value in zip(result.times_ms[a:b].tolist(), result.values[a:b].tolist(), strict=True):
                series.samples.add(value=value, timestamp=time_ms)
    return compress_block(response.SerializeToString())


def encode_streamed(results: Sequence[SeriesSamples]) -> Iterator[bytes]:
    """Yield a frame for each series: length, checksum, message."""
    for index, result in enumerate(results):
        for labels, a, b in _series(result):
            response = MESSAGES["ChunkedResponse"](query_index=index)
            series = response.series.add()
            _add_labels(series, labels)
            for chunk in encode_chunks(result.times_ms[a:b], result.values[a:b]):
                series.chunks.add(min_time_ms=chunk.min_ms, max_time_ms=chunk.max_ms, type=XOR, data=chunk.data)
            data = response.SerializeToString()
            yield varint(len(data)) + crc32c.crc32c(data).to_bytes(4, "big") + data


def _series(result: SeriesSamples) -> Iterator[tuple[dict[str, str], int, int]]:
    """Yield labels and the places of the samples of each series, in the order of labels."""
    edges, labels = list(pairwise(result.offsets.tolist())), result.labels.dicts()
    for row in result.labels.sort_order().tolist():
        yield labels[row], *edges[row]


def _add_labels(series: Any, labels: dict[str, str]) -> None:
    for name, value in labels.items():
        series.labels.add(name=name, value=value)
