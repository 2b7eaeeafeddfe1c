"""Queries in PromQL as texts of the query language, where one has the same numbers."""

from __future__ import annotations

from query_dsl.language.parser import parse as parse_dsl
from query_dsl.promql.tree import PromqlError, format_text, parse, selectors, value_type
from query_dsl.results.matrix import Matrix
from query_dsl.tree.foreign_queries import outer_call
from query_dsl.tree.nodes import Fetch, walk
from query_dsl.tree.query_errors import QueryError
from query_dsl.tree.syntax_hints import translate_promql

NO_EQUIVALENT = (
    "no text in the query language has the same numbers: there is one for selectors, functions of one range such as"
    " rate and avg_over_time, functions of values, aggregations, comparisons, and operators with on or ignoring"
)


def to_dsl(text: str) -> str:
    """Return the query in our language. Over buckets of a minute it has the numbers of the PromQL with exact increases,
    unless a minimum, maximum or quantile meets NaN, or equal values compete in topk or bottomk; names of functions of
    ranges and values stay. It has no range. Raises PromqlError if the text is no PromQL, or has no equivalent."""
    node = parse(text).node
    here = translate_promql(format_text(text), same=True) if value_type(node) == "vector" else None
    if here is None:
        raise PromqlError(NO_EQUIVALENT)
    try:
        parsed = parse_dsl(here)
    except QueryError as problem:
        raise PromqlError(NO_EQUIVALENT) from problem
    fetched = {frozenset(one.selector.matchers) for one in walk(parsed.node) if isinstance(one, Fetch)}
    if fetched != {frozenset(one.matchers) for one in selectors(node)}:
        raise PromqlError(NO_EQUIVALENT)
    whole = outer_call(here)
    return whole[1] if whole is not None and not whole[0] else here


class PromqlMatrix(Matrix):
    """Answer of a query in PromQL, whose text is `query`."""

    __slots__ = ()

    def to_dsl(self) -> str:
        """Return the query in our language; see `query_dsl.promql.dsl_text.to_dsl`. Raises PromqlError."""
        return to_dsl(self.query)
