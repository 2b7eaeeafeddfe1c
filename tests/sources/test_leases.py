"""Leases of several agents on a real ZooKeeper: exclusive, complete, and restored after any end of a session."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from bookkeeper.process.host_key import HOSTS
from sources.poll.agent_election import SLOTS_PATH
from sources.poll.host_coordinator import HostCoordinator
from sources.poll.lease_units import CONTEXTS, network_path
from sources.poll.registered_processes import UnitListing
from sources.poll.unit_leases import CLAIMS, LEASES
from sources.poll.zookeeper_session import ZooKeeperSession
from tests.sources.helpers import Application, registry, wipe
from tests.waiting import eventually, until

pytestmark = pytest.mark.stack
COUNT = 400
FAR = frozenset(f"far{i}" for i in range(COUNT))
NONE: frozenset[str] = frozenset()


class Side:
    """Coordination of one agent, which gives up a unit at once unless it is `busy`."""

    def __init__(self, tree: str, name: str, *own: str, networks: Iterable[str] = ()) -> None:
        self.session, self.mine, self.leaving, self.busy = ZooKeeperSession(tree, 2.0), NONE, NONE, False
        self.told: list[frozenset[str]] = []
        self.listed: dict[str, Any] = {}
        self.coordinator = HostCoordinator(
            self.session,
            name,
            lambda: own,
            [ipaddress.ip_network(text) for text in networks],
            listed=self._listed,
            assigned=self._assigned,
            grace_s=0.3,
            reconcile_s=1.0,
        )

    def _listed(self, listing: UnitListing) -> None:
        self.listed.update(listing)

    def _assigned(self, mine: frozenset[str], leaving: frozenset[str]) -> None:
        self.told.append(mine)
        self.mine, self.leaving = (mine | leaving if self.busy else mine), leaving
        self.give_up()

    def give_up(self) -> None:
        """Give up what leaves, unless it is busy."""
        if not self.busy:
            for unit in self.leaving:
                self.coordinator.released(unit)

    def holds(self, units: frozenset[str]) -> bool:
        return self.mine >= units and all(self.coordinator.holds_lease(unit) for unit in units)


@contextlib.asynccontextmanager
async def side(tree: str, name: str, *own: str, networks: Iterable[str] = ()) -> AsyncIterator[Side]:
    """Run an agent of these hosts inside the block."""
    async with begun(Side(tree, name, *own, networks=networks)) as one:
        yield one


@contextlib.asynccontextmanager
async def begun(one: Side) -> AsyncIterator[Side]:
    one.session.start()
    one.coordinator.start(asyncio.get_running_loop())
    try:
        yield one
    finally:
        await asyncio.to_thread(one.coordinator.stop)
        await asyncio.to_thread(one.session.stop)


@pytest.fixture
def far(tree: str) -> Iterator[Any]:
    """Hosts without an agent, with a process each; the client that owns them."""
    with registry(tree) as client:
        for host in FAR:
            client.create(f"{HOSTS}/{host}/shop:10.0.0.1:1:{uuid.uuid4()}", b"", ephemeral=True, makepath=True)
        yield client


def children(tree: str, path: str) -> list[str]:
    with registry(tree) as client:
        return sorted(client.get_children(path))


def test_hosts_without_an_agent_are_shared_out(tree: str, far: object) -> None:
    """Two elected agents together have all; one that leaves has none; no call fails."""

    async def run() -> None:
        async with side(tree, "a", "h1") as a:
            await until(lambda: a.holds(FAR | {"h1"}), "all leases")
            async with side(tree, "b", "h2") as b:
                await until(lambda: b.mine > {"h2"} and a.mine | b.mine == FAR | {"h1", "h2"}, "them to be shared out")
                assert not a.mine & b.mine
                assert min(len(a.mine), len(b.mine)) > COUNT // 3
                assert await asyncio.to_thread(children, tree, LEASES) == sorted(FAR)
                assert await asyncio.to_thread(children, tree, CLAIMS) == ["h1", "h2"]
                assert b.coordinator.counts()["agents"] == 2
                assert all(len(a.listed[host]) == 1 for host in a.mine & FAR)
            await until(lambda: a.holds(FAR), "what the other had")
            assert (a.coordinator.failures, b.coordinator.failures) == (0, 0)

    asyncio.run(run())


def test_a_host_changes_hands_only_when_it_is_given_up(tree: str, far: Any) -> None:
    """The agent of the host comes; the other is in the middle of a poll. It takes over when that agent is gone."""

    async def run() -> None:
        only = frozenset(["far7"])
        async with side(tree, "a", "h1") as a:
            await until(lambda: a.holds(only), "the lease")
            a.busy = True
            async with side(tree, "b", "far7") as b:
                await until(lambda: b.coordinator.counts()["elsewhere"] >= 1, "the other to wait")
                assert "far7" not in b.mine
                await until(lambda: a.leaving >= only, "the first to be asked for it")
                a.busy = False
                a.give_up()
                await until(lambda: b.holds(only) and not a.mine & only, "the lease to change hands")
            await until(lambda: a.holds(only), "the lease, when its agent is gone")

    asyncio.run(run())


def test_of_two_agents_on_one_host_the_second_stands_by(tree: str) -> None:
    async def run() -> None:
        only = frozenset(["h1"])
        async with side(tree, "a", "h1") as a:
            await until(lambda: a.holds(only), "its own host")
            async with side(tree, "b", "h1") as b:
                await until(lambda: b.coordinator.counts()["elsewhere"] == 1, "the second to stand by")
                assert a.holds(only)
                await asyncio.to_thread(a.coordinator.stop)
                await asyncio.to_thread(a.session.stop)
                await until(lambda: b.holds(only), "the host")

    asyncio.run(run())


def test_an_agent_polls_the_addresses_of_its_containers(tree: str) -> None:
    """Elected agents write them below its network, so that it lists no hosts; one that is empty is forgotten."""

    async def run() -> None:
        only = frozenset(["10.244.3.7"])
        with registry(tree) as client:
            async with side(tree, "a", "h1") as a, side(tree, "b", "h2", networks=["10.244.3.0/24"]) as b:
                await until(lambda: b.holds(frozenset(["h2"])), "its own host")
                await asyncio.to_thread(client.ensure_path, f"{HOSTS}/10.244.4.7")
                node = f"{HOSTS}/10.244.3.7/shop:10.244.3.7:1:{uuid.uuid4()}"
                await asyncio.to_thread(client.create, node, b"", None, True, False, True)
                await until(lambda: b.holds(only) and len(b.listed["10.244.3.7"]) == 1, "the container")
                assert not only & a.mine
                assert await asyncio.to_thread(children, tree, CLAIMS) == ["10.244.3.7", "h1", "h2"]
                offers = network_path(ipaddress.ip_network("10.244.3.0/24"))
                assert await asyncio.to_thread(children, tree, offers) == ["10.244.3.7"]
                await asyncio.to_thread(client.delete, node)
                await until(lambda: not only & b.mine and not client.exists(f"{CLAIMS}/10.244.3.7"), "it to be left")
                assert not client.exists(f"{HOSTS}/10.244.3.7")
                assert await asyncio.to_thread(children, tree, offers) == []
                await asyncio.to_thread(client.create, node, b"", None, True, False, True)
                await until(lambda: b.holds(only), "the container that is back")

    asyncio.run(run())


def test_containers_of_a_host_whose_agent_is_gone_are_polled_by_an_elected_one(tree: str) -> None:
    """When that agent is back it knows their addresses from the nodes of its network."""

    async def run() -> None:
        only = frozenset(["10.244.3.7"])
        node = f"{HOSTS}/10.244.3.7/shop:10.244.3.7:1:{uuid.uuid4()}"
        with registry(tree) as client:
            await asyncio.to_thread(client.create, node, b"", None, True, False, True)
            async with side(tree, "a", "h1") as a:
                await until(lambda: a.holds(only), "the container of no network")
                async with side(tree, "b", "h2", networks=["10.244.3.0/24"]) as b:
                    await until(lambda: b.holds(only) and not only & a.mine, "its agent to take over")
                await until(lambda: a.holds(only), "the container, when its agent is gone")
                async with side(tree, "b", "h2", networks=["10.244.3.0/24"]) as b:
                    await until(lambda: b.holds(only) and not only & a.mine, "its agent that is back")

    asyncio.run(run())


def test_a_pod_is_polled_by_the_agent_of_its_node(tree: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its address is that of no node; ARTIMON_HOST names the node to both, as in examples/deploy/kubernetes."""
    monkeypatch.setenv("ARTIMON_HOST", "node-2.example.org")
    monkeypatch.setenv("ARTIMON_ADVERTISE", "127.0.0.2")

    async def run() -> None:
        pod = Application(tree, "shop", tmp_path)
        try:
            await pod.do("add orders 1")
            async with side(tree, "a", "node-1.example.org") as a, side(tree, "b", "node-2.example.org") as b:
                await until(lambda: bool(b.listed.get("node-2.example.org")), "the process of its node")
                assert [one.ip for one in b.listed["node-2.example.org"]] == ["127.0.0.2"]
                assert "node-2.example.org" not in a.mine | a.listed.keys()
        finally:
            pod.kill()

    asyncio.run(run())


def test_a_host_without_processes_and_agent_is_forgotten(tree: str, far: Any) -> None:
    """Its node and the lease go; that of an agent's own host stays."""

    async def run() -> None:
        async with side(tree, "a", "h1") as a:
            await until(lambda: a.holds(frozenset(["far7", "h1"])), "the leases")
            (node,) = await asyncio.to_thread(far.get_children, f"{HOSTS}/far7")
            await asyncio.to_thread(far.delete, f"{HOSTS}/far7/{node}")
            await until(lambda: not far.exists(f"{HOSTS}/far7"), "the node to be deleted")
            await until(lambda: "far7" not in a.mine and not far.exists(f"{LEASES}/far7"), "the lease to be deleted")
            assert far.exists(f"{HOSTS}/h1")
            await asyncio.to_thread(far.create, f"{HOSTS}/far7/{node}", b"", None, True, False, True)
            await until(lambda: a.holds(frozenset(["far7"])) and len(a.listed["far7"]) == 1, "the host that is back")

    asyncio.run(run())


def test_processes_registered_by_context_are_polled_by_an_elected_agent(tree: str) -> None:
    """Those of libraries of the version before. Agents of that version hold the same leases."""

    async def run() -> None:
        with registry(tree) as old:
            unit = "10.0.0.1,shop"
            node = f"{CONTEXTS}/shop/10.0.0.1:1:{uuid.uuid4()}"
            await asyncio.to_thread(lambda: old.create(node, b"", ephemeral=True, makepath=True))
            await asyncio.to_thread(lambda: old.create(f"{LEASES}/{unit}", b"old", ephemeral=True, makepath=True))
            async with side(tree, "a", "h1") as a:
                await until(lambda: a.coordinator.counts()["elsewhere"] == 1, "it to wait for the old agent")
                assert unit not in a.mine
                await asyncio.to_thread(old.delete, f"{LEASES}/{unit}")
                await until(lambda: a.holds(frozenset([unit])), "the lease")
                await until(lambda: [one.context for one in a.listed[unit]] == ["shop"], "its process")
                await asyncio.to_thread(old.delete, node)
                await until(lambda: unit not in a.mine, "the unit to be forgotten")

    asyncio.run(run())


def test_three_of_many_agents_are_elected_and_one_that_ends_is_replaced(tree: str, far: Any) -> None:
    async def run() -> None:
        async with contextlib.AsyncExitStack() as stack:
            five = [await stack.enter_async_context(side(tree, f"a{i}", f"h{i}")) for i in range(5)]

            def elected() -> list[Side]:
                return [one for one in five if one.coordinator._election.elected]

            await until(lambda: frozenset().union(*(one.mine for one in five)) >= FAR, "all hosts")
            assert len(elected()) == 3
            assert all(one.mine == {f"h{i}"} for i, one in enumerate(five) if one not in elected())
            gone = elected()[0]
            await asyncio.to_thread(gone.coordinator.stop)
            await asyncio.to_thread(gone.session.stop)
            five.remove(gone)
            await until(lambda: len(elected()) == 3, "another one to be elected")
            await until(lambda: frozenset().union(*(one.mine for one in five)) >= FAR, "all hosts again")

    asyncio.run(run())


def end_session(tree: str, id_: object) -> None:
    """End a session by connecting with its number."""
    thief = KazooClient(tree, client_id=id_)
    with contextlib.suppress(KazooTimeoutError):
        thief.start(10)
    thief.stop()
    thief.close()


def test_leases_of_a_session_that_expired_are_in_doubt_and_then_back(tree: str, far: object) -> None:
    async def run() -> None:
        async with side(tree, "a", "h1") as a:
            await until(lambda: a.holds(FAR | {"h1"}), "all leases")
            before = a.session.ended_sessions
            for _ in range(20):  # the session's owner may be back before the thief has ended it
                await asyncio.to_thread(end_session, tree, a.session.client.client_id)
                with contextlib.suppress(AssertionError):
                    await until(lambda: a.session.ended_sessions > before, "the session to end", seconds=5)
                    break
            assert a.session.ended_sessions > before
            await until(lambda: a.holds(FAR | {"h1"}), "all leases again")

    asyncio.run(run())


def all_exist(client: Any, nodes: Iterable[str]) -> bool:
    return all(client.exists(node) for node in nodes)


def test_what_somebody_deletes_is_taken_again(tree: str, far: Any) -> None:
    """One lease is deleted, then the claim of its own host, then all."""

    async def run() -> None:
        async with side(tree, "a", "h1") as a:
            await until(lambda: a.holds(frozenset(["far7", "h1"])), "the leases")
            for path in (f"{LEASES}/far7", f"{CLAIMS}/h1", "/artimon/polling"):
                await asyncio.to_thread(wipe, far, path)
                nodes = (f"{LEASES}/far7", f"{CLAIMS}/h1", SLOTS_PATH)
                await until(partial(all_exist, far, nodes), f"what {path} held")
            await until(lambda: a.holds(frozenset(["far7", "h1"])), "the leases again")

    asyncio.run(run())


def test_an_agent_takes_over_from_its_own_earlier_life(tree: str) -> None:
    """It was killed and its session is not over. It is never told to give up a unit that it polled before."""

    async def run() -> None:
        some = frozenset(f"10.7.0.{i},shop" for i in range(50)) | {"far1", "far2"}
        with registry(tree) as dead:

            def leave_behind() -> None:
                for path in (f"{CLAIMS}/h1", f"{SLOTS_PATH}/1", *(f"{LEASES}/{unit}" for unit in some)):
                    dead.create(path, b"a", ephemeral=True, makepath=True)

            await asyncio.to_thread(leave_behind)
            one = Side(tree, "a", "h1")
            one.coordinator.set_kept(some)
            async with begun(one) as a:
                await until(lambda: a.holds(some | {"h1"}), "the leases")
                assert {len(mine) for mine in a.told} == {53}

    asyncio.run(run())


def test_a_client_whose_loop_ended_begins_again(tree: str) -> None:
    """kazoo stays closed after an error that it did not expect."""

    async def run() -> None:
        session = ZooKeeperSession(tree, 2.0)
        session.revive()
        session.start()
        await until(lambda: session.connected, "the session")
        await asyncio.to_thread(session.client.stop)
        assert not session.connected
        await asyncio.to_thread(session.revive)
        assert not session.connected, "it may just be beginning"
        session._started_at -= 60
        await asyncio.to_thread(session.revive)
        await until(lambda: session.connected, "another session")
        await asyncio.to_thread(session.stop)
        session.revive()
        assert not session.connected

    asyncio.run(run())


def test_a_session_that_was_not_shown_to_be_alive_is_in_doubt(tree: str) -> None:
    """As in a process that was stopped for a while: its client only knows the earlier state of the session."""

    async def run() -> None:
        only = frozenset(["h1"])
        async with side(tree, "a", "h1") as a:
            await until(lambda: a.holds(only), "the lease")
            a.session._confirmed_at = a.session._pings.answered_at = float("-inf")
            assert a.session.connected
            assert not a.holds(only)
            await until(lambda: a.holds(only), "the next sign of life")

    asyncio.run(run())


@pytest.mark.parametrize(("connecting_s", "reads"), [(0.0, 0), (60.0, 1)])
def test_a_session_that_began_just_now_needs_no_confirmation(
    tree: str, monkeypatch: pytest.MonkeyPatch, connecting_s: float, reads: int
) -> None:
    """The server took it after the client began to connect; a session that took long to begin is confirmed."""
    session, calls = ZooKeeperSession(tree), list[str]()
    exists, begin = session.client.exists_async, session.client.start_async

    def noted(path: str) -> Any:
        calls.append(path)
        return exists(path)

    def begun_before() -> Any:
        session._started_at -= connecting_s
        return begin()

    monkeypatch.setattr(session.client, "exists_async", noted)
    monkeypatch.setattr(session.client, "start_async", begun_before)
    session.start()
    eventually(lambda: session.connected, "the session")
    session.confirm()
    assert session.trusted
    assert len(calls) == reads
    session.stop()


def test_an_agent_at_rest_reads_almost_nothing(tree: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pings of the client confirm the session; the checks of what the watches tell are a few reads."""
    calls: list[str] = []
    original = KazooClient._call

    def counted(self: KazooClient, request: Any, answer: Any) -> Any:
        calls.append(type(request).__name__)
        return original(self, request, answer)

    async def run() -> None:
        one = Side(tree, "a", "h1")
        one.coordinator._reconcile_s = one.coordinator._election._look_s = 3_600.0
        async with begun(one) as a:
            await until(lambda: a.holds(frozenset(["h1"])), "its host")
            await asyncio.sleep(1.0)
            calls.clear()
            monkeypatch.setattr(KazooClient, "_call", counted)
            for _ in range(60):
                await asyncio.sleep(0.1)
                assert a.holds(frozenset(["h1"]))
            assert calls == []

    asyncio.run(run())
