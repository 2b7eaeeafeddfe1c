"""Answers of rules whose windows or ranges memory does not hold, read from memory and history together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from alerts.evaluation.promql_answer import ask_promql
from alerts.evaluation.rule_answer import RULE_LIMITS, RuleAnswer, read_answer
from alerts.state.rule import Question, RecordingRule, Rule
from artimon.model.select import SelectError, Store
from query_dsl import Expr, Matrix
from query_dsl.evaluation.evaluator import prepare, require_matrix
from query_dsl.promql import Query
from query_dsl.promql.tree import longest_window_ms
from query_dsl.stores.levels import SETTLE_MS
from query_dsl.stores.query_limits import make_budget

READ_LIMITS = replace(RULE_LIMITS, memory_bytes=256 * 1024**2, samples=50_000_000)
"""Limits of the query of one rule to the history: a third of the memory of the engine."""

REUSES = 720
"""Evaluations of the history during the longest window of a rule in PromQL: one an hour for 30 days."""


class RuleHistory:
    """Reads the history once for each bucket of a rule's grid. Long windows have long buckets: a rule with a window of
    30 days reads once an hour. Belongs to the engine's thread."""

    def __init__(self, store: Store) -> None:
        """`store`: memory and history."""
        self._store = store
        self._matrices: dict[Question, Matrix] = {}
        """Last whole answer to each question."""
        self._vectors: dict[tuple[object, ...], tuple[int, RuleAnswer]] = {}
        """Time and last answer of each query in PromQL."""

    def answer(self, rule: Rule, time_ms: int) -> RuleAnswer:
        """Return the answer of memory and history."""
        asked = rule.query
        if isinstance(asked, Query):
            return self.ask(rule, asked, time_ms)
        return read_answer(rule, lambda: self._matrix(rule, asked, time_ms + SETTLE_MS))

    def ask(self, rule: Rule | RecordingRule, query: Query, time_ms: int) -> RuleAnswer:
        """Answer PromQL; the last answer is reused for a 720th of the longest window."""
        known = self._vectors.get((*rule.question, query.text))
        if known is not None and 0 <= time_ms - known[0] < longest_window_ms(query.node) // REUSES:
            return known[1]
        answer = ask_promql(rule, query, self._store, time_ms, READ_LIMITS)
        if not answer.error:
            self._vectors[(*rule.question, query.text)] = time_ms, answer
        return answer

    def _matrix(self, rule: Rule, asked: Expr, now_ms: int) -> Matrix:
        """Return the last answer while its grid holds, else read. Raises QueryError, SelectError."""
        query = prepare(asked, self._store, now_ms, make_budget(READ_LIMITS, None), rule.accepts_partial)
        known = self._matrices.get(rule.question)
        if known is not None and known.grid == query.plan.grid:
            return known
        matrix = require_matrix(query.answer())
        if matrix.partial:
            raise SelectError(f"the answer is incomplete: {'; '.join(matrix.notes)}")
        self._matrices[rule.question] = matrix
        return matrix

    def retain(self, rules: Iterable[Rule | RecordingRule]) -> None:
        """Forget the answers of other rules."""
        asked = {rule.question for rule in rules}
        self._matrices = {question: known for question, known in self._matrices.items() if question in asked}
        self._vectors = {key: known for key, known in self._vectors.items() if key[:-1] in asked}
