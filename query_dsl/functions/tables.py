"""Every function of the language, by family."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from query_dsl.errors import QueryError, list_of
from query_dsl.functions.deviation import DEVIATION
from query_dsl.functions.fills import FILLS
from query_dsl.functions.filters import FILTERS
from query_dsl.functions.mappers import MAPPERS
from query_dsl.functions.operators import OPERATORS
from query_dsl.functions.plugins import Extended
from query_dsl.functions.points import POINTS
from query_dsl.functions.presence import PRESENCE
from query_dsl.functions.reducers import REDUCERS
from query_dsl.functions.registry import Entry, Step
from query_dsl.functions.transforms import TRANSFORMS
from query_dsl.tree.habits import elsewhere
from query_dsl.tree.names import read_only_table

MAP_STEPS: Mapping[str, Step] = read_only_table(DEVIATION)
"""Functions that `.map` takes and that are neither over one window nor of one value."""

STEPS: Mapping[str, Mapping[str, Step]] = MappingProxyType(
    {
        family: Extended(table, Step, family)
        for family, table in (
            ("map", MAP_STEPS),
            ("filter", FILTERS),
            ("fill", FILLS),
            ("transform", TRANSFORMS),
            ("presence", PRESENCE),
        )
    }
)
TABLES: Mapping[str, Mapping[str, Entry]] = MappingProxyType(
    {"window": MAPPERS, "point": POINTS, "reduce": REDUCERS, "operator": OPERATORS, **STEPS}
)
"""Family -> name -> entry."""


def names_of(*families: str) -> frozenset[str]:
    """What can be called of these families, functions of installed packages too."""
    tables = [TABLES[family] for family in families]
    return frozenset(
        name for table in tables for name in (table.every() if isinstance(table, Extended) else table)
    )  # fmt: skip


def entry_of(family: str, name: str) -> Entry:
    """The entry of a function; QueryError with near names, of other families too."""
    found = TABLES[family].get(name)
    if found is not None:
        return found
    known = list(TABLES[family])
    others = [other for other, table in TABLES.items() if name in table and other != family]
    if others:
        what = " and a ".join(_WORDS[o] for o in others)
        raise QueryError(f"{name} is no {_WORDS[family]} but a {what}").about(name)
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
