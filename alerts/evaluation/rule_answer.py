"""Answer to the query of a rule: its newest values, or the reason why they are not judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from alerts.evaluation.shared_store import MAX_SHARED_SERIES, BucketsSource
from alerts.evaluation.verdicts import NewestValues, newest_values
from alerts.state.rule import AcceptedAnswer, Labels, Rule
from artimon.model.select import SelectError
from query_dsl import Matrix, NothingSelected, QueryError
from query_dsl.evaluation.windows import APPROXIMATE, ROUNDED_UP
from query_dsl.stores.query_limits import Limits
from query_dsl.tree.calendar_units import shortest_ms
from query_dsl.tree.query_errors import NothingHeld

STEP_MS = 60_000
"""Step of the finest level, and period of the evaluations."""
RULE_LIMITS = Limits(seconds=10.0)
"""Limits of the query of one rule: a fifth of an evaluation."""
SHAPE_LIMITS = replace(RULE_LIMITS, series=MAX_SHARED_SERIES)
"""Limits of the query for all rules of one shape. Beyond them each rule asks itself."""


@dataclass(frozen=True, slots=True)
class RuleAnswer:
    """Newest values, none if nothing is selected. If `error` is not "", they are not judged."""

    newest: NewestValues = ()
    error: str = ""
    truncated: bool = False
    """True if the store does not hold the windows or the range of the rule."""
    sources: Sequence[BucketsSource] = ()
    """Queries sent to the store."""
    selected: Labels = ()
    """Pairs of the series that belong to this answer, if the queries select others, too."""


def read_answer(rule: Rule, ask: Callable[[], Matrix]) -> RuleAnswer:
    """Return the answer that `ask` gives; its errors become those of the rule."""
    matrix, answer = read_matrix(rule, ask)
    return answer if matrix is None else replace(answer, newest=newest_values(matrix))


def read_matrix(rule: Rule, ask: Callable[[], Matrix]) -> tuple[Matrix | None, RuleAnswer]:
    """Return the matrix that `ask` gives, None if it is empty or not complete, and an answer without values that has
    its error."""
    try:
        matrix = ask()
    except NothingSelected:
        return None, RuleAnswer()
    except NothingHeld as problem:
        return None, _truncated(problem.message)
    except QueryError as problem:
        return None, RuleAnswer(error=problem.message)
    except SelectError as problem:
        return None, RuleAnswer(error=str(problem))
    if not matrix.complete and not rule.accepts_partial:
        return None, _truncated("; ".join(matrix.notes))
    return matrix, RuleAnswer(error=_doubt(rule, matrix))


def _truncated(reason: str) -> RuleAnswer:
    return RuleAnswer(error=f"the answer is truncated: {reason}", truncated=True)


def _doubt(rule: Rule, matrix: Matrix) -> str:
    """Return the reason why the values are not exact; "" if they are exact, or if the rule accepts inexact values."""
    # the finest level has no window of 90 s, and the note says so
    coarse = shortest_ms(matrix.grid) > STEP_MS
    near = [note for note in matrix.notes if APPROXIMATE in note or (coarse and ROUNDED_UP in note)]
    if near and AcceptedAnswer.APPROXIMATE not in rule.accept:
        return f"{'; '.join(near)}: use another function or window, or write accept: [approximate]"
    return ""
