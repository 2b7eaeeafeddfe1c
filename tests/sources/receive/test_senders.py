"""Real senders of remote write: what they have is what the log has, also over kills of the receiver."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.fingerprint import fingerprint
from artimon.model.labels import canonical
from artimon.model.values import Value
from tests.sockets import free_port
from tests.sources.receive.agent import logged
from tests.sources.receive.real_senders import (
    LOAD,
    all_sent,
    bits,
    collectd,
    listens,
    prometheus_sender,
    theirs,
    written,
)
from tests.waiting import eventually

SELECTOR = '{job=~".+"}[10m]'


@contextmanager
def agent(place: Path, address: int | str) -> Iterator[subprocess.Popen[bytes]]:
    if isinstance(address, int):
        address = f"127.0.0.1:{address}"
    command = [sys.executable, "-m", "tests.sources.receive.agent", str(place), str(address)]
    with subprocess.Popen(command) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.programs
@pytest.mark.timeout(180)
def test_prometheus_over_kills_of_the_receiver(tmp_path: Path) -> None:
    """Nothing is lost and nothing is stored twice."""
    port = free_port()
    place = tmp_path / "agent"
    place.mkdir()
    address, url = f"127.0.0.1:{free_port()}", f"http://127.0.0.1:{port}/api/v1/write/prom"
    with ExitStack() as until_it_ended, prometheus_sender(tmp_path / "prometheus", address, url):
        for seconds in (6.0, 2.0, 3.0):
            with agent(place, port):
                began = time.monotonic()
                eventually(lambda: time.monotonic() - began > seconds, "some seconds of data")  # noqa: B023
            time.sleep(1.0)
        until_it_ended.enter_context(agent(place, port))
        end_ms = SYSTEM_CLOCK.now_ms()
        eventually(lambda: SYSTEM_CLOCK.now_ms() > end_ms + 8_000 and all_sent(address), "what was scraped is sent")
        expected = theirs(address, SELECTOR, end_ms)
    ours: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for source, print_, time_ms, _, value in logged(place):
        if source.startswith("received/") and isinstance(value, float):
            ours[print_].append((time_ms, bits(value)))
    first_ms = min(time_ms for points in ours.values() for time_ms, _ in points) + 2_000
    compared = 0
    for text, points in expected.items():
        wanted = {t: v for t, v in points.items() if first_ms <= t <= end_ms - 1_000}
        found = [(t, v) for t, v in ours[fingerprint(text)] if first_ms <= t <= end_ms - 1_000]
        assert len(found) == len({t for t, _ in found}), "stored twice"
        assert dict(found) == wanted
        compared += len(wanted)
    assert compared > 1_000


@pytest.mark.parametrize("delta", [False, True])
def test_the_sdk_of_opentelemetry(tmp_path: Path, delta: bool) -> None:
    """What a program counts by the SDK is in the log, over a restart of the receiver too."""
    port, place = free_port(), tmp_path / "agent"
    place.mkdir()
    temporality = AggregationTemporality.DELTA if delta else AggregationTemporality.CUMULATIVE
    preferred: dict[type, AggregationTemporality] = dict.fromkeys((Counter, Histogram), temporality)
    address = f"http://127.0.0.1:{port}/v1/metrics"
    exporter = OTLPMetricExporter(address, preferred_temporality=preferred, timeout=100)
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=60_000)
    exponential = View(instrument_name="fine", aggregation=ExponentialBucketHistogramAggregation())
    resource = Resource({"service.name": "shop", "host.name": "h1"})
    provider = MeterProvider([reader], resource, views=[exponential])
    meter = provider.get_meter("app")
    orders, wait = (
        meter.create_counter("orders.placed"),
        meter.create_histogram("wait", explicit_bucket_boundaries_advisory=[1.0, 5.0]),
    )
    fine = meter.create_histogram("fine")
    for turn in range(2):
        with agent(place, port):
            eventually(lambda: listens(port), "the receiver")
            for seconds in (0.5, 3.0, 30.0):
                orders.add(2, {"route": "/"})
                wait.record(seconds)
                fine.record(seconds)
            assert reader.force_flush(100_000) is not False
            assert not turn or provider.shutdown() is None
    found: dict[int, list[Value | None]] = defaultdict(list)
    for source, print_, _, _, value in logged(place):
        if source.startswith("otlp/"):
            found[print_].append(value)

    def values(name: str, **labels: str) -> list[Value | None]:
        return found[
            fingerprint(canonical(name, {"context": "shop", "host": "h1", "otel_scope_name": "app", **labels}))
        ]

    assert values("orders.placed", route="/")[:2] == [6, 12]
    assert [values("wait_bucket", le=le)[:2] for le in ("1", "5", "+Inf")] == [[1, 2], [2, 4], [3, 6]]
    assert values("wait_sum")[:2] == [33.5, 67.0]
    assert values("fine_count")[:2] == [3, 6]
    assert values("fine_bucket", le="+Inf")[:2] == [3, 6]


@pytest.mark.programs
def test_collectd_writes_graphite(tmp_path: Path) -> None:
    """Every line that collectd wrote to its log file is a sample."""
    port, place = free_port(), tmp_path / "agent"
    place.mkdir()
    with agent(place, f"graphite+tcp://127.0.0.1:{port}"):
        eventually(lambda: listens(port), "the receiver")
        with collectd(tmp_path, port):
            eventually(lambda: len(written(tmp_path / "csv")) >= 5, "some seconds of data")
        expected = written(tmp_path / "csv")
        copies = (tmp_path / f"copy{n}" for n in count())
        eventually(lambda: len(loads(place, next(copies))) == len(expected), "the last line")
    found = loads(place, next(copies))
    assert all(value == pytest.approx(expected[time_ms // 1000], abs=1e-6) for time_ms, value in found.items())
    assert set(found) == {time_s * 1000 for time_s in expected}


def loads(place: Path, copy: Path) -> dict[int, Value | None]:
    """Return the loads by time that the log of a running agent holds."""
    shutil.copytree(place / "log", copy / "log")
    name = fingerprint(canonical(LOAD, {}))
    return {time_ms: value for _, print_, time_ms, _, value in logged(copy) if print_ == name}
