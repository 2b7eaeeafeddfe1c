"""Mapper of beans to variables by the mapping rules. The rules that match a bean's name are computed once."""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from artimon.model.values import INT64_MAX, INT64_MIN, Value, ValueType
from sources.base.source_errors import ReasonedError, RejectCounts
from sources.scrape.jmx.jmx_response import Bean, BeanResponse
from sources.scrape.jmx.mapping_file import BeanRule, VariableRule
from sources.scrape.jmx.name_patterns import Pattern, split_bean_name
from sources.state.source_reading import SourceVariable

MAX_TEXT_BYTES = 1 << 20
"""Maximum characters of JSON inside a string attribute."""
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
PlaceholderValues = tuple[tuple[str, str], ...]
MAX_CACHED_NAMES = 10_000
_short = reprlib.repr


class UnfitValueError(ReasonedError):
    """A value is unusable for its rule."""


@dataclass(slots=True)
class MatchedRule:
    """Rule applied to one bean: places matched in the name, and a cache of labels by places matched in the path."""

    rule: VariableRule
    found: dict[str, str]
    fixed: bool
    """True if the path has no places, so that it yields at most one variable."""
    labels: dict[tuple[str, ...], dict[str, str]]


@dataclass(frozen=True, slots=True)
class MappedName:
    """Rules that match a bean's name; valid while its tags are equal."""

    tags: Mapping[str, str]
    compiled: tuple[MatchedRule, ...]


class BeanMapper:
    """Mapper of one bean server. Used by one thread at a time; caches the names of the last answer."""

    def __init__(self, rules: Sequence[BeanRule], max_variables: int) -> None:
        self._rules, self._max = tuple(rules), max_variables
        self._known: dict[str, MappedName] = {}

    def variables(self, answer: BeanResponse) -> list[SourceVariable]:
        """Return at most `max_variables`. Invalid data never raises: it is added to `answer.faults`."""
        made: list[SourceVariable] = []
        known: dict[str, MappedName] = {}
        for name, bean in answer.beans.items():
            entry = self._known.get(name)
            if entry is None or entry.tags != _tags(bean, entry.tags):
                entry = self._compile(name, bean, answer.faults)
            known[name] = entry
            for compiled in entry.compiled:
                made.extend(_variables(name, bean, compiled, answer.faults))
        self._known = known
        if len(made) > self._max:
            text = f"{len(made)} variables: only the first {self._max} are taken"
            answer.faults.add("too many series", text, len(made) - self._max)
            del made[self._max :]
        return made

    def _compile(self, name: str, bean: Bean, faults: RejectCounts) -> MappedName:
        split = split_bean_name(name)
        if split is None:
            faults.add("bad bean", f"{name!r:.80} is not the name of a bean")
            return MappedName({}, ())
        tags: dict[str, str] = {}
        compiled: list[MatchedRule] = []
        for rule in self._rules:
            found = rule.pattern.match(*split)
            if found is None:
                continue
            tags.update(_tags(bean, rule.tags))
            compiled.extend(
                MatchedRule(one, {**found, **tags}, all(step.literal for step in one.path), {})
                for one in rule.variables
            )
        return MappedName(tags, tuple(compiled))


def _tags(bean: Bean, names: Mapping[str, str] | frozenset[str]) -> dict[str, str]:
    """Return the texts of the tags; empty if a tag is missing or not a string."""
    return {name: value if isinstance(value := bean.get(name), str) else "" for name in names}


def _variables(name: str, bean: Bean, compiled: MatchedRule, faults: RejectCounts) -> Iterator[SourceVariable]:
    rule = compiled.rule
    for places, leaf in [_leaf(bean, rule.path)] if compiled.fixed else _leaves(bean, rule.path, rule.except_, ()):
        try:
            value = _converted(rule, leaf)
        except UnfitValueError as unfit:
            faults.add(unfit.reason, f"{name}: {'.'.join(step.text for step in rule.path)}: {unfit.text}")
            continue
        if value is not None:
            yield SourceVariable(rule.name, _labels(compiled, places), value, rule.kind, rule.unit, rule.help)


def _labels(compiled: MatchedRule, places: PlaceholderValues) -> dict[str, str]:
    key = tuple(text for _, text in places)
    labels = compiled.labels.get(key)
    if labels is None:
        if len(compiled.labels) >= MAX_CACHED_NAMES:
            compiled.labels.clear()
        found = {**compiled.found, **dict(places)}
        labels = {label: template.render(found) for label, template in compiled.rule.labels.items()}
        compiled.labels[key] = labels
    return labels


# --- the path; an unreachable leaf is yielded as the error UnfitValueError, and the others follow


def _leaf(bean: Bean, path: Sequence[Pattern]) -> tuple[PlaceholderValues, Any]:
    """Return the value at a path without places, None if it is missing."""
    value: Any = bean
    for step in path:
        try:
            within = _object(value)
        except UnfitValueError as unfit:
            return (), unfit
        if within is None:
            return (), None
        value = within.get(step.text)
    return (), value


def _leaves(
    value: Any, path: Sequence[Pattern], left_out: Sequence[Pattern], places: PlaceholderValues
) -> Iterator[tuple[PlaceholderValues, Any]]:
    """Yield every value that a path matches, with the texts at its places."""
    if not path:
        yield places, value
        return
    try:
        within = _object(value) or {}
    except UnfitValueError as unfit:
        yield places, unfit
        return
    for key, inner in within.items():
        found = path[0].match(key)
        if found is not None and not any(pattern.match(key) is not None for pattern in left_out):
            yield from _leaves(inner, path[1:], (), (*places, *found.items()))


def _object(value: Any) -> Mapping[str, Any] | None:
    """Return a composite, a table of keys and values, or JSON in a string as a mapping; None for no value.

    Raises UnfitValueError for anything else."""
    if isinstance(value, dict) or value is None:
        return value
    if isinstance(value, str) and len(value) <= MAX_TEXT_BYTES:
        return _object_in_text(value)
    if isinstance(value, list) and all(isinstance(row, dict) and isinstance(row.get("key"), str) for row in value):
        return {row["key"]: row.get("value") for row in value}
    raise UnfitValueError("wrong type", f"has no parts: {_short(value)}")


def _object_in_text(text: str) -> Mapping[str, Any] | None:
    if not text:
        return None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise UnfitValueError("wrong type", f"holds no JSON object: {_short(text)}")
    return content


# --- the value


def _converted(rule: VariableRule, leaf: Any) -> Value | None:
    """Return the value of a variable, None if it is missing. Raises UnfitValueError."""
    if isinstance(leaf, UnfitValueError):
        raise leaf
    if leaf is None:
        return None
    if rule.values:
        leaf = _named(rule, leaf)
    if rule.type == ValueType.BOOLEAN:
        if not isinstance(leaf, bool):
            raise UnfitValueError("wrong type", f"neither true nor false: {_short(leaf)}")
        return leaf
    if isinstance(leaf, str):
        leaf = _NOT_FINITE.get(leaf, leaf)
    if isinstance(leaf, bool) or not isinstance(leaf, (int, float)):
        raise UnfitValueError("wrong type", f"not a number: {_short(leaf)}")
    if leaf in rule.missing or leaf != leaf:
        return None
    return _double(rule, leaf) if rule.type == ValueType.DOUBLE else _integer(rule, leaf)


def _named(rule: VariableRule, leaf: Any) -> int:
    text = str(leaf).lower() if isinstance(leaf, bool) else str(leaf) if isinstance(leaf, (str, int)) else "?"
    value = rule.values.get(text, rule.values.get("else"))
    if value is None:
        raise UnfitValueError("unknown value", f"{_short(leaf)} is not among {', '.join(rule.values)}")
    return value


def _integer(rule: VariableRule, number: int | float) -> int:
    if not isinstance(number, int):
        raise UnfitValueError("wrong type", f"{_short(number)} is not an integer: give the rule `type: double`")
    value = number * rule.multiply // rule.divide
    if not INT64_MIN <= value <= INT64_MAX:
        raise UnfitValueError("out of range", f"{_short(number)} does not fit into 64 bits")
    return value


def _double(rule: VariableRule, number: int | float) -> float:
    try:
        return float(number) * rule.multiply / rule.divide
    except OverflowError:
        raise UnfitValueError("out of range", "is too large for a double") from None
