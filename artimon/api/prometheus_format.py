"""Parameters and answers of the HTTP API of Prometheus.

https://prometheus.io/docs/prometheus/latest/querying/api/ defines them."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any
from urllib.parse import parse_qsl

from artimon.api.api_errors import ApiError
from artimon.api.json_points import BLOCK_CELLS, point, seconds, write_points
from artimon.api.query_parameters import TIME_MAX_MS
from query_dsl.promql import PromqlError, PromqlResult
from query_dsl.promql.label_sets import LabelSets
from query_dsl.promql.tree import parse_duration

MAX_FIELDS = 200
PIECE_BYTES = 64 * 1024
"""Characters of one piece of an answer."""
BLOCK_SERIES = 1_024
"""Label sets that are formatted together."""
_quoted = json.encoder.encode_basestring
"""Encodes a text as a JSON string, without ASCII escapes."""
_ESCAPED = re.compile(r"__|_([0-9a-fA-F]{1,6})_")
_KINDS = {400: "bad_data", 404: "not_found", 413: "execution", 422: "execution", 499: "canceled", 504: "timeout"}


class Fields:
    """Parameters of a request, from the URL and a form; names may repeat."""

    def __init__(self, query_string: bytes, body: bytes = b"") -> None:
        try:
            pairs = [
                *parse_qsl(query_string.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS),
                *parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS),
            ]
        except ValueError as problem:
            raise ApiError(400, f"the parameters are not a UTF-8 form of at most {MAX_FIELDS} fields") from problem
        self._found: dict[str, list[str]] = {}
        for name, value in pairs:
            self._found.setdefault(name, []).append(value)

    def many(self, name: str) -> list[str]:
        return self._found.get(name, [])

    def one(self, name: str) -> str | None:
        """Return the last value that is not empty."""
        return next((value for value in reversed(self.many(name)) if value), None)

    def required(self, name: str) -> str:
        found = self.one(name)
        if found is None:
            raise ApiError(400, f'invalid parameter "{name}": it is missing')
        return found

    def time_ms(self, name: str, default: int | None = None) -> int:
        """Parse Unix seconds or RFC 3339. Raises ApiError."""
        text = self.required(name) if default is None else self.one(name)
        if text is None:
            return default or 0
        try:
            seconds = float(text)
        except ValueError:
            try:
                moment = datetime.fromisoformat(text)
                seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
            except ValueError:
                seconds = math.nan
        if not math.isfinite(seconds) or not -TIME_MAX_MS <= seconds * 1000 <= 10 * TIME_MAX_MS:
            raise ApiError(400, f'invalid parameter "{name}": cannot parse {text!r:.60} to a valid timestamp')
        return round(seconds * 1000)

    def duration_ms(self, name: str, default: int | None = None) -> int:
        """Parse seconds or a duration such as 1h30m, more than 0. Raises ApiError."""
        text = self.required(name) if default is None else self.one(name)
        if text is None:
            return default or 0
        try:
            found = round(float(text) * 1000) if re.fullmatch(r"[\d.eE+-]+", text) else parse_duration(text)
        except (ValueError, OverflowError, PromqlError):
            found = 0
        if not 0 < found <= TIME_MAX_MS:
            raise ApiError(400, f'invalid parameter "{name}": cannot parse {text!r:.60} to a duration greater than 0')
        return found

    def flag(self, name: str, default: bool) -> bool:
        """Parse true or false. Raises ApiError."""
        text = self.one(name)
        if text not in (None, "true", "false"):
            raise ApiError(400, f'invalid parameter "{name}": write true or false, not {text!r:.60}')
        return default if text is None else text == "true"

    def limit(self, name: str = "limit") -> int:
        """Parse a number of entries; 0: no limit. Raises ApiError."""
        text = self.one(name) or "0"
        if not (text.isascii() and text.isdigit() and len(text) < 12):
            raise ApiError(400, f'invalid parameter "{name}": it must be a whole number, 0 for none')
        return int(text)


def unescaped(name: str) -> str:
    """Return the name of a label that is escaped as in `U__http_2e_requests`; escapes of invalid characters stay."""
    return _ESCAPED.sub(_character, name[3:]) if name.startswith("U__") else name


def _character(found: re.Match[str]) -> str:
    if not found[1]:
        return "_"
    code = int(found[1], 16)
    return chr(code) if code <= sys.maxunicode and not 0xD800 <= code < 0xE000 else found[0]


def success(data: Any, warnings: Sequence[str] = ()) -> bytes:
    """Return a successful answer."""
    told: dict[str, Any] = {"status": "success", "data": data}
    if warnings:
        told["warnings"] = list(warnings)
    return json.dumps(told, ensure_ascii=False).encode("utf-8", "backslashreplace")


def failure(problem: ApiError) -> bytes:
    """Return the body of an error."""
    kind = _KINDS.get(problem.status, "unavailable" if problem.status == 503 else "internal")
    if problem.reason == "canceled":
        kind = problem.reason
    if 400 <= problem.status < 500 and problem.status not in _KINDS:
        kind = "bad_data"
    return json.dumps({"status": "error", "errorType": kind, "error": problem.message}).encode()


def answer(result: PromqlResult, limit: int, extra: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield the answer of a query in pieces; beyond `limit` series (0: none) the rest is left out, with a warning."""
    count = result.labels.count if result.samples is None else result.samples.labels.count
    warnings = [*result.warnings]
    if limit and count > limit and result.type in ("vector", "matrix"):
        warnings.append(f"the results are truncated to {limit} of {count} series by the parameter limit")
    yield f'{{"status":"success","data":{{"resultType":"{result.type}","result":'.encode()
    if result.type == "string":
        yield f"[{seconds(int(result.times_ms[0]))},{json.dumps(result.text)}]".encode()
    elif result.type == "scalar":
        yield point(int(result.times_ms[0]), float(result.values[0, 0])).encode()
    else:
        yield b"["
        yield from _series(result, limit or count)
        yield b"]"
    told = {"warnings": warnings, "infos": result.infos}
    tail = {**extra, **{kind: texts for kind, texts in told.items() if texts}}
    stats = tail.pop("stats", None)
    inner = f',"stats":{json.dumps(stats)}' if stats else ""
    outer = "".join(f",{json.dumps(key)}:{json.dumps(value)}" for key, value in tail.items())
    yield f"{inner}}}{outer}}}".encode("utf-8", "backslashreplace")


def _series(result: PromqlResult, most: int) -> Iterator[bytes]:
    """Yield the series as JSON, several at once."""
    labels = result.labels if result.samples is None else result.samples.labels
    opened, tail = ('"value":', "}") if result.type == "vector" else ('"values":[', "]}")
    heads = (f'{"," if place else ""}{{"metric":{{{metric}}},{opened}' for place, metric in enumerate(_metrics(labels)))
    if result.samples is not None:
        yield from _samples(result, heads, tail, most)
        return
    times_ms = result.times_ms.tolist()
    each = max(1, min(BLOCK_SERIES, BLOCK_CELLS // max(1, len(times_ms))))
    for start in range(0, min(most, labels.count), each):
        rows = slice(start, min(start + each, most))
        texts = [_encoded(head) for head in islice(heads, len(result.values[rows]))]
        yield write_points(texts, times_ms, result.values[rows], result.here[rows], tail.encode())


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")


def _metrics(labels: LabelSets) -> Iterator[str]:
    """Yield the pairs of JSON of each label set, without braces. Each value is quoted once."""
    columns = [(_quoted(name), labels.columns[name]) for name in sorted(labels.columns)]
    known: list[dict[int, str]] = [{} for _ in columns]
    for start in range(0, labels.count, BLOCK_SERIES):
        found = []
        for (name, column), pairs in zip(columns, known, strict=True):
            codes = column.codes[start : start + BLOCK_SERIES].tolist()
            for code in set(codes) - pairs.keys():
                value = column.values[code]
                pairs[code] = f"{name}:{_quoted(value)}" if value else ""
            found.append(map(pairs.__getitem__, codes))
        if not columns:
            yield from [""] * min(BLOCK_SERIES, labels.count - start)
        for row in zip(*found, strict=True):
            yield ",".join(filter(None, row))


def _samples(result: PromqlResult, heads: Iterator[str], tail: str, most: int) -> Iterator[bytes]:
    """Yield the samples of each series of a range vector."""
    held, size = list[str](), 0
    for head, (_, samples) in zip(heads, result.series()[:most], strict=False):
        held.append(f"{head}{','.join([point(*sample) for sample in samples])}{tail}")
        size += len(held[-1])
        if size > PIECE_BYTES:
            yield _encoded("".join(held))
            held, size = [], 0
    yield _encoded("".join(held))
