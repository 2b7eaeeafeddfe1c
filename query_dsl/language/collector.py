"""Who answers an expression: an expression holds its collector, or goes to the one that was opened last.

The language knows nothing of servers; a session (artimon/session.py) is a collector."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from query_dsl.results.matrix import Matrix
from query_dsl.tree.errors import QueryError

Query = TypeVar("Query", contravariant=True)
"""Type of the expressions that a collector runs."""


class Collector(Protocol[Query]):
    """What runs an expression."""

    def query(self, query: Query, at: object = None, **options: Any) -> Matrix:
        """The answer as of the instant `at` (None: now)."""
        ...

    def explain(self, query: Query, at: object = None, **options: Any) -> Any:
        """What answering does: see query_dsl/evaluation/explain.py."""
        ...


class _Last:
    """The collector that was opened last: one for the process, as a notebook has one kernel."""

    collector: Collector[Any] | None = None


def open_collector(collector: Collector[Any]) -> None:
    """Let expressions without a collector of their own go to this one."""
    _Last.collector = collector


def close_collector(collector: Collector[Any]) -> None:
    """Forget it, if it is still the last one."""
    if _Last.collector is collector:
        _Last.collector = None


def collector_of(own: Collector[Any] | None) -> Collector[Any]:
    """`own`, else the one that was opened last. QueryError where there is none."""
    found = own or _Last.collector
    if found is None:
        raise QueryError(
            "nobody answers this query: open a session first with artimon.connect(), or begin with session.fetch(...)"
        )
    return found


def shared(left: Collector[Any] | None, right: Collector[Any] | None) -> Collector[Any] | None:
    """The collector of two operands. QueryError if they have different ones."""
    if left is not None and right is not None and left is not right:
        raise QueryError("the operands belong to two sessions: a query runs in one, so fetch both from the same")
    return left if left is not None else right
