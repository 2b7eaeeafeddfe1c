"""Targets of all jobs with discovery: runs the discoveries, and applies the rules to what they find."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sources.base.schedule import end_tasks
from sources.scrape.discovery.discovery import Discovery
from sources.scrape.discovery.scrape_job import DiscoveryJob, distinct
from sources.scrape.discovery.target_group import DiscoveredGroup
from sources.targets.prometheus_target import PrometheusTarget

MAX_TOTAL = 10_000
"""Limit of the discovered targets of one agent."""
MAX_PROBLEMS = 5
"""Invalid targets of a job that are named."""


class JobDiscovery:
    """Discoveries of one job. The targets of a group are made once, as long as it is the same object."""

    def __init__(
        self, job: DiscoveryJob, ended: Callable[[asyncio.Task[None]], None], changed: Callable[[], None]
    ) -> None:
        self.job = job
        self._discoveries: list[Discovery] = [config.make(changed) for config in job.discoveries]
        self._made: dict[tuple[int, str], tuple[DiscoveredGroup, list[PrometheusTarget], list[str]]] = {}
        self.tasks = [asyncio.create_task(one.run(), name=f"job {job.job.name}: {one}") for one in self._discoveries]
        for task in self.tasks:
            task.add_done_callback(ended)

    def groups(self) -> list[DiscoveredGroup]:
        return [group for one in self._discoveries for group in one.groups().values()]

    @property
    def ready(self) -> bool:
        """True if every discovery has found its targets once."""
        return all(one.ready for one in self._discoveries)

    def figures(self) -> dict[str, int]:
        """Return the number of discoveries, of those without an answer yet, and of targets before sharing."""
        waiting = sum(not one.ready for one in self._discoveries)
        targets = sum(len(found) for _, found, _ in list(self._made.values()))
        return {"discoveries": len(self._discoveries), "waiting": waiting, "targets": targets}

    def targets(self, agent: str) -> tuple[list[PrometheusTarget], list[str]]:
        """Return the share of the agent, and the problems."""
        name, job = self.job.job.name, self.job
        problems = [f"job {name}: {one}: {one.problem}" for one in self._discoveries if one.problem]
        self._made = {
            (at, source): self._make((at, source), group)
            for at, one in enumerate(self._discoveries)
            for source, group in one.groups().items()
        }
        wrong = [text for _, _, texts in self._made.values() for text in texts]
        problems += wrong[:MAX_PROBLEMS]
        if len(wrong) > MAX_PROBLEMS:
            problems.append(f"job {name}: {len(wrong):,} invalid targets")
        found = distinct(one for _, targets, _ in self._made.values() for one in targets)
        ours = [one for one in found if job.is_ours(one, agent)]
        if len(ours) > job.max_targets:
            text = (
                f"job {name}: {len(ours):,} targets: only {job.max_targets:,} are polled; select fewer, or share them"
            )
            problems.append(text)
        return ours[: job.max_targets], problems

    def _make(
        self, key: tuple[int, str], group: DiscoveredGroup
    ) -> tuple[DiscoveredGroup, list[PrometheusTarget], list[str]]:
        known = self._made.get(key)
        return known if known is not None and known[0] is group else (group, *self.job.targets(group))


class DiscoveredTargets:
    """All jobs. Event loop only. `changed` is set after each change of what was discovered."""

    def __init__(self, agent: str, ended: Callable[[asyncio.Task[None]], None]) -> None:
        self._agent, self._ended = agent, ended
        self.changed = asyncio.Event()
        self._jobs: dict[str, JobDiscovery] = {}

    async def configure(self, jobs: Sequence[DiscoveryJob]) -> None:
        """Start, keep and stop jobs: one that did not change keeps running."""
        wanted = {one.job.name: one for one in jobs}
        stopped = [self._jobs.pop(name) for name, one in list(self._jobs.items()) if wanted.get(name) != one.job]
        await end_tasks([task for one in stopped for task in one.tasks])
        for name, job in wanted.items():
            if name not in self._jobs:
                self._jobs[name] = JobDiscovery(job, self._ended, self.changed.set)

    async def stop(self) -> None:
        await self.configure(())

    @property
    def ready(self) -> bool:
        """True if all targets of all jobs were found once."""
        return all(one.ready for one in self._jobs.values())

    def targets(self) -> tuple[list[PrometheusTarget], list[str]]:
        """Return the targets that this agent polls, and the problems."""
        targets: list[PrometheusTarget] = []
        problems: list[str] = []
        for one in self._jobs.values():
            found, texts = one.targets(self._agent)
            targets += found
            problems += texts
        if len(targets) > MAX_TOTAL:
            problems.append(f"{len(targets):,} discovered targets: only {MAX_TOTAL:,} are polled")
        return targets[:MAX_TOTAL], problems

    def figures(self) -> dict[str, dict[str, int]]:
        """Return for each job the number of its discoveries, and of those that wait for their first answer."""
        return {name: one.figures() for name, one in list(self._jobs.items())}
