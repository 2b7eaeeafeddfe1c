"""Foreign sources of an agent: bean servers, Prometheus pages, scripts. Starts the configured sources, reloads the file
of sources when it changes, and ends the sources removed from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from artimon.model.protocols import SinkRefusedError
from artimon.runtime.config_file import ConfigFileError, ConfigProblem
from sources.base.schedule import end_tasks
from sources.delivery.poll_context import PollContext, PollLimits
from sources.dropin.folder_files import signature_of
from sources.dropin.series_owners import SeriesOwners
from sources.scrape.discovery.discovered_targets import DiscoveredTargets
from sources.scrape.discovery.scrape_job import DiscoveryJob
from sources.scrape.jmx.bean_source import JmxSource, JolokiaSource
from sources.scrape.jmx.mapping_file import BeanRule, read_rules, rule_set
from sources.scrape.prometheus.exposition_source import ExpositionSource, PrometheusSource
from sources.scrape.script.script_source import ExpositionScript, LineScript
from sources.scrape.server.target_source import TargetSource
from sources.scrape.sources_file import SourcesFile, read_jobs, read_sources
from sources.scrape.target_files import TargetFiles
from sources.state.source_reading import SourceVariable
from sources.targets.bean_target import JmxTarget, JolokiaTarget
from sources.targets.prometheus_target import PrometheusTarget
from sources.targets.script_target import ScriptTarget

log = logging.getLogger(__name__)
RULE_SERIES = "artimon.rule.series"
KINDS = ("jmx", "jolokia", "prometheus", "script")
RELOAD_PERIOD_S = 30.0
"""Maximum seconds between two checks of the file of sources; with shorter periods, one per period."""
_SERVERS, _CONCURRENT_SCRIPTS = 32, 4
"""Concurrent polls of servers, each with an answer in memory, and of scripts."""
AnyTarget = JmxTarget | JolokiaTarget | PrometheusTarget | ScriptTarget
Key = tuple[str, ...]


class ReloadedSourcesFile:
    """Last valid content of the file of sources. One thread at a time.

    The constructor raises ConfigFileError if the file is invalid. A missing file is read once it exists."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.problem = ""
        self._signature: object = None
        self._has_content = False
        self.content = SourcesFile()
        self.jobs: tuple[DiscoveryJob, ...] = ()
        if path is not None:
            self._read(path)

    def reload(self) -> SourcesFile:
        """Reload the file if it changed and return its content. An error goes to `problem` and the content stays."""
        if self.path is not None:
            try:
                self._read(self.path)
                self.problem = ""
            except (ConfigFileError, OSError) as error:
                self._signature = None
                said = str(error).replace("\n", "; ")
                self.problem = f"{said}: the previous content stays in use"
        return self.content

    def _read(self, path: Path) -> None:
        """Read the file if it changed. Deleting it is an error, so that a deletion does not stop all sources."""
        try:
            if self._sign(path, self.content) != self._signature:
                content = read_sources(path)
                self._signature = self._sign(path, content)
                self.jobs, self.content = read_jobs(content), content
                self._has_content = True
        except FileNotFoundError:
            if self._has_content:
                raise ConfigFileError([ConfigProblem(str(path), 1, 1, "the file was deleted")]) from None

    @staticmethod
    def _sign(path: Path, content: SourcesFile) -> object:
        """Return the signatures of the file and of those that it names; None for one that is missing."""
        named = [one.path for one in content.scrape_config_files]
        return signature_of(path.stat()), *(signature_of(one.stat()) if one.exists() else None for one in named)


class ScrapeManager:
    """Runs the foreign sources of an agent. Event loop only; files are read in threads."""

    def __init__(self, shared: PollContext, config: ReloadedSourcesFile) -> None:
        self._shared, self._file = shared, config
        self._own_rules = tuple(rule for path in shared.config.jmx_rules for rule in read_rules(path))
        self._files, self._owners = TargetFiles(), SeriesOwners()
        self._limits, self._script_limits = PollLimits(_SERVERS), PollLimits(_CONCURRENT_SCRIPTS)
        self._running: dict[Key, tuple[TargetSource[Any], asyncio.Task[None]]] = {}
        self._discovered = DiscoveredTargets(shared.config.agent, shared.figures.ended)
        self._rules_at_start = config.content.rules
        self._ended = False

    async def run(self) -> None:
        """Reload the configuration until cancelled, then stop all sources."""
        try:
            while True:
                self._discovered.changed.clear()
                await self._reload_safely()
                with contextlib.suppress(TimeoutError):
                    period_s = min(RELOAD_PERIOD_S, self._shared.config.period_ms / 1000)
                    await asyncio.wait_for(self._discovered.changed.wait(), period_s)
        finally:
            await self._discovered.stop()
            await end_tasks([task for _, task in self._running.values()])

    async def _reload_safely(self) -> None:
        """Reload the configuration; an error is reported and the running sources continue."""
        try:
            await self.reload()
        except Exception as error:
            log.exception("foreign sources")
            self._shared.figures.set_problem("sources file", f"foreign sources: {type(error).__name__}: {error}")

    async def reload(self) -> None:
        """Start and stop sources according to the present configuration."""
        content, targets, problems = await asyncio.to_thread(self._wanted)
        await self._discovered.configure(self._file.jobs)
        found, notes = await asyncio.to_thread(self._discovered.targets)
        self._report(content, [*problems, *notes])
        wanted = {(target.kind, *target.identity): target for target in (*targets, *found)}
        await self._end_others(wanted, bool(problems) or not self._discovered.ready)
        changed = [key for key, (source, _) in self._running.items() if wanted.get(key) != source.target]
        stopped = [self._running.pop(key) for key in changed]
        await end_tasks([task for _, task in stopped])
        for (source, _), key in zip(stopped, changed, strict=True):
            if key not in wanted:
                await source.remove()
            elif source.series is not None:  # another target may own the source
                self._shared.owners.release(source.series.name, source)
        for key, target in wanted.items():
            if key not in self._running:
                self._start(key, target)

    def variables(self) -> list[SourceVariable]:
        """Return the number of series that each rule drops or changes."""
        help_ = "Series that the rule drops or changes"
        counts = self._shared.delivery.rules.counts()
        return [SourceVariable(RULE_SERIES, {"rule": name}, count, help=help_) for name, count in counts.items()]

    def figures(self) -> dict[str, Any]:
        """Return the counts of ignored parts of Prometheus pages, and the state of the discoveries."""
        pages = [source for source, _ in list(self._running.values()) if isinstance(source, ExpositionSource)]
        return {
            "timestamps_ignored": sum(page.ignored["timestamp"] for page in pages),
            "exemplars_ignored": sum(page.ignored["exemplar"] for page in pages),
            "discovery": self._discovered.figures(),
        }

    def warnings(self) -> list[str]:
        """Return the settings of jobs that are left out."""
        return [note for job in self._file.jobs for note in job.notes]

    # --- configuration

    def _wanted(self) -> tuple[SourcesFile, list[AnyTarget], list[str]]:
        content = self._file.reload()
        pages, problems = self._files.reload(content.pages)
        if self._file.problem:
            problems.append(self._file.problem)
        return content, [*self._shared.config.jmx, *content.jmx, *content.jolokia, *content.scripts, *pages], problems

    def _report(self, content: SourcesFile, problems: Iterable[str]) -> None:
        texts = list(problems)
        if content.rules != self._rules_at_start:
            texts.append(f"{self._file.path}: `relabel:` has changed: restart the agent to apply it")
        self._shared.figures.set_problem("sources file", "; ".join(texts[:10]))

    async def _end_others(self, wanted: Mapping[Key, AnyTarget], unsure: bool) -> None:
        """End, once, sources of the run before that are not configured any more. Not while a file is invalid."""
        if self._ended or unsure:
            return
        self._ended = True
        for series in self._shared.delivery.store:
            kind = next((kind for kind in KINDS if kind in series.meta), None)
            if kind is None or (kind, *series.meta[kind]) in wanted or not series.live:
                continue
            log.info("%s is not configured any more: its series end", series.name)
            try:
                await self._shared.delivery.end(series)
            except SinkRefusedError:
                pass  # tried again at the next start

    # --- start and stop

    def _start(self, key: Key, target: AnyTarget) -> None:
        source = self._source(target)
        task = asyncio.create_task(source.run(), name=str(target))
        task.add_done_callback(self._shared.figures.ended)
        self._running[key] = source, task

    def _source(self, target: AnyTarget) -> TargetSource[Any]:
        shared = self._shared
        match target:
            case JmxTarget():
                return JmxSource(target, shared, self._limits, self._bean_rules(target.rule_sets))
            case JolokiaTarget():
                return JolokiaSource(target, shared, self._limits, self._bean_rules(target.rule_sets))
            case PrometheusTarget():
                return PrometheusSource(target, shared, self._limits)
        if target.format == "prometheus":
            return ExpositionScript(target, shared, self._script_limits)
        return LineScript(target, shared, self._script_limits, self._owners)

    def _bean_rules(self, names: Iterable[str]) -> tuple[BeanRule, ...]:
        return (*self._own_rules, *(rule for name in names for rule in rule_set(name)))
