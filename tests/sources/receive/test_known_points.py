"""Points of OTLP by the compiled table: the same as by messages, for any bytes."""

from __future__ import annotations

import ctypes
import random
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1 import metrics_pb2 as otlp

from artimon.model.values import INT64_MAX
from artimon.runtime.compiled_library import address
from sources.receive import otlp as module
from sources.receive.key_table import KEY_BYTES
from sources.receive.known_points import KnownPoints, _PointArrays, point_kernels
from sources.receive.otlp import OtlpReader
from sources.receive.received_columns import BodyError, ReceivedSamples
from sources.state.relabel import RelabelRules, make_relabel_rule
from tests.seeds import fixed_and_drawn
from tests.sources.receive.guarded_bytes import guarded, mutated
from tests.sources.receive.sender import T, told

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on this machine")
MS = 1_000_000
BOUNDS = [0.5, 1.0, 5.0]


class PlainReader(OtlpReader):
    """Reader of a machine without a compiler."""

    def read(self, body: bytes, form: str) -> ReceivedSamples:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "point_kernels", lambda: None)
            return super().read(body, form)


def outcome(reader: OtlpReader, data: bytes) -> object:
    try:
        return told(reader.read(data, "protobuf"), reader)
    except BodyError as problem:
        return str(problem)


def describe(attributes: Any, **values: str) -> None:
    for key, value in values.items():
        attributes.add(key=key).value.string_value = value


class Metrics:
    """Draws requests over the same series. `exemplars`: points may have them."""

    def __init__(self, dice: random.Random, exemplars: bool) -> None:
        self._dice, self._exemplars = dice, exemplars

    def request(self) -> bytes:
        found = ExportMetricsServiceRequest()
        for host in self._some(("h1", "h2")):
            resource = found.resource_metrics.add(schema_url=self._dice.choice(("", "", "https://schema")))
            describe(resource.resource.attributes, **{"service.name": "shop", "host.name": host})
            for scope in self._some(("", "http")):
                part = resource.scope_metrics.add()
                part.scope.name = scope
                for n in self._some(range(12)):
                    self._metric(part.metrics.add(name=f"m{n}", description="Help.", unit="1"), n)
        return bytes(found.SerializeToString())

    def _some(self, values: Any) -> list[Any]:
        return self._dice.sample(list(values), self._dice.randrange(1, len(values) + 1))

    def _metric(self, metric: Any, n: int) -> None:
        kinds = ("gauge", "sum", "sum", "histogram", "histogram", "histogram", "exponential_histogram", "summary")
        data = getattr(metric, kinds[n % len(kinds)])
        if isinstance(data, otlp.Sum | otlp.Histogram | otlp.ExponentialHistogram):
            data.aggregation_temporality = 1 + n // 2 % 2 if self._dice.random() < 0.95 else 0  # type: ignore[assignment]
        if isinstance(data, otlp.Sum):
            data.is_monotonic = n % 4 == 1
        for route in self._some(range(6)):
            point: Any = data.data_points.add()
            describe(point.attributes, route=f"/{route}", method="GET" * (route % 3))
            point.time_unix_nano = self._dice.choice((T, T, T + n, 0, 5)) * MS + 7
            point.start_time_unix_nano = self._dice.choice((0, T - 9)) * MS
            point.flags = self._dice.choice((0, 0, 0, 0, 1))
            self._fill(point)

    def _fill(self, point: Any) -> None:
        dice = self._dice
        if isinstance(point, otlp.NumberDataPoint):
            dice.choice((lambda: setattr(point, "as_int", dice.choice((0, -5, INT64_MAX))),
                         lambda: setattr(point, "as_double", dice.choice((0.0, 2.5, float("nan"), float("inf")))),
                         lambda: None))()  # fmt: skip
        else:
            point.count, point.sum = dice.choice((7, 7, 1 << 63)), 20.5
        if isinstance(point, otlp.HistogramDataPoint):
            bounds = BOUNDS[: dice.choice((3, 3, 3, 0, 1))]
            point.explicit_bounds.extend(bounds)
            counts = [dice.choice((0, 3, 300)) for _ in [*bounds, 0]]
            point.bucket_counts.extend(dice.choice((counts, counts, counts, [], [*counts, 1], [1 << 62] * len(counts))))
            point.min, point.max = 0.1, 9.0
            if dice.random() < 0.2:
                point.ClearField("sum")
        if (
            isinstance(point, otlp.NumberDataPoint | otlp.HistogramDataPoint)
            and self._exemplars
            and dice.random() < 0.5
        ):
            point.exemplars.add(as_double=1.5, span_id=b"12345678")


@pytest.mark.parametrize("seed", fixed_and_drawn([1, 2, 3], "known points by table"))
def test_the_table_reads_what_messages_say(seed: int) -> None:
    dice = random.Random(seed)
    rules = RelabelRules((make_relabel_rule("no", source_labels=["__name__"], regex="m5_count|m1", action="drop"),))
    ours, plain = OtlpReader(rules), PlainReader(rules)
    metrics = {exemplars: Metrics(dice, exemplars) for exemplars in (True, False)}
    for _ in range(30):
        bodies = [metrics[True].request()] * 2
        data = metrics[False].request()
        bodies += [data, *(mutated(data, dice) for _ in range(10))]
        for body in bodies:
            assert outcome(ours, body) == outcome(plain, body)
    assert ours._known is not None
    assert len(ours._known) > 100
    assert plain._known is None


def test_metadata_are_those_of_messages() -> None:
    ours, plain = OtlpReader(None), PlainReader(None)
    metrics = Metrics(random.Random(4), exemplars=True)
    for _ in range(10):
        data = metrics.request()
        assert outcome(ours, data) == outcome(plain, data)
        assert ours.metadata() == plain.metadata()


def simple(n: int, time_ms: int = T, service: str = "shop", description: str = "") -> ExportMetricsServiceRequest:
    """Return a request with n numbers and a histogram."""
    found = ExportMetricsServiceRequest()
    resource = found.resource_metrics.add()
    describe(resource.resource.attributes, **{"service.name": service})
    scope = resource.scope_metrics.add()
    data = scope.metrics.add(name="orders", description=description).sum
    data.aggregation_temporality, data.is_monotonic = 2, True
    for at in range(n):
        point = data.data_points.add(as_int=at, time_unix_nano=time_ms * MS, start_time_unix_nano=(T - 9) * MS)
        describe(point.attributes, route=f"/{at}")
    waits = scope.metrics.add(name="wait").histogram
    waits.aggregation_temporality = 1
    waits.data_points.add(
        time_unix_nano=time_ms * MS, count=6, sum=1.5, explicit_bounds=BOUNDS[:2], bucket_counts=[1, 2, 3]
    )
    return found


def body(*arguments: Any, **named: Any) -> bytes:
    return bytes(simple(*arguments, **named).SerializeToString())


def test_known_points_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = OtlpReader(None)
    outcome(reader, body(3))
    monkeypatch.setattr(module, "_parse", None)
    columns = reader.read(body(3, T + 5), "protobuf").columns
    assert columns.birth_ms is not None
    assert columns.delta is not None
    names = [reader.texts[at].partition("{")[0] for at in columns.column.tolist()]
    assert names == ["orders"] * 3 + ["wait_bucket"] * 3 + ["wait_count", "wait_sum"]
    assert columns.cell[:-1].tolist() == [0, 1, 2, 1, 3, 6, 6]
    assert columns.cell[-1:].view(np.float64).tolist() == [1.5]
    assert columns.type.tolist() == [0] * 7 + [1]
    assert set(columns.time_ms.tolist()) == {T + 5}
    assert columns.birth_ms.tolist() == [T - 9] * 3 + [0] * 5
    assert columns.delta.tolist() == [False] * 3 + [True] * 5
    assert columns.line.tolist() == [1] * 3 + [2] * 5


def test_only_new_points_are_added_to_the_table() -> None:
    """The table grows several times, and has the numbers of a resource, a scope and two metrics."""
    reader, plain = OtlpReader(None), PlainReader(None)
    for n in (10, 10, 3_000, 3_000, 5):
        assert outcome(reader, body(n)) == outcome(plain, body(n))
    assert reader._known is not None
    assert len(reader._known) == 4 + 3_000 + 1


def test_a_new_description_is_taken_with_known_points() -> None:
    reader = OtlpReader(None)
    for text in ("One.", "Two."):
        outcome(reader, body(2, description=text))
        assert reader.metadata().help["orders"] == text


def test_longer_keys_than_the_table_takes_are_read_as_messages() -> None:
    reader, plain = OtlpReader(None), PlainReader(None)
    for time_ms in (T, T + 1, T + 2):
        told_of = simple(2, time_ms)
        describe(told_of.resource_metrics[0].resource.attributes, note="x" * KEY_BYTES)
        data = bytes(told_of.SerializeToString())
        assert outcome(reader, data) == outcome(plain, data)
    assert reader._known is not None
    assert len(reader._known) == 0
    assert reader._known.key_bytes == 0


def test_two_senders_of_the_same_points_have_their_own_series() -> None:
    reader, plain = OtlpReader(None), PlainReader(None)
    both = simple(2)
    both.resource_metrics.extend(simple(2, service="mail").resource_metrics)
    for data in (body(2), bytes(both.SerializeToString()), bytes(both.SerializeToString())):
        assert outcome(reader, data) == outcome(plain, data)
    assert len(reader.texts) == 2 * (2 + 5)


@pytest.mark.parametrize(
    "data", [b"\x0a\x00" * 300_000, b"\x0a\x04\x12\x02\x12\x00" * 100_000], ids=["resources", "metrics"]
)
def test_empty_messages_are_many_and_give_nothing(data: bytes) -> None:
    reader = OtlpReader(None)
    assert len(reader.read(data, "protobuf").columns) == 0
    assert reader.cached < 10


def test_too_many_samples_are_refused_though_they_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sources.receive.received_columns.MAX_BODY_SAMPLES", 8)
    monkeypatch.setattr("sources.receive.known_points.MAX_BODY_SAMPLES", 8)
    reader = OtlpReader(None)
    assert not isinstance(outcome(reader, body(3)), str)
    assert not isinstance(outcome(reader, body(3, T + 1)), str)
    assert "more than 8 samples" in str(outcome(reader, body(4)))
    twice = simple(3, T + 2)
    twice.resource_metrics.extend(simple(3, T + 3).resource_metrics)
    assert "more than 8 samples" in str(outcome(reader, bytes(twice.SerializeToString())))


def pieces(data: bytes, dice: random.Random) -> Iterator[bytes]:
    for turn in range(1_500):
        yield data[: dice.randrange(len(data) + 1)] if turn % 2 else mutated(data, dice)


@pytest.mark.parametrize("seed", fixed_and_drawn([1], "points at the end of a page"))
def test_nothing_is_read_beyond_a_body(seed: int) -> None:
    """A read of the page behind the body would end the process."""
    kernels = point_kernels()
    assert kernels is not None
    known, found = KnownPoints(kernels), 0
    data = body(2)
    known.remember(data, 3, {0: [0], 1: [1], 2: [2, 3, 4, 5, 6]})
    numbers, flags = np.zeros((7, 100), np.int64), np.zeros((2, 100), np.uint8)
    for piece in pieces(data, random.Random(seed)):
        points = _PointArrays(100, 0, 0, *map(address, (*numbers, *flags)))
        with guarded(piece) as first:
            kernels.read_points(known.reference, len(piece), first, ctypes.byref(points), False)
        found += int(points.samples)
    assert found > 300
