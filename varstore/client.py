"""The memory store as one: asks every shard at once, unites what they answer, says who did not."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, TypeVar

from kazoo.client import KazooClient
from thriftpy2.thrift import TException

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.grid import DEFAULT_LEVELS
from artimon.model.registration import zookeeper_client
from artimon.model.select import STATISTICS, Buckets, Matcher, SelectError, SelectRequest, Series, decode_buckets
from artimon.model.values import Kind, ValueType
from bookkeeper.framed import ConnectionLost, FramedClient, FramedError
from varstore.answer import ANSWER_BYTES
from varstore.directory import Directory, Place, Shards
from varstore.merge import has_twins, unite
from varstore.service import idl

DEADLINE_S = 10.0
CONNECT_S = 5.0
"""How long the first question waits for ZooKeeper."""
THREADS = 32
_IDLE_KEPT = 4
MiB = 1 << 20

T = TypeVar("T")
Ask = Callable[[FramedClient, float], T]


class StoreUnavailable(SelectError):
    """No shard answered. The text names each and why."""

    of_query = False


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What one shard said: an answer, or why there is none."""

    place: Place
    answer: Any = None
    failure: str = ""


class VarstoreClient:
    """Implements artimon.model.select.Store over all live shards. A context manager; safe to share between threads.

    Every question has one deadline for all shards together. A member that does not answer makes the answer partial,
    with a note that names it; a refusal by any shard (too many series, unknown level) is a SelectError.
    Locks: `_lock` guards `_idle`; no I/O under it."""

    def __init__(
        self, zookeeper: str | KazooClient, deadline_s: float = DEADLINE_S, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._owns_client = isinstance(zookeeper, str)
        self._hosts = zookeeper if isinstance(zookeeper, str) else "its address"
        self._zookeeper = zookeeper_client(zookeeper) if isinstance(zookeeper, str) else zookeeper
        if self._owns_client:
            self._connecting = self._zookeeper.start_async()
        self._met = not self._owns_client
        self._directory = Directory(self._zookeeper, min(3.0, deadline_s), clock)
        self._deadline_s, self._clock = deadline_s, clock
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="varstore-client")
        self._lock = threading.Lock()
        self._idle: dict[Place, list[FramedClient]] = {}
        self._levels = tuple((level.step_ms, level.count) for level in DEFAULT_LEVELS)

    def __enter__(self) -> VarstoreClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; questions under way fail."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            idle, self._idle = self._idle, {}
        for clients in idle.values():
            for client in clients:
                client.close()
        if self._owns_client:
            self._zookeeper.stop()
            self._zookeeper.close()

    # Store

    def select(self, request: SelectRequest) -> Buckets:
        """See Store. Raises SelectError, of which StoreUnavailable says that no shard answered."""
        outcomes, absent = self._select(request)
        parts = [outcome.answer for outcome in outcomes]
        if has_twins(parts):  # a series that two sources report: uniting its buckets takes all statistics
            outcomes, absent = self._select(replace(request, statistics=STATISTICS))
            parts = [outcome.answer for outcome in outcomes]
        buckets = unite(parts, request)
        total = len(buckets.series)
        if total > request.limit:
            raise SelectError(
                f"{total} series fit, at most {request.limit} are allowed: add matchers or raise the limit"
            )
        notes = buckets.notes + absent
        return replace(buckets, notes=tuple(dict.fromkeys(notes)), partial=buckets.partial or bool(absent))

    def _select(self, request: SelectRequest) -> tuple[list[_Outcome], tuple[str, ...]]:
        wire = json.dumps(request.to_json()).encode()

        def ask(client: FramedClient, timeout: float) -> Buckets:
            return decode_buckets(client.call("select", wire, timeout=timeout))

        return self._ask_all(ask)

    def levels(self) -> tuple[tuple[int, int], ...]:
        """See Store; the default levels as long as no shard has answered."""
        try:
            outcomes, _ = self._ask_all(_question(what="levels"))
        except StoreUnavailable:
            return self._levels
        self._levels = tuple((int(step), int(count)) for step, count in outcomes[0].answer)
        return self._levels

    def names(self) -> list[str]:
        """See Store."""
        return self._union(_question(what="names"))

    def label_values(self, label: str | None, limit: int = 10_000) -> list[str]:
        """See Store."""
        return self._union(_question(what="label_values", label=label, limit=limit))[:limit]

    def find(self, matchers: tuple[Matcher, ...], limit: int = 1_000) -> list[Series]:
        """See Store."""
        wire = [[m.label, m.op, m.value] for m in matchers]
        outcomes, _ = self._ask_all(_question(what="find", matchers=wire, limit=limit))
        found = {item[0]: _series(item) for outcome in outcomes for item in outcome.answer}
        return sorted(found.values(), key=lambda s: (s.name, sorted(s.labels.items())))[:limit]

    def statuses(self) -> dict[str, dict[str, Any]]:
        """Status of each shard that answers, by id."""

        def ask(client: FramedClient, timeout: float) -> dict[str, Any]:
            status: dict[str, Any] = json.loads(client.call("status", timeout=timeout))
            return status

        outcomes, _ = self._ask_all(ask)
        return {outcome.place.id: outcome.answer for outcome in outcomes}

    def _union(self, question: Ask[list[Any]]) -> list[str]:
        outcomes, _ = self._ask_all(question)
        return sorted({str(item) for outcome in outcomes for item in outcome.answer})

    # asking

    def _ask_all(self, ask: Ask[Any]) -> tuple[list[_Outcome], tuple[str, ...]]:
        """The outcomes that are answers, and a note for each member without one."""
        deadline = self._clock.monotonic() + self._deadline_s
        shards = self._shards(deadline)
        pending = {self._threads.submit(self._ask_one, place, ask, deadline): place for place in shards.live}
        wait(pending, timeout=max(0.0, deadline - self._clock.monotonic()) + 0.2)
        outcomes = [_settle(future, place) for future, place in pending.items()]
        failed = [outcome for outcome in outcomes if outcome.failure]
        notes = [f"shard {member} is not there: its series are missing" for member in shards.absent]
        notes += [f"shard {o.place.id} did not answer, its series are missing: {o.failure}" for o in failed]
        if failed:
            self._directory.forget()
        answered = [outcome for outcome in outcomes if not outcome.failure]
        if not answered:
            raise StoreUnavailable("no shard of the memory store answered: " + "; ".join(notes or [self._reason()]))
        return answered, tuple(notes)

    def _shards(self, deadline: float) -> Shards:
        if not self._met:  # just made: give it its first chance; later the shards are where they were
            self._connecting.wait(min(CONNECT_S, max(0.0, deadline - self._clock.monotonic())))
            if not self._connecting.is_set():
                raise StoreUnavailable(f"ZooKeeper at {self._hosts} does not answer: is the stack running?")
            self._met = True
        return self._directory.read()

    def _reason(self) -> str:
        return self._directory.stale or "ZooKeeper knows of no shard; start one with `artimon shard`, or `artimon up`"

    def _ask_one(self, place: Place, ask: Ask[Any], deadline: float) -> _Outcome:
        """In a thread of the pool. A connection that died while idle is made anew once: questions change nothing."""
        for attempt in (0, 1):
            client = self._take(place)
            try:
                answer = ask(client, max(0.001, deadline - self._clock.monotonic()))
            except ConnectionLost as error:
                client.close()
                if attempt:
                    return _Outcome(place, failure=str(error))
                continue
            except idl().ShardError as refusal:
                self._give_back(place, client)
                raise SelectError(refusal.message) from refusal
            except (FramedError, TException, OSError, ValueError) as error:
                client.close()
                return _Outcome(place, failure=f"{type(error).__name__}: {error}")
            self._give_back(place, client)
            return _Outcome(place, answer)
        raise AssertionError("unreachable")

    def _take(self, place: Place) -> FramedClient:
        with self._lock:
            idle = self._idle.get(place)
            if idle:
                return idle.pop()
        return FramedClient(idl().Shard, place.host, place.port, self._deadline_s, max_frame=ANSWER_BYTES + 16 * MiB)

    def _give_back(self, place: Place, client: FramedClient) -> None:
        with self._lock:
            gone = [old for old in self._idle if old.id == place.id and old != place]
            closing = [c for old in gone for c in self._idle.pop(old)]
            idle = self._idle.setdefault(place, [])
            if len(idle) < _IDLE_KEPT:
                idle.append(client)
            else:
                closing.append(client)
        for old_client in closing:
            old_client.close()


def _question(**question: Any) -> Ask[list[Any]]:
    wire = json.dumps(question).encode()

    def ask(client: FramedClient, timeout: float) -> list[Any]:
        found: list[Any] = json.loads(client.call("find", wire, timeout=timeout))["found"]
        return found

    return ask


def _settle(future: Future[_Outcome], place: Place) -> _Outcome:
    """The outcome of a question; SelectError if the shard refused it."""
    if not future.done():
        future.cancel()
        return _Outcome(place, failure="deadline passed")
    return future.result()


def _series(item: Sequence[Any]) -> Series:
    print_, name, labels, type_, kind = item
    return Series(print_, name, labels, ValueType(type_), Kind(kind))
