"""An agent that writes final snapshots to a real log until it is killed at a point. python -m tests.sources.final.agent
FOLDER POINT"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from artimon.model.batch import PollResult
from artimon.model.clock import ManualClock
from pipeline.delivery.wal_sink import WalSink
from pipeline.wal.log import WriteAheadLog
from sources.poll import final_files, final_folder
from sources.state import state_files as state
from tests.crashing import kill_at
from tests.sources.final.world import MINUTE, Process, T, World

OLD, NEW = Process(0, 1), Process(20, 2)


class ProbedIntake(WalSink):
    """Intake with kill points before and after the log has the samples."""

    probe: Callable[[str], None] = staticmethod(lambda _: None)

    async def accept(self, polled: Sequence[PollResult]) -> None:
        self.probe("before the log")
        await super().accept(polled)
        self.probe("after the log")


def probed(work: Callable[..., Any], before: str, after: str, probe: Callable[[str], None]) -> Callable[..., Any]:
    def run(*arguments: Any) -> Any:
        probe(before)
        answer = work(*arguments)
        probe(after)
        return answer

    return run


async def polled(world: World) -> None:
    await world.poll(OLD, 1, n=1)
    await world.store.flush()


async def succeeded(world: World) -> None:
    await polled(world)
    await world.poll(NEW, 21, n=100)
    await world.store.flush()


async def take(world: World) -> None:
    await world.finals.sweep()
    while world.files():
        await world.finals.sweep()


def ledger(place: Path) -> list[tuple[Any, ...]]:
    """Return the samples of the log with their sources."""
    wal = WriteAheadLog(place / "log", "agent1", 2, lambda _: None, host="web1")
    found = [(one.source, *row) for one in WalSink(wal, "agent1", place / "log").replay() for row in one.samples.rows()]
    wal.close(3.0)
    return found


def run(place: Path, step: Callable[[World], Coroutine[Any, Any, None]], point: str = "") -> None:
    """Run an agent, which kills itself with SIGKILL at `point`."""
    wal = WriteAheadLog(place / "log", "agent1", 2, lambda _: None, host="web1")
    world = World(place, ProbedIntake(wal, "agent1", place / "log"), ManualClock(T + 30 * MINUTE))
    if point:
        probe = kill_at(point, 1)
        ProbedIntake.probe = staticmethod(probe)
        state.replace_file = probed(state.replace_file, "before the state", "after the state", probe)
        delete = probed(final_files.remove_final, "before the deletion", "after the deletion", probe)
        setattr(final_folder, "remove_final", delete)  # noqa: B010 - a name that mypy does not see there
    asyncio.run(step(world))
    world.close()
    wal.close(3.0)


if __name__ == "__main__":
    run(Path(sys.argv[1]), take, sys.argv[2])
