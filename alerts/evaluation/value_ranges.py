"""Ranges of the values of answers: rules that no value fulfils need not judge each value."""

from __future__ import annotations

from dataclasses import dataclass, field

from alerts.evaluation.verdicts import NewestValues
from alerts.state.rule import MissingDataPolicy, Rule

_MEETS_LOWEST = {"<": True, "<=": True, ">": False, ">=": False}
"""True: if any value fulfils the operator, the lowest does. False: the highest does."""


@dataclass(slots=True)
class _Range:
    newest: NewestValues
    """Kept, so that its identity stays its own."""
    ends: tuple[float, float] | None
    """Lowest and highest value; None if there is a value that is not an ordered number."""
    distinct: dict[frozenset[str], bool] = field(default_factory=dict)
    """Labels that a rule sets -> True if no two series give the same alert."""


class ValueRanges:
    """Ranges of the answers of one evaluation; answers that rules share are read once."""

    def __init__(self) -> None:
        self._ranges: dict[int, _Range] = {}

    def exclude_alerts(self, rule: Rule, newest: NewestValues) -> bool:
        """True if the rule, which has no alert, gets no alert and no error from these values. False: unknown."""
        threshold = rule.threshold
        if threshold is None or threshold.op not in _MEETS_LOWEST or type(threshold.operand) not in (int, float):
            return False
        if rule.missing is MissingDataPolicy.FIRE or rule.label_templates:
            return False
        if len(newest) == 1:  # most rules that share no answer: nothing to keep
            ends = _ends(newest)
            return ends is not None and not threshold.holds(ends[0])
        found = self._ranges.get(id(newest))
        if found is None:
            found = self._ranges[id(newest)] = _Range(newest, _ends(newest))
        if found.ends is None or threshold.holds(found.ends[0 if _MEETS_LOWEST[threshold.op] else 1]):
            return False
        return _distinct(rule, found)


def _ends(newest: NewestValues) -> tuple[float, float] | None:
    values = [value for _, value in newest if value is not None]
    numbers = [value for value in values if type(value) in (int, float) and value == value]  # NaN is unequal to itself
    if not values or len(numbers) < len(values):
        return None
    return min(numbers), max(numbers)  # type: ignore[return-value]


def _distinct(rule: Rule, found: _Range) -> bool:
    """True if no two series differ only in labels that the rule replaces."""
    own = frozenset(rule.own_labels)
    known = found.distinct.get(own)
    if known is None:
        made = {rule.alert_labels(key.labels) for key, _ in found.newest}
        known = found.distinct[own] = len(made) == len(found.newest)
    return known
