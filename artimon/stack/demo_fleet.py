"""A fleet that does not exist: hosts, a web shop, Kafka and HDFS, with the days, weeks and incidents of a real one.

All of it follows from the seed and the times, so the same call gives the same samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.stack.demo_services import GIB, SERVICES, Floats, service_columns

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
FINE_DAYS = 3
"""Days up to now with a sample a minute, as memory holds them; earlier ones have one each COARSE_MS."""
COARSE_MS = 10 * MINUTE_MS
SENT_DAYS, MAX_SENT_DAYS = 30, 89
"""Days that are sent to an agent: all up to the second number, as samples older than 90 days are dead letters; of a
longer history only the last SENT_DAYS. Its older days are imported, with a sample an hour."""
CHUNK_POINTS = 144
RACKS, DATACENTERS = 10, 2
ROLES = (("web", 0.6), ("db", 0.18), ("cache", 0.1), ("kafka", 0.02), ("batch", 0.1))
ROUTES = (("GET", "/", 1.0), ("GET", "/search", 0.4), ("POST", "/cart", 0.1))
BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0)
RELEASE_DAYS = (29, 22, 15, 8, 1)
"""Days before now at which all of the shop got a new version."""
BAD_DEPLOYS = ("deploy", "again", "spring", "first")
"""Incidents in which the shop answers by 500."""
Flags = npt.NDArray[np.bool_]
Times = npt.NDArray[np.int64]
"""Epoch milliseconds."""
Ints = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class DemoMetric:
    """Kind, unit and help of a name."""

    kind: str
    unit: str
    help: str


METRICS = {
    "host.load": DemoMetric("gauge", "", "Processes that run or wait"),
    "host.cpu.ms": DemoMetric("counter", "ms", "Time that the CPU spent in each mode since the machine started"),
    "host.memory.total.bytes": DemoMetric("gauge", "bytes", "Memory of the machine"),
    "host.memory.available.bytes": DemoMetric("gauge", "bytes", "Memory that programs can have without swapping"),
    "host.volume.size.bytes": DemoMetric("gauge", "bytes", "Size of the file system"),
    "host.volume.used.bytes": DemoMetric("gauge", "bytes", "Space that files use"),
    "host.volume.available.bytes": DemoMetric("gauge", "bytes", "Space that ordinary users may still have"),
    "host.network.received.bytes": DemoMetric("counter", "bytes", ""),
    "host.network.sent.bytes": DemoMetric("counter", "bytes", ""),
    "host.disk.read.bytes": DemoMetric("counter", "bytes", "Bytes read"),
    "host.disk.written.bytes": DemoMetric("counter", "bytes", "Bytes written"),
    "http.requests": DemoMetric("counter", "", "Requests answered"),
    "http.request.seconds.bucket": DemoMetric("counter", "", "Requests by duration"),
    "http.request.seconds.sum": DemoMetric("counter", "s", "Time that requests took, added up"),
    "http.request.seconds.count": DemoMetric("counter", "", "Requests timed"),
    "shop.version": DemoMetric("gauge", "", "Version of the web shop that a data centre has"),
    "jvm.uptime.ms": DemoMetric("gauge", "ms", "Time since the JVM started"),
    **{one.name: DemoMetric(one.kind, one.unit, one.help) for table in SERVICES.values() for one in table},
}


@dataclass(frozen=True, slots=True)
class DemoIncident:
    """An incident, from `begin_ms` until `end_ms`."""

    name: str
    begin_ms: int
    end_ms: int
    text: str

    def share(self, times_ms: Times) -> Floats:
        """Return 1 during the incident, else 0, for each time."""
        return ((times_ms >= self.begin_ms) & (times_ms < self.end_ms)).astype(np.float64)

    def progress(self, times_ms: Times) -> Floats:
        """Return 0 before the incident, rising to 1 at its end, 0 afterwards."""
        part = (times_ms - self.begin_ms) / (self.end_ms - self.begin_ms)
        return np.where((part >= 0) & (part < 1), part, 0.0)


@dataclass(frozen=True, slots=True)
class DemoHost:
    """One host; `size` scales its traffic."""

    name: str
    role: str
    rack: str
    datacenter: str
    size: float
    phase_ms: int

    @property
    def labels(self) -> dict[str, str]:
        return {
            "host": self.name,
            "context": "demo",
            "role": self.role,
            "rack": self.rack,
            "datacenter": self.datacenter,
        }


@dataclass(frozen=True, slots=True)
class DemoSamples:
    """Samples at some times: `values` and `present` are (series, times)."""

    times_ms: Times
    values: Floats
    present: Flags


Column = tuple[str, dict[str, str], Floats]
"""Name, labels and values at the times of a chunk; of a counter the increase since the time before."""


@dataclass(slots=True)
class DemoFleet:
    """Hosts and incidents. `samples` yields all samples in the order of time, a chunk of times at once."""

    hosts: int
    days: int
    end_ms: int
    seed: int = 1
    incidents: dict[str, DemoIncident] = field(init=False)
    fleet: list[DemoHost] = field(init=False)
    series: list[tuple[str, dict[str, str]]] = field(init=False)
    """Name and labels, those of a host together."""
    _names: dict[str, list[str]] = field(init=False)
    """Names of the hosts of each role; that of the first host for a role without any."""
    _host_of: Ints = field(init=False)
    _is_counter: Flags = field(init=False)
    _state: Floats = field(init=False)

    def __post_init__(self) -> None:
        """`end_ms`: time of the last samples, a full minute."""
        self.fleet = list(self._make_hosts())
        self._names = {
            role: [host.name for host in self.fleet if host.role == role] or [self.fleet[0].name] for role, _ in ROLES
        }
        self.incidents = {one.name: one for one in self._make_incidents()}
        columns = [self._columns(host, np.array([self.end_ms]), MINUTE_MS) for host in self.fleet]
        self.series = [(name, labels) for found in columns for name, labels, _ in found]
        self._host_of = np.repeat(np.arange(self.hosts), [len(found) for found in columns])
        self._is_counter = np.array([METRICS[name].kind == "counter" for name, _ in self.series])
        generator = np.random.default_rng(self.seed)
        self._state = np.where(self._is_counter, np.floor(generator.random(len(self.series)) * 1e6), 0.0)

    @property
    def phases_ms(self) -> Times:
        """Offset of the samples of each series within their minute."""
        return np.array([host.phase_ms for host in self.fleet], np.int64)[self._host_of]

    def groups(self, count: int) -> list[Ints]:
        """Divide the series into groups of whole hosts, none empty."""
        numbers = [np.flatnonzero(self._host_of % count == number) for number in range(count)]
        return [rows for rows in numbers if len(rows)]

    def _make_hosts(self) -> Iterator[DemoHost]:
        generator = np.random.default_rng(self.seed)
        for number in range(self.hosts):
            share, role = (number + 0.5) / self.hosts, ROLES[-1][0]
            for name, part in ROLES:
                if share < part:
                    role = name
                    break
                share -= part
            rack = number % RACKS
            size = float(0.7 + 0.6 * generator.random())
            phase_ms = int(generator.integers(0, 10_000))
            yield DemoHost(
                f"demo-{role}-{number:03}", role, f"r{rack + 1:02}", f"dc{rack % DATACENTERS + 1}", size, phase_ms
            )

    def _make_incidents(self) -> Iterator[DemoIncident]:
        """Make incidents, the newest of which last until the end."""
        now, hour = self.end_ms, HOUR_MS
        yield DemoIncident(
            "deploy", now - 50 * hour, now - 50 * hour + 35 * MINUTE_MS, "a deploy in dc1 answers 8 % by 500"
        )
        yield DemoIncident(
            "again", now - 40 * MINUTE_MS, now - 25 * MINUTE_MS, "a deploy in dc1 fails again, for 15 minutes"
        )
        yield DemoIncident(
            "spring", now - 101 * DAY_MS, now - 101 * DAY_MS + 4 * hour, "a deploy in dc1 fails for four hours"
        )
        yield DemoIncident(
            "first", now - 230 * DAY_MS, now - 230 * DAY_MS + 6 * hour, "a deploy in dc1 fails for six hours"
        )
        yield DemoIncident(
            "rack", now - 9 * DAY_MS, now - 9 * DAY_MS + 50 * MINUTE_MS, "rack r03 has no power for 50 minutes"
        )
        yield DemoIncident(
            "slow", now - 6 * DAY_MS, now - 6 * DAY_MS + 3 * hour, "a database is slow: pages take four times as long"
        )
        yield DemoIncident("disk", now - 5 * DAY_MS, now + hour, "a database fills its disk since five days")
        yield DemoIncident("silent", now - 26 * hour, now + hour, "a batch host is silent since yesterday")

    def _bad_deploy(self, datacenter: str, times_ms: Times) -> Floats:
        """Return 1 while a data centre has a version that fails, else 0."""
        found = np.sum([self.incidents[name].share(times_ms) for name in BAD_DEPLOYS], axis=0)
        return np.asarray(found * (datacenter == "dc1"))

    @property
    def begin_ms(self) -> int:
        """Time of the first samples."""
        return self.end_ms - self.days * DAY_MS

    @property
    def sent_days(self) -> int:
        """Days up to the end that are sent."""
        return self.days if self.days <= MAX_SENT_DAYS else SENT_DAYS

    def past(self) -> Iterator[DemoSamples]:
        """Yield the samples that are too old to be sent. Call `samples` after it."""
        yield from self._between(self.begin_ms, self.end_ms - self.sent_days * DAY_MS, HOUR_MS)

    def samples(self) -> Iterator[DemoSamples]:
        """Yield the samples that are sent."""
        fine_from = self.end_ms - min(self.days, FINE_DAYS) * DAY_MS
        yield from self._between(self.end_ms - self.sent_days * DAY_MS, fine_from, COARSE_MS)
        yield from self._between(fine_from, self.end_ms + 1, MINUTE_MS)

    def _between(self, from_ms: int, until_ms: int, step_ms: int) -> Iterator[DemoSamples]:
        times = np.arange(from_ms, until_ms, step_ms, dtype=np.int64)
        for at in range(0, len(times), CHUNK_POINTS):
            yield self.at(times[at : at + CHUNK_POINTS], step_ms)

    def at(self, times_ms: Times, step_ms: int) -> DemoSamples:
        """Return the samples at times of equal steps, which follow those of the last call."""
        values = np.stack([values for host in self.fleet for _, _, values in self._columns(host, times_ms, step_ms)])
        grown = np.floor(np.cumsum(values[self._is_counter], axis=1)) + self._state[self._is_counter, None]
        values[self._is_counter] = grown
        self._state[self._is_counter] = grown[:, -1]
        here = np.stack([self._is_up(host, times_ms) for host in self.fleet])
        return DemoSamples(times_ms, values, here[self._host_of])

    def _is_up(self, host: DemoHost, times_ms: Times) -> Flags:
        down = np.zeros(len(times_ms))
        if host.rack == "r03":
            down += self.incidents["rack"].share(times_ms)
        if host.name == self._names["batch"][0]:
            down += self.incidents["silent"].share(times_ms)
        number = self.fleet.index(host)
        if number % 4 == 3 and self.days > MAX_SENT_DAYS:  # a year sees new hosts
            down += times_ms < self.begin_ms + number / self.hosts * (self.days - SENT_DAYS) * DAY_MS
        up: Flags = down == 0
        return up

    def _activity(self, host: DemoHost, times_ms: Times) -> Floats:
        """Return the share of a host's capacity that is in use, by hour and weekday, with noise."""
        hour = times_ms / HOUR_MS % 24
        weekday = (times_ms // DAY_MS + 3) % 7
        daily = 0.55 + 0.35 * np.sin((hour - 9) / 24 * 2 * np.pi) + 0.08 * np.sin((hour - 3) / 12 * 2 * np.pi)
        weekly = np.where(weekday >= 5, 0.6, 1.0)
        noise = _noise(times_ms, host.phase_ms + self.seed)
        busy = np.where((hour >= 1) & (hour < 4), 0.9, 0.1) if host.role == "batch" else daily * weekly
        found: Floats = np.clip(busy * host.size * (1 + 0.12 * noise), 0.02, 1.0)
        return found

    def _columns(self, host: DemoHost, times_ms: Times, step_ms: int) -> list[Column]:
        """Return all series of a host."""
        activity, seconds = self._activity(host, times_ms), step_ms / 1000
        columns = [*_host_columns(host, activity, seconds), *self._volumes(host, times_ms)]
        if host.role == "web":
            columns += self._web(host, activity, times_ms, seconds)
        if host in self.fleet[:DATACENTERS]:
            columns.append(self._version(host.datacenter, times_ms))
        if host.role in ("kafka", "batch"):
            columns += self._services(host, activity, times_ms, seconds)
        return columns

    def _version(self, datacenter: str, times_ms: Times) -> Column:
        """Return the version of the shop in a data centre, which a deploy that fails raises until it is taken back."""
        days = (self.end_ms - times_ms) / DAY_MS
        releases = np.sum(days <= np.array(RELEASE_DAYS)[:, None], axis=0)
        version = 4 + 0.1 * (releases + self._bad_deploy(datacenter, times_ms))
        return "shop.version", {"context": "demo", "datacenter": datacenter}, np.round(version, 1)

    def _services(self, host: DemoHost, activity: Floats, times_ms: Times, seconds: float) -> Iterator[Column]:
        """Yield a Kafka broker or a DataNode. The first broker is the controller, the last batch host the NameNode."""
        names = self._names[host.role]
        sizes = {"jvm": 1}
        """Factor of the values of each service of the host."""
        if host.role == "kafka":
            sizes |= {"kafka": 1} | ({"controller": len(names)} if host.name == names[0] else {})
        elif host.name == names[-1]:
            sizes |= {"namenode": len(names)}
        labels = {**host.labels, "instance": "broker" if host.role == "kafka" else "hadoop"}
        yield "jvm.uptime.ms", labels, np.floor(times_ms % (host.size * 7 * DAY_MS))
        shares = {name: one.share(times_ms) for name, one in self.incidents.items()}
        for service, size in sizes.items():
            for name, own, values in service_columns(service, activity, seconds, size, shares):
                yield name, {**labels, **own}, values

    def _volumes(self, host: DemoHost, times_ms: Times) -> Iterator[Column]:
        """Yield two volumes: one grows slowly, and one is cleaned each night; a database fills its second one.

        Over more than MAX_SENT_DAYS those of databases grow by 28 to 52 %, the others as in SENT_DAYS."""
        age = (times_ms - self.begin_ms) / DAY_MS * self.sent_days / self.days
        grows = host.role == "db" and self.days > MAX_SENT_DAYS
        filling = self.incidents["disk"].progress(times_ms) * (host.name == self._names["db"][0])
        data = 0.35 + 0.04 * (times_ms % DAY_MS) / DAY_MS
        data += (0.004 + 0.4 / SENT_DAYS * host.size * grows) * age
        for volume, device, size, used in (
            ("/", "sda1", 100 * GIB, 0.30 + 0.002 * age),
            ("/data", "sdb1", 500 * GIB, np.minimum(data + 0.6 * filling, 0.985)),
        ):
            labels = {**host.labels, "volume": volume, "device": device, "fs": "ext4"}
            taken = np.floor(used * size)
            yield "host.volume.size.bytes", labels, np.full(len(times_ms), size)
            yield "host.volume.used.bytes", labels, taken
            yield "host.volume.available.bytes", labels, size - taken

    def _web(self, host: DemoHost, activity: Floats, times_ms: Times, seconds: float) -> Iterator[Column]:
        """Yield requests by route and status, and their durations."""
        requests = activity * 80 * seconds
        failing = 0.001 + 0.08 * self._bad_deploy(host.datacenter, times_ms)
        for method, route, share in ROUTES:
            labels = {**host.labels, "method": method, "route": route}
            yield "http.requests", {**labels, "status": "200"}, requests * share * (1 - failing)
            yield "http.requests", {**labels, "status": "500"}, requests * share * failing
        mean = (0.06 + 0.12 * activity**2) * (1 + 3 * self.incidents["slow"].share(times_ms))
        labels = {**host.labels, "method": "GET", "route": "/"}
        for bound in BOUNDS:
            below = requests * (1 - np.exp(-bound / mean))
            yield "http.request.seconds.bucket", {**labels, "le": f"{bound:g}"}, below
        yield "http.request.seconds.bucket", {**labels, "le": "+Inf"}, requests
        yield "http.request.seconds.sum", labels, requests * mean
        yield "http.request.seconds.count", labels, requests


def _host_columns(host: DemoHost, activity: Floats, seconds: float) -> Iterator[Column]:
    """Yield processor, load, memory, network and disk of a host."""
    user, system = 0.75 * activity, 0.12 * activity
    waiting = (0.10 if host.role == "db" else 0.02) * activity
    modes = {"user": user, "system": system, "iowait": waiting, "idle": 1 - user - system - waiting}
    for mode, share in modes.items():
        yield "host.cpu.ms", {**host.labels, "cpu": "0", "mode": mode}, share * seconds * 1000
    for window, calm in (("1m", 1.0), ("5m", 0.97), ("15m", 0.93)):
        yield "host.load", {**host.labels, "window": window}, np.round(6 * activity * calm, 2)
    total = 32 * GIB
    yield "host.memory.total.bytes", host.labels, np.full(len(activity), total)
    yield "host.memory.available.bytes", host.labels, np.floor(total * (0.75 - 0.45 * activity))
    network, disk = {**host.labels, "interface": "eth0"}, {**host.labels, "device": "sda"}
    yield "host.network.received.bytes", network, activity * 4e6 * seconds
    yield "host.network.sent.bytes", network, activity * 9e6 * seconds
    yield "host.disk.read.bytes", disk, activity * (8e6 if host.role == "db" else 1e6) * seconds
    yield "host.disk.written.bytes", disk, activity * (5e6 if host.role == "db" else 5e5) * seconds


def _noise(times_ms: Times, salt: int) -> Floats:
    """Return numbers between -1 and 1 that follow from time and salt: smooth over half an hour, rough within it."""
    slow, rough = times_ms / (30 * MINUTE_MS), times_ms // MINUTE_MS
    waves = np.sin(slow + salt) * 0.5 + np.sin(slow * 0.37 + 2.1 * salt) * 0.3
    mixed: Any = (rough * 2_654_435_761 + salt * 40_503) % 1_000
    found: Floats = waves + (mixed / 1_000 - 0.5) * 0.4
    return found
