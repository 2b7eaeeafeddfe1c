"""Inhibition: a firing alert mutes alerts with equal labels. An alert about a dead site mutes those of its hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from alerts.dispatch.matchers import matches
from artimon.model.select import Matcher

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class InhibitRule:
    """Alerts that match `target` are muted while one fires that matches `source` and has the same `equal` labels.

    An absent label is empty. A source that matches `target`, too, does not mute targets that match `source`."""

    source: tuple[Matcher, ...]
    target: tuple[Matcher, ...]
    equal: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Source:
    """Alert that mutes others. `one_sided`: it does not match the target of the rule."""

    id: str
    one_sided: bool


class Inhibitor:
    """Index of the alerts that fire now, by rule and values of the equal labels."""

    def __init__(self, rules: Iterable[InhibitRule], firing: Iterable[tuple[str, Labels]]) -> None:
        """`firing`: identity and labels of each alert."""
        self._rules = tuple(rules)
        sources: list[dict[tuple[str, ...], _Source]] = [{} for _ in self._rules]
        """For each rule, by the values of the equal labels; a source that does not match the target itself goes
        before others."""
        for id, labels in firing if self._rules else ():
            for rule, found in zip(self._rules, sources, strict=True):
                if matches(rule.source, labels):
                    key = _key(rule, labels)
                    if key not in found or not found[key].one_sided:
                        found[key] = _Source(id, not matches(rule.target, labels))
        self._sources = sources

    def mutes(self, labels: Labels) -> bool:
        """Return True if an alert with these labels is muted."""
        return self.muted_by(labels) is not None

    def muted_by(self, labels: Labels) -> str | None:
        """Return the identity of an alert that mutes one with these labels."""
        for rule, found in zip(self._rules, self._sources, strict=True):
            source = found.get(_key(rule, labels)) if found and matches(rule.target, labels) else None
            if source is not None and (source.one_sided or not matches(rule.source, labels)):
                return source.id
        return None


def _key(rule: InhibitRule, labels: Labels) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in rule.equal)
