"""Readings of many polls reach the sink together, and a refusal affects only its own poll."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from artimon.model.batch import PollResult, Samples
from artimon.model.protocols import SinkRefusedError
from sources.delivery.commit_group import MAX_GROUP_SAMPLES, GroupCommitSink
from sources.delivery.poll_context import PollLimits
from sources.poll.poll_client import PollClient
from tests.sources.helpers import answering, columns, endpoint
from tests.sources.test_poller import UUID, VALUES, poller


def polled(source: str, samples: int = 1) -> PollResult:
    return PollResult(source, bytes(16), 0, 1, Samples.of([(i, 1, 0, 1) for i in range(samples)]))


class PartialSink:
    """Sink that waits for `go`, and refuses or fails at readings of some sources."""

    def __init__(self, refuses: str = "", fails: str = "") -> None:
        self.go, self.calls, self._refuses, self._fails = asyncio.Event(), list[list[str]](), refuses, fails

    async def accept(self, given: Sequence[PollResult]) -> None:
        self.calls.append([one.source for one in given])
        await self.go.wait()
        if self._fails and any(one.source == self._fails for one in given):
            raise OSError("the disk failed")
        if self._refuses and any(one.source == self._refuses for one in given):
            raise SinkRefusedError("quota")


async def outcomes(behind: PartialSink, *given: PollResult) -> list[BaseException | None]:
    """Return the outcome of each reading, all delivered at once."""
    gathering = GroupCommitSink(behind)
    tasks = [asyncio.create_task(gathering.accept([one])) for one in given]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    behind.go.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


def test_what_waits_goes_together() -> None:
    async def run() -> None:
        behind = PartialSink()
        assert await outcomes(behind, *(polled(str(i)) for i in range(100))) == [None] * 100
        assert sorted(source for call in behind.calls for source in call) == sorted(map(str, range(100)))
        assert len(behind.calls) <= 3

    asyncio.run(run())


def test_only_who_is_refused_alone_is_refused() -> None:
    async def run() -> None:
        behind = PartialSink(refuses="b")
        found = await outcomes(behind, polled("a"), polled("b"), polled("c"), polled("d"))
        assert [type(one) for one in found] == [type(None), SinkRefusedError, type(None), type(None)]

    asyncio.run(run())


def test_a_log_that_failed_fails_everybody_it_was_asked_for() -> None:
    """Only a restart can tell the contents of the log: nothing is offered again."""

    async def run() -> None:
        behind = PartialSink(fails="b")
        found = await outcomes(behind, polled("a"), polled("b"))
        assert isinstance(found[1], OSError)
        assert len([source for call in behind.calls for source in call if source == "b"]) == 1

    asyncio.run(run())


def test_what_is_handed_over_at_once_is_bounded_and_who_gives_up_stops_nobody() -> None:
    async def run() -> None:
        behind, half = PartialSink(), MAX_GROUP_SAMPLES // 2
        gathering = GroupCommitSink(behind)
        tasks = [asyncio.create_task(gathering.accept([polled(str(i), half)])) for i in range(5)]
        await asyncio.sleep(0)
        tasks[4].cancel()
        behind.go.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [task.cancelled() for task in tasks] == [False] * 4 + [True]
        assert max(len(call) for call in behind.calls) == 2

    asyncio.run(run())


@pytest.mark.parametrize(("most", "kept"), [(0, 0), (1, 1)])
def test_connections_beyond_the_limit_are_not_kept(most: int, kept: int) -> None:
    async def run() -> None:
        async with endpoint(answering(lambda: columns(UUID, VALUES))) as port:
            pollers: list[PollClient] = [poller(port), poller(port)]
            limits = PollLimits(4, most)
            for one in pollers:
                one._limits = limits
                await one.poll()
            assert limits.kept == kept
            await pollers[1].poll()
            for one in pollers:
                one.close()
            assert limits.kept == 0

    asyncio.run(run())
