"""Requests to shards of a cluster and their outcomes, over connections: running requests, their latencies, and shards
to avoid for a while."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from artimon.model.clock import Clock
from artimon.model.vshards import union
from artimon.runtime.settings import security
from bookkeeper.rpc.framed_client import PendingCall
from bookkeeper.rpc.framed_server import FramedClient, FramedError
from varstore.cluster.cluster_directory import ClusterState, ShardAddress
from varstore.cluster.holder_choice import HolderChoice
from varstore.query.bucket_reader import ANSWER_BYTES
from varstore.shard.shard_service import idl

THREADS = 128
BUSY_REQUESTS = 16
"""Running requests to one shard above which its replicas are asked first, so that a hanging shard never holds all
threads."""
FIRST_HEDGE_S = 0.3
"""Used until ENOUGH answers have been timed."""
HEDGE_BOUNDS_S = (0.05, 2.0)
MIN_LATENCIES = 20
AVOID_S = 5.0
_MAX_IDLE = 4
NONBLOCKING_BYTES = 32_768
"""Bytes of a request that the kernel accepts without waiting for the shard."""
MiB = 1 << 20

Check = Callable[[], object]


@dataclass(frozen=True, slots=True)
class ShardRequest:
    """Request to one shard: a method, its arguments, and the decoder of the reply. `wire` gets the seconds until the
    deadline."""

    method: str
    encode: Callable[[float], tuple[bytes, ...]]
    decode: Callable[[Any], Any]


RequestFor = Callable[[int], ShardRequest]
"""Returns the request for these virtual shards (mask)."""


@dataclass(frozen=True, slots=True)
class ShardAnswer:
    """Answer of one shard for the virtual shards that it was asked for."""

    address: ShardAddress
    vshards: int
    answer: Any


@dataclass(slots=True)
class InFlightRequest:
    """A request in progress over a connection."""

    sent: PendingCall
    request: ShardRequest
    client: FramedClient
    began: float


@dataclass(slots=True)
class SubRequest:
    """Request for virtual shards to one shard. `instead`: requests for the same to other shards, because this one
    failed or is slow."""

    choice: HolderChoice
    since: float
    depth: int
    client: FramedClient | None = None
    in_flight: InFlightRequest | None = None
    """Sent, and awaited by the calling thread."""
    future: Future[Any] | None = None
    """Result, if a thread of the pool runs the request."""
    answer: Any = None
    is_partial: bool = False
    """True if the answer says that it is partial."""
    failure: str = ""
    fallbacks: list[SubRequest] | None = None
    asked_laggards: bool = False
    """True if lagging or refilling shards were asked too."""

    def walk(self) -> Iterator[SubRequest]:
        """Yield this part and all below."""
        yield self
        for part in self.fallbacks or ():
            yield from part.walk()

    def is_complete(self) -> bool:
        """Return True if all its virtual shards have whole answers."""
        if self.answer is not None and not self.is_partial:
            return True
        return union(part.choice.vshards for part in self.fallbacks or () if part.is_complete()) == self.choice.vshards

    def fallback_vshards(self) -> int:
        """Return the mask of the virtual shards that are requested from other shards instead."""
        return union(part.choice.vshards for part in self.fallbacks or ())

    def is_final(self) -> bool:
        """Return True if no better answer can come."""
        if self.is_complete():
            return True
        return not self.is_pending and all(part.is_final() for part in self.fallbacks or ())

    @property
    def is_pending(self) -> bool:
        """True while its own answer is awaited."""
        return self.future is not None or self.in_flight is not None

    def answers(self) -> list[ShardAnswer]:
        """Return the best answers so far; they do not overlap."""
        below = [outcome for part in self.fallbacks or () for outcome in part.answers()]
        if self.answer is None or (self.is_partial and self.is_complete()):
            return below
        return [ShardAnswer(self.choice.address, self.choice.vshards, self.answer)]


class ShardConnections:
    """Thread-safe. Locks: `_lock` guards `_idle`, `_avoid`, `_running` and `_took`; no I/O under it."""

    def __init__(self, shards: Callable[[], ClusterState], forget: Callable[[], None], clock: Clock, deadline_s: float):
        """`shards` reads the directory of the shards; `forget` reports that its last answer was wrong."""
        self.shards, self.forget, self.clock, self._deadline_s = shards, forget, clock, deadline_s
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="varstore-client")
        self._lock = threading.Lock()
        self._idle: dict[ShardAddress, list[FramedClient]] = {}
        self._avoid: dict[ShardAddress, float] = {}
        self._running: Counter[ShardAddress] = Counter()
        self._took: deque[float] = deque(maxlen=128)
        """Latencies of the latest answers."""

    def close(self) -> None:
        """Close every connection; running requests fail."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            idle, self._idle = self._idle, {}
        for clients in idle.values():
            for client in clients:
                client.close()

    def ask_each(self, shards: ClusterState, ask: ShardRequest, deadline: float) -> dict[str, Any]:
        """Return the answers of all live shards by id, without those that do not answer."""
        futures = {place.id: self._threads.submit(self._call, place, ask, deadline) for place in shards.live}
        wait(futures.values(), timeout=max(0.0, deadline - self.clock.monotonic()) + 0.2)
        done = {id_: future for id_, future in futures.items() if future.done() and not future.exception()}
        return {id_: future.result() for id_, future in done.items()}

    # for a round of requests

    def hedge_s(self) -> float:
        """Return the seconds after which an answer is late: the 95th percentile, within HEDGE_S."""
        with self._lock:
            took = sorted(self._took)
        if len(took) < MIN_LATENCIES:
            return FIRST_HEDGE_S
        return min(max(took[int(len(took) * 0.95)], HEDGE_BOUNDS_S[0]), HEDGE_BOUNDS_S[1])

    def start(self, part: SubRequest, question: RequestFor, deadline: float) -> None:
        """Send at once over an open connection; otherwise, or if sending may block, use a thread of the pool."""
        place, ask = part.choice.address, question(part.choice.vshards)
        client = part.client = self._take_idle(place)
        now = self.clock.monotonic()
        wire = ask.encode(max(0.001, deadline - now))
        if sum(map(len, wire)) <= NONBLOCKING_BYTES and client.connected:
            try:
                sent = client.begin_call(ask.method, *wire, timeout=max(0.001, deadline - now))
            except FramedError:  # it just died: the pool reconnects
                client.close()
            else:
                self._count(place, 1)
                part.in_flight = InFlightRequest(sent, ask, client, now)
                return
        part.future = self._threads.submit(self._call, place, ask, deadline, client)

    def finish(self, part: SubRequest) -> Future[Any]:
        """Return the reply to a sent request as a completed future; waits if necessary."""
        future: Future[Any] = Future()
        running, part.in_flight = part.in_flight, None
        if running is not None:
            try:
                future.set_result(self._end(part.choice.address, running))
            except Exception as error:
                future.set_exception(error)
        return future

    def hand_over(self, part: SubRequest) -> None:
        """Let a thread of the pool wait for the reply."""
        running, part.in_flight = part.in_flight, None
        if running is not None:
            part.future = self._threads.submit(self._end, part.choice.address, running)
            part.future.add_done_callback(lambda future: self._drop(part, running) if future.cancelled() else None)

    def abandon(self, part: SubRequest) -> None:
        """Stop waiting for the reply."""
        running, part.in_flight = part.in_flight, None
        if running is not None:
            self._drop(part, running)

    def _drop(self, part: SubRequest, running: InFlightRequest) -> None:
        running.sent.abandon()
        self._count(part.choice.address, -1)

    def _call(self, place: ShardAddress, ask: ShardRequest, deadline: float, client: FramedClient | None = None) -> Any:
        """Send and wait, in the pool. Reconnects once if an idle connection died: requests change nothing."""
        client = client or self._take_idle(place)
        began = self.clock.monotonic()
        left = max(0.001, deadline - began)
        self._count(place, 1)
        try:
            sent = client.begin_call(ask.method, *ask.encode(left), timeout=left)
        except BaseException:
            self._count(place, -1)
            client.close()
            raise
        return self._end(place, InFlightRequest(sent, ask, client, began))

    def _end(self, place: ShardAddress, running: InFlightRequest) -> Any:
        """Return the decoded reply."""
        client = running.client
        try:
            answer = running.request.decode(running.sent.result())
        except idl().ShardError:
            self._give_back(place, client)
            raise
        except BaseException:
            client.close()
            raise
        finally:
            self._count(place, -1)
        self._give_back(place, client)
        with self._lock:
            self._took.append(self.clock.monotonic() - running.began)
        return answer

    def _count(self, place: ShardAddress, more: int) -> None:
        with self._lock:
            self._running[place] += more
            if not self._running[place]:
                del self._running[place]

    def _take_idle(self, place: ShardAddress) -> FramedClient:
        with self._lock:
            idle = self._idle.get(place)
            if idle:
                return idle.pop()
        where, most = (place.host, place.port), ANSWER_BYTES + 16 * MiB
        return FramedClient(idl().Shard, *where, self._deadline_s, max_frame=most, security=security())

    def _give_back(self, place: ShardAddress, client: FramedClient) -> None:
        with self._lock:
            self._avoid.pop(place, None)
            gone = [old for old in self._idle if old.id == place.id and old != place]
            closing = [c for old in gone for c in self._idle.pop(old)]
            idle = self._idle.setdefault(place, [])
            if len(idle) < _MAX_IDLE:
                idle.append(client)
            else:
                closing.append(client)
        for old_client in closing:
            old_client.close()

    def addresses_to_avoid(self) -> frozenset[ShardAddress]:
        """Return shards that failed lately, or have too many running requests."""
        now = self.clock.monotonic()
        with self._lock:
            self._avoid = {place: until for place, until in self._avoid.items() if until > now}
            return frozenset(self._avoid) | {place for place, count in self._running.items() if count >= BUSY_REQUESTS}

    def avoid(self, place: ShardAddress) -> None:
        """Avoid a shard for AVOID_S."""
        with self._lock:
            self._avoid[place] = self.clock.monotonic() + AVOID_S
