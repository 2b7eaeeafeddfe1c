"""All functions, plugins included, by family."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from query_dsl.functions import built_in_tables, mappers, operators, points, reducers
from query_dsl.functions.mappers import Mapper
from query_dsl.functions.operators import Operator
from query_dsl.functions.plugins import Extended
from query_dsl.functions.reducers import Reducer
from query_dsl.functions.registry import Entry, PointFunction
from query_dsl.functions.step import Step
from query_dsl.tree.errors import QueryError, list_of
from query_dsl.tree.habits import elsewhere

MAPPERS: Mapping[str, Mapper] = Extended(mappers.ENTRIES, Mapper)
POINTS: Mapping[str, PointFunction] = Extended(points.ENTRIES, PointFunction)
REDUCERS: Mapping[str, Reducer] = Extended(reducers.ENTRIES, Reducer)
OPERATORS: Mapping[str, Operator] = Extended(operators.ENTRIES, Operator)
STEPS: Mapping[str, Mapping[str, Step]] = MappingProxyType(
    {family: Extended(table, Step, family) for family, table in built_in_tables.STEPS.items()}
)
MAP_STEPS = built_in_tables.STEPS["map"]
TABLES: Mapping[str, Mapping[str, Entry]] = MappingProxyType(
    {"window": MAPPERS, "point": POINTS, "reduce": REDUCERS, "operator": OPERATORS, **STEPS}
)
"""Family -> name -> entry."""


def names_of(*families: str) -> frozenset[str]:
    """Return the names of all functions in these families, plugins included."""
    tables = [TABLES[family] for family in families]
    return frozenset(
        name for table in tables for name in (table.every() if isinstance(table, Extended) else table)
    )  # fmt: skip


def entry_of(family: str, name: str) -> Entry:
    """Return the entry of a function. QueryError with similar names, and with other families that have the name."""
    found = TABLES[family].get(name)
    if found is not None:
        return found
    known = list(TABLES[family])
    others = [other for other, table in TABLES.items() if name in table and other != family]
    if others:
        what = " and ".join(_WORDS[o] for o in others)
        raise QueryError(f"{name} is not a {_WORDS[family]}; it exists as {what}").about(name)
    hint = elsewhere(name, known) or list_of(known)
    raise QueryError(f"unknown {_WORDS[family]} {name!r:.80}{hint}").about(name)


_WORDS = {
    "window": "window function",
    "point": "function of single values",
    "reduce": "reducer",
    "operator": "operator",
    "map": "function of series",
    "filter": "filter",
    "fill": "filler",
    "transform": "transform",
    "presence": "method",
}
