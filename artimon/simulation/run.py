"""Runs of many seeds, and what they came to."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from artimon.simulation.scheduler import Endless, Killed, Violation
from artimon.simulation.world import World

CHUNK = 50


@dataclass(slots=True)
class Outcome:
    """What one seed came to. `violation` "": every promise was kept."""

    seed: int
    violation: str = ""
    events: int = 0
    virtual_s: float = 0.0
    figures: Counter[str] = field(default_factory=Counter)
    """Counts that are added up over seeds."""


def run_seed(seed: int, trace: Callable[[str], None] | None = None) -> Outcome:
    """One run."""
    world = World(seed, trace)
    violation = ""
    try:
        world.run()
    except Violation as broken:
        violation = str(broken)
    except (Killed, Endless) as broken:
        violation = f"{type(broken).__name__}: {broken}"
    except Exception as error:
        violation = f"{type(error).__name__}: {error}"
        if trace is not None:
            raise
    if violation and trace is not None:
        trace(f"VIOLATION {violation}")
    return Outcome(seed, violation, world.scheduler.events, world.scheduler.now, figures_of(world))


def figures_of(world: World) -> Counter[str]:
    """Counts of one run."""
    found = Counter(
        batches=len(world.checks.tokens),
        offered=len(world.checks.data),
        produced=world.kafka.produced,
        calls=world.network.calls,
        appends=world.store.appends,
        duplicates=world.store.head[1].totals.duplicates,
        agent_starts=sum(agent.starts for agent in world.agents),
        gaps=len(world.store.head[1].recent),
    )
    found.update(f"special: {name}" for name in world.plan.specials)
    found.update(f"happened: {name}" for name, times in world.happened.items() if times)
    return found


@dataclass(slots=True)
class Summary:
    """What many seeds came to."""

    first: int
    seeds: int = 0
    violations: list[Outcome] = field(default_factory=list)
    events: int = 0
    virtual_s: float = 0.0
    took_s: float = 0.0
    figures: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.events += outcome.events
        self.virtual_s += outcome.virtual_s
        self.figures.update(outcome.figures)
        if outcome.violation:
            self.violations.append(outcome)

    def to_json(self) -> dict[str, Any]:
        """For `artimon simulate --json`."""
        return {
            "first_seed": self.first,
            "seeds": self.seeds,
            "took_s": round(self.took_s, 2),
            "seeds_per_s": round(self.seeds / self.took_s, 1) if self.took_s else 0.0,
            "events": self.events,
            "virtual_s": round(self.virtual_s),
            "figures": dict(sorted(self.figures.items())),
            "violations": [
                {"seed": one.seed, "what": one.violation, "replay": replay(one.seed)} for one in self.violations
            ],
        }


def replay(seed: int) -> str:
    """The command that shows a run again."""
    return f"artimon simulate --seed {seed} --seeds 1 --trace"


def quietly() -> None:
    """In a worker: what processes log in the face of faults is no news, and nothing of a run is ever garbage in
    cycles that must go at once."""
    logging.disable(logging.CRITICAL)
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)


def _run_chunk(seeds: range) -> list[Outcome]:
    return [run_seed(seed) for seed in seeds]


def run_many(
    first: int,
    seeds: int,
    processes: int | None = None,
    most_violations: int = 20,
    progress: Callable[[Summary], None] | None = None,
) -> Summary:
    """Seeds [first, first + seeds) on so many processes (default: one a core); ends early after some violations."""
    summary, began = Summary(first), time.perf_counter()
    for outcome in _outcomes(first, seeds, processes or os.cpu_count() or 1):
        summary.add(outcome)
        summary.took_s = time.perf_counter() - began
        if progress is not None:
            progress(summary)
        if len(summary.violations) >= most_violations:
            break
    summary.violations.sort(key=lambda one: one.seed)
    return summary


def _outcomes(first: int, seeds: int, processes: int) -> Iterator[Outcome]:
    chunks = [range(at, min(at + CHUNK, first + seeds)) for at in range(first, first + seeds, CHUNK)]
    if processes == 1 or len(chunks) == 1:
        for chunk in chunks:
            for seed in chunk:
                yield run_seed(seed)
        return
    with multiprocessing.get_context("spawn").Pool(processes, quietly) as pool:
        for outcomes in pool.imap_unordered(_run_chunk, chunks):
            yield from outcomes
