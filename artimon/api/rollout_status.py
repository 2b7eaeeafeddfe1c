"""Roll-out of the configuration of agents: versions that were pushed, that agents run, and that they refuse."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from pipeline.control.control_tree import ConfigVersion

MAX_LISTED = 100
"""Entries of each list; the numbers count all agents."""
MAX_TEXT = 500
"""Characters of a text of an agent; its node may hold a megabyte."""
UNKNOWN: Mapping[str, Any] = {
    "agents": 0,
    "pushed": [],
    "running": [],
    "trials": 0,
    "refused": [],
    "refusals": 0,
    "problem": "this API does not read the configuration of agents",
}


class RolloutTree(Protocol):
    """Part of ControlTree that is read."""

    def agents(self) -> Mapping[str, Mapping[str, Any]]:
        """Reports of the live agents, by name."""

    def scopes(self) -> Iterable[str]:
        """Scopes that have a configuration."""

    def current_version(self, scope: str) -> ConfigVersion | None:
        """Newest version of a scope."""


def read_rollout(tree: RolloutTree) -> dict[str, Any]:
    """Return the newest version of each scope, the number of agents by the configuration that they run, and those that
    refuse one with the reason. Reads the node of every agent."""
    reports = {name: _config(report) for name, report in sorted(tree.agents().items())}
    running = Counter(str(one.get("running") or "unknown")[:MAX_TEXT] for one in reports.values())
    refused = [
        {"agent": name, "reason": str(one["refused"])[:MAX_TEXT]} for name, one in reports.items() if one.get("refused")
    ]
    newest = [tree.current_version(scope) for scope in sorted(tree.scopes())[:MAX_LISTED]]
    return {
        "agents": len(reports),
        "pushed": [_version(one) for one in newest if one is not None],
        "running": [{"version": text, "agents": count} for text, count in running.most_common(MAX_LISTED)],
        "trials": sum(one.get("trial") is True for one in reports.values()),
        "refused": refused[:MAX_LISTED],
        "refusals": len(refused),
        "problem": "",
    }


def _config(report: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration in a report. The node may have been written by a foreign program."""
    found = report.get("config")
    return found if isinstance(found, Mapping) else {}


def _version(one: ConfigVersion) -> dict[str, Any]:
    return {"version": str(one.stamp), "made_ms": one.made_ms, "by": one.by, "note": one.note, "source": one.source}
