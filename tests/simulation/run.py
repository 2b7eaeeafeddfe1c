"""Runs of many seeds, and their results."""

from __future__ import annotations

import gc
import logging
import math
import multiprocessing
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Endless, Killed, Violation
from tests.simulation.two_sites import SitesWorld
from tests.simulation.world import World

CHUNK = 50
FRESH_FROM, FRESH_BELOW = 10**6, 10**12
"""Range of fresh first seeds: above all that are fixed anywhere."""
SEEDS_A_MINUTE = 60_000
"""Upper bound of seeds a minute on any machine; limits the work that a run by time hands to its pool."""


@dataclass(slots=True)
class Outcome:
    """Result of one seed. `violation` is empty if every promise was kept."""

    seed: int
    violation: str = ""
    events: int = 0
    virtual_s: float = 0.0
    figures: Counter[str] = field(default_factory=Counter)
    """Counts that are added up over seeds."""


def run_seed(seed: int, trace: Callable[[str], None] | None = None) -> Outcome:
    """Run one seed."""
    scenario, sites = Scenario(seed, trace), SitesWorld(seed, trace)
    violation = ""
    try:
        scenario.run()
        sites.run()
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
    figures = figures_of(scenario.world)
    figures["happened: site left"] += sites.moved
    main, small = scenario.world.scheduler, sites.scheduler
    return Outcome(seed, violation, main.events + small.events, main.now + small.now, figures)


def figures_of(world: World) -> Counter[str]:
    """Return the counts of one run."""
    found = Counter(
        batches=len(world.checks.tokens),
        offered=len(world.checks.data),
        produced=world.kafka.produced,
        calls=world.network.calls,
        appends=world.store.appends,
        duplicates=world.store.head[1].totals.duplicates,
        agent_starts=sum(agent.starts for agent in world.agents),
        gaps=len(world.store.head[1].recent_gaps),
    )
    found.update(f"special: {name}" for name in world.plan.specials)
    found.update(f"happened: {name}" for name, times in world.happened.items() if times)
    return found


@dataclass(slots=True)
class Summary:
    """Result of many seeds."""

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
        """Return the summary for `./scripts/simulate --json`."""
        return {
            "first_seed": self.first,
            "seeds": self.seeds,
            "again": repeat(self.first, self.seeds),
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
    """Return the command that shows a run again."""
    return f"./scripts/simulate --seed {seed} --seeds 1 --trace"


def repeat(first: int, seeds: int) -> str:
    """Return the command that runs the seeds [first, first + seeds) again."""
    return f"./scripts/simulate --seed {first} --seeds {seeds}"


def fresh_seed() -> int:
    """Draw the first seed of a range that is new in all likelihood."""
    return FRESH_FROM + secrets.randbelow(FRESH_BELOW - FRESH_FROM)


def quietly() -> None:
    """Prepare a worker: no logging, because faults cause many messages, and rare garbage collection, because a run
    creates no cycles that must be freed at once."""
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
    most_s: float = math.inf,
) -> Summary:
    """Run the seeds [first, first + seeds) in order on this many processes (default: one a core); ends early after some
    violations, or after `most_s` seconds."""
    summary, began = Summary(first), time.perf_counter()
    for outcomes in _outcomes(first, seeds, processes or os.cpu_count() or 1):
        for outcome in outcomes:
            summary.add(outcome)
        summary.took_s = time.perf_counter() - began
        if progress is not None:
            progress(summary)
        if len(summary.violations) >= most_violations or summary.took_s > most_s:
            break
    summary.violations.sort(key=lambda one: one.seed)
    return summary


def run_for(first: int, minutes: float, processes: int | None = None) -> Summary:
    """Run the seeds from `first` on until one breaks a promise or the time is up."""
    most_s = minutes * 60
    return run_many(first, max(CHUNK, int(minutes * SEEDS_A_MINUTE)), processes, 1, most_s=most_s)


def _outcomes(first: int, seeds: int, processes: int) -> Iterator[list[Outcome]]:
    chunks = [range(at, min(at + CHUNK, first + seeds)) for at in range(first, first + seeds, CHUNK)]
    if processes == 1 or len(chunks) == 1:
        for chunk in chunks:
            for seed in chunk:
                yield [run_seed(seed)]
        return
    with multiprocessing.get_context("spawn").Pool(processes, quietly) as pool:
        yield from pool.imap(_run_chunk, chunks)
