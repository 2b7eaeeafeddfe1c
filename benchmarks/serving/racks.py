"""Mean by rack over HTTP: a shard and an API as separate processes, and peers with the same query."""

from __future__ import annotations

import http.client
import itertools
import json
import math
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
import numpy.typing as npt
import psutil

from artimon.api.api_limits import ApiLimits
from artimon.api.api_server import ApiServer
from artimon.api.app import make_app
from artimon.model.feed_codec import FeedRange, encode_range
from artimon.model.vshards import ALL_VSHARDS
from artimon.runtime.process_setup import tune_gc
from artimon.runtime.zookeeper_client import zookeeper_client
from artimon.stack.stack import Stack
from benchmarks.loads.racks import MINUTE_MS, NAME, RackWorld, loaded_shard
from benchmarks.peers.series import Peer, plain_name
from benchmarks.serving.living import Living, WorldClock
from bookkeeper.rpc.framed_server import FramedClient, FramedServer
from varstore.cluster.cluster_directory import ShardAddress
from varstore.cluster.membership import SHARDS_PATH, VARSTORE_PATH, Membership
from varstore.cluster.varstore_client import VarstoreClient
from varstore.shard.shard_service import ShardService, idl
from varstore.shard_process import THREAD_SWITCH_S

FEED_RATE, FEED_ROWS = 25_000, 5_000
SETTLED_MS = 15_000
PEER_ROUNDS = 7
AT_ONCE = 6
"""Requests at a time of one browser."""
FRAME = 512 << 20
Floats = npt.NDArray[np.float64]


class WrongMeans(RuntimeError):
    """An answer differs from the mean of the samples."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Answers to repeated queries. `ms`: median; `means`: (racks, minutes), racks ascending; `size`: bytes of one."""

    ms: float
    means: Floats
    size: int


@dataclass(frozen=True, slots=True)
class Got:
    """Seconds of each query from the request to the last byte of JSON; the last answer, and its size in bytes."""

    seconds: list[float]
    answer: dict[str, Any]
    size: int


@dataclass(slots=True)
class Together:
    """Result of feeding and querying at once: p99 in milliseconds, queries a second."""

    fed: list[float] = field(default_factory=list)
    asked: list[float] = field(default_factory=list)
    seconds: float = 1.0

    @property
    def feed_p99(self) -> float:
        return _p99(self.fed)

    @property
    def ask_p99(self) -> float:
        return _p99(self.asked)

    @property
    def asked_s(self) -> float:
        return len(self.asked) / self.seconds


def _p99(values: list[float]) -> float:
    return float(np.percentile(values, 99)) * 1000 if values else math.nan


@dataclass(frozen=True, slots=True)
class Refresh:
    """Seconds of each request of a refresh, and of the whole; bytes of each answer. `began_s`: monotonic time of its
    start, the same in all processes; `refused`: answers with another status than 200."""

    began_s: float
    took: list[float]
    sizes: list[int]
    seconds: float
    refused: int


class Browser:
    """Client that sends at most AT_ONCE requests at a time over kept connections, and takes gzip."""

    def __init__(self, place: str, age_s: int = 0) -> None:
        """`age_s`: age in seconds that answers may have."""
        self._place = place
        self._headers = {"accept-encoding": "gzip", **({"cache-control": f"max-age={age_s}"} if age_s else {})}
        self._idle: SimpleQueue[http.client.HTTPConnection] = SimpleQueue()
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self.refreshes: list[Refresh] = []
        self.problem = ""
        """First answer with another status than 200."""

    def get(self, paths: Sequence[str]) -> float:
        """Request all paths and return the seconds that it took."""
        began = time.monotonic()
        found = list(self._pool.map(self._get, paths))
        took, sizes = [seconds for seconds, _, _ in found], [size for _, size, _ in found]
        seconds = time.monotonic() - began
        refused = sum(status != HTTPStatus.OK for _, _, status in found)
        self.refreshes.append(Refresh(began, took, sizes, seconds, refused))
        return seconds

    def _get(self, path: str) -> tuple[float, int, int]:
        try:
            connection = self._idle.get_nowait()
        except Empty:
            connection = http.client.HTTPConnection(self._place, timeout=120)
        began = time.perf_counter()
        connection.request("GET", path, headers=self._headers)
        answer = connection.getresponse()
        body = answer.read()
        took = time.perf_counter() - began
        if answer.status != HTTPStatus.OK and not self.problem:
            self.problem = f"{answer.status} {path}: {body[:500]!r}"
        self._idle.put(connection)
        return took, len(body), answer.status

    def close(self) -> None:
        """Close the connections."""
        self._pool.shutdown()
        while not self._idle.empty():
            self._idle.get().close()


class Served:
    """Context manager of ZooKeeper, a shard that holds a world, and an API."""

    def __init__(
        self,
        world: Any,
        folder: Path,
        base_port: int,
        made: Callable[[], Any] | None = None,
        limits: ApiLimits | None = None,
    ) -> None:
        """Prepare a stack; `made` makes the same world in the process of the shard."""
        self._world, self._folder, self._base_port = world, folder, base_port
        self._made = made or partial(RackWorld, world.series, world.minutes, world.end_ms)
        self._limits = limits or ApiLimits()
        self._next_offset = self._fed_minutes = 0
        self._numbers = itertools.count()
        self._began_s: float | None = None

    def __enter__(self) -> Served:
        self._stack = Stack(self._folder, ["zookeeper"], base_port=self._base_port)
        self._stack.__enter__()
        spawn = multiprocessing.get_context("spawn")
        self._processes: list[tuple[Any, Connection]] = []
        self._shard_port, self._next_offset = self._start(spawn, _serve_shard, self._stack.zookeeper, self._made)
        self._api_port, _ = self._start(spawn, _serve_api, self._stack.zookeeper, self._world.end_ms, self._limits)
        return self

    @property
    def address(self) -> str:
        """URL of the API."""
        return f"http://127.0.0.1:{self._api_port}"

    def _start(self, spawn: Any, target: Callable[..., None], *args: object) -> tuple[int, int]:
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=target, args=(theirs, *args), daemon=True)
        process.start()
        self._processes.append((process, ours))
        if not ours.poll(900):
            raise TimeoutError(f"{target.__name__} does not start")
        port, offset = ours.recv()
        return int(port), int(offset)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process, pipe in reversed(self._processes):
            pipe.send("end")
            process.join(20)
        self._stack.__exit__(kind, error, trace)

    def ask(self, rounds: int, anew: bool) -> Asked:
        """Query the mean by rack as JSON over one kept connection; `anew`: with a new text each time."""
        connection = http.client.HTTPConnection("127.0.0.1", self._api_port, timeout=60)
        took, body = [], b""
        for _ in range(rounds):
            seconds, body = _get(connection, self._path(anew))
            took.append(seconds)
        connection.close()
        found = json.loads(body)
        rows = sorted((one["labels"]["rack"], one["values"]) for one in found["series"])
        return Asked(float(np.median(took)) * 1000, np.array([values for _, values in rows], np.float64), len(body))

    def _path(self, anew: bool = True) -> str:
        """Return the URL path of the query; a matcher of an unused label gives it a new text with the same answer."""
        unknown = f'{{none{next(self._numbers)}=""}}' if anew else ""
        text = f"fetch('{NAME}{unknown}').mean(by=['rack']).range('{self._world.minutes}m')"
        return query_path(text)

    def get(self, texts: Sequence[str]) -> Got:
        """Send queries over one kept connection."""
        return _get_all(f"127.0.0.1:{self._api_port}", [query_path(text) for text in texts])

    def users(
        self, paths: Callable[[int], Sequence[str]], users: int, seconds: float, pause_s: float, age_s: int = 0
    ) -> list[Browser]:
        """Return the browsers of `browse` at the API."""
        return browse(f"127.0.0.1:{self._api_port}", paths, users, seconds, pause_s, age_s)

    def now_ms(self) -> int:
        """Return the time of the API's clock."""
        passed = 0.0 if self._began_s is None else time.monotonic() - self._began_s
        return int(self._world.end_ms) + SETTLED_MS + round(passed * 1000)

    def memory(self) -> tuple[int, int]:
        """Return the resident bytes of the shard and of the API."""
        shard, api = (psutil.Process(process.pid).memory_info().rss for process, _ in self._processes)
        return shard, api

    @contextmanager
    def living(self, seconds: float) -> Iterator[Living]:
        """Run the clock of the API and feed the next minutes to the shard; allowed once for a world."""
        client = FramedClient(idl().Shard, "127.0.0.1", self._shard_port, 60.0, max_frame=FRAME)

        def feed(range_: FeedRange) -> None:
            answer = client.call("feed", encode_range(range_))
            if answer.next_offset != range_.until or answer.applied != len(range_.samples):
                raise RuntimeError(f"the shard did not take a range: {answer}")

        stop, living = threading.Event(), Living(self._world, SETTLED_MS, self._next_offset, feed)
        self._processes[-1][1].send("start")
        self._began_s = time.monotonic()
        with client, ThreadPoolExecutor(1) as pool:
            fed = pool.submit(living.run, stop)
            try:
                yield living
            finally:
                stop.set()
            fed.result(seconds)
        self._next_offset = living.offset

    def together(self, seconds: float, clients: int, feeding: bool = True, asked: Served | None = None) -> Together:
        """Feed the shard at FEED_RATE while `clients` query this one or `asked` without a pause."""
        found, stop = Together(seconds=seconds), threading.Event()
        threads = [threading.Thread(target=(asked or self)._ask_on, args=(found.asked, stop)) for _ in range(clients)]
        if feeding:
            threads.append(threading.Thread(target=self._feed_on, args=(found.fed, stop)))
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        stop.set()
        for thread in threads:
            thread.join()
        return found

    def _ask_on(self, took: list[float], stop: threading.Event) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._api_port, timeout=60)
        while not stop.is_set():
            took.append(_get(connection, self._path())[0])
        connection.close()

    def _feed_on(self, took: list[float], stop: threading.Event) -> None:
        """Feed ranges of five sources, one minute of the world after the other, each at its time."""
        client = FramedClient(idl().Shard, "127.0.0.1", self._shard_port, 60.0, max_frame=FRAME)
        sources = len(list(self._world.sources()))
        began, turn = time.monotonic(), 0
        while not stop.is_set():
            minute, first = divmod(turn * 5, sources)
            at = self._world.minutes + self._fed_minutes + minute
            range_ = self._world.poll(at, self._next_offset, ALL_VSHARDS, slice(first, first + 5))
            parts = encode_range(range_)
            start = time.perf_counter()
            answer = client.call("feed", parts)
            took.append(time.perf_counter() - start)
            if answer.next_offset != range_.until or answer.applied != FEED_ROWS:
                raise RuntimeError(f"the shard did not take a range: {answer}")
            self._next_offset, turn = range_.until, turn + 1
            stop.wait(max(0.0, began + turn * FEED_ROWS / FEED_RATE - time.monotonic()))
        self._fed_minutes += turn * 5 // sources + 1
        client.close()


def browse(
    place: str, paths: Callable[[int], Sequence[str]], users: int, seconds: float, pause_s: float, age_s: int = 0
) -> list[Browser]:
    """Return the browsers of `users`. Each refreshes every `pause_s`, or at once after a refresh that took longer.
    `paths(user)` returns the requests of the next refresh. `age_s`: age that answers may have."""
    browsers = [Browser(place, age_s) for _ in range(users)]
    until, lock, stopped = time.monotonic() + seconds, threading.Lock(), threading.Event()

    def refresh_on(user: int) -> None:
        stopped.wait(pause_s * user / users)
        while time.monotonic() < until:
            with lock:
                asked = paths(user)
            stopped.wait(max(0.0, pause_s - browsers[user].get(asked)))
        browsers[user].close()

    with ThreadPoolExecutor(users) as pool:
        list(pool.map(refresh_on, range(users)))  # raises the error of a user
    return browsers


def query_path(text: str) -> str:
    """Return the path of a query whose answer is JSON."""
    return f"/api/query?q={quote(text)}&format=json"


def _get(connection: http.client.HTTPConnection, path: str) -> tuple[float, bytes]:
    began = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    took = time.perf_counter() - began
    if answer.status != 200:
        raise RuntimeError(f"status {answer.status}: {body[:300]!r}")
    return took, body


def _serve_shard(pipe: Connection, zookeeper: str, made: Callable[[], Any]) -> None:
    sys.setswitchinterval(THREAD_SWITCH_S)  # as a shard process does
    tune_gc()
    world = made()
    shard = loaded_shard(world, world.series * 2 + 50_000)
    server = FramedServer(
        idl().Shard, ShardService(shard), "127.0.0.1", 0, max_frame=FRAME, max_reply=FRAME, max_connections=64
    )
    port = server.start()
    client = zookeeper_client(zookeeper)
    client.start()
    client.create(VARSTORE_PATH, Membership(("0",)).to_bytes(), makepath=True)
    place = ShardAddress("0", "127.0.0.1", port, "bench", held_vshards=ALL_VSHARDS, ready_vshards=ALL_VSHARDS)
    client.create(f"{SHARDS_PATH}/0", place.to_bytes(os.getpid()), makepath=True)
    offset = next(iter(shard.status()["next_offsets"].values()))
    pipe.send((port, offset))
    pipe.recv()
    server.stop()
    client.stop()


def _serve_api(pipe: Connection, zookeeper: str, end_ms: int, limits: ApiLimits) -> None:
    with VarstoreClient(zookeeper) as store:
        clock = WorldClock(end_ms + SETTLED_MS)
        server = ApiServer(make_app(store, lambda _: {}, clock, limits))
        server.start()
        tune_gc()
        pipe.send((server.port, 0))
        while pipe.recv() == "start":
            clock.start()
        server.stop()


def get_of_peer(address: str, paths: Sequence[str]) -> Got:
    """Do the same as `Served.get` for a peer; `paths` are of Prometheus' HTTP API."""
    return _get_all(urlsplit(address).netloc, paths)


def _get_all(place: str, paths: Sequence[str]) -> Got:
    connection = http.client.HTTPConnection(place, timeout=120)
    took, body = [], b""
    for path in paths:
        seconds, body = _get(connection, path)
        took.append(seconds)
    connection.close()
    return Got(took, json.loads(body), len(body))


def ask_peer(peer: Peer, world: RackWorld) -> Asked:
    """Query a peer for the same by Prometheus' range queries, without its result cache."""
    start = (world.end_ms - (world.minutes - 1) * MINUTE_MS) // 1000
    query = f"query={quote(f'avg by (rack) ({plain_name(NAME)})')}&start={start}&end={world.end_ms // 1000}&step=60"
    with peer.serve() as address:
        connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=120)
        took, body = [], b""
        for _ in range(PEER_ROUNDS):
            seconds, body = _get(connection, f"/api/v1/query_range?{query}&nocache=1")
            took.append(seconds)
        connection.close()
    rows = sorted((one["metric"]["rack"], one["values"]) for one in json.loads(body)["data"]["result"])
    means = np.array([[float(value) for _, value in values] for _, values in rows], np.float64)
    return Asked(float(np.median(took)) * 1000, means, len(body))


def check(name: str, means: Floats, expected: Floats) -> None:
    """Raise WrongMeans unless the means are the expected ones."""
    if means.shape != expected.shape or not np.allclose(means, expected, rtol=1e-9, atol=0.0):
        raise WrongMeans(f"{name}: the answer of shape {means.shape} is not the mean of the samples")
