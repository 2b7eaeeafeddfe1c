"""Lint of queries in both languages: warnings that do not keep a query from running.

Modules in reading order: `outline` (what the checks look at), `dsl_outline` and `promql_outline` (from a tree to its
outline), `catalogue` (series that a store knows), `checks`, `query_lint` (front door).

May import every other package of query_dsl."""

from query_dsl.lint.checks import Finding
from query_dsl.lint.query_lint import lint

__all__ = ["Finding", "lint"]
