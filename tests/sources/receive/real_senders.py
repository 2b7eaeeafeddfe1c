"""Senders as they are: Prometheus, collectd and OpenTelemetry, with what they say that they sent."""

from __future__ import annotations

import json
import math
import socket
import struct
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import quote

from artimon.model.labels import canonical
from artimon.runtime.settings import child_environment
from tests.programs import require
from tests.sources.prometheus.exporters import Prometheus, get, prometheus

Series = dict[str, dict[int, bytes]]
Number = int | float


def bits(value: float) -> bytes:
    return b"nan" if math.isnan(value) else struct.pack("<d", value)


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


# --- Prometheus


@contextmanager
def prometheus_sender(folder: Path, address: str, url: str, rules: Sequence[Any] = ()) -> Iterator[Prometheus]:
    """Run a Prometheus at an address that scrapes some 200 series of its own once a second and writes to `url`."""
    queue = {
        "max_shards": 3,
        "min_shards": 3,
        "max_samples_per_send": 60,
        "batch_send_deadline": "500ms",
        "max_backoff": "1s",
    }
    few = {"source_labels": ["__name__"], "regex": "up|go_.+|prometheus_(remote|tsdb)_.+", "action": "keep"}
    config = {
        "remote_write": [{"url": url, "queue_config": queue, "write_relabel_configs": list(rules)}],
        "scrape_configs": [
            {"job_name": "itself", "static_configs": [{"targets": [address]}], "metric_relabel_configs": [few]}
        ],
    }
    folder.mkdir()
    with prometheus(folder, config, address) as found:
        yield found


def all_sent(address: str) -> bool:
    """Return True if few samples wait: those of the last scrapes."""
    query = "prometheus_remote_storage_samples_pending"
    found = json.loads(get(f"http://{address}/api/v1/query?query={query}")[0])["data"]["result"]
    return float(found[0]["value"][1]) < 800


def theirs(address: str, selector: str, end_ms: int) -> Series:
    """Return the samples of a range vector, by canonical text and time in ms."""
    url = f"http://{address}/api/v1/query?query={quote(selector)}&time={end_ms / 1000}"
    found: Series = {}
    for one in json.loads(get(url)[0])["data"]["result"]:
        labels = dict(one["metric"])
        found[canonical(labels.pop("__name__"), labels)] = {round(t * 1000): bits(float(v)) for t, v in one["values"]}
    return found


# --- collectd


@contextmanager
def collectd(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a collectd that writes the load to a folder of CSV files and by the protocol of Graphite to a port."""
    program = require("collectd")
    root = program.path.parents[2]
    (folder / "collectd.conf").write_text(
        f'''
Hostname "h1"
FQDNLookup false
Interval 1
BaseDir "{folder}"
PluginDir "{root}/usr/lib/collectd"
TypesDB "{root}/usr/share/collectd/types.db"
LoadPlugin load
LoadPlugin uptime
LoadPlugin csv
LoadPlugin write_graphite
<Plugin csv>
  DataDir "{folder}/csv"
</Plugin>
<Plugin write_graphite>
  <Node "artimon">
    Host "127.0.0.1"
    Port "{port}"
    Protocol "tcp"
    Prefix "collectd."
  </Node>
</Plugin>
'''
    )
    command = [str(program.path), "-f", "-C", str(folder / "collectd.conf"), "-P", str(folder / "pid")]
    with subprocess.Popen(command, env=child_environment(program.environment)) as child:
        try:
            yield child
        finally:
            child.terminate()  # which flushes its buffers
            child.wait(60)


def written(folder: Path) -> dict[int, float]:
    """Return the loads by second that collectd wrote to its files, which have milliseconds. Its lines of Graphite have
    whole seconds, rounded to the nearest."""
    lines = [line for file in folder.glob("h1/load/load-*") for line in file.read_text().splitlines()[1:]]
    return {int(float(line.split(",")[0]) + 0.5): float(line.split(",")[1]) for line in lines if line.count(",") == 3}


LOAD = "collectd.h1.load.load.shortterm"
"""The variable of `written`."""


# --- OpenTelemetry


class SentMetrics:
    """Samples that the exports of an SDK must become: by canonical text and time in ms.

    `unknown`: those of exports without a good answer, which the receiver may have taken or not. Increases are added up
    here, from the exports that were taken: what an SDK could not export it forgets."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        """`labels`: those of resource and scope."""
        self._labels = labels
        self._totals: dict[str, Number] = defaultdict(int)
        self.samples: dict[str, dict[int, Number]] = defaultdict(dict)
        self.unknown: dict[str, dict[int, Number]] = defaultdict(dict)

    def take(self, metrics: Sequence[Mapping[str, Any]], taken: bool = True) -> None:
        """Take the metrics of an export: `name`, `kind`, `delta` and `points` with `attributes`, `end_ms` and `value`.
        Of exponential histograms only count and sum: their bounds are the receiver's choice."""
        samples = self.samples if taken else self.unknown
        for metric in metrics:
            for point in metric["points"]:
                labels = {name.replace(".", "_"): text for name, text in point["attributes"].items()}
                for suffix, more, value in _parts(metric["kind"], point["value"]):
                    text = canonical(metric["name"] + suffix, {**self._labels, **labels, **more})
                    if metric["delta"] and metric["kind"] != "GAUGE" and taken:
                        value = self._totals[text] = self._totals[text] + value
                    samples[text][point["end_ms"]] = value

    def differences(self, found: Mapping[str, Mapping[int, Number]]) -> dict[str, Any]:
        """Return the series that differ from what was found, with both."""
        different = {}
        for text, samples in self.samples.items():
            maybe = self.unknown.get(text, {})
            more = {time_ms: value for time_ms, value in maybe.items() if found.get(text, {}).get(time_ms) == value}
            if found.get(text, {}) != {**more, **samples}:
                different[text] = (samples, found.get(text))
        return different


def _parts(kind: str, value: Any) -> Iterator[tuple[str, Mapping[str, str], Number]]:
    """Yield suffix, labels and value of the series of a point."""
    if "HISTOGRAM" not in kind:
        yield "", {}, value
        return
    yield "_count", {}, value["count"]
    yield "_sum", {}, value["sum"]
    if kind == "HISTOGRAM":
        bounds = [*(f"{bound:g}" for bound in value["buckets"]["boundaries"]), "+Inf"]
        for bound, count in zip(bounds, accumulate(value["buckets"]["counts"]), strict=True):
            yield "_bucket", {"le": bound}, count


def plain_metrics(told: str) -> list[dict[str, Any]]:
    """Return the metrics of an export of the SDK for Python, in its JSON, as `SentMetrics` takes them."""
    scopes = [scope for one in json.loads(told)["resource_metrics"] for scope in one["scope_metrics"]]
    return [_plain(metric) for scope in scopes for metric in scope["metrics"]]


def _plain(metric: Mapping[str, Any]) -> dict[str, Any]:
    points = []
    for one in metric["data"]["data_points"]:
        value = one.get("value", one)
        if "explicit_bounds" in one:
            value = {**one, "buckets": {"boundaries": one["explicit_bounds"], "counts": one["bucket_counts"]}}
        points.append({"attributes": one["attributes"], "end_ms": one["time_unix_nano"] // 1_000_000, "value": value})
    first = metric["data"]["data_points"][0]
    kind = "HISTOGRAM" if "explicit_bounds" in first else "EXPONENTIAL_HISTOGRAM" if "scale" in first else "SUM"
    delta = metric["data"].get("aggregation_temporality") == 1
    return {"name": metric["name"], "kind": kind, "delta": delta, "points": points}
