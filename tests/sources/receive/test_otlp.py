"""Metrics of OpenTelemetry: series, counts, histograms and increases, in protobuf and JSON."""

from __future__ import annotations

import gzip
import math
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from artimon.model.values import Kind
from sources.receive.otlp import MAX_BUCKETS, MAX_DECODED_BYTES, OtlpReader
from sources.receive.received_columns import BodyError
from sources.state.relabel import make_relabel_rule
from tests.seeds import fixed_and_drawn
from tests.sources.receive.bodies import by_length
from tests.sources.receive.sender import MINUTE, Sender, T, run

RESOURCE = {"service.name": "shop", "host.name": "h1", "telemetry.sdk.name": "x"}
DELTA, CUMULATIVE = 1, 2
LABELS = '{context="shop",host="h1"}'


def attributes(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    def value(one: Any) -> dict[str, Any]:
        if isinstance(one, bool):
            return {"boolValue": one}
        if isinstance(one, list):
            return {"arrayValue": {"values": [value(part) for part in one]}}
        return {"intValue": str(one)} if isinstance(one, int) else {"stringValue": one}

    return [{"key": key, "value": value(one)} for key, one in found.items()]


def point(time_ms: int = T, start_ms: int = T - 10 * MINUTE, of: Mapping[str, Any] = {}, **more: Any) -> dict[str, Any]:
    times = {"timeUnixNano": str(time_ms * 1_000_000), "startTimeUnixNano": str(start_ms * 1_000_000)}
    return {**times, "attributes": attributes(of), **more}


def metric(name: str, data: str, *points: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"{name}.", "unit": "1", data: {"dataPoints": list(points), **more}}


def counter(name: str, *points: dict[str, Any], delta: bool = False) -> dict[str, Any]:
    return metric(name, "sum", *points, aggregationTemporality=DELTA if delta else CUMULATIVE, isMonotonic=True)


def body(*metrics: dict[str, Any], resource: Mapping[str, Any] = RESOURCE, scope: str = "") -> bytes:
    told = {
        "resourceMetrics": [
            {
                "resource": {"attributes": attributes(resource)},
                "scopeMetrics": [{"scope": {"name": scope}, "metrics": list(metrics)}],
            }
        ]
    }
    return bytes(json_format.ParseDict(told, ExportMetricsServiceRequest()).SerializeToString())


def check(test: Callable[[Sender], Awaitable[None]], place: Path, rules: Sequence[Any] = ()) -> None:
    run(test, lambda: Sender(place / "state", OtlpReader, rules))


def test_counts_gauges_and_their_kinds(tmp_path: Path) -> None:
    sent = body(
        counter("http.requests", point(of={"http.route": "/", "ok": True, "n": 7}, asInt="5")),
        metric("queue.length", "sum", point(asInt="-3"), aggregationTemporality=CUMULATIVE),
        metric("load", "gauge", point(asDouble=0.25)),
        metric("odd name", "gauge", point(of={"a.b": "x", "a_b": "y", "1st": "z", "list": ["p", 2]}, asInt="1")),
    )

    async def test(sender: Sender) -> None:
        assert await sender.take_body(sent, "protobuf") == (4, "")
        assert await sender.take_body(gzip.compress(sent), "protobuf:gzip") == (0, "")
        parsed = ExportMetricsServiceRequest.FromString(sent)
        assert await sender.take_body(json_format.MessageToJson(parsed).encode(), "json") == (0, "")
        assert sender.values() == {
            'http.requests{context="shop",host="h1",http_route="/",n="7",ok="true"}': 5,
            f"queue.length{LABELS}": -3,
            f"load{LABELS}": 0.25,
            'odd_name{a_b="x;y",context="shop",host="h1",key_1st="z",list="[\\"p\\",2]"}': 1,
        }
        births = {text: born for text, _, born, _ in sender.sink.samples()}
        assert births[f"queue.length{LABELS}"] == T - 10 * MINUTE
        assert births[f"load{LABELS}"] == 0
        kinds = sender.kinds()
        assert kinds[f"queue.length{LABELS}"] == (Kind.GAUGE, "queue.length.", "1")
        assert {text.partition("{")[0]: one[0] for text, one in kinds.items()}["http.requests"] == Kind.COUNTER

    check(test, tmp_path)


def test_increases_are_added_up_once(tmp_path: Path) -> None:
    async def test(sender: Sender) -> None:
        points: dict[str, dict[str, Any]] = {"n": {"asInt": "5"}, "x": {"asDouble": 0.5}}
        first = body(*[counter(name, point(T - MINUTE, **value), delta=True) for name, value in points.items()])
        assert await sender.take_body(first, "protobuf") == (2, "")
        assert await sender.take_body(first, "protobuf") == (0, "")
        for saved in (True, False):
            await sender.restart(saved)
            assert await sender.take_body(first, "protobuf") == (0, "")
        more = [point(T, T - MINUTE, asInt="2"), point(T + 1, T, asInt="4")]
        assert await sender.take_body(body(counter("n", *more, delta=True)), "protobuf") == (2, "")
        assert await sender.take_body(body(counter("x", point(T + 5, T, asDouble=1.25), delta=True)), "protobuf")
        rows = [(text, value, born) for text, _, born, value in sender.sink.samples()]
        assert [value for text, value, _ in rows if text.startswith("n")] == [5, 7, 11]
        assert [value for text, value, _ in rows if text.startswith("x")] == [0.5, 1.75]
        assert {born for _, _, born in rows} == {T - 10 * MINUTE}

    check(test, tmp_path)


@pytest.mark.parametrize("delta", [False, True])
def test_histograms_are_series_of_cumulative_buckets(tmp_path: Path, delta: bool) -> None:
    async def test(sender: Sender) -> None:
        values: dict[str, Any] = {
            "explicitBounds": [0.5, 5.0],
            "bucketCounts": ["2", "3", "1"],
            "count": "6",
            "sum": 20.5,
        }
        temporality = DELTA if delta else CUMULATIVE
        for turn in range(2):
            sent = metric("wait", "histogram", point(T + turn, **values), aggregationTemporality=temporality)
            assert await sender.take_body(body(sent), "protobuf") == (5, "")
        times = 2 if delta else 1
        assert sender.values() == {
            'wait_bucket{context="shop",host="h1",le="0.5"}': 2 * times,
            'wait_bucket{context="shop",host="h1",le="5"}': 5 * times,
            'wait_bucket{context="shop",host="h1",le="+Inf"}': 6 * times,
            f"wait_count{LABELS}": 6 * times,
            f"wait_sum{LABELS}": 20.5 * times,
        }
        assert {one[0] for one in sender.kinds().values()} == {Kind.COUNTER}

    check(test, tmp_path)


@pytest.mark.parametrize("scale", [-2, 0, 2, 3, 4])
@pytest.mark.parametrize("seed", fixed_and_drawn([1], "exponential histograms"))
def test_exponential_histograms_count_what_is_below_each_bound(tmp_path: Path, scale: int, seed: int) -> None:
    dice = random.Random(seed)
    base = 2.0 ** (2.0**-scale)
    seen = [dice.choice((-1, 1, 1)) * math.exp(dice.uniform(-1, 2)) for _ in range(200)] + [0.0] * 7

    def buckets(values: list[float]) -> dict[str, Any]:
        places = [math.ceil(math.log(value, base)) - 1 for value in values]
        counts = np.bincount(np.array(places) - min(places), minlength=1)
        return {"offset": min(places), "bucketCounts": [str(count) for count in counts.tolist()]}

    sent = metric(
        "size",
        "exponentialHistogram",
        point(
            scale=scale,
            count=str(len(seen)),
            sum=sum(seen),
            zeroCount="7",
            positive=buckets([v for v in seen if v > 0]),
            negative=buckets([-v for v in seen if v < 0]),
        ),
        aggregationTemporality=CUMULATIVE,
    )

    async def test(sender: Sender) -> None:
        samples, fault = await sender.take_body(body(sent), "protobuf")
        assert (samples > 3, fault) == (True, "")
        bounds = {}
        for text, value in sender.values().items():
            if "le=" in text:
                bounds[float(text.partition('le="')[2].partition('"')[0])] = value
        assert bounds[math.inf] == len(seen)
        for bound, count in bounds.items():
            assert count == sum(value <= bound for value in seen), bound
        steps = sorted(bound for bound in bounds if 0 < bound < math.inf)
        ratios = {round(b / a, 6) for a, b in pairwise(steps)}
        assert len(ratios) <= 1 or min(ratios) >= round(2 ** (2.0 ** -min(scale, 2)), 6)

    check(test, tmp_path)


def test_increases_count_below_all_bounds_that_are_known(tmp_path: Path) -> None:
    """A point names the buckets of its own values only; also after restarts, and at another scale."""

    def sent(at: int, offset: int, *counts: int, scale: int = 2) -> bytes:
        buckets = {"offset": offset, "bucketCounts": [str(count) for count in counts]}
        more: dict[str, Any] = {"scale": scale, "count": str(sum(counts)), "positive": buckets}
        of = {"route": '/,le="1"'}
        return body(metric("fine", "exponentialHistogram", point(T + at, of=of, **more), aggregationTemporality=DELTA))

    async def test(sender: Sender) -> None:
        def values() -> list[object]:
            found = sender.values()
            return [found[text] for text in sorted(found, key=bound) if "_bucket" in text]

        def bound(text: str) -> float:
            return float(text.partition(',le="')[2].partition('"')[0]) if "_bucket" in text else 0.0

        await sender.take_body(sent(1, 3, 1, 2, 4), "protobuf")  # up to 2, 2.38, 2.83
        assert values() == [0, 1, 3, 7, 7]
        await sender.take_body(sent(2, 3, 1), "protobuf")
        assert values() == [0, 2, 4, 8, 8]
        for at, saved in ((3, True), (4, False)):
            await sender.restart(saved)
            await sender.take_body(sent(at, 0, 1, scale=0), "protobuf")  # up to 2
        assert values() == [0, 4, 6, 10, 10]
        await sender.take_body(sent(5, 11, 3), "protobuf")  # up to 8
        assert values() == [0, 4, 6, 10, 3, 13]

    check(test, tmp_path)


def test_summaries_and_markers(tmp_path: Path) -> None:
    quantiles = [{"quantile": 0.5, "value": 1.5}, {"quantile": 1, "value": 9.0}]

    async def test(sender: Sender) -> None:
        sent = metric("old", "summary", point(count="3", sum=12.0, quantileValues=quantiles))
        assert await sender.take_body(body(sent, metric("g", "gauge", point(asInt="4"))), "protobuf") == (5, "")
        assert sender.values()['old{context="shop",host="h1",quantile="0.5"}'] == 1.5
        gone = metric("g", "gauge", point(T + 5, flags=1))
        assert await sender.take_body(body(gone), "protobuf") == (0, "")
        assert sender.rows()[-1] == (f"g{LABELS}", T + 5, None)

    check(test, tmp_path)


def test_rules_see_all_attributes_of_the_resource(tmp_path: Path) -> None:
    rule = make_relabel_rule("sdk", source_labels=["__resource_telemetry_sdk_name"], target_label="sdk")

    async def test(sender: Sender) -> None:
        sent = body(metric("g", "gauge", point(asInt="4")), scope="my.library")
        assert await sender.take_body(sent, "protobuf") == (1, "")
        (text,) = sender.values()
        assert text == 'g{context="shop",host="h1",otel_scope_name="my.library",sdk="x"}'

    check(test, tmp_path, [rule])


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (metric("s", "sum", point(asInt="1")), "without temporality"),
        (
            metric("h", "histogram", point(explicitBounds=[1.0], bucketCounts=["1"]), aggregationTemporality=2),
            "1 counts for 1 bounds",
        ),
        (
            metric(
                "e",
                "exponentialHistogram",
                point(positive={"bucketCounts": ["1"] * (MAX_BUCKETS + 1)}),
                aggregationTemporality=2,
            ),
            "at most 400",
        ),
        (metric("e", "exponentialHistogram", point(scale=99), aggregationTemporality=2), "scale 99"),
        (metric("g", "gauge", point(0, asInt="1")), "bad time"),
        (metric("g", "gauge", point(of={f"k{i}": "v" for i in range(60)}, asInt="1")), "labels"),
        (metric("g", "gauge", point(of={"k": "v" * 5_000}, asInt="1")), "k"),
        (metric("", "gauge", point(asInt="1")), ""),
    ],
    ids=by_length,
)
def test_what_cannot_be_kept_is_named_and_the_rest_is_taken(tmp_path: Path, sent: dict[str, Any], reason: str) -> None:
    async def test(sender: Sender) -> None:
        samples, fault = await sender.take_body(body(sent, metric("fine", "gauge", point(asInt="1"))), "protobuf")
        assert f"fine{LABELS}" in sender.values()
        assert reason in fault
        assert samples <= 2

    check(test, tmp_path)


@pytest.mark.parametrize(
    ("sent", "form", "message"),
    [
        (b"\xff" * 50, "protobuf", "protobuf"),
        (b"{", "json", "json"),
        (b'{"resourceMetrics": 7}', "json", "json"),
        (b"\xff", "json", "json"),
        (b"no gzip", "protobuf:gzip", "gzip"),
        (gzip.compress(b"x" * 100)[:-12], "protobuf:gzip", "not whole"),
        (b"[" * 5_000, "json", "json"),
    ],
    ids=by_length,
)
def test_bodies_that_are_none(tmp_path: Path, sent: bytes, form: str, message: str) -> None:
    check(refusing(sent, form, message), tmp_path)


def test_a_body_that_unpacks_to_more_than_the_limit(tmp_path: Path) -> None:
    sent = gzip.compress(bytes(MAX_DECODED_BYTES * 50), compresslevel=1)
    check(refusing(sent, "protobuf:gzip", "more than 8,388,608"), tmp_path)


def refusing(sent: bytes, form: str, message: str) -> Callable[[Sender], Awaitable[None]]:
    """A test that this body is refused, and the one after it is taken."""

    async def test(sender: Sender) -> None:
        with pytest.raises(BodyError, match=message):
            await sender.take_body(sent, form)
        assert await sender.take_body(body(metric("fine", "gauge", point(asInt="1"))), "protobuf") == (1, "")

    return test
