"""Prometheus remote write 1.0 and 2.0: bodies to columns of samples, in a thread, and its answers over HTTP."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sized
from itertools import compress
from operator import itemgetter
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from artimon.model.labels import LabelError
from artimon.model.series_table import NAME
from artimon.runtime.http.http_limits import HttpError
from artimon.runtime.snappy_block import SnappyError, decompress_block
from sources.dropin.series_columns import DROPPED
from sources.receive.key_table import UNKNOWN
from sources.receive.known_series import KnownSeries, KnownSymbols, Spans, divide, series_kernels
from sources.receive.protobuf_messages import FAMILY_TYPES, MESSAGES
from sources.receive.protocol import SENDER, Answer, Protocol
from sources.receive.received_columns import (
    BAD,
    BodyError,
    ReceivedColumns,
    ReceivedSamples,
    SampleColumns,
)
from sources.receive.received_source import Taken
from sources.scrape.prometheus.metric_families import family_name
from sources.state.relabel import RelabelRules
from sources.state.start_times import Flags, Ints

MAX_DECODED_BYTES = 16 * 1024 * 1024
"""Limit of a decompressed body."""
MAX_SERIES = 100_000
"""Series, symbols and metadata of a body."""
MAX_SERIES_BYTES = 1024 * 1024
MAX_LABELS = 100
"""Labels of a series that are parsed; the model allows fewer."""
_SERIES_1_TAG, _SYMBOL_TAG, _SERIES_TAG = 0x0A, 0x22, 0x2A
"""Fields of a request of version 1, and of one of version 2."""
Labels = dict[str, str]


Part = Callable[[bytes], bytes]
_SAMPLE, _VALUE, _TIME = 0x12, 0x09, 0x10
"""Tags: field 2 of a series, of bytes; field 1 of a sample, 64 bits; field 2 of a sample, a varint."""
_TIME_BYTES = 6
"""Bytes of a time in ms between 2004 and 2109; other times are parsed as any message."""
_WEIGHTS = 2.0 ** (7 * np.arange(_TIME_BYTES))
"""Of the bytes of a varint; sums are exact below 2**53."""
_MORE = np.array([0x80] * (_TIME_BYTES - 1) + [0], np.uint8)
"""Highest bits of the bytes of a time: all but the last one are followed by another one."""


class SampleTail:
    """Last bytes of a series of version 1: its only sample, decoded for many series at once. It has a value, or none:
    senders leave out a value of 0. They write the labels first, so the bytes before it are a key of the labels.

    `before` and `own` divide the bytes of a series."""

    def __init__(self, has_value: bool) -> None:
        value: list[Any] = [("value_tag", "u1"), ("value", "<i8")] if has_value else []
        self._row = np.dtype([("tag", "u1"), ("length", "u1"), *value, ("time_tag", "u1"), ("time", "u1", _TIME_BYTES)])
        self._has_value, self.size = has_value, self._row.itemsize
        self.before: Part = itemgetter(slice(None, -self.size))
        self.own: Part = itemgetter(slice(-self.size, None))

    def decode(self, tails: bytes) -> tuple[Flags, Ints, Ints]:
        """Return for each tail of `size` bytes: True if it has this form, its time, and the bits of its value."""
        rows = np.frombuffer(tails, self._row)
        varint = rows["time"]
        good: Flags = (rows["tag"] == _SAMPLE) & (rows["length"] == self.size - 2) & (rows["time_tag"] == _TIME)
        good &= ((varint & 0x80) == _MORE).all(axis=1)
        time_ms: Ints = (varint & 0x7F).astype(np.float64) @ _WEIGHTS
        if not self._has_value:
            return good, time_ms.astype(np.int64), np.zeros(len(rows), np.int64)
        return good & (rows["value_tag"] == _VALUE), time_ms.astype(np.int64), rows["value"].astype(np.int64)


TAILS = (SampleTail(True), SampleTail(False))


class RemoteWriteReader(ReceivedColumns):
    """Reads the bodies of one sender. Keys are the labels of a series, or the bytes before its only sample.

    `_table`: the keys that are bytes; `_symbols`: those that are symbols of version 2, both if the machine has the
    functions."""

    def read(self, body: bytes, form: str) -> ReceivedSamples:
        """Read a compressed body of version "1" or "2". Raises BodyError."""
        made, data = SampleColumns(), _decompress(body)
        try:
            if form == "1":
                self._read_1(data, made)
            else:
                self._read_2(data, made)
        except DecodeError as problem:
            text = f"the body cannot be parsed as protobuf of remote write {form}.0: {problem}"
            raise BodyError(text) from None
        return made.finish(self.metadata())

    def forget(self) -> None:
        super().forget()
        self._table: KnownSeries | None = None
        self._symbols: KnownSymbols | None = None

    def keep(self, key: Hashable, column: int) -> None:
        if self._table is None or not isinstance(key, bytes) or not self._table.add(key, column):
            super().keep(key, column)

    def _read_1(self, data: bytes, made: SampleColumns) -> None:
        if self._table is None and (kernels := series_kernels()) is not None:
            self._table = KnownSeries(kernels)
            self.tables.append(self._table)
        if self._table is None:
            others = self._add_known(self._series_of(data), made)
        else:
            others = self._add_of_table(self._table, data, made)
        for at, raw in others:
            self._add_raw("Series1", raw, None, at + 1, made)

    def _series_of(self, data: bytes) -> list[bytes]:
        """Return the series of a request; take its metadata."""
        request = MESSAGES["Request1"].FromString(data)
        _check_count(request.series, "series")
        _check_count(request.metadata, "metadata")
        self._learn(request.metadata)
        return list(request.series)

    def _read_2(self, data: bytes, made: SampleColumns) -> None:
        if self._symbols is None and (kernels := series_kernels()) is not None:
            self._symbols = KnownSymbols(kernels)
            self.tables += self._symbols.tables
        if self._symbols is None or not self._add_of_symbols(self._symbols, data, made):
            self._add_request(data, made, None)

    def _add_of_symbols(self, known: KnownSymbols, data: bytes, made: SampleColumns) -> bool:
        """Add the samples of a body of version 2, those of known series by the table. Return False if it has other
        fields or too many."""
        spans = divide(known.kernels, data, 2 * MAX_SERIES)
        if spans is None:
            return False
        symbols, series = spans.of_tag(_SYMBOL_TAG), spans.of_tag(_SERIES_TAG)
        counts = len(symbols.tag), len(series.tag)
        if sum(counts) < len(spans.tag) or max(counts) > MAX_SERIES:
            return False
        is_known, found = known.read(data, symbols, series)
        kept = np.flatnonzero(found.column >= 0)
        samples = found.pick(kept)
        made.add_doubles(samples.column, samples.time_ms, samples.cell, kept + 1, samples.birth_ms)
        missed = found.column == UNKNOWN
        if not is_known.all() or missed.any():
            known.remember(data, symbols, series, self._add_request(data, made, missed))
        return True

    def _add_request(self, data: bytes, made: SampleColumns, wanted: Flags | None) -> Ints:
        """Add the series of a request of version 2 that are in a mask, None: all. Return their columns, UNKNOWN of the
        others and of those that are refused."""
        request = MESSAGES["Request2"].FromString(data)
        _check_count(request.series, "series")
        _check_count(request.symbols, "symbols")
        symbols = list(request.symbols)
        column = np.full(len(request.series), UNKNOWN, np.int64)
        for at in range(len(column)) if wanted is None else np.flatnonzero(wanted).tolist():
            column[at] = self._add_raw("Series2", request.series[at], symbols, at + 1, made)
        return column

    def _add_raw(self, message: str, raw: bytes, symbols: list[str] | None, number: int, made: SampleColumns) -> int:
        """Add the samples of one series; return its column, UNKNOWN if it is refused."""
        if len(raw) <= MAX_SERIES_BYTES:
            return self._add(MESSAGES[message].FromString(raw), raw, symbols, number, made)
        made.rejected.add("too large", f"a series of {len(raw):,} bytes, at most {MAX_SERIES_BYTES:,}", 1, number)
        return UNKNOWN

    def _add_of_table(self, table: KnownSeries, data: bytes, made: SampleColumns) -> list[tuple[int, bytes]]:
        """Do the same as `_add_known`, with the series of a request by the table."""
        spans = divide(table.kernels, data, MAX_SERIES)
        if spans is None or (spans.tag != _SERIES_1_TAG).any():
            raws = self._series_of(data)
            data, length = b"".join(raws), np.array([len(raw) for raw in raws], np.int64)
            spans = Spans(np.full(len(raws), _SERIES_1_TAG), np.cumsum(length) - length, length)
        found = table.read(data, spans)
        kept, missed = np.flatnonzero(found.column >= 0), np.flatnonzero(found.column == UNKNOWN)
        samples = found.pick(kept)
        made.add_doubles(samples.column, samples.time_ms, samples.cell, kept + 1)
        places = zip(missed.tolist(), spans.start[missed].tolist(), spans.length[missed].tolist(), strict=True)
        return [(at, data[first : first + size]) for at, first, size in places]

    def _add_known(self, raws: list[bytes], made: SampleColumns) -> list[tuple[int, bytes]]:
        """Add the samples of the series whose labels are known by their bytes and that have one sample, at their end.
        Return places and bytes of the others."""
        place, left = np.arange(len(raws)), raws
        for tail in TAILS:
            column = np.array(self.known_of(map(tail.before, left)), np.int64)
            hit = column != UNKNOWN
            hits, missed = (left, []) if bool(hit.all()) else _divided(left, hit)
            good, time_ms, cell = tail.decode(b"".join(map(tail.own, hits)))
            kept = good & (column[hit] != DROPPED)
            made.add_doubles(column[hit][kept], time_ms[kept], cell[kept], place[hit][kept] + 1)
            odd = place[hit][~good]
            place, left = np.concatenate([place[~hit], odd]), [*missed, *(raws[at] for at in odd.tolist())]
        return [(at, raws[at]) for at in sorted(place.tolist())]

    def _add(self, one: Any, raw: bytes, symbols: list[str] | None, number: int, made: SampleColumns) -> int:
        """Add the samples of one series; `symbols` None: version 1. Return its column, UNKNOWN if it is refused."""
        if one.histograms:
            made.rejected.add("native histogram", "native histograms are not supported", len(one.histograms), number)
        try:
            at = self._column_of(one, raw, symbols)
        except (LabelError, UnicodeError) as problem:
            made.rejected.add(BAD, str(problem), max(1, len(one.samples)), number)
            return UNKNOWN
        if at != DROPPED:
            created = one.created_timestamp if symbols is not None else 0
            for sample in one.samples:
                made.add(at, sample.timestamp, sample.value, number, sample.start_timestamp or created)
        return at

    def _column_of(self, one: Any, raw: bytes, symbols: list[str] | None) -> int:
        """Return the column of a series, from its labels if they are known. Raises LabelError."""
        if len(one.labels) > 2 * MAX_LABELS:
            raise LabelError(f"a series has more than {MAX_LABELS} labels")
        key = tuple(one.labels)
        if symbols is not None:
            try:
                key = tuple([symbols[place] for place in one.labels])
            except IndexError:
                raise LabelError("a label refers to a symbol that is not there") from None
        at = self.known(key)
        if at is None:
            labels = _labels_1(one.labels) if symbols is None else _labels_2(key)
            name = labels.pop(NAME, "")
            if not name:
                raise LabelError("a series has no label __name__")
            if symbols is not None and one.HasField("metadata"):
                self._learn_2(symbols, name, one.metadata)
            before = _prefix(one, raw) if symbols is None else b""
            at = self.add(before or key, len(raw), name, labels)
        return at

    def _learn(self, told: Any) -> None:
        """Take the metadata of version 1, which mostly comes in requests of its own."""
        for raw in told:
            if len(raw) <= MAX_SERIES_BYTES:
                one = MESSAGES["Metadata1"].FromString(raw)
                self.take_family(one.name, _type(one.type), one.help, one.unit)

    def _learn_2(self, symbols: list[str], name: str, told: Any) -> None:
        """Take the metadata of a series of version 2, which are those of its family."""
        help_, unit = (symbols[place] if place < len(symbols) else "" for place in (told.help, told.unit))
        kind = _type(told.type)
        self.take_family(family_name(name, kind), kind, help_, unit)


def _decompress(body: bytes) -> bytes:
    """Decompress a snappy block. Raises BodyError."""
    try:
        return decompress_block(body, MAX_DECODED_BYTES)
    except SnappyError as problem:
        raise BodyError(str(problem)) from None


def _check_count(parts: Sized, name: str) -> None:
    if len(parts) > MAX_SERIES:
        raise BodyError(f"the body has {len(parts):,} {name}, at most {MAX_SERIES:,}: send less at once")


def _divided(all_: list[bytes], mask: Flags) -> tuple[list[bytes], list[bytes]]:
    """Divide elements by a mask; return those in it and the others."""
    return list(compress(all_, mask.tolist())), list(compress(all_, (~mask).tolist()))


def _prefix(one: Any, raw: bytes) -> bytes:
    """Return the bytes before the only sample of a series, if they are its labels alone; else b""."""
    if len(one.samples) != 1 or one.histograms:
        return b""
    for tail in TAILS:
        before = tail.before(raw)
        if bool(tail.decode(tail.own(raw).rjust(tail.size))[0][0]) and before == _written(one.labels):
            return before
    return b""


def _written(labels: Iterable[bytes]) -> bytes:
    return bytes(MESSAGES["Series1"](labels=labels).SerializeToString())


def _labels_1(pairs: Iterable[bytes]) -> Labels:
    found = [MESSAGES["Label"].FromString(pair) for pair in pairs]
    return _unique([(one.name, one.value) for one in found])


def _labels_2(texts: tuple[str, ...]) -> Labels:
    if len(texts) % 2:
        raise LabelError("a series has a label without a value")
    return _unique(list(zip(texts[::2], texts[1::2], strict=True)))


def _unique(pairs: list[tuple[str, str]]) -> Labels:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise LabelError("a series has a label twice")
    return {name: value for name, value in found.items() if value}


def _type(number: int) -> str:
    return FAMILY_TYPES[number] if number < len(FAMILY_TYPES) else ""


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
