"""Line protocol of InfluxDB to columns of samples, a series for each field, and its writes over HTTP. Readers run in a
thread.

https://docs.influxdata.com/influxdb/v2/reference/syntax/line-protocol/ defines the lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.labels import LabelError
from artimon.model.values import INT64_MAX, INT64_MIN, Value
from artimon.runtime.http.http_limits import HttpError
from sources.dropin.series_columns import DROPPED
from sources.receive.line_body import MAX_NUMBER, LineFault, check_length, finite, text_of
from sources.receive.protocol import SENDER, Answer, Protocol
from sources.receive.received_columns import (
    BAD,
    ReceivedColumns,
    ReceivedSamples,
    SampleColumns,
    clean_label,
    clean_labels,
    clean_name,
    gunzip,
)
from sources.receive.received_source import Taken
from sources.state.relabel import RelabelRules

MAX_DECODED_BYTES = 8 * 1024 * 1024
MAX_TEXT = 32 * 1024
"""Bytes of a string, as in bookkeeper."""
PER_MS = {"ns": 1e6, "us": 1e3, "ms": 1.0, "s": 1e-3, "m": 1e-3 / 60, "h": 1e-3 / 3600}
"""Units of time in a millisecond, by precision."""
_KEY = rb"(?:[^\s,=\\]|\\.)++"
_LINE = re.compile(
    rb"((?:[^\s,\\]|\\.)++(?:," + _KEY + rb"=" + _KEY + rb")*+) ++"
    rb'((?:[^\s"\\]|\\.|"(?:[^"\\]|\\.)*+")++)(?: ++(-?[0-9]{1,19}))?+ *+',
    re.DOTALL,
)
"""Possessive, as all here: a long line is read once."""
_FIELD = re.compile(rb"(" + _KEY + rb')=("(?:[^"\\]|\\.)*+"|[^,"]++)(?:,|\Z)', re.DOTALL)
_SPLIT = re.compile(rb'(?:[^"\\\n]|\\[^\n]?|"(?:[^"\\]|\\.)*+"|"[^\n]*+)++', re.DOTALL)
_ESCAPED = re.compile(r"\\([,= \\\"])")
_TRUTH = {
    **dict.fromkeys((b"t", b"T", b"true", b"True", b"TRUE"), True),
    **dict.fromkeys((b"f", b"F", b"false", b"False", b"FALSE"), False),
}


class InfluxReader(ReceivedColumns):
    """Reads bodies of one sender. Form: time of arrival in ms, precision and database, with ":gzip" if compressed."""

    def read(self, body: bytes, form: str) -> ReceivedSamples:
        arrival, precision, database, encoding = form.split(":", 3)
        data = gunzip(body, MAX_DECODED_BYTES) if encoding else body
        made = SampleColumns()
        for number, found in enumerate(_SPLIT.finditer(data), 1):
            line = found[0].strip()
            if not line or line.startswith(b"#"):
                continue
            try:
                self._add(line, number, (int(arrival), precision, database), made)
            except LineFault as problem:
                made.rejected.add(problem.reason, str(problem), line=number)
            except LabelError as problem:
                made.rejected.add(BAD, str(problem), line=number)
        return made.finish(self.metadata())

    def _add(self, line: bytes, number: int, form: tuple[int, str, str], made: SampleColumns) -> None:
        """Add the fields of a line, or none. Raises LineFault, LabelError."""
        arrival_ms, precision, database = form
        check_length(line)
        parts = _LINE.fullmatch(line)
        if parts is None:
            raise LineFault(f"want MEASUREMENT,TAG=VALUE FIELD=VALUE TIME: {line[:60]!r}")
        time_ms = arrival_ms if parts[3] is None else _ms(int(parts[3]), precision)
        fields = [(self._column(parts[1], key, database), value) for key, value in _fields(parts[2])]
        for at, value in fields:
            if at != DROPPED:
                made.add(at, time_ms, value, number)

    def _column(self, series: bytes, field: bytes, database: str) -> int:
        """Return the column of a field. Raises LineFault, LabelError."""
        key = (series, field, database)
        at = self.known(key)
        if at is None:
            measurement, *tags = re.split(rb"(?<!\\),", series)
            pairs = [tuple(map(_plain, re.split(rb"(?<!\\)=", tag, maxsplit=1))) for tag in tags]
            name, of_field = _plain(measurement), _plain(field)
            rules = {"__measurement": name, "__field": of_field, "__database": database}
            labels = {**rules, **clean_labels((one[0], one[1]) for one in pairs)}
            at = self.add(key, len(series) + len(field), f"{clean_name(name)}.{clean_label(of_field)}", labels)
        return at


def _fields(text: bytes) -> Iterator[tuple[bytes, Value]]:
    """Yield keys and values. Raises LineFault."""
    end = 0
    while end < len(text) or text.endswith(b","):
        field = _FIELD.match(text, end)
        if field is None:
            raise LineFault(f"want FIELD=VALUE at {text[end : end + 60]!r}")
        yield field[1], _value(field[2])
        end = field.end()


def _plain(data: bytes) -> str:
    return _ESCAPED.sub(r"\1", text_of(data))


def _ms(time: int, precision: str) -> int:
    """Return a time in ms. The precision "auto" follows from the magnitude of the time."""
    if precision == "auto":
        precision = next((one for one, most in (("s", 5e9), ("ms", 5e12), ("us", 5e15)) if abs(time) < most), "ns")
    per_ms = PER_MS[precision]
    return time // int(per_ms) if per_ms >= 1 else time * round(1 / per_ms)


def _value(text: bytes) -> Value:
    """Parse a value: a number, an integer with `i` or `u`, a truth or a text. Raises LineFault."""
    if text.startswith(b'"'):
        if len(text) > MAX_TEXT + 2:
            raise LineFault(f"a text of more than {MAX_TEXT:,} bytes")
        return text_of(text[1:-1]).replace('\\"', '"').replace("\\\\", "\\")
    if text in _TRUTH:
        return _TRUTH[text]
    if text[-1:] not in b"iu":
        return finite(text)
    digits = text[:-1]
    if len(text) > MAX_NUMBER or not digits.removeprefix(b"-").isdigit():
        raise LineFault(f"{text[:40]!r} is not a number")
    if not INT64_MIN <= (number := int(digits)) <= INT64_MAX:
        raise LineFault(f"{text[:40]!r} does not fit 64 bits with a sign")
    return number


_PRECISIONS = {"n": "ns", "u": "us", "nanosecond": "ns", "microsecond": "us", "millisecond": "ms", "second": "s"}
_DATABASE = re.compile(r"[^:\x00-\x1f]{0,200}")


class InfluxProtocol(Protocol):
    """Lines, plain or by gzip, at `/write`, `/api/v2/write`, `/api/v3/write_lp`, also below `/influx/<sender>`. Times
    without a precision are nanoseconds; for `write_lp` their magnitude decides on the unit."""

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
