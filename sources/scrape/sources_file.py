"""File of foreign sources: Prometheus pages and jobs, bean servers, scripts, rules for all series.

Format: docs/foreign.md."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, RootModel, model_validator

from artimon.runtime.config_file import ConfigFileError, ConfigProblem, read_config
from artimon.runtime.config_model import Section, Steps, Text, built, fault, raise_faults, repeated
from sources.scrape.config_sections import (
    File,
    JmxSection,
    JobSection,
    JobTargets,
    JolokiaSection,
    RelabelRuleList,
    ScriptSection,
    TargetGroup,
)
from sources.scrape.discovery.scrape_config import Jobs, notes_of, read_prometheus_file, supported
from sources.scrape.discovery.scrape_job import DiscoveryJob
from sources.state.relabel import RelabelRule
from sources.targets.bean_target import JmxTarget, JolokiaTarget
from sources.targets.prometheus_target import PrometheusTarget, ScrapeJob
from sources.targets.script_target import ScriptTarget

MAX_TARGETS = 2_000
MAX_SCRIPTS = 100


@dataclass(frozen=True, slots=True)
class PrometheusFile:
    """File of Prometheus whose `scrape_configs` are read, and the agents that share its targets."""

    path: Path
    agents: tuple[str, ...] = ()


class PrometheusFileSection(Section):
    file: File
    agents: tuple[Text, ...] = ()

    def build(self) -> PrometheusFile:
        return PrometheusFile(self.file, self.agents)


class SourcesFile(Section):
    """Content of the file. Read with its `folder` as context."""

    pages: tuple[Annotated[JobTargets, built(JobSection)], ...] = Field(default=(), alias="prometheus")
    scrape_configs: Jobs = ()
    scrape_config_files: tuple[Annotated[PrometheusFile, built(PrometheusFileSection)], ...] = ()
    jmx: tuple[Annotated[JmxTarget, built(JmxSection)], ...] = ()
    jolokia: tuple[Annotated[JolokiaTarget, built(JolokiaSection)], ...] = ()
    scripts: tuple[Annotated[ScriptTarget, built(ScriptSection)], ...] = Field(default=(), max_length=MAX_SCRIPTS)
    relabel: RelabelRuleList = ()

    @cached_property
    def rules(self) -> tuple[RelabelRule, ...]:
        """Relabel rules for the series of all sources."""
        return tuple(rule.build(f"relabel[{number}]") for number, rule in enumerate(self.relabel, 1))

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        raise_faults(repeated(self._names()))
        places = [("prometheus", i, "targets", j) for i, one in enumerate(self.pages) for j in range(len(one.targets))]
        for place in places[MAX_TARGETS : MAX_TARGETS + 1]:
            raise_faults([fault(f"more than {MAX_TARGETS} targets: give some of them to another agent", *place)])
        return self

    def _names(self) -> Iterator[tuple[str, Steps]]:
        for at, pages in enumerate(self.pages):
            yield f"job {pages.job.name}", ("prometheus", at, "job")
            for rule_at, rule in enumerate(pages.job.rules):
                yield f"rule {rule.name}", ("prometheus", at, "rules", rule_at, "name")
            for target_at, target in enumerate(pages.targets):
                name = f"instance {target.instance} of job {target.job.name}"
                yield name, ("prometheus", at, "targets", target_at)
        yield from ((f"job {one.job.name}", ("scrape_configs", at)) for at, one in enumerate(self.scrape_configs))
        for kind, servers in (("jmx", self.jmx), ("jolokia", self.jolokia)):
            yield from ((f"bean server {one.context}/{one.instance}", (kind, at)) for at, one in enumerate(servers))
        yield from ((f"script {one.name}", ("scripts", at, "name")) for at, one in enumerate(self.scripts))
        yield from ((f"rule {one.name}", ("relabel", at, "name")) for at, one in enumerate(self.rules))


class TargetsFile(RootModel[tuple[TargetGroup, ...]]):
    """Target file in the format of Prometheus. Read with the `job` as context."""

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        raise_faults(
            repeated(
                (f"instance {target.instance}", (at, "targets", target_at))
                for at, group in enumerate(self.root)
                for target_at, target in enumerate(group.targets)
            )
        )
        return self


def read_sources(path: Path) -> SourcesFile:
    """Return the content of a file. Raises FileNotFoundError, and ConfigFileError if it is invalid.

    A world-writable file must not name scripts: they would run as the user of the agent."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigFileError([ConfigProblem(str(path), 1, 1, f"{error.strerror}: let the agent read it")]) from error
    file = read_config(path, form="yaml")
    data = file.data
    left_out: list[tuple[Steps, str]] = []
    if isinstance(data, dict) and "scrape_configs" in data:
        jobs, left_out = supported({"scrape_configs": data["scrape_configs"]})
        data = {**data, **jobs}
    found = replace(file, data=data).validate(SourcesFile, folder=path.parent)
    if found.scripts and mode & stat.S_IWOTH:
        raise file.error("the file is world-writable, so its scripts are not run: use `chmod o-w`")
    if left_out:
        first, *others = found.scrape_configs
        noted = (replace(first, notes=notes_of(file, left_out)), *others)
        found = found.model_copy(update={"scrape_configs": noted})
    return found


def read_jobs(content: SourcesFile) -> tuple[DiscoveryJob, ...]:
    """Return the jobs of the file and of the files of Prometheus that it names. Raises ConfigFileError."""
    jobs = list(content.scrape_configs)
    owners = dict.fromkeys((*(one.job.name for one in content.pages), *_names_of(jobs)), "the file of sources")
    for file in content.scrape_config_files:
        found = read_prometheus_file(file.path, file.agents)
        for name in _names_of(found):
            if name in owners:
                text = f"job {name} is also in {owners[name]}: rename one of them"
                raise ConfigFileError([ConfigProblem(str(file.path), 1, 1, text)])
            owners[name] = str(file.path)
        jobs += found
    return tuple(jobs)


def _names_of(jobs: Iterable[DiscoveryJob]) -> list[str]:
    return [one.job.name for one in jobs]


def read_targets(path: Path, job: ScrapeJob) -> tuple[PrometheusTarget, ...]:
    """Return the targets of a file: a list of `targets:` and `labels:`, JSON or YAML. Raises ConfigFileError."""
    groups = read_config(path, form="yaml").validate(TargetsFile, job=job)
    return tuple(target for group in groups.root for target in group.targets)
