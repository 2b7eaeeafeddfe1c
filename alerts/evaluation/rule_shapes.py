"""One answer for rules whose queries differ only in the values of labels that they select."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from alerts.evaluation.rule_answer import RuleAnswer
from alerts.evaluation.shared_store import MIN_SHARED_SELECTORS
from alerts.state.conditions import Value
from alerts.state.rule import Rule, ShapeKey
from alerts.state.rule_shape import LabelValues, RuleShape
from query_dsl import Expr
from query_dsl.results.result_cells import SeriesKey


class _DividedAnswer:
    """Answer to a shape, by the values of its labels."""

    def __init__(self, shape: RuleShape, answer: RuleAnswer) -> None:
        self._labels, self._answer = shape.labels, answer
        self._newest: dict[LabelValues, list[tuple[SeriesKey, Value | None]]] = {}
        for key, value in answer.newest:
            known = dict(key.labels)
            self._newest.setdefault(tuple(known.get(label, "") for label in shape.labels), []).append((key, value))

    def of(self, values: LabelValues) -> RuleAnswer:
        """Return the part with these values."""
        selected = tuple(zip(self._labels, values, strict=True))
        return replace(self._answer, newest=self._newest.get(values, ()), selected=selected)


class ShapedAnswers:
    """Answers to the shapes that several rules of an evaluation have, each asked once and divided by label."""

    def __init__(self, rules: Iterable[Rule], ask: Callable[[Rule, Expr], RuleAnswer]) -> None:
        """`ask`: answer a query as that of a rule."""
        self._ask = ask
        counts = Counter(key for rule in rules if (key := rule.shape_key) is not None)
        self._common = {key for key, count in counts.items() if count >= MIN_SHARED_SELECTORS}
        self._answers: dict[ShapeKey, _DividedAnswer | None] = {}

    def answer(self, rule: Rule) -> RuleAnswer | None:
        """Return the answer to a rule; None if the rule has to ask itself."""
        key, shape = rule.shape_key, rule.shape
        if key is None or shape is None or key not in self._common:
            return None
        if key not in self._answers:
            self._answers[key] = self._divided(rule, shape)
        found = self._answers[key]
        return None if found is None else found.of(shape.values)

    def _divided(self, rule: Rule, shape: RuleShape) -> _DividedAnswer | None:
        """Return the answer to a shape; None if it is not exact, for a reason that may concern only some rules."""
        found = self._ask(rule, shape.query)
        return None if found.error or found.truncated else _DividedAnswer(shape, found)
