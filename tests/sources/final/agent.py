"""An agent that takes final snapshots into a real log: python -m tests.sources.final.agent FOLDER STEP [POINT].

STEP polled: writes down polls of a process, and of its successor with `late`. STEP take: takes files until none is
left; killed with -9 at POINT. STEP ledger: prints the samples in the log as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from artimon.model.batch import Polled
from artimon.model.clock import ManualClock
from pipeline.intake import Intake
from pipeline.log.log import Log
from sources.final import folder
from sources.series import state
from tests.crashing import kill_at
from tests.sources.final.world import MINUTE, Process, T, World

OLD, NEW = Process(0, 1), Process(20, 2)


class ProbedIntake(Intake):
    """Comes to points before and after the log has the samples."""

    probe: Callable[[str], None] = staticmethod(lambda _: None)

    async def accept(self, polled: Sequence[Polled]) -> None:
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


async def polled(world: World, late: bool) -> None:
    await world.poll(OLD, 1, n=1)
    if late:
        await world.poll(NEW, 21, n=100)
    await world.store.flush()


async def take(world: World) -> None:
    await world.finals.sweep()
    while world.files():
        await world.finals.sweep()


def main(place: Path, step: str, point: str = "") -> None:
    wal = Log(place / "log", "agent1", 2, lambda _: None, host="web1")
    intake = ProbedIntake(wal, "agent1", place / "log")
    if step == "ledger":
        rows = [[one.source, *row] for one in intake.replay() for row in one.samples.rows()]
        print(json.dumps(rows))
        return
    world = World(place, intake, ManualClock(T + 30 * MINUTE))
    if point:
        probe = kill_at(point, 1)
        ProbedIntake.probe = staticmethod(probe)
        state.write = probed(state.write, "before the state", "after the state", probe)
        folder.remove = probed(folder.remove, "before the deletion", "after the deletion", probe)
    asyncio.run((take if step == "take" else partial(polled, late=step.endswith("late")))(world))
    world.close()
    wal.close(3.0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
