"""Remote read: samples and streamed chunks as Prometheus decodes them, and hostile requests."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artimon.api.api_limits import ApiLimits
from artimon.api.xor_chunks import encode_chunks
from artimon.runtime.remote_read_messages import MESSAGES
from artimon.runtime.snappy_block import compress_block, decompress_block
from query_dsl.promql.promql_settings import PromqlSettings
from tests.api.serving import EDGE, Answer, Client, everything, minutes, served
from tests.query_dsl.plain_store import MINUTE, PlainStore
from tests.sources.receive.bodies import by_length, number, varint, whole

HEADERS = {
    "content-type": "application/x-protobuf",
    "content-encoding": "snappy",
    "x-prometheus-remote-read-version": "0.1.0",
}
EVERYTHING = (0, EDGE + MINUTE)
STALE = struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000002))[0]
Series = dict[tuple[tuple[str, str], ...], list[tuple[int, float]]]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    store = PlainStore()
    for host in range(3):
        store.add("load", {"host": f"h{host}"}, minutes([host + 0.25 * i for i in range(40)]))
    store.add("gone", {}, minutes([7.0, 8.0], last=5), ended=EDGE - 4 * MINUTE)
    store.add("text", {}, minutes(["a", "b"]))
    with served(store, limits=ApiLimits(cells_answered=1_000)) as found:
        yield found


def matcher(kind: int, name: str, value: str) -> bytes:
    return whole(3, number(1, kind) + whole(2, name.encode()) + whole(3, value.encode()))


def query(*matchers: bytes, start: int = EVERYTHING[0], end: int = EVERYTHING[1]) -> bytes:
    return whole(1, number(1, start) + number(2, end) + b"".join(matchers))


def ask(client: Client, *queries: bytes, accepted: tuple[int, ...] = ()) -> Answer:
    body = b"".join(queries) + b"".join(number(2, kind) for kind in accepted)
    return client.send("POST", "/api/v1/read", compress_block(body), HEADERS)


def labels_of(series: Any) -> tuple[tuple[str, str], ...]:
    return tuple((one.name, one.value) for one in series.labels)


def samples_of(answer: Answer) -> list[Series]:
    assert answer.status == 200, answer.body
    assert answer.headers["content-encoding"] == "snappy"
    response = MESSAGES["ReadResponse"].FromString(decompress_block(answer.body, 1 << 24))
    return [
        {labels_of(one): [(s.timestamp, s.value) for s in one.samples] for one in result.timeseries}
        for result in response.results
    ]


def streamed(answer: Answer) -> dict[int, Series]:
    """Decode the frames; each is checked."""
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"].startswith("application/x-streamed-protobuf")
    found: dict[int, Series] = {}
    data, at = answer.body, 0
    while at < len(data):
        size, at = read_varint(data, at)
        checksum, message = data[at : at + 4], data[at + 4 : at + 4 + size]
        at += 4 + size
        assert crc32c.crc32c(message) == int.from_bytes(checksum, "big")
        response = MESSAGES["ChunkedResponse"].FromString(message)
        for series in response.series:
            points = [point for chunk in series.chunks for point in decode(chunk.data)]
            assert (points[0][0], points[-1][0]) == (series.chunks[0].min_time_ms, series.chunks[-1].max_time_ms)
            found.setdefault(response.query_index, {})[labels_of(series)] = points
    return found


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def decode(data: bytes) -> list[tuple[int, float]]:
    """Decode a chunk bit by bit, as its description says."""
    count, (zigzag, at) = int.from_bytes(data[:2], "big"), read_varint(data, 2)
    time, bits = (zigzag >> 1) ^ -(zigzag & 1), int.from_bytes(data[at : at + 8], "big")
    found, delta, window, at = [(time, bits)], 0, (0, 0), at + 8
    if count > 1:
        delta, at = read_varint(data, at)
    rest = iter("".join(f"{byte:08b}" for byte in data[at:]))

    def take(n: int) -> int:
        return int("".join(next(rest) for _ in range(n)) or "0", 2)

    for i in range(1, count):
        if i > 1:
            ones = next((n for n in range(4) if not take(1)), 4)
            width = (0, 14, 17, 20, 64)[ones]
            change = take(width)
            delta += change - (1 << width) if width and change > 1 << (width - 1) else change
        time += delta
        if take(1):
            if take(1):
                leading, width = take(5), take(6) or 64
                window = (leading, 64 - leading - width)
            bits ^= take(64 - sum(window)) << window[1]
        found.append((time, bits))
    return [(t, struct.unpack("<d", struct.pack("<Q", b))[0]) for t, b in found]


times = st.lists(st.integers(1, 1 << 40), min_size=1, max_size=300).map(lambda steps: np.cumsum(steps))
doubles = st.one_of(st.floats(width=64), st.integers(-5, 5).map(float), st.just(STALE))


@given(st.data(), times)
def test_chunks_are_decoded_to_what_was_encoded(data: st.DataObject, times_ms: Any) -> None:
    few = data.draw(st.lists(doubles, min_size=1, max_size=8))
    values = np.resize(np.array(few), len(times_ms))
    chunks = list(encode_chunks(times_ms.astype(np.int64), values))
    assert all(1 <= int.from_bytes(one.data[:2], "big") <= 120 for one in chunks)
    decoded = [point for one in chunks for point in decode(one.data)]
    assert [time for time, _ in decoded] == times_ms.tolist()
    assert np.array([value for _, value in decoded]).tobytes() == values.tobytes()


def test_samples_are_those_of_the_store_in_both_forms(client: Client) -> None:
    asked = (query(matcher(0, "__name__", "load"), matcher(2, "host", "h[12]")), query(matcher(0, "__name__", "gone")))
    found = samples_of(ask(client, *asked))
    assert list(found[0]) == [(("__name__", "load"), ("host", f"h{i}")) for i in (1, 2)]
    assert found[0][("__name__", "load"), ("host", "h1")] == minutes([1 + 0.25 * i for i in range(40)])
    points = found[1][(("__name__", "gone"),)]
    assert points[:2] == minutes([7.0, 8.0], last=5)
    assert struct.pack("<d", points[2][1]) == struct.pack("<d", STALE)
    chunked = streamed(ask(client, *asked, accepted=(1, 0)))
    assert repr(list(chunked.values())) == repr(found)


def test_the_first_accepted_form_that_is_known_is_sent(client: Client) -> None:
    asked = query(matcher(0, "__name__", "load"))
    assert len(samples_of(ask(client, asked, accepted=(0, 1)))[0]) == 3
    assert len(samples_of(ask(client, asked, accepted=(7,)))[0]) == 3
    assert len(streamed(ask(client, asked, accepted=(7, 1)))[0]) == 3


def test_both_ends_of_the_range_are_included_and_texts_left_out(client: Client) -> None:
    newest = EDGE - 1
    found = samples_of(
        ask(
            client,
            query(matcher(2, "__name__", "load|text"), start=newest - MINUTE, end=newest),
            query(matcher(0, "__name__", "no"), matcher(1, "host", "h1")),
            query(matcher(0, "__name__", "load"), matcher(1, "host", "h1"), matcher(3, "host", "h2.*")),
        )
    )
    assert [len(one) for one in found] == [3, 0, 1]
    assert {time for points in found[0].values() for time, _ in points} == {newest - MINUTE, newest}


@pytest.mark.parametrize(
    ("similar", "names"),
    [(False, [["c_total"], [], ["c_total"]]), (True, [["c.total", "c_total"], ["c_total"], ["c_total"]])],
)
def test_similar_names_are_found_if_the_process_has_that_setting(similar: bool, names: list[list[str]]) -> None:
    store = PlainStore().add("c.total", {}, minutes([1])).add("c_total", {"job": "a"}, minutes([2]))
    asked = (
        query(matcher(0, "__name__", "c_total")),
        query(matcher(0, "__name__", "c.total"), matcher(1, "job", "")),
        query(matcher(2, "__name__", "c_total")),
    )
    with served(store, promql=PromqlSettings(similar_names=similar)) as client:
        found = samples_of(ask(client, *asked))
        chunked = streamed(ask(client, *asked, accepted=(1,)))
    assert [[dict(labels)["__name__"] for labels in one] for one in found] == names
    assert chunked == {index: one for index, one in enumerate(found) if one}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"\xff\xff\xff\xff\x0f", "at most 1,048,576"),
        (compress_block(b"\0" * 1_250_000), "1,250,000 bytes decompressed"),
        (b"\x05abc", "snappy"),
        (compress_block(b"\x0a\xff\xff"), "ReadRequest"),
        (compress_block(b"".join(query(matcher(0, "a", "b")) for _ in range(40))), "at most 16"),
        (compress_block(query(*(matcher(0, f"l{i}", "v") for i in range(10_000)))), "at most 100"),
        (compress_block(query(matcher(9, "a", "b"))), "has the type 9"),
        (compress_block(query(matcher(2, "a", "("))), "("),
        (compress_block(query(matcher(1, "a", ""))), "needs a matcher"),
        (compress_block(query()), "needs a matcher"),
        (compress_block(query(matcher(0, "a", "b"), start=2, end=1)), "before its start"),
        (compress_block(varint(1 << 3 | 2) + varint(-5)), "ReadRequest"),
    ],
    ids=by_length,
)
def test_hostile_requests_are_refused(client: Client, body: bytes, told: str) -> None:
    found = client.send("POST", "/api/v1/read", body, HEADERS)
    assert (found.status, found.json["status"], found.json["errorType"]) == (400, "error", "bad_data")
    assert told in found.json["error"]


def test_times_beyond_all_are_no_error(client: Client) -> None:
    widest = query(matcher(0, "__name__", "load"), start=-(1 << 63), end=(1 << 63) - 1)
    assert len(samples_of(ask(client, widest))[0]) == 3


def test_more_samples_than_the_limit_are_refused(client: Client) -> None:
    every = query(matcher(2, "__name__", ".+"))
    found = ask(client, *(every for _ in range(16)))
    assert (found.status, found.json["errorType"]) == (422, "execution")
    assert "1000 samples (cells_answered)" in found.json["error"]


def test_other_encodings_and_large_bodies_are_refused(client: Client) -> None:
    plain = {**HEADERS, "content-encoding": "identity"}
    assert client.send("POST", "/api/v1/read", b"", plain).status == 415
    assert client.send("POST", "/api/v1/read", b"x" * 300_000, HEADERS).status == 413
    assert client.send("POST", "/api/v1/query", b"query=1", {"content-encoding": "snappy"}).status == 415
    assert client.send("POST", "/api/query", b"q=1", {"content-encoding": "snappy"}).status == 415
    assert client.send("POST", "/api/query", b"q=1", {"content-encoding": "gzip"}).status == 415


def test_a_slow_body_is_given_up(client: Client) -> None:
    with served(PlainStore(), limits=ApiLimits(body_s=0.2)) as slow:
        head = b"POST /api/v1/read HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: snappy\r\nContent-Length: 9\r\n\r\n"
        assert everything(slow.raw(head + b"abc")).startswith(b"HTTP/1.1 408")
