"""Collectors run expressions: an expression uses its own collector, or else the one opened last.

The language does not depend on servers; a session (artimon/session.py) is a collector."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from query_dsl.results.matrix import Matrix
from query_dsl.tree.query_errors import QueryError

Query = TypeVar("Query", contravariant=True)
"""Type of the expressions that a collector runs."""


class ExpressionRunner(Protocol[Query]):
    """Runs expressions."""

    def query(self, query: Query, at: object = None, **options: Any) -> Matrix:
        """Return the result as of the instant `at` (None: now)."""
        ...

    def explain(self, query: Query, at: object = None, **options: Any) -> Any:
        """Return the plan of the query: see query_dsl/evaluation/explain.py."""
        ...

    def cost(self, query: Query, at: object = None, **options: Any) -> Any:
        """Return what the query would read: see query_dsl/evaluation/query_cost.py."""
        ...

    def sample(self, query: Query, count: int, *, label: str, seed: int) -> Any:
        """Return the query over some of its hosts: see query_dsl/evaluation/query_runner.py."""
        ...


class _Default:
    """Holder of the collector opened last: one per process, as a notebook has one kernel."""

    runner: ExpressionRunner[Any] | None = None


def set_default_runner(collector: ExpressionRunner[Any]) -> None:
    """Make this the default collector of expressions."""
    _Default.runner = collector


def clear_default_runner(collector: ExpressionRunner[Any]) -> None:
    """Remove the default collector if it is this one."""
    if _Default.runner is collector:
        _Default.runner = None


def runner_of(own: ExpressionRunner[Any] | None) -> ExpressionRunner[Any]:
    """Return `own`, else the collector opened last. QueryError if there is none."""
    found = own or _Default.runner
    if found is None:
        raise QueryError("this query has no session: open one with artimon.connect(), or begin with session.fetch(...)")
    return found


def common_runner(
    left: ExpressionRunner[Any] | None, right: ExpressionRunner[Any] | None
) -> ExpressionRunner[Any] | None:
    """Return the collector of two operands (None if neither has one). QueryError if theirs differ."""
    if left is not None and right is not None and left is not right:
        raise QueryError("the operands belong to two sessions: a query runs in one, so fetch both from the same")
    return left if left is not None else right
