"""The query language: text, tree, and one evaluator over any store.

Packages in reading order; each imports only those before it:

    tree        selectors, times, nodes of the tree, errors
    results     values of series: on a grid, raw, as tables and plots
    functions   entries of all functions, and label matching
    language    expressions, parser, printer, completion
    stores      memory, history, both, limits: one protocol
    evaluation  plan, run and explain a query
    lint        warnings about a query, in both languages

>>> from query_dsl import fetch, parse
>>> query = fetch('http.requests{dc="jb"}').rate("5m").sum(by=["host"])
>>> parse(str(query)).equals(query)
True
"""

from __future__ import annotations

from query_dsl.evaluation.evaluator import evaluate
from query_dsl.evaluation.offline import offline
from query_dsl.language.expression import Expr, absent, apply, fetch, now, samples, time
from query_dsl.language.parser import parse
from query_dsl.results.matrix import Matrix
from query_dsl.results.render import render_table
from query_dsl.stores.query_limits import Limits
from query_dsl.tree.query_errors import NothingSelected, QueryError
from query_dsl.tree.selector import Selector, parse_selector

__all__ = [
    "Expr",
    "Limits",
    "Matrix",
    "NothingSelected",
    "QueryError",
    "Selector",
    "absent",
    "apply",
    "evaluate",
    "fetch",
    "now",
    "offline",
    "parse",
    "parse_selector",
    "render_table",
    "samples",
    "time",
]
