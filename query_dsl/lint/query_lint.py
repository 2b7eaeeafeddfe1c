"""Front door: findings of a query in either language."""

from __future__ import annotations

from artimon.model.select import Store
from query_dsl.evaluation.evaluator import read_query
from query_dsl.language.expression import Expr
from query_dsl.lint import dsl_outline, promql_outline
from query_dsl.lint.catalogue import Catalogue
from query_dsl.lint.checks import Finding, KnownChecks, in_order, text_findings
from query_dsl.lint.outline import Part
from query_dsl.promql import Query, parse
from query_dsl.stores.engine_store import as_engine_store
from query_dsl.tree.query_errors import QueryError

MAX_FINDINGS = 50
INVALID = "invalid"
"""Code of the error of a query that cannot be parsed."""


def lint(
    query: str | Expr | Query,
    store: Store | None = None,
    now_ms: int = 0,
    *,
    promql: bool = False,
    similar_names: bool = False,
) -> list[Finding]:
    """Return warnings about a query, in the order of its text; it is not evaluated. Without a store only those that
    need no series.

    `promql`: a text is PromQL. `similar_names`: as for queries in PromQL. Raises SelectError."""
    try:
        text, part = _outlined(query, promql, similar_names)
        found = list(text_findings(text, part))
        if store is not None:
            found += KnownChecks(text, part, Catalogue(as_engine_store(store), now_ms)).findings()
        return in_order(found)[:MAX_FINDINGS]
    except QueryError as problem:
        return [Finding(INVALID, problem.message, problem.position, problem.length)]
    except RecursionError:
        return []  # a query that nests so deeply is refused, or is a sum that no person reads


def _outlined(query: str | Expr | Query, promql: bool, similar_names: bool) -> tuple[str, Part]:
    if promql and isinstance(query, str):
        query = parse(query)
    if isinstance(query, Query):
        return query.text, promql_outline.outline(query, similar_names)
    expression = read_query(query)
    return expression.text or "", dsl_outline.outline(expression.node)
