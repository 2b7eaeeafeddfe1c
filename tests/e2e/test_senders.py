"""Real senders, end to end: what they sent = raw table = answers of the API, over kills of the receiver."""

from __future__ import annotations

import json
import signal
import struct
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import statsd
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from artimon.cli.process_wiring import opener
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.fingerprint import fingerprint
from artimon.model.grid import bucket_end
from artimon.model.labels import canonical, parse_canonical
from artimon.stack.stack import Stack
from tests.api.serving import Client, served
from tests.e2e.stores import raw_samples
from tests.node.node_driver import NodeDriver, driving
from tests.node.node_driver import find as find_node
from tests.sockets import free_port
from tests.sources.receive.real_senders import (
    LOAD,
    Number,
    SentMetrics,
    Series,
    all_sent,
    collectd,
    plain_metrics,
    prometheus_sender,
    theirs,
    written,
)
from tests.waiting import eventually
from varstore.cluster.varstore_client import VarstoreClient

pytestmark = [pytest.mark.slow, pytest.mark.stack, pytest.mark.programs, pytest.mark.timeout(900)]
KEPT = "up|prometheus_tsdb_head_.*|prometheus_remote_storage_samples_.*"
Samples = dict[str, dict[int, Number]]


class PythonSdk:
    """A program that counts by the SDK for Python."""

    def __init__(self, url: str) -> None:
        sent = self.sent = SentMetrics({"context": "e2e_python", "host": "h1", "otel_scope_name": "app"})

        class Exporter(OTLPMetricExporter):
            def export(self, metrics_data: MetricsData, *more: Any, **named: Any) -> MetricExportResult:
                result = super().export(metrics_data, *more, **named)
                sent.take(plain_metrics(metrics_data.to_json()), result is MetricExportResult.SUCCESS)
                return result

        self._reader = PeriodicExportingMetricReader(Exporter(url, timeout=30), export_interval_millis=3_600_000)
        resource = Resource({"service.name": "e2e_python", "host.name": "h1"})
        self._provider = MeterProvider([self._reader], resource)
        meter = self._provider.get_meter("app")
        self._orders = meter.create_counter("orders.placed")
        self._wait = meter.create_histogram("wait", explicit_bucket_boundaries_advisory=[1.0, 5.0])

    def export(self, turn: int) -> None:
        self._orders.add(turn + 1, {"route": "/"})
        self._wait.record(turn + 0.5)
        self._reader.force_flush(60_000)


class JavascriptSdk:
    """A program that counts by the SDK for JavaScript."""

    def __init__(self, driver: NodeDriver, service: str) -> None:
        self.sent = SentMetrics({"context": service, "host": "h1", "otel_scope_name": "app"})
        self._driver = driver

    def export(self, turn: int) -> None:
        values = [("orders.placed", turn + 1, {"route": "/"}), ("waiting", 1 - turn, {}), ("wait", turn + 0.5, {})]
        self._driver.call("record", values=values)
        for one in self._driver.call("flush"):
            self.sent.take(one["metrics"], one["code"] == 0)


Sdk = PythonSdk | JavascriptSdk


def start_sdks(stack: Stack, running: ExitStack) -> list[Sdk]:
    """Start the programs; those for JavaScript only if Node.js and its packages are here."""
    receive = stack.addresses()["ARTIMON_RECEIVE"]
    sdks: list[Sdk] = [PythonSdk(f"{receive}/api/v1/otlp/python/v1/metrics")]
    folder = find_node("opentelemetry")
    if folder is not None:
        grpc = f"http://{stack.context.address('agent.grpc')}"
        urls = {"proto": f"{receive}/api/v1/otlp/javascript/v1/metrics", "grpc": grpc}
        for protocol, url in urls.items():
            command: list[str | Path] = [folder / "sender.mjs", protocol, url, "cumulative", f"e2e_{protocol}"]
            sdks.append(JavascriptSdk(running.enter_context(driving(command, folder)), f"e2e_{protocol}"))
    return sdks


def table(stack: Stack, prints: Mapping[int, str]) -> Samples:
    """Return the samples of the raw table by canonical text and time; each must be there once."""
    found: Samples = defaultdict(dict)
    for sample, count in raw_samples(stack.hdfs).items():
        if sample.fingerprint in prints and sample.type != "ended":
            text = prints[sample.fingerprint]
            assert (count, sample.time_ms in found[text]) == (1, False), f"{text} is stored twice"
            value = int(sample.value) if sample.type == "integer" else float.fromhex(sample.value)
            found[text][sample.time_ms] = value
    return found


def asked(client: Client, texts: Sequence[str], engine: str) -> Samples:
    """Return the samples of the last half hour of all series with the names of these, by the API of Prometheus."""
    found: Samples = defaultdict(dict)
    for name in {parse_canonical(text)[0] for text in texts}:
        query = f"{{{json.dumps(name)}}}[30m]"
        parameters = {"query": query, "time": SYSTEM_CLOCK.now_ms() / 1000, "engine": engine}
        answer = client.get(f"/api/v1/query?{urlencode(parameters)}")
        assert answer.status == 200, answer.body
        for one in answer.json["data"]["result"]:
            metric = dict(one["metric"])
            key = canonical(metric.pop("__name__"), metric)
            found[key].update({round(t * 1000): float(value) for t, value in one["values"]})
    return found


def newest_of_minutes(samples: Samples) -> Samples:
    """Return the samples that memory holds: the newest of each minute."""
    found: Samples = {}
    for text, points in samples.items():
        by_minute = {bucket_end(time_ms, 60_000): time_ms for time_ms in sorted(points)}
        found[text] = {time_ms: points[time_ms] for time_ms in by_minute.values()}
    return found


def within(points: Mapping[int, Number], first_ms: int, last_ms: int) -> dict[int, Number]:
    return {time_ms: value for time_ms, value in points.items() if first_ms <= time_ms <= last_ms}


STATSD = {"hits": 20, "level": 5, "took_count": 1, "took_sum": 320, "users": 1}
"""Greatest value of each variable; a set has one a period, 0 in the end."""


class Sent:
    """Everything that the senders say they sent."""

    def __init__(self, sdks: Sequence[Sdk], scraped: Series, killed_ms: int, end_ms: int, csv: Path) -> None:
        """`scraped`: samples of Prometheus from before the first kill up to about `end_ms`; `csv`: folder of collectd's
        files."""
        self._sdks, self._scraped, self._loads = sdks, scraped, written(csv)
        self._killed_ms, self._end_ms = killed_ms, end_ms
        texts = [*scraped, LOAD + "{}", *(canonical(f"e2e_app.{name}", {}) for name in STATSD)]
        texts += [text for sdk in sdks for text in (*sdk.sent.samples, *sdk.sent.unknown)]
        self.prints = {fingerprint(text): text for text in texts}

    def differences(self, found: Samples) -> dict[str, Any]:
        """Return the series of the table that differ from what was sent, with both."""
        different = {text: pair for sdk in self._sdks for text, pair in sdk.sent.differences(found).items()}
        first_ms = min(min(found.get(text, {}), default=self._end_ms) for text in self._scraped) + 2_000
        for text, points in self._scraped.items():
            wanted = {time_ms: struct.unpack("<d", value)[0] for time_ms, value in points.items()}
            pair = [within(one, first_ms, self._end_ms - 1_000) for one in (wanted, found.get(text, {}))]
            if pair[0] != pair[1] or (text.startswith("up") and not self._spans_kills(pair[0])):
                different[text] = pair
        loads = {time_s * 1000: pytest.approx(value, abs=1e-6) for time_s, value in self._loads.items()}
        if found.get(LOAD + "{}", {}) != loads:
            different[LOAD] = (loads, found.get(LOAD + "{}"))
        for name, value in STATSD.items():
            counts = found.get(canonical(f"e2e_app.{name}", {}), {})
            if not counts or max(counts.values()) != value:
                different[name] = (value, counts)
        return different

    def _spans_kills(self, points: Mapping[int, Number]) -> bool:
        return bool(points) and min(points) < self._killed_ms < max(points)


def test_what_senders_sent_is_in_the_table_and_in_the_answers(
    whole_stack: Stack, store: VarstoreClient, tmp_path: Path
) -> None:
    address = f"127.0.0.1:{free_port()}"
    url = f"{whole_stack.addresses()['ARTIMON_RECEIVE']}/api/v1/write/e2e"
    rules = [{"source_labels": ["__name__"], "regex": KEPT, "action": "keep"}]
    with ExitStack() as running:
        running.enter_context(prometheus_sender(tmp_path / "prometheus", address, url, rules))
        sdks = start_sdks(whole_stack, running)
        up = canonical("up", {"instance": address, "job": "itself"})
        eventually(lambda: table(whole_stack, {fingerprint(up): up}), "the first scrapes are stored", pause=3)
        killed_ms = SYSTEM_CLOCK.now_ms()
        export_over_kills(whole_stack, sdks)
        send_lines(whole_stack, tmp_path)
        end_ms = SYSTEM_CLOCK.now_ms()
        eventually(lambda: SYSTEM_CLOCK.now_ms() > end_ms + 8_000 and all_sent(address), "what was scraped is sent")
        scraped = theirs(address, f'{{job="itself",__name__=~"{KEPT}"}}[15m]', end_ms)
    sent = Sent(sdks, scraped, killed_ms, end_ms, tmp_path / "csv")
    try:
        eventually(lambda: not sent.differences(table(whole_stack, sent.prints)), pause=3)
    except AssertionError:
        raise AssertionError(sent.differences(table(whole_stack, sent.prints))) from None
    check_answers(whole_stack, store, sent.prints)


def export_over_kills(stack: Stack, sdks: Sequence[Sdk]) -> None:
    """Export while the agent runs, right after it was killed, and once it is back."""
    for turn in range(4):
        for sdk in sdks:
            sdk.export(turn)
        if turn < 2:
            stack.kill("agent", signal.SIGKILL)
            for sdk in sdks:
                sdk.export(turn)
            stack.wait_healthy(120, ["agent"])
    assert all(sdk.sent.samples for sdk in sdks)


def send_lines(stack: Stack, folder: Path) -> None:
    """Send by StatsD and collectd, which have no answers: while the agent runs."""
    client = statsd.StatsClient("127.0.0.1", stack.context.port("agent.statsd"), prefix="e2e_app")
    for _ in range(10):
        client.incr("hits", 2)
    client.gauge("level", 5)
    client.timing("took", 320)
    client.set("users", "a")
    with collectd(folder, stack.context.port("agent.graphite")):
        eventually(lambda: len(written(folder / "csv")) >= 5, "some seconds of data")


def check_answers(stack: Stack, store: VarstoreClient, prints: Mapping[int, str]) -> None:
    """The API answers each sample of the table from the history, and the newest of each minute from memory. Aggregates
    of StatsD go on: of these the greatest value is compared."""
    growing = {canonical(f"e2e_app.{name}", {}) for name in STATSD}

    def is_equal(text: str, found: Mapping[int, Number], wanted: Mapping[int, Number]) -> bool:
        return max(found.values(), default=0) == max(wanted.values()) if text in growing else found == wanted

    history = opener(stack.hdfs, stack.zookeeper, store)
    with served(store, clock=SYSTEM_CLOCK, history=history) as client:

        def wrong(engine: str) -> dict[str, Any]:
            stored = {text: one for text, one in table(stack, prints).items() if text != canonical("e2e_app.users", {})}
            wanted = stored if engine == "history" else newest_of_minutes(stored)
            found = asked(client, list(wanted), engine)
            return {text: (found[text], one) for text, one in wanted.items() if not is_equal(text, found[text], one)}

        for engine in ("history", "memory"):
            try:
                eventually(lambda engine=engine: not wrong(engine), pause=3)  # type: ignore[misc]
            except AssertionError:
                raise AssertionError((engine, wrong(engine))) from None
