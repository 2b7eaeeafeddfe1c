"""Which functions there are: read-only tables, and the look-up that names what comes near."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Protocol, TypeVar

from query_dsl.tree.errors import QueryError, list_of
from query_dsl.tree.habits import elsewhere
from query_dsl.tree.nodes import Own


class Entry(Protocol):
    """What every registered function has."""

    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str: ...

    @property
    def example(self) -> str: ...


E = TypeVar("E", bound=Entry)


def read_only_table(*entries: E) -> Mapping[str, E]:
    """Name -> entry; a name given twice is an error at import."""
    table = {entry.name: entry for entry in entries}
    if len(table) != len(entries):
        raise ValueError(f"a function is registered twice: {sorted(e.name for e in entries)}")
    return MappingProxyType(table)


def look_up(table: Mapping[str, E], name: str, what: str, others: Iterable[str] = ()) -> E:
    """The entry of `name`; QueryError with near names, of `others` too."""
    entry = table.get(name)
    if entry is None:
        known = [*table, *others]
        hint = elsewhere(name, known) or list_of(known)
        raise QueryError(f"unknown {what} {name!r}{hint}").about(name)
    return entry


WORDS = frozenset({
    "absent", "and_", "apply", "at", "between", "bound", "bucketize", "collect", "collector", "depth", "equals",
    "explain", "fetch", "fill", "filter", "map", "named", "node", "offset", "or_", "parts", "plot", "reduce",
    "samples", "scalar", "text", "to_pandas", "transform", "unless", "where",
})  # fmt: skip
"""Names that begin a query, and methods of expressions that stand for no registered function."""

_PYTHON_NAMES = {"truediv": "div", "and_": "and", "or_": "or", "pow": "pow"}
_PYTHON_MODULES = ("builtins", "operator", "_operator", "numpy", "statistics")


def named_function(function: object) -> str | Own:
    """The name under which a function is registered: a text, or one of Python's own such as `max` or `operator.sub`;
    any other callable is an own function. QueryError for what cannot be called."""
    if isinstance(function, str):
        return function
    module, name = getattr(function, "__module__", None), getattr(function, "__name__", None)
    if module in _PYTHON_MODULES and isinstance(name, str):
        return _PYTHON_NAMES.get(name, name)
    if callable(function):
        return Own(str(name or type(function).__name__), function)
    raise QueryError(f'{function!r:.80} is no function: name one, as in "mean", or give one of Python')
