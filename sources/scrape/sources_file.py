"""File of foreign sources: Prometheus pages, bean servers, scripts, rules for all series. Format: docs/foreign.md."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, RootModel, model_validator

from artimon.runtime.config_file import ConfigFileError, ConfigProblem, read_config
from artimon.runtime.config_model import Section, Steps, built, fault, raise_faults, repeated
from sources.scrape.config_sections import (
    JmxSection,
    JobSection,
    JobTargets,
    JolokiaSection,
    RelabelRuleList,
    ScriptSection,
    TargetGroup,
)
from sources.state.relabel import RelabelRule
from sources.targets.bean_target import JmxTarget, JolokiaTarget
from sources.targets.prometheus_target import PrometheusTarget, ScrapeJob
from sources.targets.script_target import ScriptTarget

MAX_TARGETS = 2_000
MAX_SCRIPTS = 100


class SourcesFile(Section):
    """Content of the file. Read with its `folder` as context."""

    pages: tuple[Annotated[JobTargets, built(JobSection)], ...] = Field(default=(), alias="prometheus")
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
    found = file.validate(SourcesFile, folder=path.parent)
    if found.scripts and mode & stat.S_IWOTH:
        raise file.error("the file is world-writable, so its scripts are not run: use `chmod o-w`")
    return found


def read_targets(path: Path, job: ScrapeJob) -> tuple[PrometheusTarget, ...]:
    """Return the targets of a file: a list of `targets:` and `labels:`, JSON or YAML. Raises ConfigFileError."""
    groups = read_config(path, form="yaml").validate(TargetsFile, job=job)
    return tuple(target for group in groups.root for target in group.targets)
