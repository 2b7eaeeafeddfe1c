"""Leases of several agents on a real ZooKeeper: exclusive, complete, and back after whatever became of the session."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncIterator

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from sources.poll.group_assignment import HostGroup, Network
from sources.poll.group_leases import AGENTS, LEASES, GroupLeases
from sources.poll.zookeeper_session import ZooKeeperSession
from tests.sources.helpers import registry, wipe
from tests.waiting import until

pytestmark = pytest.mark.stack
FAR = frozenset(HostGroup(f"c{i % 7}", f"10.7.{i // 200}.{i % 200 + 1}") for i in range(1_200))
NONE: frozenset[HostGroup] = frozenset()


class Side:
    """The leases of one agent. Gives up at once what it is asked to, unless it is `busy`."""

    def __init__(self, tree: str, name: str, *own: str) -> None:
        self.session, self.mine, self.busy = ZooKeeperSession(tree, 2.0), NONE, False
        self.told: list[frozenset[HostGroup]] = []
        networks: frozenset[Network] = frozenset(ipaddress.ip_network(text) for text in own)
        self.leases = GroupLeases(self.session, name, lambda: networks, self._settled, grace_s=0.3, reconcile_s=1.0)

    def _settled(self, mine: frozenset[HostGroup], leaving: frozenset[HostGroup]) -> None:
        self.told.append(mine)
        self.mine = mine | leaving if self.busy else mine
        if not self.busy:
            for group in leaving:
                self.leases.released(group)

    def holds(self, groups: frozenset[HostGroup]) -> bool:
        return self.mine >= groups and all(self.leases.holds_lease(group) for group in groups)


@contextlib.asynccontextmanager
async def side(tree: str, name: str, *own: str, wanted: frozenset[HostGroup] = FAR) -> AsyncIterator[Side]:
    """An agent that is interested in all these groups."""
    one = Side(tree, name, *own)
    one.leases.set_wanted(wanted, NONE)
    async with begun(one):
        yield one


@contextlib.asynccontextmanager
async def begun(one: Side) -> AsyncIterator[Side]:
    """It takes part as long as this lasts."""
    one.session.start()
    one.leases.start(asyncio.get_running_loop())
    try:
        yield one
    finally:
        await asyncio.to_thread(one.leases.stop)
        await asyncio.to_thread(one.session.stop)


def children(tree: str, path: str) -> list[str]:
    with registry(tree) as client:
        return list(client.get_children(path))


def test_of_two_agents_each_has_its_own(tree: str) -> None:
    """Together they have everything; one that leaves has nothing any more; nothing failed on the way."""

    async def run() -> None:
        async with side(tree, "a") as a:
            await until(lambda: a.holds(FAR), "all leases")
            async with side(tree, "b") as b:
                await until(lambda: b.mine and a.mine | b.mine == FAR, "the leases to be shared out")
                assert not a.mine & b.mine
                assert min(len(a.mine), len(b.mine)) > len(FAR) // 3
                assert len(await asyncio.to_thread(children, tree, LEASES)) == len(FAR)
                assert b.leases.counts()["agents"] == 2
            await until(lambda: a.holds(FAR), "what the other had")
            assert (a.leases.failures, b.leases.failures) == (0, 0)

    asyncio.run(run())


def test_a_group_changes_hands_only_when_it_is_given_up(tree: str) -> None:
    """The agent of the host comes; the other is in the middle of a poll."""

    async def run() -> None:
        group = HostGroup("shop", "10.7.7.7")
        only = frozenset([group])
        async with side(tree, "a", wanted=only) as a:
            await until(lambda: a.holds(only), "the lease")
            a.busy = True
            async with side(tree, "b", "10.7.7.7/32", wanted=only) as b:
                await until(lambda: b.leases.counts()["elsewhere"] == 1, "the other to wait")
                assert not b.mine
                a.busy = False
                a.leases.set_wanted(only, NONE)
                await until(lambda: b.holds(only) and not a.mine, "the lease to change hands")
                a.leases.set_wanted(only, only)
                await until(lambda: a.leases.counts()["elsewhere"] == 1, "the first to want it for itself")
            await until(lambda: a.holds(only), "the lease, when it is free")

    asyncio.run(run())


def end_session(tree: str, id_: object) -> None:
    """As a thief who connects with its number does, if he is quick enough."""
    thief = KazooClient(tree, client_id=id_)
    with contextlib.suppress(KazooTimeoutError):
        thief.start(10)
    thief.stop()
    thief.close()


def test_leases_of_a_session_that_expired_are_in_doubt_and_then_back(tree: str) -> None:
    async def run() -> None:
        async with side(tree, "a") as a:
            await until(lambda: a.holds(FAR), "all leases")
            before = a.session.ended_sessions
            for _ in range(20):  # the session's owner may be back before the thief has ended it
                await asyncio.to_thread(end_session, tree, a.session.client.client_id)
                with contextlib.suppress(AssertionError):
                    await until(lambda: a.session.ended_sessions > before, "the session to end", seconds=5)
                    break
            assert a.session.ended_sessions > before
            await until(lambda: a.holds(FAR), "all leases again")

    asyncio.run(run())


def test_what_somebody_deletes_is_taken_again(tree: str) -> None:
    """One lease, then everything."""

    async def run() -> None:
        only = frozenset([HostGroup("shop", "10.7.7.7"), HostGroup("shop", "fd00::7")])
        async with side(tree, "a", wanted=only) as a:
            await until(lambda: a.holds(only), "the leases")
            for path in (f"{LEASES}/10.7.7.7,shop", "/artimon/polling"):
                with registry(tree) as client:
                    await asyncio.to_thread(wipe, client, path)
                await until(lambda: len(there(tree)) == 3, f"what {path} held")
            assert a.leases.counts()["held"] == 2

    def there(tree: str) -> list[str]:
        with registry(tree) as client:
            return [name for path in (LEASES, AGENTS) if client.exists(path) for name in client.get_children(path)]

    asyncio.run(run())


def test_an_agent_takes_over_from_its_own_earlier_life(tree: str) -> None:
    """It was killed, and its session is not over yet. Never is it told to give up what it polled before."""

    async def run() -> None:
        with registry(tree) as dead:

            def leave_behind() -> None:
                dead.create(f"{AGENTS}/a", b'{"networks": []}', ephemeral=True, makepath=True)
                for group in some:
                    dead.create(f"{LEASES}/{group.key}", b"a", ephemeral=True, makepath=True)

            some = frozenset(sorted(FAR)[:50])
            await asyncio.to_thread(leave_behind)
            one = Side(tree, "a")
            one.leases.set_wanted(NONE, some)
            async with begun(one) as a:
                await until(lambda: a.holds(some), "the leases")
                assert {len(mine) for mine in a.told} == {50}

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
    """As in a process that was stopped for a while: what its client says of the session is what it knew before."""

    async def run() -> None:
        only = frozenset([HostGroup("shop", "10.7.7.7")])
        async with side(tree, "a", wanted=only) as a:
            await until(lambda: a.holds(only), "the lease")
            a.leases._proven_at -= 60
            assert a.session.connected
            assert not a.holds(only)
            await until(lambda: a.holds(only), "the next sign of life")

    asyncio.run(run())
