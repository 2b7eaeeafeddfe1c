"""Series of remote write by the compiled table: the same as by the dictionary in Python, for any bytes."""

from __future__ import annotations

import ctypes
import random
import shutil
from itertools import permutations

import numpy as np
import pytest

from artimon.runtime.compiled_library import address
from sources.receive import remote_write
from sources.receive.key_table import MAX_CACHED, UNKNOWN
from sources.receive.known_series import KnownSeries, Spans, _Samples, divide, series_kernels
from sources.receive.protobuf_messages import MESSAGES
from sources.receive.received_columns import BodyError, ReceivedSamples
from sources.receive.remote_write import MAX_SERIES, RemoteWriteReader
from sources.state.relabel import RelabelRules, make_relabel_rule
from tests.seeds import fixed_and_drawn
from tests.sources.receive.bodies import (
    metadata_1,
    number,
    odd_series,
    odd_series_2,
    packed,
    sample,
    series_1,
    varint,
    whole,
)
from tests.sources.receive.guarded_bytes import guarded, mutated
from tests.sources.receive.sender import T, told

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on this machine")
LABELS = {"__name__": "up", "job": "node"}


def table() -> KnownSeries:
    kernels = series_kernels()
    assert kernels is not None
    return KnownSeries(kernels)


def divided(data: bytes, most: int) -> Spans | None:
    return divide(table().kernels, data, most)


class PlainReader(RemoteWriteReader):
    """Reader of a machine without a compiler."""

    def read(self, body: bytes, form: str) -> ReceivedSamples:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(remote_write, "series_kernels", lambda: None)
            return super().read(body, form)


def outcome(reader: RemoteWriteReader, data: bytes, form: str = "1") -> object:
    try:
        return told(reader.read(packed(data), form), reader)
    except BodyError as problem:
        return str(problem)


@pytest.mark.parametrize("seed", fixed_and_drawn([1, 2, 3], "known series by table"))
def test_the_table_reads_what_the_dictionary_does(seed: int) -> None:
    dice = random.Random(seed)
    rules = RelabelRules((make_relabel_rule("no", source_labels=["__name__"], regex="m7", action="drop"),))
    ours, plain = RemoteWriteReader(rules), PlainReader(rules)
    for _ in range(60):
        parts = odd_series(dice, T)
        if dice.random() < 0.3:
            parts.insert(dice.randrange(len(parts)), metadata_1(1, "m1", "One."))
        data = b"".join(parts)
        for body in (data, data, *(mutated(data, dice) for _ in range(5)), *(mutated(part, dice) for part in parts)):
            assert outcome(ours, body) == outcome(plain, body)
        assert ours.metadata() == plain.metadata()
    assert len(ours.texts) == len(plain.texts)
    assert ours.cached == plain.cached
    assert ours._table is not None
    assert len(ours._table) > 5
    assert plain._table is None


@pytest.mark.parametrize("seed", fixed_and_drawn([1, 2, 3], "bodies that are divided"))
def test_bodies_are_divided_as_protobuf_does(seed: int) -> None:
    dice, count = random.Random(seed), 0
    for _ in range(2_000):
        data = b"".join(whole(1, dice.randbytes(dice.choice((0, 1, 5, 127, 128, 300)))) for _ in range(4))
        data = mutated(data, dice) if dice.random() < 0.7 else data
        spans = divided(data, MAX_SERIES)
        if spans is None or (spans.tag != 0x0A).any():
            continue
        count += 1
        places = zip(spans.start.tolist(), spans.length.tolist(), strict=True)
        found = [data[start : start + length] for start, length in places]
        assert found == list(MESSAGES["Request1"].FromString(data).series)
    assert count > 500


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05abcd",
        b"\x0a\x80",
        b"\x0a\x80\x80\x80\x80\x01" + b"x" * 300,
        b"\x0a" + b"\xff" * 9 + b"\x01",
        b"\x0b\x00",
        b"\x02\x00",
        number(1, 7),
        whole(1, b"") * 11,
    ],
    ids=["tag", "short", "cut length", "long length", "huge length", "group", "field 0", "number", "too many"],
)
def test_other_bodies_are_not_divided(data: bytes) -> None:
    assert divided(data, 10) is None


def test_a_length_that_is_longer_than_needed_is_read() -> None:
    data = b"\x0a\x83\x80\x00abc" + metadata_1(1, "a")
    assert list(MESSAGES["Request1"].FromString(data).series) == [b"abc"]
    spans = divided(data, 10)
    assert spans is not None
    assert [one.tolist() for one in spans] == [[0x0A, 0x1A], [4, 9], [3, len(data) - 9]]


def test_the_table_grows_and_knows_each_key() -> None:
    """Keys of all lengths, most of them alike but for a byte."""
    ours, dice = table(), random.Random(5)
    keys = list({dice.randbytes(1) * dice.randrange(40) + dice.randbytes(dice.randrange(1, 4)) for _ in range(30_000)})
    keys.append(b"k" * 500_000)
    for column, key in enumerate(keys):
        assert ours.add(key, column)
        assert ours.add(key, column)
    assert len(ours) == len(keys)
    tails = [whole(2, sample(T + at, float(at))) if at % 2 else whole(2, number(2, T + at)) for at in range(len(keys))]
    data = b"".join(key + tail for key, tail in zip(keys, tails, strict=True))
    length = np.array([len(key) + len(tail) for key, tail in zip(keys, tails, strict=True)], np.int64)
    found = ours.read(data, Spans(length, np.cumsum(length) - length, length))
    places = np.arange(len(keys))
    assert np.array_equal(found.column, places)
    assert np.array_equal(found.time_ms, T + places)
    assert np.array_equal(found.cell, np.where(places % 2, places.astype(np.float64), 0.0).view(np.int64))


def test_keys_without_a_place_are_read_all_the_same() -> None:
    """A table whose slots are all taken, as if every key collided."""
    ours, plain = RemoteWriteReader(None), PlainReader(None)
    data = b"".join(series_1({**LABELS, "n": str(n)}, [(T, float(n))]) for n in range(100))
    outcome(ours, b"")
    assert ours._table is not None
    ours._table._slots[:, 2] = 1 << 40
    for _ in range(2):
        assert outcome(ours, data) == outcome(plain, data)
    assert len(ours._table) == 0


def test_a_table_has_a_limit() -> None:
    ours = table()
    ours._table.most = 3
    assert [ours.add(bytes([n]), n) for n in (1, 2, 3, 4, 2)] == [True, True, True, False, True]
    assert len(ours) == 3


@pytest.mark.parametrize("seed", fixed_and_drawn([1, 2, 3], "series by their symbols"))
def test_series_by_symbols_are_read_as_messages_are(seed: int) -> None:
    """Bodies have the same series in other orders, so that their symbols have other places."""
    dice = random.Random(seed)
    rules = RelabelRules((make_relabel_rule("no", source_labels=["__name__"], regex="m7", action="drop"),))
    ours, plain = RemoteWriteReader(rules), PlainReader(rules)
    for _ in range(60):
        data = odd_series_2(dice, T)
        for body in (data, data, *(mutated(data, dice) for _ in range(8))):
            assert outcome(ours, body, "2") == outcome(plain, body, "2")
        assert ours.metadata() == plain.metadata()
    assert ours._symbols is not None
    assert min(map(len, ours._symbols.tables)) > 20
    assert plain._symbols is None


def test_known_series_by_symbols_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the order of series, and so of symbols, in a body."""
    reader = RemoteWriteReader(None)
    names = ("a", "b", "c")
    symbols = ["", "__name__", "job", "node", *names]

    def body(order: tuple[str, ...], time_ms: int) -> bytes:
        texts = [*symbols[:4], *order, "Help."]
        parts = [whole(4, text.encode()) for text in texts]
        for name in order:
            refs = b"".join(varint(texts.index(text)) for text in ("__name__", name, "job", "node"))
            own = whole(1, refs) + whole(2, sample(time_ms, float(ord(name)), T - 5)) + whole(4, b"exemplar")
            parts.append(whole(5, own + whole(5, number(1, 1) + number(3, texts.index("Help.")))))
        return b"".join(parts)

    assert outcome(reader, body(names, T), "2")
    monkeypatch.setattr(reader, "_add_request", None)
    for turn, order in enumerate(permutations(names), 1):
        received = reader.read(packed(body(order, T + turn)), "2").columns
        found = [reader.texts[at] for at in received.column.tolist()]
        assert found == [f'{name}{{job="node"}}' for name in order]
        assert received.cell.view(np.float64).tolist() == [float(ord(name)) for name in order]
        assert received.time_ms.tolist() == [T + turn] * 3
        assert received.birth_ms is not None
        assert received.birth_ms.tolist() == [T - 5] * 3


def test_tables_of_symbols_grow_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, plain = RemoteWriteReader(None), PlainReader(None)
    for first in (0, 3_000, 0):
        texts = ["", "__name__", *(f"m{n}" + "x" * 50 for n in range(first, first + 3_000))]
        series = [whole(5, whole(1, varint(1) + varint(at)) + whole(2, sample(T, 1.0))) for at in range(2, len(texts))]
        data = b"".join([*(whole(4, text.encode()) for text in texts), *series])
        assert outcome(reader, data, "2") == outcome(plain, data, "2")
    assert [len(one) for one in reader.tables] == [6_001, 6_000]
    monkeypatch.setattr("sources.receive.received_columns.MAX_CACHED_BYTES", 100_000)
    reader.trim()
    assert reader.cached == 0
    assert MAX_CACHED > 0


def test_too_many_series_or_symbols_are_refused_though_they_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_write, "MAX_SERIES", 10)
    reader = RemoteWriteReader(None)
    symbols = whole(4, b"") + whole(4, b"__name__") + whole(4, b"up")
    one = whole(5, whole(1, b"\1\2") + whole(2, sample(T, 1.0)))
    assert not isinstance(outcome(reader, symbols + one, "2"), str)
    assert "11 series" in str(outcome(reader, symbols + one * 11, "2"))
    assert "12 symbols" in str(outcome(reader, symbols * 4 + one, "2"))


@pytest.mark.parametrize("seed", fixed_and_drawn([1], "bytes at the end of a page"))
def test_nothing_is_read_beyond_a_body(seed: int) -> None:
    """A read of the page behind the body would end the process."""
    dice, ours = random.Random(seed), table()
    known = series_1(LABELS, [(T, 1.0)])
    ours.add(known[2 : -len(whole(2, sample(T, 1.0)))], 7)
    hits = 0
    for turn in range(1_500):
        data = known[: dice.randrange(len(known) + 1)] if turn % 2 else mutated(known * 2, dice)
        spans = np.empty((3, 10), np.int64)
        with guarded(data) as first:
            count = ours.kernels.divide(len(data), first, 10, *map(address, spans))
            parts = Spans(*spans[:, : max(0, count)])
            for part in (parts, Spans(*np.array([[0x0A], [0], [len(data)]]))):
                samples = _Samples(part)
                ours.kernels.read_known(ours.reference, first, ctypes.byref(samples))
                hits += int((samples.found.column == 7).sum())
                assert set(samples.found.column.tolist()) <= {7, UNKNOWN}
    assert hits > 50


@pytest.mark.parametrize("seed", fixed_and_drawn([1], "symbols at the end of a page"))
def test_nothing_is_read_beyond_a_series_of_version_2(seed: int) -> None:
    dice, reader = random.Random(seed), RemoteWriteReader(None)
    symbols = b"".join(whole(4, text) for text in (b"", b"__name__", b"up"))
    known = whole(1, b"\1\2") + whole(2, sample(T, 1.0, T)) + whole(5, number(1, 1)) + number(6, T)
    outcome(reader, symbols + whole(5, known), "2")
    tables, hits = reader._symbols, 0
    assert tables is not None
    texts = _Samples(Spans(*np.array([[0] * 3, [0] * 3, [0] * 3])))
    texts.found.column[:] = (0, 1, 2)  # as if they were numbered
    for turn in range(1_500):
        data = known[: dice.randrange(len(known) + 1)] if turn % 2 else mutated(known, dice)
        with guarded(data) as first:
            samples = _Samples(Spans(*np.array([[0x2A], [0], [len(data)]])))
            of_texts, of_samples = ctypes.byref(texts), ctypes.byref(samples)
            tables.kernels.read_symbolic(tables.tables[1].reference, first, of_texts, of_samples, False)
            hits += int(samples.found.column[0] != UNKNOWN)
    assert hits > 100
