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


class Inhibitor:
    """Index of the alerts that fire now, by rule and values of the equal labels."""

    def __init__(self, rules: Iterable[InhibitRule], firing: Iterable[Labels]) -> None:
        self._rules = tuple(rules)
        sources: list[dict[tuple[str, ...], bool]] = [{} for _ in self._rules]
        """For each rule: values of the equal labels -> True if a source does not match the target itself."""
        for labels in firing if self._rules else ():
            for rule, found in zip(self._rules, sources, strict=True):
                if matches(rule.source, labels):
                    key = _key(rule, labels)
                    found[key] = found.get(key, False) or not matches(rule.target, labels)
        self._sources = sources

    def mutes(self, labels: Labels) -> bool:
        """Return True if an alert with these labels is muted."""
        return any(
            self._mutes(rule, found, labels) for rule, found in zip(self._rules, self._sources, strict=True) if found
        )

    def _mutes(self, rule: InhibitRule, found: Mapping[tuple[str, ...], bool], labels: Labels) -> bool:
        if not matches(rule.target, labels):
            return False
        one_sided = found.get(_key(rule, labels))
        return one_sided is not None and (one_sided or not matches(rule.source, labels))


def _key(rule: InhibitRule, labels: Labels) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in rule.equal)
