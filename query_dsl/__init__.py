"""The query language: one text, one tree, one evaluator over whatever store answers it.

>>> from query_dsl import fetch, parse
>>> query = fetch('http.requests{dc="jb"}').rate("5m").sum(by=["host"])
>>> parse(str(query)).equals(query)
True
"""

from __future__ import annotations

from query_dsl.answers.matrix import Matrix
from query_dsl.answers.render import render_table
from query_dsl.engines.limits import Limits
from query_dsl.engines.offline import offline
from query_dsl.errors import NothingSelected, QueryError
from query_dsl.running.evaluate import evaluate
from query_dsl.tree.builder import Expr, absent, apply, fetch, samples
from query_dsl.tree.parser import parse
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
    "offline",
    "parse",
    "parse_selector",
    "render_table",
    "samples",
]
