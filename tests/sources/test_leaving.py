"""Processes that leave, vanish or follow others: agents that stop and start, rivals that register at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from artimon.model.batch import PollResult
from artimon.model.clock import SYSTEM_CLOCK
from bookkeeper import Bookkeeper
from bookkeeper.process.host_key import HOSTS
from sources.artimon_source import ArtimonSource
from sources.delivery.source_config import SourceConfig
from sources.poll.zookeeper_session import ZooKeeperSession
from tests.sources.helpers import (
    HOST,
    Application,
    KeepingSink,
    answering,
    columns,
    endpoint,
    register,
    registry,
    running,
)
from tests.sources.test_artimon_source import up_of
from tests.waiting import LIMIT_S, until

pytestmark = pytest.mark.stack


class HoldingSink(KeepingSink):
    """Sink that holds reports of ends until `go`."""

    def __init__(self) -> None:
        super().__init__()
        self.holds, self.go = False, asyncio.Event()

    async def accept(self, polled: Sequence[PollResult]) -> None:
        if any(value is None for part in polled for *_, value in part.samples.rows()):
            self.holds = True
            await self.go.wait()
        await super().accept(polled)


class Process:
    """A listener and a znode, each of which can be removed alone."""

    def __init__(self, client: Any, context: str, **values: int) -> None:
        self._client, self._context, self._values = client, context, values
        self.uuid, self.listening, self.node = uuid.uuid4().bytes, contextlib.AsyncExitStack(), ""

    async def begin(self) -> None:
        answer = answering(lambda: columns(self.uuid, self._values, context=self._context))
        port = await self.listening.enter_async_context(endpoint(answer))
        self.node = await asyncio.to_thread(register, self._client, self._context, port, self.uuid)

    async def unregister(self) -> None:
        await asyncio.to_thread(self._client.delete, self.node)


@contextlib.asynccontextmanager
async def processes(tree: str, context: str, *values: int) -> AsyncIterator[list[Process]]:
    """Make processes of one context and instance with these values of `orders`; none has started."""
    with registry(tree) as client:
        made = [Process(client, context, orders=value) for value in values]
        try:
            yield made
        finally:
            for process in made:
                await process.listening.aclose()


def owner_of(artimon: ArtimonSource, source: str) -> bytes:
    """Return the uuid of the process that owns a source."""
    owner: Any = artimon._shared.owners.get(source)
    return bytes(owner.endpoint.uuid) if owner is not None else b""


def names_twice(artimon: ArtimonSource) -> list[str]:
    told = [(v.name, *sorted(v.labels.items())) for v in artimon._statuses.variables(SYSTEM_CLOCK.now_ms())]
    return [str(one) for one in told if told.count(one) > 1]


@pytest.fixture
def quiet_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail on unexpected errors in the log."""
    with caplog.at_level(logging.ERROR, logger="sources"):
        yield
    assert [record.getMessage() for record in caplog.records] == []


def test_an_agent_that_stops_hears_out_who_said_goodbye(tree: str, tmp_path: Path) -> None:
    """The agent would check the process 40 s later; it stops long before. No process counts as vanished."""

    async def run() -> None:
        sink, source = KeepingSink(), f"bye/{HOST}/0"
        app = Application(tree, "bye", tmp_path / "run")
        await app.do("add orders 1")
        async with running(tree, tmp_path / "data", sink, goodbye_s=40.0):
            await until(lambda: sink.last(source).get("orders") == 1, "the first poll")
            await app.do("add orders 41")
            await app.leave()
            began = SYSTEM_CLOCK.monotonic()
        assert SYSTEM_CLOCK.monotonic() - began < 30
        values = [value for text, _, _, value in sink.samples(source) if text.startswith("orders")]
        assert values[-2:] == [42, None]
        again = KeepingSink()
        async with running(tree, tmp_path / "data", again):
            await until(lambda: len(again.accepted) > 3, "polls after the restart")
            assert up_of(again, "bye") in ([], [None])
        assert 0 not in up_of(sink, "bye")

    asyncio.run(run())


def test_an_agent_polls_itself_once_more_before_its_session_ends(tree: str, tmp_path: Path) -> None:
    """Its znode goes with the session: a deletion would cost ZooKeeper three messages."""

    async def run() -> None:
        sink, session, stop = KeepingSink(), ZooKeeperSession(tree), asyncio.Event()
        config = SourceConfig("agent1", tree, tmp_path / "data", host_metrics=False)
        source = ArtimonSource(config, sink, SYSTEM_CLOCK, hostname=HOST, session=session)
        own = Bookkeeper(context="me", instance="0", zookeeper=tree)
        own.session = session.client
        own.add_to_integer_var("orders", {}, 1)
        session.start()
        running = asyncio.create_task(source.run(stop))
        await until(lambda: sink.last(f"me/{HOST}/0").get("orders") == 1, "the first poll")
        endpoint = own.endpoint
        assert endpoint is not None
        assert not await asyncio.to_thread(source.poll_last, bytes(16)), "a process that it does not poll"
        own.add_to_integer_var("orders", {}, 41)
        endpoint.poll_last = source.poll_last
        await asyncio.to_thread(own.close, LIMIT_S)
        assert sink.last(f"me/{HOST}/0")["orders"] == 42
        with registry(tree) as client:
            (host,) = client.get_children(HOSTS)
            assert len(client.get_children(f"{HOSTS}/{host}")) == 1
            stop.set()
            await running
            assert sink.last(f"me/{HOST}/0")["orders"] is None, "it ended in order"
            await asyncio.to_thread(session.stop)
            assert client.get_children(f"{HOSTS}/{host}") == []

    asyncio.run(run())


def test_who_went_while_the_agent_was_away_did_not_vanish(tree: str, tmp_path: Path) -> None:
    async def run() -> None:
        sink, source = KeepingSink(), f"away/{HOST}/0"
        app = Application(tree, "away", tmp_path / "run")
        await app.do("add orders 1")
        async with running(tree, tmp_path / "data", sink):
            await until(lambda: up_of(sink, "away")[-1:] == [1], "up = 1")
        await app.leave()
        again = KeepingSink()
        async with running(tree, tmp_path / "data", again, period_ms=500) as artimon:
            await until(lambda: again.samples(source), "the end of its series")
            await until(lambda: up_of(again, "away") == [None], "the end of up")
            await until(lambda: not artimon.figures()["problems"], "no problem to be left")
        assert [value for *_, value in again.samples(source)] == [None]

    asyncio.run(run())


def test_who_was_killed_while_the_agent_was_away_and_is_still_registered_did_vanish(tree: str, tmp_path: Path) -> None:
    async def run() -> None:
        sink, context = KeepingSink(), "dead"
        async with processes(tree, context, 1) as (process,):
            await process.begin()
            async with running(tree, tmp_path / "data", sink):
                await until(lambda: up_of(sink, context)[-1:] == [1], "up = 1")
            await process.listening.aclose()
            again = KeepingSink()
            async with running(tree, tmp_path / "data", again):
                await until(lambda: up_of(again, context)[-1:] == [0], "up = 0")
                await process.unregister()
                await until(lambda: again.last(f"{context}/{HOST}/0").get("orders", 0) is None, "the end of its series")
                count = len(up_of(again, context))
                await until(lambda: len(up_of(again, context)) > count + 1, "more polls")
                assert up_of(again, context)[-1] == 0

    asyncio.run(run())


def test_without_zookeeper_an_endpoint_of_an_earlier_run_is_not_called_down(tree: str, tmp_path: Path) -> None:
    """It may have left while the agent was away: only ZooKeeper, or its answer, could tell."""

    async def run() -> None:
        sink, context = KeepingSink(), "unknown"
        async with processes(tree, context, 1) as (process,):
            await process.begin()
            async with running(tree, tmp_path / "data", sink):
                await until(lambda: up_of(sink, context)[-1:] == [1], "up = 1")
            await process.listening.aclose()
            again = KeepingSink()
            async with running("127.0.0.1:1", tmp_path / "data", again) as artimon:
                await until(lambda: artimon.figures()["poll_errors"].get("refused", 0) > 2, "polls")
                assert 0 not in up_of(again, context)
                assert None not in again.last(f"{context}/{HOST}/0").values(), "nor is it said to have ended"

    asyncio.run(run())


@contextlib.asynccontextmanager
async def succession(
    tree: str, folder: Path, context: str, sink: KeepingSink
) -> AsyncIterator[tuple[ArtimonSource, Process, Process]]:
    """A process that is polled, with 1 order, and one that is to take its place, with 2."""
    async with processes(tree, context, 1, 2) as (old, new):
        await old.begin()
        async with running(tree, folder / "data", sink) as artimon:
            await until(lambda: sink.last(f"{context}/{HOST}/0").get("orders") == 1, "the first poll")
            yield artimon, old, new


@pytest.mark.usefixtures("quiet_log")
def test_a_rival_that_claims_the_source_while_its_end_is_said(tree: str, tmp_path: Path) -> None:
    """Values of the new process follow the end of the old one, and no problem remains."""

    async def run() -> None:
        sink, context = HoldingSink(), "rival"
        source = f"{context}/{HOST}/0"
        async with succession(tree, tmp_path, context, sink) as (artimon, old, new):
            await old.listening.aclose()
            await old.unregister()
            await until(lambda: sink.holds, "the end of the old process on its way")
            await new.begin()
            await until(lambda: owner_of(artimon, source) == new.uuid, "the new process to speak for the source")
            sink.go.set()
            await until(lambda: sink.last(source).get("orders") == 2, "a poll of the new process")
            await until(lambda: not artimon.figures()["problems"], "no problem to be left")
            count = len(sink.samples(source))
            await until(lambda: len(sink.samples(source)) > count + 1, "more polls")
            assert [value for *_, value in sink.samples(source)][-2:] == [2, 2]
            assert not artimon.figures()["problems"]

    asyncio.run(run())


@pytest.mark.usefixtures("quiet_log")
def test_the_old_process_never_ends_the_series_of_the_new_one(tree: str, tmp_path: Path) -> None:
    """The end of the old process is reported after the new one owns the source."""

    async def run() -> None:
        sink, context = KeepingSink(), "turn"
        source = f"{context}/{HOST}/0"
        async with succession(tree, tmp_path, context, sink) as (artimon, old, new):
            lock: Any = artimon._store.get(source).lock
            async with lock:
                await old.listening.aclose()
                await old.unregister()
                await until(lambda: lock._waiters, "the old process to wait for its turn")
                await new.begin()
                await until(lambda: owner_of(artimon, source) == new.uuid, "the new process to own the source")
            await until(lambda: sink.last(source).get("orders") == 2, "a poll of the new process")
            assert None not in [value for *_, value in sink.samples(source)]
            await until(lambda: not artimon.figures()["problems"], "no problem to be left")

    asyncio.run(run())


def test_of_two_processes_of_one_instance_only_the_owner_is_named(tree: str, tmp_path: Path) -> None:
    """As after kill -9: the old znode is there for a while, and the new process answers."""

    async def run() -> None:
        sink, context = KeepingSink(), "once"
        source = f"{context}/{HOST}/0"
        async with succession(tree, tmp_path, context, sink) as (artimon, old, new):
            await old.listening.aclose()
            await new.begin()
            await until(lambda: sink.last(source).get("orders") == 2, "a poll of the new process")
            errors = artimon.figures()["poll_errors"].get("refused", 0)
            await until(lambda: artimon.figures()["poll_errors"].get("refused", 0) > errors + 1, "old znode polled")
            assert names_twice(artimon) == []
            ups = len(up_of(sink, context))
            await until(lambda: len(up_of(sink, context)) > ups + 1, "the agent's reports")
            assert artimon.figures()["refused"] == {}
            assert up_of(sink, context)[-2:] == [1, 1]
            assert artimon.figures()["endpoints_down"] == 0
            await old.unregister()
            await until(lambda: not artimon.figures()["problems"], "no problem to be left")

    asyncio.run(run())
