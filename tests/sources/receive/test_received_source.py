"""Bodies of remote write into a source: stored once, ended by markers and silence, refused with a reason."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from artimon.model.protocols import SinkRefusedError
from artimon.model.values import Kind
from sources.dropin.file_parser import LineColumns
from sources.dropin.timed_series import PlacedSamples, TimedSeries
from sources.receive.received_columns import BodyError
from sources.receive.received_source import MAX_AGE_MS, SILENT_MS
from sources.receive.remote_write import MAX_DECODED_BYTES, MAX_SERIES, RemoteWriteReader
from sources.state.relabel import make_relabel_rule
from tests.seeds import fixed_and_drawn
from tests.sources.receive.bodies import (
    STALE_BYTES,
    by_length,
    metadata_1,
    number,
    odd_series,
    packed,
    request_1,
    request_2,
    series_1,
    varint,
    whole,
)
from tests.sources.receive.sender import MINUTE, Sender, T, told
from tests.sources.receive.sender import run as run_sender

UP = {"__name__": "up", "job": "node", "instance": "h1:9100"}
UP_TEXT = 'up{instance="h1:9100",job="node"}'


def run(test: Callable[[Sender], Awaitable[None]], tmp_path: Path, max_series: int = 1_000) -> None:
    run_sender(test, lambda: Sender(tmp_path / "state", RemoteWriteReader, max_series=max_series))


def test_samples_are_stored_once_however_often_they_are_sent(tmp_path: Path) -> None:
    async def test(sender: Sender) -> None:
        first = series_1(UP, [(T - 2 * MINUTE, 1.0), (T - MINUTE, 0.0)])
        assert await sender.take(first) == (2, "")
        assert await sender.take(first) == (0, "")
        assert await sender.take(series_1(UP, [(T - MINUTE, 0.0), (T, 1.5)])) == (1, "")
        for saved in (True, False):
            await sender.restart(saved)
            assert await sender.take(first, series_1(UP, [(T, 1.5)])) == (0, "")
        expected = [(UP_TEXT, T - 2 * MINUTE, 1.0), (UP_TEXT, T - MINUTE, 0.0), (UP_TEXT, T, 1.5)]
        assert sender.rows() == expected

    run(test, tmp_path)


def test_version_2_has_symbols_metadata_and_start_times(tmp_path: Path) -> None:
    async def test(sender: Sender) -> None:
        labels = {"__name__": "jobs_total", "job": "x"}
        body = request_2([(labels, [(T, 5.0)]), (UP, [(T, 1.0)])], 1, T - 10 * MINUTE, "Jobs.", "jobs")
        assert await sender.take_body(body, "2") == (2, "")
        assert await sender.take_body(body, "2") == (0, "")
        assert {born for _, _, born, _ in sender.sink.samples()} == {T - 10 * MINUTE}
        assert sender.kinds()['jobs_total{job="x"}'] == (Kind.COUNTER, "Jobs.", "jobs")

    run(test, tmp_path)


@pytest.mark.parametrize(
    ("created_ms", "start_ms", "born"),
    [
        pytest.param(T - 10 * MINUTE, 0, T - 10 * MINUTE, id="created of the series"),
        pytest.param(0, T - 5 * MINUTE, T - 5 * MINUTE, id="start of the sample"),
        pytest.param(T - 10 * MINUTE, T - 5 * MINUTE, T - 5 * MINUTE, id="both"),
        pytest.param(0, 0, 0, id="none"),
    ],
)
def test_start_times_of_version_2_are_of_the_sample_or_of_the_series(
    tmp_path: Path, created_ms: int, start_ms: int, born: int
) -> None:
    """Senders write the start into each sample, and wrote it into the series before."""

    async def test(sender: Sender) -> None:
        series = [({"__name__": "jobs_total"}, [(T - MINUTE, 5.0), (T, 6.0)])]
        assert await sender.take_body(request_2(series, 1, created_ms, start_ms=start_ms), "2") == (2, "")
        assert [one[2] for one in sender.sink.samples()] == [born, born]

    run(test, tmp_path)


def test_a_later_start_of_a_sample_begins_the_counter_anew(tmp_path: Path) -> None:
    async def test(sender: Sender) -> None:
        labels = {"__name__": "jobs_total"}
        for at, start_ms in ((T - MINUTE, T - 5 * MINUTE), (T, T - 30_000)):
            body = request_2([(labels, [(at, 5.0)])], 1, created_ms=T - 10 * MINUTE, start_ms=start_ms)
            assert await sender.take_body(body, "2") == (1, "")
        assert [one[2] for one in sender.sink.samples()] == [T - 5 * MINUTE, T - 30_000]

    run(test, tmp_path)


def test_metadata_of_version_1_come_later(tmp_path: Path) -> None:
    async def test(sender: Sender) -> None:
        bucket = {"__name__": "wait_bucket", "le": "1"}
        gauge = {"__name__": "odd_total"}
        await sender.take(series_1(bucket, [(T, 1.0)]), series_1(gauge, [(T, 1.0)]))
        assert sender.kinds()["odd_total{}"][0] == Kind.COUNTER  # by its suffix
        await sender.take(metadata_1(3, "wait", "Waiting.", "s"), metadata_1(2, "odd_total"))
        await sender.take(series_1(bucket, [(T + 1, 2.0)]), series_1(gauge, [(T + 1, 0.0)]))
        kinds = sender.kinds()
        assert kinds['wait_bucket{le="1"}'] == (Kind.COUNTER, "Waiting.", "s")
        assert kinds["odd_total{}"][0] == Kind.GAUGE

    run(test, tmp_path)


def test_metadata_are_those_of_the_name_before_the_rules(tmp_path: Path) -> None:
    rule = make_relabel_rule("short", source_labels=["__name__"], regex="long_(.*)", target_label="__name__")

    async def test(sender: Sender) -> None:
        await sender.take(metadata_1(1, "long_jobs", "Jobs."), series_1({"__name__": "long_jobs"}, [(T, 1.0)]))
        assert sender.kinds() == {"jobs{}": (Kind.COUNTER, "Jobs.", "")}

    run_sender(test, lambda: Sender(tmp_path / "state", RemoteWriteReader, [rule]))


def test_a_counter_that_fell_begins_anew(tmp_path: Path) -> None:
    async def test(sender: Sender) -> None:
        labels = {"__name__": "jobs_total"}
        await sender.take(series_1(labels, [(T - 2 * MINUTE, 5.0), (T - MINUTE, 7.0), (T, 2.0)]))
        assert [born for _, _, born, _ in sender.sink.samples()] == [0, 0, T - MINUTE]

    run(test, tmp_path)


def test_markers_end_series(tmp_path: Path) -> None:
    async def test(sender: Sender) -> None:
        down = {**UP, "instance": "h2:9100"}
        await sender.take(series_1(UP, [(T - MINUTE, 1.0)]), series_1(down, [(T - MINUTE, 1.0)]))
        body = (series_1(UP, [(T, STALE_BYTES)]), series_1(down, [(T, 2.0)]))
        assert await sender.take(*body) == (1, "")
        assert await sender.take(*body) == (0, "")
        ends = [(text, time_ms) for text, time_ms, value in sender.rows() if value is None]
        assert (ends, sender.source.series.live) == ([(UP_TEXT, T)], 1)
        await sender.take(series_1(UP, [(T + 1, 3.0)]))
        assert sender.source.series.live == 2
        assert await sender.take(series_1(UP, [(T + 2, 3.0), (T + 3, STALE_BYTES)])) == (1, "")
        assert (UP_TEXT, T + 3, None) in sender.rows()
        unknown = {**UP, "instance": "never"}
        assert await sender.take(series_1(unknown, [(T, STALE_BYTES)])) == (0, "")

    run(test, tmp_path)


def test_markers_end_series_after_new_metadata(tmp_path: Path) -> None:
    async def test(sender: Sender) -> None:
        await sender.take(series_1(UP, [(T - MINUTE, 1.0)]))
        await sender.take(metadata_1(2, "up", "Up."))
        await sender.take(series_1(UP, [(T, STALE_BYTES)]))
        assert sender.source.series.live == 0

    run(test, tmp_path)


def test_silent_series_end(tmp_path: Path) -> None:
    async def test(sender: Sender) -> None:
        other = {**UP, "instance": "h2:9100"}
        await sender.take(series_1(UP, [(T, 1.0)]), series_1(other, [(T, 1.0)]))
        sender.clock.advance(SILENT_MS - 1)
        await sender.take(series_1(other, [(T + MINUTE, 1.0)]))
        await sender.source.end_silent()
        assert sender.source.series.live == 2
        sender.clock.advance(1)
        await sender.source.end_silent()
        assert [row for row in sender.rows() if row[2] is None] == [(UP_TEXT, T + SILENT_MS, None)]

    run(test, tmp_path)


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        (series_1({"job": "x"}, [(T, 1.0)]), "no label __name__"),
        (series_1({"__name__": "a b"}, [(T, 1.0)]), "bad name or label: line 2: variable name 'a b'"),
        (series_1({"__name__": "a", "b-c": "x"}, [(T, 1.0)]), "label name 'b-c'"),
        (series_1({"__name__": "a", **{f"l{i}": "x" for i in range(41)}}, [(T, 1.0)]), "41 labels"),
        (series_1({"__name__": "a", **{f"l{i}": "x" for i in range(10_000)}}, [(T, 1.0)]), "labels"),
        (series_1({"__name__": "a", "v": "x" * 2_000}, [(T, 1.0)]), "2000"),
        (series_1({"__name__": "a"}, [(T + 2 * MINUTE, 1.0)]), "future"),
        (series_1({"__name__": "a"}, [(T - MAX_AGE_MS - 1, 1.0)]), "too old"),
        (series_1({"__name__": "a"}, [(-5, 1.0)]), "bad time"),
        (series_1({"__name__": "a"}, [(1 << 62, 1.0)]), "bad time"),
        (series_1({"__name__": "a"}, [], whole(4, b"")), "native histogram"),
        (whole(1, whole(1, whole(1, b"__name__") + whole(2, b"a")) * 2 + whole(2, number(2, T))), "label twice"),
        (series_1({"__name__": "a"}, [(T, 1.0)] * 80_000), "too large"),
    ],
    ids=by_length,
)
def test_what_cannot_be_kept_is_named_and_the_rest_is_taken(tmp_path: Path, part: bytes, reason: str) -> None:
    async def test(sender: Sender) -> None:
        samples, fault = await sender.take(series_1(UP, [(T, 1.0)]), part)
        assert samples == 1
        assert reason in fault
        assert sender.figures.problems
        assert await sender.take(series_1(UP, [(T + 1, 1.0)])) == (1, "")
        assert not sender.figures.problems

    run(test, tmp_path)


@pytest.mark.parametrize(
    ("body", "version", "message"),
    [
        (b"", 1, ""),
        (b"no snappy at all", 1, "snappy"),
        (varint(MAX_DECODED_BYTES + 1) + b"x", 1, "at most 16,777,216"),
        (varint(1 << 31) + b"x" * 10, 1, "at most"),
        (packed(b"\xff" * 100), 1, "protobuf"),
        (packed(whole(1, b"\xff" * 10)), 1, "protobuf"),
        (packed(whole(1, b"") * (MAX_SERIES + 1)), 1, "100,001 series"),
        (packed(whole(3, b"") * (MAX_SERIES + 1)), 1, "100,001 metadata"),
        (packed(whole(4, b"") * (MAX_SERIES + 1)), 2, "100,001 symbols"),
        (packed(whole(5, whole(1, varint(9)))), 2, "symbol"),
        (packed(whole(4, b"\xff\xfe")), 2, "protobuf"),
    ],
    ids=by_length,
)
def test_bodies_that_are_none(tmp_path: Path, body: bytes, version: int, message: str) -> None:
    async def test(sender: Sender) -> None:
        try:
            samples, fault = await sender.take_body(body, str(version))
        except BodyError as problem:
            samples, fault = 0, str(problem)
        assert samples == 0
        assert message in fault

    run(test, tmp_path)


def test_too_many_series_are_refused(tmp_path: Path) -> None:
    async def test(sender: Sender) -> None:
        parts = [series_1({"__name__": "a", "n": str(n)}, [(T, 1.0)]) for n in range(20)]
        samples, fault = await sender.take(*parts)
        assert (samples, "too many series" in fault) == (10, True)

    run(test, tmp_path, max_series=10)


def test_nothing_is_remembered_of_what_the_log_refused(tmp_path: Path) -> None:
    async def test(sender: Sender) -> None:
        sender.sink.refusing = "full"
        with pytest.raises(SinkRefusedError):
            await sender.take(series_1(UP, [(T, 1.0)]))
        sender.sink.refusing = ""
        assert await sender.take(series_1(UP, [(T, 1.0)])) == (1, "")

    run(test, tmp_path)


@pytest.mark.parametrize("seed", fixed_and_drawn([3], "bytes of remote write"))
def test_no_byte_harms(tmp_path: Path, seed: int) -> None:
    async def test(sender: Sender) -> None:
        dice = random.Random(seed)
        good = [
            (packed_body, version)
            for version, packed_body in (
                (1, series_1(UP, [(T, 1.0)]) + metadata_1(1, "up", "Up.") + series_1({"__name__": "a"}, [(T, 2.0)])),
                (2, whole(4, b"") + whole(4, b"__name__") + whole(4, b"a") + whole(5, whole(1, b"\1\2"))),
            )
        ]
        for _ in range(400):
            body, version = good[dice.randrange(2)]
            data = bytearray(body)
            for _ in range(dice.randrange(1, 5)):
                at = dice.randrange(len(data))
                data[at : at + dice.randrange(3)] = dice.randbytes(dice.randrange(3))
            sent = packed(bytes(data)) if dice.random() < 0.9 else bytes(data)
            with contextlib.suppress(BodyError):
                await sender.take_body(sent, str(version))
        # changed bytes may still be a valid sample of the series above, of a later time
        assert await sender.take(series_1({"__name__": "untouched"}, [(T, 1.0)])) == (1, "")

    run(test, tmp_path)


def test_known_series_are_forgotten_at_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sources.receive.received_columns.MAX_CACHED", 5)
    reader = RemoteWriteReader(None)

    async def test(sender: Sender) -> None:
        for n in range(10):
            parts = [series_1({"__name__": "a", "n": str(n * 4 + i)}, [(T, 1.0)]) for i in range(4)]
            assert await sender.take(*parts) == (4, "")
            assert await sender.take(*parts) == (0, "")
        assert len(sender.rows()) == 40

    run(test, tmp_path)
    for n in range(4):
        reader.trim()
        reader.read(request_1(*[series_1({"__name__": "a", "n": f"{n} {i}"}, [(T, 1.0)]) for i in range(4)]), "1")
    assert len(reader.texts) <= 8


@pytest.mark.parametrize("seed", fixed_and_drawn([1, 2], "known series"))
def test_known_series_are_read_as_unknown_ones(seed: int) -> None:
    """Samples at the end of a series are decoded as columns; whatever does not fit is parsed."""
    dice = random.Random(seed)
    warm = RemoteWriteReader(None)
    for _ in range(8):
        cold = RemoteWriteReader(None)
        body = request_1(*odd_series(dice, T))
        warm.read(body, "1")
        again, fresh = warm.read(body, "1"), cold.read(body, "1")
        assert told(again, warm) == told(fresh, cold)


def test_bodies_that_wait_are_taken_together_and_answered_apart(tmp_path: Path) -> None:
    async def test(sender: Sender) -> None:
        def body(n: int, time_ms: int = T) -> bytes:
            return request_1(series_1({"__name__": f"m{n}"}, [(time_ms, float(n))]))

        await sender.take(series_1({"__name__": "first"}, [(T, 1.0)]))
        good = [sender.take_body(body(n), "1") for n in range(10)]
        assert await asyncio.gather(*good) == [(1, "")] * 10
        together = len(sender.sink.accepted)
        assert together < 11
        mixed = [body(1, T + 1), b"no snappy", body(2, 5), body(3, T + 1), body(3, T + 1), body(4, T)]
        found = await asyncio.gather(*[sender.take_body(one, "1") for one in mixed], return_exceptions=True)
        assert isinstance(found[1], BodyError)
        assert [found[at] for at in (0, 3, 4, 5)] == [(1, ""), (1, ""), (0, ""), (0, "")]
        sender.sink.refusing = "full"
        later = [body(n, T + 2) for n in range(5)]
        refused = await asyncio.gather(*[sender.take_body(one, "1") for one in later], return_exceptions=True)
        assert all(isinstance(one, SinkRefusedError) for one in refused)
        sender.sink.refusing = ""
        assert await asyncio.gather(*[sender.take_body(one, "1") for one in later]) == [(1, "")] * 5
        rows = sender.rows()
        assert len(rows) == len(set(rows)) == 1 + 10 + 2 + 5

    run(test, tmp_path)


@pytest.mark.parametrize("seed", fixed_and_drawn([1, 2], "series placed where they are read"))
def test_series_placed_in_the_thread_that_reads_are_taken_as_others(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bodies, one by one and together, with the way through the event loop alone."""
    at_once = 0

    async def send(sender: Sender) -> object:
        dice, answers = random.Random(seed), []
        for turn in range(30):
            bodies = [request_1(*odd_series(dice, T - MINUTE + turn * 1_000)) for _ in range(dice.choice((1, 1, 3)))]
            if turn % 3:  # samples without faults
                points = [series_1({"__name__": f"n{n}"}, [(T + turn, float(n))]) for n in range(6)]
                bodies = [request_1(*points[:3]), request_1(*points[3:])]
            answers.append(await asyncio.gather(*[sender.take_body(body, "1") for body in bodies]))
        return answers, sorted(map(repr, sender.rows())), sender.source.refused, sender.source.series.live

    def counted(series: TimedSeries, columns: LineColumns, now_ms: int) -> PlacedSamples | None:
        nonlocal at_once
        placed = place_known(series, columns, now_ms)
        at_once += placed is not None and len(columns) > 0
        return placed

    async def both() -> None:
        monkeypatch.setattr(TimedSeries, "place_known", counted)
        ours = await send(Sender(tmp_path / "ours", RemoteWriteReader))
        monkeypatch.setattr(TimedSeries, "place_known", lambda *_: None)
        assert ours == await send(Sender(tmp_path / "plain", RemoteWriteReader))

    place_known = TimedSeries.place_known
    asyncio.run(both())
    assert at_once > 10
