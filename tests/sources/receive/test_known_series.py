"""Series of remote write by the compiled table: the same as by the dictionary in Python, for any bytes."""

from __future__ import annotations

import ctypes
import mmap
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from artimon.runtime.compiled_library import address
from sources.receive import remote_write
from sources.receive.known_series import KnownSeries, _Samples, known_series
from sources.receive.protobuf_messages import MESSAGES
from sources.receive.received_columns import UNKNOWN, BodyError, ReceivedSamples
from sources.receive.remote_write import MAX_SERIES, RemoteWriteReader
from sources.state.relabel import RelabelRules, make_relabel_rule
from tests.seeds import fixed_and_drawn
from tests.sources.receive.bodies import metadata_1, number, odd_series, packed, sample, series_1, whole
from tests.sources.receive.sender import T, told

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on this machine")
LABELS = {"__name__": "up", "job": "node"}


def table() -> KnownSeries:
    made = known_series()
    assert made is not None
    return made


class PlainReader(RemoteWriteReader):
    """Reader of a machine without a compiler."""

    def read(self, body: bytes, form: str) -> ReceivedSamples:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(remote_write, "known_series", lambda: None)
            return super().read(body, form)


def outcome(reader: RemoteWriteReader, data: bytes) -> object:
    try:
        return told(reader.read(packed(data), "1"), reader)
    except BodyError as problem:
        return str(problem)


def mutated(data: bytes, dice: random.Random) -> bytes:
    """Return bytes with a few of them changed, removed or added, or cut off."""
    found = bytearray(data)
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(len(found) + 1)
        found[at : at + dice.randrange(3)] = dice.randbytes(dice.randrange(3))
    return bytes(found[: dice.randrange(len(found) + 1)] if dice.random() < 0.1 else found)


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
    dice, ours, divided = random.Random(seed), table(), 0
    for _ in range(2_000):
        data = b"".join(whole(1, dice.randbytes(dice.choice((0, 1, 5, 127, 128, 300)))) for _ in range(4))
        data = mutated(data, dice) if dice.random() < 0.7 else data
        spans = ours.divide(data, MAX_SERIES)
        if spans is None:
            continue
        divided += 1
        found = [data[start : start + length] for start, length in zip(*(one.tolist() for one in spans), strict=True)]
        assert found == list(MESSAGES["Request1"].FromString(data).series)
    assert divided > 500


@pytest.mark.parametrize(
    "data",
    [
        b"\x0a",
        b"\x0a\x05abcd",
        b"\x0a\x80",
        b"\x0a\x80\x80\x80\x80\x01" + b"x" * 300,
        b"\x0a" + b"\xff" * 9 + b"\x01",
        b"\x0b\x00",
        metadata_1(1, "a"),
        whole(1, b"") * 11,
    ],
    ids=["tag", "short", "cut length", "long length", "huge length", "group", "metadata", "too many"],
)
def test_other_bodies_are_not_divided(data: bytes) -> None:
    assert table().divide(data, 10) is None


def test_a_length_that_is_longer_than_needed_is_read() -> None:
    ours, data = table(), b"\x0a\x83\x80\x00abc"
    assert list(MESSAGES["Request1"].FromString(data).series) == [b"abc"]
    spans = ours.divide(data, 10)
    assert spans is not None
    assert [one.tolist() for one in spans] == [[4], [3]]


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
    columns, time_ms, cell = ours.read(data, (np.cumsum(length) - length, length))
    places = np.arange(len(keys))
    assert np.array_equal(columns, places)
    assert np.array_equal(time_ms, T + places)
    assert np.array_equal(cell, np.where(places % 2, places.astype(np.float64), 0.0).view(np.int64))


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


@contextmanager
def guarded(data: bytes) -> Iterator[int]:
    """Yield the address of bytes that end where a page without access begins."""
    page = mmap.PAGESIZE
    size = -(-max(1, len(data)) // page) * page
    memory = mmap.mmap(-1, size + page)
    held = np.frombuffer(memory, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    protect = libc.mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    first = address(held)
    held[size - len(data) : size] = np.frombuffer(data, np.uint8)
    assert protect(first + size, page, 0) == 0
    try:
        yield first + size - len(data)
    finally:
        assert protect(first + size, page, mmap.PROT_READ | mmap.PROT_WRITE) == 0
        del held
        memory.close()


@pytest.mark.parametrize("seed", fixed_and_drawn([1], "bytes at the end of a page"))
def test_nothing_is_read_beyond_a_body(seed: int) -> None:
    """A read of the page behind the body would end the process."""
    dice, ours = random.Random(seed), table()
    known = series_1(LABELS, [(T, 1.0)])
    ours.add(known[2 : -len(whole(2, sample(T, 1.0)))], 7)
    hits = 0
    for turn in range(600):
        data = known[: dice.randrange(len(known) + 1)] if turn % 2 else mutated(known * 2, dice)
        spans = np.empty((2, 10), np.int64)
        found = np.empty((3, 10), np.int64)
        with guarded(data) as first:
            count = ours._kernels.divide(len(data), first, 10, address(spans[0]), address(spans[1]))
            for n, start, length in ((count, spans[0], spans[1]), (1, np.zeros(1, np.int64), np.array([len(data)]))):
                if n > 0:
                    samples = _Samples(n, *map(address, (start, length, *found)))
                    ours._kernels.read_known(ctypes.byref(ours._table()), first, ctypes.byref(samples))
                    hits += int((found[0, :n] == 7).sum())
                    assert set(found[0, :n].tolist()) <= {7, UNKNOWN}
    assert hits > 50
