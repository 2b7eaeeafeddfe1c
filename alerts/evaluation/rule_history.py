"""Answers of rules whose windows or ranges memory does not hold, read from memory and history together."""

from __future__ import annotations

from collections.abc import Callable

from alerts.evaluation.verdicts import NewestValues, newest_values
from alerts.state.rule import Rule
from artimon.model.select import Store
from query_dsl import Matrix
from query_dsl.evaluation.evaluator import prepare, require_matrix
from query_dsl.stores.query_limits import Limits, make_budget

READ_TIMEOUT_S = 10.0
"""Timeout of the query of one rule in seconds: some tens of files, and less than a fifth of an evaluation."""


class RuleHistory:
    """Reads the history once for each bucket of a rule's grid, which is as long as the rule's windows demand: for a
    window of 30 days once an hour. Belongs to the engine's thread."""

    def __init__(self, store: Store, doubt: Callable[[Rule, Matrix], str]) -> None:
        """`store`: memory and history; `doubt`: reason why an answer is not judged, or ""."""
        self._store, self._doubt = store, doubt
        self._answers: dict[str, tuple[int, NewestValues, str]] = {}
        """Text of a rule -> end of its grid, newest values, and the reason why they are not judged."""

    def answer(self, rule: Rule, now_ms: int) -> tuple[NewestValues, str]:
        """Return the newest values, and the reason why they are not judged. Raises QueryError, SelectError."""
        query = prepare(rule.query, self._store, now_ms, make_budget(Limits(seconds=READ_TIMEOUT_S), None))
        end_ms = query.plan.grid.end_ms
        known = self._answers.get(rule.expr)
        if known is None or known[0] != end_ms:
            matrix = require_matrix(query.answer())
            reason = "the answer is incomplete: " + "; ".join(matrix.notes) if matrix.partial else ""
            known = self._answers[rule.expr] = (end_ms, newest_values(matrix), reason or self._doubt(rule, matrix))
        return known[1], known[2]

    def retain(self, texts: set[str]) -> None:
        """Forget the answers of other rules."""
        self._answers = {text: known for text, known in self._answers.items() if text in texts}
