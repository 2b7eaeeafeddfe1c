"""Job of a configuration of Prometheus: the labels of its targets before and after relabelling, and their addresses.

Pure. The order of the steps is that of Prometheus: defaults, relabel rules, port, limits, `instance`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from urllib.parse import quote, urlencode

import xxhash

from sources.base.rendezvous import assigned_agent
from sources.base.source_errors import TargetError
from sources.scrape.discovery.discovery import DiscoveryConfig
from sources.scrape.discovery.prometheus_duration import parse_prometheus_duration, print_prometheus_duration
from sources.scrape.discovery.target_group import ADDRESS, DiscoveredGroup
from sources.state.relabel import RelabelRule, RelabelRules
from sources.targets.prometheus_target import PORTS, PrometheusTarget, ScrapeJob, parse_address

MAX_TARGETS = 2_000
"""Default limit of the targets of a job on one agent."""
META, PARAM = "__meta_", "__param_"
_SCHEME, _PATH = "__scheme__", "__metrics_path__"
_INTERVAL, _TIMEOUT = "__scrape_interval__", "__scrape_timeout__"
_WITH_PORT = re.compile(r"(?:[^:\[\]]*|\[[^\[\]]*\]):[^:\[\]]*")


@dataclass(frozen=True)
class DiscoveryJob:
    """Job and its discoveries. `agents`: names of the agents that share its targets; empty: this one has all."""

    job: ScrapeJob
    interval_ms: int = 60_000
    timeout_ms: int = 10_000
    params: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rules: tuple[RelabelRule, ...] = ()
    discoveries: tuple[DiscoveryConfig, ...] = ()
    agents: tuple[str, ...] = ()
    max_targets: int = MAX_TARGETS
    notes: tuple[str, ...] = ()
    """Settings that are left out, with their positions."""

    @cached_property
    def _rules(self) -> RelabelRules:
        return RelabelRules(self.rules)

    def discovered_labels(self, found: Mapping[str, str]) -> dict[str, str]:
        """Return the labels of a target before relabelling."""
        defaults = {
            "job": self.job.name,
            _INTERVAL: print_prometheus_duration(self.interval_ms),
            _TIMEOUT: print_prometheus_duration(self.timeout_ms),
            _PATH: self.job.path,
            _SCHEME: self.job.scheme,
        }
        params = {PARAM + name: values[0] for name, values in self.params.items() if values}
        labels = {**defaults, **{name: value for name, value in found.items() if value}, **params}
        return {name: value for name, value in labels.items() if value}

    def targets(self, group: DiscoveredGroup) -> tuple[list[PrometheusTarget], list[str]]:
        """Return the targets of a group that the rules keep, and what is wrong with others."""
        targets, problems = [], []
        for found in group.label_sets():
            labels = self._rules.rewrite(self.discovered_labels(found))
            try:
                if labels is not None:
                    targets.append(self._target(labels))
            except ValueError as error:
                problems.append(f"job {self.job.name}: {error}")
        return targets, problems

    def is_ours(self, target: PrometheusTarget, agent: str) -> bool:
        """Return True if a target is in the share of the agent."""
        return not self.agents or assigned_agent(f"{target.url}\n{target.instance}", self.agents) == agent

    def _target(self, labels: Mapping[str, str]) -> PrometheusTarget:
        address = labels.get(ADDRESS, "")
        if not address or "/" in address:
            raise TargetError(f"{ADDRESS} {address!r:.200}: want HOST or HOST:PORT")
        scheme = labels.get(_SCHEME, "http")
        if scheme not in PORTS:
            raise TargetError(f"target {address!r:.200}: scheme {scheme!r:.80}: want http or https")
        if not _WITH_PORT.fullmatch(address) and _WITH_PORT.fullmatch(f"{address}:1"):
            address = f"{address}:{PORTS[scheme]}"
        job = self._timed(labels.get(_INTERVAL, ""), labels.get(_TIMEOUT, ""))
        public = {name: value for name, value in labels.items() if not name.startswith("__")}
        return parse_address(job, f"{scheme}://{address}{self._path(labels)}", {"instance": address, **public})

    def _timed(self, interval: str, timeout: str) -> ScrapeJob:
        """Return the job with the times that the rules gave to a target."""
        interval_ms, timeout_ms = parse_prometheus_duration(interval), parse_prometheus_duration(timeout)
        if not 0 < timeout_ms <= interval_ms:
            raise TargetError(f"scrape timeout {timeout}: want more than 0 and at most the interval {interval}")
        if (interval_ms, timeout_ms) == (self.interval_ms, self.timeout_ms):
            return self.job
        return replace(self.job, period_ms=interval_ms, deadline_s=timeout_ms / 1000)

    def _path(self, labels: Mapping[str, str]) -> str:
        """Return path and query of a target."""
        params = {name: list(values) for name, values in self.params.items()}
        for name, value in labels.items():
            if name.startswith(PARAM):
                params[name[len(PARAM) :]] = [value, *params.get(name[len(PARAM) :], [])[1:]]
        path = labels.get(_PATH, "")
        path = "/" + quote(path.removeprefix("/"), safe="/:@!$&'()*+,;=~-._")
        query = urlencode(sorted(params.items()), doseq=True)
        return f"{path}?{query}" if query else path


def distinct(targets: Iterable[PrometheusTarget]) -> list[PrometheusTarget]:
    """Return each target once, in a fixed order. Targets of a job with the same instance get a `twin` each, which
    depends on their labels and URLs alone."""
    once = {(one.url, *sorted(one.labels.items())): one for one in targets}
    count = Counter(one.instance for one in once.values())
    named = [
        replace(one, twin=f"@{xxhash.xxh3_64_hexdigest(repr(key).encode())[:8]}") if count[one.instance] > 1 else one
        for key, one in once.items()
    ]
    return sorted(named, key=lambda one: (one.instance, one.url, one.twin))
