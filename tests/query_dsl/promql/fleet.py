"""A synthetic fleet: metrics of hosts, pods, web services and JVMs, as scraped every 30 s for three hours."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np

from artimon.model.select import Matcher
from benchmarks.peers.series import Floats, Ints, PeerSeries
from query_dsl.promql.label_sets import LabelSets
from query_dsl.promql.samples import SeriesSamples
from query_dsl.tree.selector import accepts

STEP_MS = 30_000
COUNT = 360
START_MS = 1_700_000_007_300
"""Seven seconds after a minute: no sample lies on the edge of a window."""
TIMES_MS = START_MS + STEP_MS * np.arange(COUNT, dtype=np.int64)
LE = ("0.005", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "+Inf")
HOSTS = [{"instance": f"host-{i}:9100", "dc": "ab"[i % 2]} for i in range(4)]
PODS = [{"namespace": "shop" if i % 2 else "mail", "pod": f"web-{i}"} for i in range(5)]


class FleetSamples:
    """A SampleSource over series in arrays."""

    def __init__(self, series: list[PeerSeries]) -> None:
        self._series = series

    def read(self, matchers: tuple[Matcher, ...], after_ms: int, until_ms: int) -> SeriesSamples:
        """See SampleSource."""
        labels, times, values, counts = [], [], [], []
        for one in self._series:
            found = {**one.labels, "__name__": one.name}
            if not all(accepts(matcher, found.get(matcher.label, "")) for matcher in matchers):
                continue
            first, last = np.searchsorted(one.times_ms, [after_ms, until_ms], side="right").tolist()
            if last > first:
                labels.append(found)
                times.append(one.times_ms[first:last])
                values.append(one.values[first:last])
                counts.append(last - first)
        none_ms, none = np.zeros(0, np.int64), np.zeros(0)
        return SeriesSamples(
            np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
            np.concatenate([none_ms, *times]),
            np.concatenate([none, *values]),
            LabelSets.from_dicts(labels),
            np.zeros(len(labels), np.bool_),
        )


class Fleet:
    """Makes the series from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._numbers = np.random.default_rng(seed)

    def series(self) -> list[PeerSeries]:
        return [*self._hosts(), *self._pods(), *self._services()]

    def _made(
        self, name: str, labels: dict[str, str], values: Floats, integer: bool, reset: int | None = None
    ) -> PeerSeries:
        """Leave out some scrapes, and the end of some series; of gauges also the begin.

        Prometheus 2 extrapolates to the zero of a counter further than Prometheus 3 where a scrape is missing while its
        value is below that of one mean step, so that the first ten scrapes and those after a reset are there."""
        keep = self._numbers.random(COUNT) > 0.01
        if self._random.random() < 0.05:
            keep[self._random.randrange(10, COUNT) :] = False
        if reset is None and self._random.random() < 0.05:
            keep[: self._random.randrange(COUNT - 10)] = False
        if reset is not None:
            keep[:10] = keep[reset : reset + 10] = True
        times: Ints = TIMES_MS[keep]
        return PeerSeries(name, labels, times, np.round(values[keep], 0 if integer else 6), integer)

    def counter(self, name: str, labels: dict[str, str], most: float, integer: bool = False) -> PeerSeries:
        """A counter that grows by up to `most` a scrape and sometimes begins anew."""
        grown = self._numbers.random(COUNT) * most
        values = np.cumsum(np.floor(grown) if integer else grown)
        at = self._random.randrange(1, COUNT) if self._random.random() < 0.3 else 0
        values[at:] -= values[at]
        return self._made(name, labels, values, integer, at)

    def gauge(self, name: str, labels: dict[str, str], low: float, high: float, integer: bool = False) -> PeerSeries:
        values = low + (high - low) * self._numbers.random(COUNT)
        return self._made(name, labels, np.floor(values) if integer else values, integer)

    def constant(self, name: str, labels: dict[str, str], value: float) -> PeerSeries:
        return self._made(name, labels, np.full(COUNT, value), float(value).is_integer())

    def _hosts(self) -> Iterator[PeerSeries]:
        for i, host in enumerate(HOSTS):
            labels = {**host, "job": "node"}
            yield self.gauge("up", labels, 0.1, 1.99, integer=True)
            for cpu in ("0", "1"):
                for mode in ("idle", "user", "system", "iowait"):
                    yield self.counter("node_cpu_seconds_total", {**labels, "cpu": cpu, "mode": mode}, 30)
            for name in ("node_load1", "node_load5"):
                yield self.gauge(name, labels, 0.1, 2.5)
            yield self.constant("node_memory_MemTotal_bytes", labels, 16e9 * (1 + i % 2))
            for part in ("MemAvailable", "MemFree", "Cached"):
                yield self.gauge(f"node_memory_{part}_bytes", labels, 1e9, 8e9, integer=True)
            yield self.counter("node_vmstat_pgmajfault", labels, 20, integer=True)
            for mount, fstype in (("/", "ext4"), ("/data", "xfs"), ("/run", "tmpfs")):
                where = {**labels, "mountpoint": mount, "fstype": fstype, "device": f"/dev/{fstype}"}
                yield self.constant("node_filesystem_size_bytes", where, 1e11)
                yield self.gauge("node_filesystem_avail_bytes", where, 1e10, 9e10, integer=True)
                yield self.constant("node_filesystem_readonly", where, float(mount == "/run"))
            for device in ("eth0", "lo", "veth12"):
                for way in ("receive", "transmit"):
                    name = f"node_network_{way}_bytes_total"
                    yield self.counter(name, {**labels, "device": device}, 1e6, integer=True)
            for device in ("sda", "sdb"):
                yield self.counter("node_disk_io_time_seconds_total", {**labels, "device": device}, 20)
                yield self.counter("node_disk_read_time_seconds_total", {**labels, "device": device}, 5)
                for name in ("node_disk_read_bytes_total", "node_disk_reads_completed_total"):
                    yield self.counter(name, {**labels, "device": device}, 1e5, integer=True)
            yield self.constant("node_boot_time_seconds", labels, 1_699_000_000.25 + i * 1000)
            yield self.constant("node_time_seconds", labels, 1_700_003_000)
            yield self.constant("node_uname_info", {**labels, "nodename": f"n{i}"}, 1)

    def _pods(self) -> Iterator[PeerSeries]:
        for i, pod in enumerate(PODS):
            labels = {**pod, "job": "kubelet"}
            yield self.constant("kube_pod_info", {**labels, "node": f"n{i % 3}"}, 1)
            for phase in ("Running", "Pending", "Failed"):
                yield self.gauge("kube_pod_status_phase", {**labels, "phase": phase}, 0, 1.99, integer=True)
            for resource, value in (("cpu", 2.0), ("memory", 4e9)):
                yield self.constant("kube_pod_container_resource_requests", {**labels, "resource": resource}, value)
            yield self.counter("kube_pod_container_status_restarts_total", labels, 1.02, integer=True)
            for container in ("app", "proxy"):
                inside = {**labels, "container": container}
                yield self.counter("container_cpu_usage_seconds_total", inside, 25)
                yield self.gauge("container_memory_working_set_bytes", inside, 1e8, 1e9, integer=True)
        for name in ("web", "db"):
            labels = {"namespace": "shop", "deployment": name, "job": "kubelet"}
            yield self.constant("kube_deployment_spec_replicas", labels, 3)
            yield self.gauge("kube_deployment_status_replicas_available", labels, 2, 3.99, integer=True)

    def _services(self) -> Iterator[PeerSeries]:
        for i in range(3):
            labels = {"instance": f"api-{i}:8080", "job": "api"}
            yield self.gauge("up", labels, 0.1, 1.99, integer=True)
            for handler in ("/api", "/login"):
                for code in ("200", "404", "500"):
                    found = {**labels, "handler": handler, "code": code}
                    yield self.counter("http_requests_total", found, 50)
                yield from self._histogram({**labels, "handler": handler})
            for area in ("heap", "nonheap"):
                yield self.gauge("jvm_memory_used_bytes", {**labels, "area": area}, 1e8, 9e8, integer=True)
                yield self.constant("jvm_memory_max_bytes", {**labels, "area": area}, 1e9)
            yield self.counter("jvm_gc_collection_seconds_sum", {**labels, "gc": "G1"}, 0.5)
            yield self.counter("jvm_gc_collection_seconds_count", {**labels, "gc": "G1"}, 5, integer=True)
            yield self.gauge("process_open_fds", labels, 50, 200, integer=True)
            yield self.constant("process_max_fds", labels, 1024)
            yield self.gauge("process_resident_memory_bytes", labels, 5e7, 3e8, integer=True)
            yield self.counter("process_cpu_seconds_total", labels, 20)
            yield self.constant("build_info", {**labels, "version": f"1.{i // 2}"}, 1)

    def _histogram(self, labels: dict[str, str]) -> Iterator[PeerSeries]:
        name, times = "http_request_duration_seconds", TIMES_MS
        each = self._numbers.integers(0, 20, (len(LE), COUNT))
        buckets = np.cumsum(np.cumsum(each, axis=0), axis=1).astype(np.float64)
        for le, values in zip(LE, buckets, strict=True):
            yield PeerSeries(f"{name}_bucket", {**labels, "le": le}, times, values, True)
        yield PeerSeries(f"{name}_count", labels, times, buckets[-1], True)
        yield self.counter(f"{name}_sum", labels, 40)
