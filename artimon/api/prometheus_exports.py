"""Raw samples for other servers: remote read, and `/federate` with the newest sample of each series.

https://prometheus.io/docs/instrumenting/exposition_formats/ defines the text of the latter."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from fastapi import Request, Response

from artimon.access.principal import Area, Level
from artimon.access.route_rules import requires
from artimon.api.api_errors import ApiError, QueryTooLargeError
from artimon.api.buffered_answer import BufferedAnswer, BufferedResponse
from artimon.api.json_points import number
from artimon.api.limited_store import LimitedStore, history_limits, until_cancelled
from artimon.api.prometheus_handlers import PrometheusHandlers, origin_of, read_fields
from artimon.api.remote_read import (
    ReadQuery,
    ReadRequest,
    encode_samples,
    encode_streamed,
    parse_read_request,
)
from artimon.api.shared_answers import plain_headers, wait_disconnect
from artimon.compute.packed_samples import newest
from artimon.model.select import NAME, Matcher
from query_dsl.promql import read_samples
from query_dsl.promql.evaluation_context import LOOK_BACK_MS
from query_dsl.promql.samples import SeriesSamples, unite_samples
from query_dsl.stores.query_limits import QueryBudget, make_budget

STREAMED_TYPE = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"
MAX_NOTE_BYTES = 4_000


class PrometheusExports(PrometheusHandlers):
    """Handlers."""

    @requires(Level.VIEWER, Area.QUERY)
    async def federate(self, request: Request) -> Response:
        """Return the newest sample of each series that matches any of `match[]`, as text."""
        fields = await read_fields(request)
        selectors = self._selectors(fields, required=True)
        utf8, now_ms = accepts_utf8(request.headers.get("accept", "")), self._executor.clock.now_ms()

        def work(store: LimitedStore) -> BufferedAnswer:
            queries = [ReadQuery(matchers, now_ms - LOOK_BACK_MS, now_ms) for matchers in selectors]
            found, notes = self._read(store, queries)
            pieces = format_newest(unite_samples(found), now_ms, LOOK_BACK_MS, utf8, notes)
            return self._packed(request, until_cancelled(pieces, store))

        headers = {"content-type": content_type(utf8)}
        origin = origin_of(request, " ".join(fields.many("match[]")))
        return await self._answer(request, work, headers=headers, origin=origin)

    @requires(Level.VIEWER, Area.QUERY)
    async def read(self, request: Request) -> Response:
        """Answer a remote read: samples, or chunks if the client takes them first."""
        if request.headers.get("content-encoding", "snappy").lower() != "snappy":
            raise ApiError(415, "the body must be compressed by snappy")
        asked = parse_read_request(await request.body())
        queries = [replace(one, matchers=self._matchers(one.matchers)) for one in asked.queries]

        def work(store: LimitedStore) -> tuple[BufferedAnswer, list[str]]:
            found, notes = self._read(store, queries)
            pieces = encode_streamed(found) if asked.streamed else iter([encode_samples(found)])
            return self._packed(request, until_cancelled(pieces, store), gzip=False), notes

        origin = origin_of(request, " ".join(_text(one.matchers) for one in asked.queries))
        parcel, notes = await self._executor.run(work, wait_disconnect(request), None, origin=origin)
        return BufferedResponse(parcel, {**plain_headers(), **_read_headers(asked, notes)})

    def _read(self, store: LimitedStore, queries: list[ReadQuery]) -> tuple[list[SeriesSamples], list[str]]:
        """Return the samples of each query, and warnings. Raises QueryTooLargeError."""
        now_ms, most, read = self._executor.clock.now_ms(), self._limits.cells_answered, 0
        watch = make_budget(replace(history_limits(store), samples=most), store.check)
        results, warnings = [], dict[str, None]()
        for one in queries:
            found, told = self._read_one(store, one, now_ms, watch)
            read += len(found.values)
            if read > most:
                raise QueryTooLargeError(
                    f"the request reads more than the limit of {most} samples (cells_answered): add matchers, or ask"
                    " for a shorter range"
                )
            results.append(found)
            warnings.update(dict.fromkeys(told))
        return results, list(warnings)

    def _read_one(
        self, store: LimitedStore, one: ReadQuery, now_ms: int, watch: QueryBudget
    ) -> tuple[SeriesSamples, tuple[str, ...]]:
        return read_samples(one.matchers, store, now_ms, one.after_ms, one.until_ms, budget=watch)


def _read_headers(asked: ReadRequest, notes: list[str]) -> dict[str, str]:
    kind = {"content-type": STREAMED_TYPE}
    if not asked.streamed:
        kind = {"content-type": "application/x-protobuf", "content-encoding": "snappy"}
    return {**kind, "x-artimon-notes": json.dumps(notes)[:MAX_NOTE_BYTES]} if notes else kind


def _text(matchers: tuple[Matcher, ...]) -> str:
    return "{" + ",".join(f"{one.label}{one.op}{json.dumps(one.value)}" for one in matchers) + "}"


PIECE_SERIES = 1_000
_INVALID = re.compile(r"[^a-zA-Z0-9_:]")
_PLAIN = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def accepts_utf8(accept: str) -> bool:
    """True if a header Accept takes names beyond the classic characters."""
    return "escaping=allow-utf-8" in accept.replace(" ", "").lower()


def content_type(utf8: bool) -> str:
    """Return the content type of the text."""
    told = "version=1.0.0; charset=utf-8; escaping=allow-utf-8" if utf8 else "version=0.0.4; charset=utf-8"
    return f"text/plain; {told}"


def format_newest(
    samples: SeriesSamples, now_ms: int, look_back_ms: int, utf8: bool, notes: Sequence[str]
) -> Iterator[bytes]:
    """Yield the text in pieces: metrics by name; ended series are left out. Notes are comments."""
    values, times, here = newest(samples, np.array([now_ms], np.int64), look_back_ms)
    labels = samples.labels.dicts()
    rows = sorted(
        (row for row in np.flatnonzero(here[:, 0]).tolist() if labels[row].get(NAME)),
        key=lambda row: (labels[row][NAME], sorted(labels[row].items())),
    )
    yield "".join(f"# note: {' '.join(note.split())}\n" for note in notes).encode("utf-8", "backslashreplace")
    last = ""
    for at in range(0, len(rows), PIECE_SERIES):
        lines = []
        for row in rows[at : at + PIECE_SERIES]:
            name = _name(labels[row][NAME], utf8)
            if name != last:
                lines.append(f"# TYPE {name} untyped\n")
                last = name
            lines.append(f"{_sample(name, labels[row])} {number(float(values[row, 0]))} {int(times[row, 0])}\n")
        yield "".join(lines).encode("utf-8", "backslashreplace")


def _name(name: str, utf8: bool) -> str:
    if _PLAIN.fullmatch(name):
        return name
    if utf8:
        return f'"{name.translate(_ESCAPES)}"'
    escaped = _INVALID.sub("_", name)
    return f"_{escaped}" if escaped[:1].isdigit() else escaped


def _sample(name: str, labels: dict[str, str]) -> str:
    """Return name and labels; without an instance the label is empty, so that a scraper adds none."""
    told = {"instance": "", **labels}
    pairs = [f'{label}="{value.translate(_ESCAPES)}"' for label, value in sorted(told.items()) if label != NAME]
    return f"{{{','.join([name, *pairs])}}}" if name.startswith('"') else f"{name}{{{','.join(pairs)}}}"
