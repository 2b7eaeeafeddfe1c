"""Read-only tables of functions, and a look-up whose errors list similar names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Protocol, TypeVar

from query_dsl.tree.nodes import UserFunction
from query_dsl.tree.query_errors import QueryError, all_hint
from query_dsl.tree.syntax_hints import name_hint


class NamedEntry(Protocol):
    """A registered function."""

    @property
    def name(self) -> str: ...


E = TypeVar("E", bound=NamedEntry)


def read_only_table(*entries: E) -> Mapping[str, E]:
    """Return name -> entry; a repeated name raises ValueError at import."""
    table = {entry.name: entry for entry in entries}
    if len(table) != len(entries):
        raise ValueError(f"a function is registered twice: {sorted(e.name for e in entries)}")
    return MappingProxyType(table)


def look_up(table: Mapping[str, E], name: str, what: str, others: Iterable[str] = ()) -> E:
    """Return the entry of `name`. QueryError with similar names from the table and `others`."""
    entry = table.get(name)
    if entry is None:
        known = [*table, *others]
        hint = name_hint(name, known) or all_hint(known)
        raise QueryError(f"unknown {what} {name!r:.80}{hint}").with_culprit(name)
    return entry


RESERVED_WORDS = frozenset({
    "absent", "and_", "apply", "at", "between", "bound", "bucketize", "collect", "collector", "depth", "equals",
    "explain", "fetch", "fill", "filter", "map", "named", "node", "offset", "or_", "parts", "plot", "reduce",
    "samples", "scalar", "text", "to_pandas", "transform", "unless", "where",
})  # fmt: skip
"""Names that begin a query, and methods of expressions that are not registered functions."""

_PYTHON_NAMES = {"truediv": "div", "and_": "and", "or_": "or", "pow": "pow"}
_PYTHON_MODULES = ("builtins", "operator", "_operator", "numpy", "statistics")


def function_name(function: object) -> str | UserFunction:
    """Return the registered name of a text or of a Python function such as `max` or `operator.sub`. Any other callable
    becomes a user-defined function (`UserFunction`). QueryError for other values."""
    if isinstance(function, str):
        return function
    module, name = getattr(function, "__module__", None), getattr(function, "__name__", None)
    if module in _PYTHON_MODULES and isinstance(name, str):
        return _PYTHON_NAMES.get(name, name)
    if callable(function):
        return UserFunction(str(name or type(function).__name__), function)
    raise QueryError(f'{function!r:.80} is not a function: give a name such as "mean", or a Python function')
