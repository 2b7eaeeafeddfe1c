"""Scatter/gather of one query to many shards over real sockets: choice of the shards, retries, timeouts and
refusals."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.hash_routing import ownership
from artimon.model.select import NOT_OWNED, SelectError, TooManySeries, too_many_series
from artimon.model.vshards import ALL_VSHARDS, from_hex, mask_of, to_hex, vshards_of
from bookkeeper.rpc.framed_server import FramedServer
from tests.waiting import eventually
from varstore.cluster import shard_connections
from varstore.cluster.cluster_directory import ClusterState, ShardAddress
from varstore.cluster.holder_choice import choose_holders
from varstore.cluster.membership import Membership
from varstore.cluster.scatter_gather import ScatterGather
from varstore.cluster.shard_connections import ShardAnswer, ShardConnections, ShardRequest
from varstore.shard.shard_service import idl

DEADLINE_S = 30.0
SOON_S = DEADLINE_S / 2
"""A query that waits for a hanging shard takes DEADLINE_S."""
HANG_S = 120.0


@dataclass
class FakeShard:
    """Answers `find` with the requested mask, unless configured otherwise."""

    place: ShardAddress
    server: FramedServer | None = None
    hangs: threading.Event = field(default_factory=threading.Event)
    """The shard hangs while this is cleared."""
    partial: bool = False
    refusal: str = ""
    asked: list[int] = field(default_factory=list)

    def find(self, request: bytes) -> bytes:
        vshards = from_hex(json.loads(request)["vshards"])
        self.asked.append(vshards)
        self.hangs.wait(HANG_S)
        lacking = vshards & ~self.place.held_vshards
        if lacking:
            raise idl().ShardError(message=f"{NOT_OWNED}: {vshards_of(lacking)}")
        if self.refusal:
            raise idl().ShardError(message=self.refusal)
        return json.dumps({"vshards": to_hex(vshards), "partial": self.partial}).encode()

    def start(self) -> None:
        self.hangs.set()
        self.server = FramedServer(idl().Shard, self, "127.0.0.1", self.place.port)
        self.place = replace(self.place, port=self.server.start())

    def kill(self) -> None:
        """Stop the server and close its connections."""
        assert self.server is not None
        self.server.stop(0.0)


@dataclass(frozen=True)
class Answer:
    vshards: int
    partial: bool


class World:
    """Shards of a store of `replicas`, and a client that queries them."""

    def __init__(self, ids: str, replicas: int) -> None:
        self.membership = Membership(tuple(ids), replicas)
        self.shards: dict[str, FakeShard] = {}
        for id_, vshards in ownership(tuple(ids), replicas).items():
            mask = mask_of(vshards)
            self.shards[id_] = FakeShard(ShardAddress(id_, "127.0.0.1", 0, id_, mask, mask))
            self.shards[id_].start()
        self.gone: set[str] = set()
        self.forgotten = 0
        self.connections = ShardConnections(self.read, self.forget, SYSTEM_CLOCK, DEADLINE_S)

    def read(self) -> ClusterState:
        return ClusterState(self.membership, tuple(s.place for id_, s in self.shards.items() if id_ not in self.gone))

    def forget(self) -> None:
        self.forgotten += 1

    def ask(
        self, seconds: float = DEADLINE_S, check: Callable[[], None] | None = None
    ) -> tuple[list[ShardAnswer], list[str]]:
        def question(vshards: int) -> ShardRequest:
            wire = json.dumps({"vshards": to_hex(vshards)}).encode()

            def read(reply: bytes) -> Answer:
                reply_json: dict[str, Any] = json.loads(reply)
                return Answer(from_hex(reply_json["vshards"]), reply_json["partial"])

            return ShardRequest("find", lambda _: (wire,), read)

        outcomes, notes = ScatterGather(self.connections, self.read(), question, monotonic() + seconds, check).ask(
            ALL_VSHARDS
        )
        assert all(outcome.answer.vshards == outcome.vshards for outcome in outcomes)
        covered = [v for outcome in outcomes for v in vshards_of(outcome.vshards)]
        assert len(covered) == len(set(covered)), "a virtual shard is answered for twice"
        return outcomes, notes

    def close(self) -> None:
        for shard in self.shards.values():
            shard.hangs.set()
        self.connections.close()
        for shard in self.shards.values():
            shard.kill()


@pytest.fixture
def pair() -> Iterator[World]:
    """Two shards, each holding half of the virtual shards."""
    world = World("01", 1)
    yield world
    world.close()


@pytest.fixture
def trio() -> Iterator[World]:
    """Three shards, each virtual shard on two of them."""
    world = World("012", 2)
    yield world
    world.close()


def covered(outcomes: list[ShardAnswer]) -> int:
    mask = 0
    for outcome in outcomes:
        mask |= outcome.vshards
    return mask


def test_every_virtual_shard_is_asked_for_once(trio: World) -> None:
    outcomes, notes = trio.ask()
    assert (covered(outcomes), notes) == (ALL_VSHARDS, [])
    assert sum(mask.bit_count() for shard in trio.shards.values() for mask in shard.asked) == 256
    assert all(len(shard.asked) == 1 and shard.asked[0].bit_count() > 40 for shard in trio.shards.values())


def test_a_shard_that_dies_is_replaced_by_its_replicas(trio: World) -> None:
    trio.ask()
    trio.shards["1"].kill()
    for _ in range(2):
        outcomes, notes = trio.ask()
        assert (covered(outcomes), notes) == (ALL_VSHARDS, [])
        assert {outcome.address.id for outcome in outcomes} == {"0", "2"}
    assert trio.forgotten


def test_a_hanging_shard_delays_one_query_and_is_avoided_afterwards(
    trio: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_connections, "AVOID_S", 60.0)  # longer than the queries below
    trio.shards["2"].hangs.clear()
    began = monotonic()
    outcomes, notes = trio.ask()
    assert monotonic() - began < SOON_S
    assert (covered(outcomes), notes) == (ALL_VSHARDS, [])
    asked = len(trio.shards["2"].asked)
    for _ in range(5):
        outcomes, _ = trio.ask()
        assert covered(outcomes) == ALL_VSHARDS
    assert len(trio.shards["2"].asked) == asked


def test_many_queries_to_a_hanging_shard_do_not_exhaust_the_threads(trio: World) -> None:
    trio.shards["0"].hangs.clear()
    failures: list[str] = []

    def ask() -> None:
        outcomes, notes = trio.ask()
        if covered(outcomes) != ALL_VSHARDS or notes:
            failures.append(f"{notes}")

    threads = [threading.Thread(target=ask) for _ in range(40)]
    began = monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert failures == []
    assert monotonic() - began < DEADLINE_S


def test_a_query_can_be_cancelled_while_shards_hang(pair: World) -> None:
    """Queries to hanging shards end at once, close the connection and are no longer counted as running."""
    pair.ask()  # open the connections
    for shard in pair.shards.values():
        shard.hangs.clear()
    looked = 0

    class GivenUp(Exception):
        pass

    def check() -> None:
        nonlocal looked
        looked += 1
        if looked == 3:
            raise GivenUp

    began = monotonic()
    with pytest.raises(GivenUp):
        pair.ask(check=check)
    assert monotonic() - began < SOON_S
    eventually(lambda: not pair.connections._running)
    for shard in pair.shards.values():
        shard.hangs.set()
    outcomes, notes = pair.ask()
    assert (covered(outcomes), notes) == (ALL_VSHARDS, [])


def test_replies_need_no_thread_of_the_pool(pair: World) -> None:
    """Replies over open connections are read by the calling thread; threads of the pool only wait for late shards."""
    pair.ask()
    names = [thread.name for thread in threading.enumerate()]
    pair.connections._threads.shutdown()
    outcomes, notes = pair.ask()
    assert (covered(outcomes), notes) == (ALL_VSHARDS, [])
    assert any(name.startswith("varstore-client") for name in names)


def test_without_a_replica_the_answer_names_the_missing_virtual_shards(pair: World) -> None:
    pair.shards["0"].hangs.clear()
    began = monotonic()
    outcomes, notes = pair.ask(2.0)
    assert monotonic() - began < SOON_S
    assert [outcome.address.id for outcome in outcomes] == ["1"]
    missing = (ALL_VSHARDS & ~covered(outcomes)).bit_count()
    assert len(notes) == 1
    assert "shard 0 did not answer (" in notes[0]  # the deadline or the connection, whichever is noticed first
    assert f"{missing} of 256 virtual shards" in notes[0]
    pair.gone.add("0")
    _, notes = pair.ask()
    assert notes == [f"shard 0 is not alive: series of {missing} of 256 virtual shards are missing"]


def test_a_connection_that_died_while_idle_is_reopened(pair: World) -> None:
    pair.ask()
    shard = pair.shards["0"]
    shard.kill()
    shard.start()  # the same port
    outcomes, notes = pair.ask()
    assert (covered(outcomes), notes) == (ALL_VSHARDS, [])


def test_moved_virtual_shards_are_requested_from_their_new_holder(pair: World) -> None:
    """The shard drops a part between two reads of the directory."""
    old, new = pair.shards["0"], pair.shards["1"]
    stale = pair.read()
    some = mask_of(vshards_of(old.place.held_vshards)[:20])
    old.place = replace(
        old.place, held_vshards=old.place.held_vshards & ~some, ready_vshards=old.place.ready_vshards & ~some
    )
    new.place = replace(
        new.place, held_vshards=new.place.held_vshards | some, ready_vshards=new.place.ready_vshards | some
    )
    fresh, reads = pair.read, iter([stale])
    pair.read = lambda: next(reads, None) or fresh()  # type: ignore[method-assign]
    pair.connections.shards = fresh
    outcomes, notes = pair.ask()
    assert (covered(outcomes), notes) == (ALL_VSHARDS, [])


def test_a_replica_that_lags_or_refills_is_asked_last(trio: World) -> None:
    lags, refills = trio.shards["0"], trio.shards["1"]
    lags.place = replace(lags.place, lagging_vshards=lags.place.ready_vshards)
    refills.place = replace(refills.place, ready_vshards=0)
    outcomes, _ = trio.ask()
    by_id = {outcome.address.id: outcome.vshards for outcome in outcomes}
    assert by_id["2"] == trio.shards["2"].place.held_vshards
    assert by_id["0"] == ALL_VSHARDS & ~by_id["2"]
    assert "1" not in by_id


def test_a_complete_answer_replaces_a_partial_one(trio: World) -> None:
    """A shard that was stopped does not know yet that ZooKeeper still lists it as complete."""
    trio.shards["1"].partial = True
    outcomes, notes = trio.ask()
    assert (covered(outcomes), notes) == (ALL_VSHARDS, [])
    assert not any(outcome.answer.partial for outcome in outcomes)
    for shard in trio.shards.values():
        shard.partial = True
    outcomes, _ = trio.ask()
    assert covered(outcomes) == ALL_VSHARDS
    assert all(outcome.answer.partial for outcome in outcomes)


def test_a_partial_answer_is_used_if_complete_holders_hang(trio: World) -> None:
    for id_ in "12":
        trio.shards[id_].hangs.clear()
    zero = trio.shards["0"]
    zero.place, zero.partial = replace(zero.place, held_vshards=ALL_VSHARDS, ready_vshards=0), True
    began = monotonic()
    outcomes, _ = trio.ask()
    assert covered(outcomes) == ALL_VSHARDS
    assert monotonic() - began < SOON_S


def test_a_refusal_is_raised_as_an_error(trio: World) -> None:
    trio.shards["2"].refusal = "2 series fit, at most 1"
    with pytest.raises(SelectError, match="at most 1"):
        trio.ask()


def test_a_refusal_for_too_many_series_keeps_its_type(trio: World) -> None:
    trio.shards["2"].refusal = str(too_many_series(2, 1, "shard 2"))
    with pytest.raises(TooManySeries, match="2 series of shard 2 fit, at most 1"):
        trio.ask()


MASKS = st.integers(0, ALL_VSHARDS)


@settings(max_examples=60)
@given(st.lists(st.tuples(MASKS, MASKS, MASKS), max_size=5), MASKS, st.sets(st.integers(0, 4)))
def test_the_best_holder_is_chosen(masks: list[tuple[int, int, int]], wanted: int, avoid: set[int]) -> None:
    """Each virtual shard has exactly one holder, of the best available tier; what is missing has no holder."""
    places = [ShardAddress(f"{i}", "h", i, "", h, h & r, h & r & g) for i, (h, r, g) in enumerate(masks)]
    avoided = frozenset(place for i, place in enumerate(places) if i in avoid)
    choices, nobody = choose_holders(places, wanted, avoided)
    taken = [v for choice in choices for v in vshards_of(choice.vshards)]
    assert len(taken) == len(set(taken))
    assert mask_of(taken) | nobody == wanted
    for choice in choices:
        for vshard in vshards_of(choice.vshards):
            ranks = [_sort(place, vshard, avoided) for place in places]
            assert _sort(choice.address, vshard, avoided) == min(ranks)
    assert all(not place.held_vshards >> vshard & 1 for place in places for vshard in vshards_of(nobody))


def _sort(place: ShardAddress, vshard: int, avoided: frozenset[ShardAddress]) -> tuple[int, bool]:
    if not place.held_vshards >> vshard & 1:
        return 3, False
    tier = 0 if place.healthy_vshards >> vshard & 1 else 1 if place.ready_vshards >> vshard & 1 else 2
    return tier, place in avoided
