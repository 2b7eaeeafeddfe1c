"""Retention of samples: rules that assign series to a class of retention by name, and the division of polls by class,
because a batch has one class. The compactor is configured with the days of each class (docs/operations.md)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import re2

from artimon.model.batch import DEFAULT_KEEP, PollResult
from sources.state.relabel import RelabelRuleError, compile_regex
from sources.state.series_memory import SourceSeries

MAX_CLASSES = 20
"""Maximum classes including `default`: each has separate files in every hour of the raw table."""
MAX_NAMES = 100_000
"""Size of the cache of classes by name."""
_CLASS = re.compile(r"[A-Za-z0-9_-]{1,64}")


class RetentionRuleError(ValueError):
    """A rule, or the set of rules, is invalid. The message gives the reason and the expected form."""


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """Series whose whole name matches `pattern` (RE2) have the class `keep`."""

    pattern: re2._Regexp[str]
    keep: str


def parse_retention_rules(texts: Sequence[str]) -> tuple[RetentionRule, ...]:
    """Parse rules such as `debug\\..*=debug`; the first match applies. Raises RetentionRuleError."""
    rules = tuple(map(_parse, texts))
    classes = {rule.keep for rule in rules} | {DEFAULT_KEEP}
    if len(classes) > MAX_CLASSES:
        raise RetentionRuleError(
            f"{len(classes)} classes with {DEFAULT_KEEP!r}: use at most {MAX_CLASSES}, as each has separate files"
        )
    return rules


def _parse(text: str) -> RetentionRule:
    pattern, equals, keep = text.rpartition("=")
    if not equals or not pattern:
        raise RetentionRuleError(rf"{text!r}: write PATTERN=CLASS, such as debug\..*=debug")
    if not _CLASS.fullmatch(keep):
        raise RetentionRuleError(f"{text!r}: the class {keep!r} must be 1 to 64 of letters, digits, - and _")
    try:
        return RetentionRule(compile_regex(pattern), keep)
    except RelabelRuleError as problem:
        raise RetentionRuleError(f"{text!r}: {problem}") from None


class RetentionDivider:
    """Divides polls by class. Used by the event loop only.

    The classes of a source's series are cached while its polls list the same series in the same order."""

    def __init__(self, rules: Sequence[RetentionRule] = ()) -> None:
        self._rules = tuple(rules)
        self._names = [DEFAULT_KEEP, *sorted({rule.keep for rule in rules} - {DEFAULT_KEEP})]
        self._classes: dict[str, int] = {}
        """Name of a variable -> index of its class in `_names`."""
        self._by_source: dict[tuple[str, int], tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]] = {}

    def divide(self, series: SourceSeries, polled: Sequence[PollResult]) -> Sequence[PollResult]:
        """Return the same samples in parts of one class each; announcements go with the first part."""
        if not self._rules:
            return polled
        found: list[PollResult] = []
        for at, one in enumerate(polled):
            found += _split_by_class(one, self._classes_of(series, at, one.samples.fingerprint), self._names)
        return found

    def _classes_of(self, series: SourceSeries, at: int, prints: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint8]:
        known = self._by_source.get((series.name, at))
        if known is not None and np.array_equal(known[0], prints):
            return known[1]
        rows, described = series.rows.by_fingerprint, series.rows.descriptions
        names = (described[rows[one]].text.partition("{")[0] for one in prints.tolist())
        made = np.fromiter(map(self._class_of, names), np.uint8, len(prints))
        self._by_source[series.name, at] = prints, made
        return made

    def _class_of(self, name: str) -> int:
        found = self._classes.get(name)
        if found is None:
            if len(self._classes) >= MAX_NAMES:
                self._classes.clear()
            fits = (rule.keep for rule in self._rules if rule.pattern.fullmatch(name))
            found = self._classes[name] = self._names.index(next(fits, DEFAULT_KEEP))
        return found

    def forget(self, name: str) -> None:
        """Drop the cache of a source that is not polled any more."""
        for key in [key for key in self._by_source if key[0] == name]:
            del self._by_source[key]


def _split_by_class(polled: PollResult, classes: npt.NDArray[np.uint8], names: Sequence[str]) -> list[PollResult]:
    present = np.unique(classes).tolist()
    if len(present) <= 1:
        return [replace(polled, keep=names[present[0]] if present else DEFAULT_KEEP)]
    parts = [
        replace(polled, samples=polled.samples.pick(np.flatnonzero(classes == one)), keep=names[one], blocks=())
        for one in present
    ]
    return [replace(parts[0], blocks=polled.blocks), *parts[1:]]
