"""Followed processes: znodes that vanish all at once, groups that come and go, a wall clock that jumps."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from artimon.model.clock import SYSTEM_CLOCK, Clock
from bookkeeper import Bookkeeper
from bookkeeper.rpc.framed_server import FramedServer
from bookkeeper.rpc.poll_service import PollHandler, ProcessIdentity, idl
from sources.base.endpoint_address import EndpointAddress
from sources.delivery.endpoint_status import EndpointStatuses
from sources.delivery.placement_resolver import PlacementResolver
from sources.delivery.poll_context import PollContext, PollLimits
from sources.delivery.reading_delivery import ReadingDelivery
from sources.delivery.source_config import SourceConfig
from sources.delivery.source_counts import SourceCounts
from sources.delivery.source_owners import SourceOwners
from sources.poll.process_poller import ProcessFollower
from sources.poll.process_set import FollowedProcesses
from sources.state.state_store import SourceStateStore
from tests.sources.helpers import HOST, KeepingSink, answering, columns, endpoint
from tests.waiting import until

UUID = bytes(range(16))
HOST_KEY = "web1.example"


class JumpingClock:
    """The system's clock, whose wall time is set by hand."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return SYSTEM_CLOCK.now_ms() + self.ahead_ms

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.monotonic()

    def wait(self, stop: Any, seconds: float) -> bool:
        return SYSTEM_CLOCK.wait(stop, seconds)


def shared(data: Path, sink: KeepingSink, clock: Clock = SYSTEM_CLOCK, **settings: Any) -> PollContext:
    """What followers have in common."""
    chosen: dict[str, Any] = {"agent": "agent1", "period_ms": 300, "deadline_s": 1.0, "goodbye_s": 0.1, **settings}
    config = SourceConfig(zookeeper="", data=data, **chosen)
    config.folder.mkdir(parents=True, exist_ok=True)
    figures = SourceCounts()
    delivery = ReadingDelivery(sink, SourceStateStore(config.folder, config.max_series), figures, clock)
    placement = PlacementResolver(data / "names.json", (), clock, hostname=HOST)
    statuses = EndpointStatuses(data / "vanished.json", config.vanished_ms)
    return PollContext(config, clock, PollLimits(16), delivery, placement, SourceOwners(), statuses, figures)


class RecordedLeases:
    """Leases that record the calls of the follower."""

    def __init__(self) -> None:
        self.kept: list[frozenset[str]] = []
        self.given: list[str] = []

    def set_kept(self, units: frozenset[str]) -> None:
        self.kept.append(units)

    def released(self, unit: str) -> None:
        self.given.append(unit)


def dead(count: int) -> frozenset[EndpointAddress]:
    """Return endpoints on which nothing listens."""
    return frozenset(EndpointAddress("shop", "127.0.0.1", 1, bytes([i]) * 16, HOST_KEY) for i in range(count))


def test_znodes_that_go_all_at_once_are_not_believed_at_once(tmp_path: Path) -> None:
    """ZooKeeper was wiped: processes that register again in time are followed as before."""

    async def run() -> None:
        following, all_twenty = (
            FollowedProcesses(shared(tmp_path, KeepingSink(), wiped_s=0.4), RecordedLeases()),
            dead(20),
        )
        following.on_assigned(frozenset([HOST_KEY]), frozenset())
        following.on_listed({HOST_KEY: all_twenty})
        assert len(following._followers) == 20
        following.on_listed({HOST_KEY: frozenset()})
        following.on_listed({HOST_KEY: frozenset(sorted(all_twenty)[:15])})
        await asyncio.sleep(0)
        assert len(following._followers) == 20
        await until(lambda: len(following._followers) == 15, "the five to be given up")
        following.on_listed({HOST_KEY: frozenset()})
        assert len(following._followers) == 15
        await until(lambda: not following._followers, "the others, which never came back")
        await following.stop()

    asyncio.run(run())


def test_a_few_znodes_that_go_are_believed_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        following, all_twenty = (
            FollowedProcesses(shared(tmp_path, KeepingSink(), wiped_s=3_600.0), RecordedLeases()),
            dead(20),
        )
        following.on_assigned(frozenset([HOST_KEY]), frozenset())
        following.on_listed({HOST_KEY: all_twenty})
        following.on_listed({HOST_KEY: frozenset(sorted(all_twenty)[4:])})
        await until(lambda: len(following._followers) == 16, "four to be given up")
        await following.stop()

    asyncio.run(run())


def test_only_units_that_are_ours_are_followed(tmp_path: Path) -> None:
    """A unit that leaves is given up when nothing of it is polled any more; its series do not end."""

    async def run() -> None:
        sink, told = KeepingSink(), RecordedLeases()
        following = FollowedProcesses(shared(tmp_path, sink), told)
        async with endpoint(answering(lambda: columns(UUID, {"a": 1}))) as port:
            one = EndpointAddress("shop", "127.0.0.1", port, UUID, HOST_KEY)
            following.on_listed({HOST_KEY: frozenset([one])})
            assert not following._followers
            following.on_assigned(frozenset([HOST_KEY]), frozenset())
            await until(lambda: len(sink.samples()) > 2, "polls")
            assert told.kept == [frozenset()]
            following.on_assigned(frozenset(), frozenset([HOST_KEY]))
            assert not following._followers
            await until(lambda: told.given == [HOST_KEY], "the lease to be given up")
            count = len(sink.samples())
            following.on_assigned(frozenset([HOST_KEY]), frozenset())
            await until(lambda: len(sink.samples()) > count + 1, "polls when it is back")
            await following.stop()
        assert None not in [value for *_, value in sink.samples()]

    asyncio.run(run())


def has_more(sink: KeepingSink, than: int) -> bool:
    return len(sink.samples()) > than


def test_a_wall_clock_that_jumps_holds_up_no_poll(tmp_path: Path) -> None:
    """An hour back and a day ahead: the next polls come within periods of the real time."""

    async def run() -> None:
        sink, clock = KeepingSink(), JumpingClock()
        async with endpoint(answering(lambda: columns(UUID, {"a": 1}))) as port:
            follower = ProcessFollower(EndpointAddress("shop", "127.0.0.1", port, UUID), shared(tmp_path, sink, clock))
            task = asyncio.create_task(follower.run())
            for ahead_ms in (0, -3_600_000, 86_400_000, 0):
                clock.ahead_ms = ahead_ms
                wanted = len(sink.samples()) + 2
                await until(partial(has_more, sink, wanted), f"polls {ahead_ms} ms ahead")
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert {birth for _, _, birth, _ in sink.samples()} == {1_000}

    asyncio.run(run())


def test_whoever_does_not_answer_is_asked_less_often(tmp_path: Path) -> None:
    """The period is the usual one again after an answer."""

    async def run() -> None:
        sink, asked = KeepingSink(), list[float]()
        good = [False]

        async def behave(seqid: int, writer: asyncio.StreamWriter) -> None:
            asked.append(SYSTEM_CLOCK.monotonic())
            if good[0]:
                await answering(lambda: columns(UUID, {"a": 1}))(seqid, writer)
            else:
                writer.close()

        async with endpoint(behave) as port:
            follower = ProcessFollower(
                EndpointAddress("shop", "127.0.0.1", port, UUID), shared(tmp_path, sink, period_ms=100)
            )
            task = asyncio.create_task(follower.run())
            await until(lambda: len(asked) >= 7, "seven failed polls")
            waits = [b - a for a, b in itertools.pairwise(asked)]
            assert max(waits[5:]) > 0.3 > min(waits[:2])
            good[0] = True
            await until(lambda: len(sink.samples()) > 3, "polls that succeed")
            times = [time for _, time, _, _ in sink.samples()]
            assert min(b - a for a, b in itertools.pairwise(times)) < 250
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def test_an_agent_in_doubt_gives_way_to_the_one_that_polls(tmp_path: Path) -> None:
    """It continues if no other agent polls, because ZooKeeper may be gone for all. It never reports the process as
    down."""

    async def run() -> None:
        book, process = Bookkeeper(online=False), uuid.uuid4().bytes
        book.add_to_integer_var("orders", {}, 1)
        service = PollHandler(book, ProcessIdentity(process, 1_000, "shop", "0"))
        server = FramedServer(idl().Bookkeeper, service, on_reply=service.on_reply)
        one = EndpointAddress("shop", "127.0.0.1", server.start(), process)
        sinks = [KeepingSink(), KeepingSink()]
        certain = shared(tmp_path / "a", sinks[0])
        doubtful = replace(shared(tmp_path / "b", sinks[1], agent="agent2"), holds_lease=lambda _: False)
        tasks = [asyncio.create_task(ProcessFollower(one, who).run()) for who in (certain, doubtful)]
        try:
            await until(lambda: doubtful.figures.polled_elsewhere > 2, "the agent in doubt to give way")
            await until(lambda: len(sinks[0].samples()) > 3, "polls of the other")
            count = len(sinks[1].samples())
            book.add_to_integer_var("late", {}, 1)
            await until(lambda: any("late" in text for text, *_ in sinks[0].samples()), "a series that came late")
            after = len(sinks[0].samples())
            await until(lambda: len(sinks[0].samples()) > after + 2, "the poll that leaves word of it")
            assert len(sinks[1].samples()) == count <= 1
            assert doubtful.statuses.counts() == (0, 0)
            tasks[0].cancel()
            await until(lambda: sinks[1].last("shop/web1/0").get("late") == 1, "polls when nobody else asks")
            births = [{birth for text, _, birth, _ in sink.samples() if "late" in text} for sink in sinks]
            assert births[0] == births[1]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.to_thread(server.stop)

    asyncio.run(run())
