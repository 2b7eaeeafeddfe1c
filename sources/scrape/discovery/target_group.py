"""Targets as discoveries find them: groups of label sets before relabelling. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

LabelSet = Mapping[str, str]
ADDRESS = "__address__"
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")


@dataclass(frozen=True, slots=True)
class DiscoveredGroup:
    """Label sets of targets, and labels that apply to all of them; those of the target win."""

    targets: tuple[LabelSet, ...] = ()
    labels: LabelSet = field(default_factory=dict)

    def label_sets(self) -> Iterable[dict[str, str]]:
        """Return the labels of each target; one with an empty value is no label."""
        for target in self.targets:
            yield {name: value for name, value in {**self.labels, **target}.items() if value}


def sanitized(name: str) -> str:
    """Return a text as the name of a label, as in Prometheus."""
    return _NOT_IN_NAMES.sub("_", name)


def group_of(found: Any) -> DiscoveredGroup:
    """Return the group of a JSON object `{"targets": [...], "labels": {...}}`. Raises ValueError for anything else."""
    if not isinstance(found, dict) or not found.keys() <= {"targets", "labels"}:
        raise ValueError('want objects of "targets" and "labels"')
    addresses, labels = found.get("targets") or [], found.get("labels") or {}
    if not isinstance(addresses, list) or not all(isinstance(one, str) for one in addresses):
        raise ValueError('"targets": want a list of texts')
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise ValueError('"labels": want texts')
    return DiscoveredGroup(tuple({ADDRESS: one} for one in addresses), labels)
