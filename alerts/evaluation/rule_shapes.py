"""One answer for rules whose queries differ only in the values of labels that they select, and in constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from alerts.evaluation.rule_answer import RuleAnswer
from alerts.evaluation.shared_store import MIN_SHARED_SELECTORS
from alerts.evaluation.verdicts import NewestValues, bucket_at, newest_values
from alerts.state.promql_shape import Points, PromqlShape
from alerts.state.rule import Rule, ShapeKey
from alerts.state.rule_shape import LabelValues, RuleShape
from query_dsl import Expr, Matrix, QueryError
from query_dsl.evaluation.evaluator import QueryEvaluator
from query_dsl.promql import Query


@dataclass(frozen=True, slots=True)
class ShapeAnswer:
    """Answer to the query of a shape. `matrix` None: it has no values. `evaluator`: that of the query."""

    answer: RuleAnswer
    matrix: Matrix | None = None
    evaluator: QueryEvaluator | None = None


class _DividedAnswer:
    """Answer to a shape, by the values of its labels."""

    def __init__(self, shape: RuleShape, found: ShapeAnswer) -> None:
        self._labels, self._found = shape.labels, found
        self._rows: dict[LabelValues, list[int]] = {}
        self._newest: NewestValues = ()
        if found.matrix is not None:
            self._newest = newest_values(found.matrix)
            for row, key in enumerate(found.matrix.keys):
                known = dict(key.labels)
                self._rows.setdefault(tuple(known.get(label, "") for label in shape.labels), []).append(row)

    def of(self, shape: RuleShape | PromqlShape) -> RuleAnswer | None:
        """Return the answer to the rule of a shape; None if its operators do not take the values, or if the note that
        series were left out may be about its own: then the rule has to say so."""
        assert isinstance(shape, RuleShape)
        rows = self._rows.get(shape.values, [])
        if not rows and self._found.matrix is not None and self._found.matrix.notes:
            return None
        selected = tuple(zip(self._labels, shape.values, strict=True))
        newest = [self._newest[row] for row in rows]
        matrix, evaluator = self._found.matrix, self._found.evaluator
        if shape.operators and rows and matrix is not None and evaluator is not None:
            try:
                made = evaluator.apply_operators(shape.operators, bucket_at(matrix, matrix.grid.n - 1, rows))
            except QueryError:
                return None
            newest = list(newest_values(made))
        return replace(self._found.answer, newest=newest, selected=selected)


class _DividedVector:
    """Answer in PromQL to a shape, by the values of its labels."""

    def __init__(self, shape: PromqlShape, answer: RuleAnswer) -> None:
        self._labels, self._answer = shape.labels, answer
        self._points: dict[LabelValues, Points] = {}
        for key, value in answer.newest:
            known = dict(key.labels)
            values = tuple(known.get(label, "") for label in shape.labels)
            self._points.setdefault(values, []).append((key, float(value or 0)))

    def of(self, shape: RuleShape | PromqlShape) -> RuleAnswer:
        assert isinstance(shape, PromqlShape)
        selected = tuple(zip(self._labels, shape.values, strict=True))
        points = shape.apply_operators(self._points.get(shape.values, []))
        return replace(self._answer, newest=points, selected=selected)


def common_shapes(rules: Iterable[Rule]) -> frozenset[ShapeKey]:
    """Return the shapes that several rules have."""
    counts = Counter(key for rule in rules if (key := rule.shape_key) is not None)
    return frozenset(key for key, count in counts.items() if count >= MIN_SHARED_SELECTORS)


class ShapedAnswers:
    """Answers to the shapes that several rules of an evaluation have, each asked once and divided by label."""

    def __init__(
        self,
        common: Collection[ShapeKey],
        ask: Callable[[Rule, Expr], ShapeAnswer],
        ask_promql: Callable[[Rule, Query], RuleAnswer],
    ) -> None:
        """`common`: see `common_shapes`. `ask`, `ask_promql`: answer a query as that of a rule."""
        self._common, self._ask, self._ask_promql = common, ask, ask_promql
        self._answers: dict[ShapeKey, _DividedAnswer | _DividedVector | None] = {}

    def answer(self, rule: Rule) -> RuleAnswer | None:
        """Return the answer to a rule; None if the rule has to ask itself."""
        key, shape = rule.shape_key, rule.shape
        if key is None or shape is None or key not in self._common:
            return None
        if key not in self._answers:
            self._answers[key] = self._divided(rule, shape)
        found = self._answers[key]
        return None if found is None else found.of(shape)

    def _divided(self, rule: Rule, shape: RuleShape | PromqlShape) -> _DividedAnswer | _DividedVector | None:
        """Return the answer to a shape; None if it is not exact, for a reason that may concern only some rules."""
        if isinstance(shape, PromqlShape):
            answer = self._ask_promql(rule, shape.query)
            return None if answer.error or answer.truncated else _DividedVector(shape, answer)
        found = self._ask(rule, shape.query)
        return None if found.answer.error or found.answer.truncated else _DividedAnswer(shape, found)
