"""All functions by family: the built-in ones, and behind them those of plugins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import TypeVar

from query_dsl.functions import fills, filters, mappers, operators, reducers, transforms
from query_dsl.functions import seasonal_deviation as deviation
from query_dsl.functions import staleness as presence
from query_dsl.functions.mappers import Mapper
from query_dsl.functions.operators import Operator
from query_dsl.functions.plugins import plugins
from query_dsl.functions.points_calendar import CALENDAR
from query_dsl.functions.points_casts import CASTS
from query_dsl.functions.points_numbers import NUMBERS
from query_dsl.functions.points_texts import TEXTS
from query_dsl.functions.reducers import Reducer
from query_dsl.functions.registry import Entry, PointFunction
from query_dsl.functions.step import Step
from query_dsl.tree.entry_table import RESERVED_WORDS, read_only_table
from query_dsl.tree.query_errors import QueryError, all_hint
from query_dsl.tree.syntax_hints import name_hint

E = TypeVar("E", bound=Entry)
_POINTS: Mapping[str, PointFunction] = read_only_table(
    *NUMBERS.values(), *CALENDAR.values(), *CASTS.values(), *TEXTS.values()
)
MAP_STEPS: Mapping[str, Step] = read_only_table(deviation.DEVIATION)
"""Functions of `map` that are neither window nor point functions."""
_STEPS: Mapping[str, Mapping[str, Step]] = MappingProxyType(
    {
        "map": MAP_STEPS,
        "filter": filters.FILTERS,
        "fill": fills.FILLS,
        "transform": transforms.TRANSFORMS,
        "presence": presence.PRESENCE,
    }
)


@cache
def built_in_names() -> frozenset[str]:
    """Return all names that the language reserves: functions, methods and words that begin a query."""
    return RESERVED_WORDS.union(mappers.ENTRIES, _POINTS, reducers.ENTRIES, operators.ENTRIES, *_STEPS.values())


class Extended(Mapping[str, E]):
    """Table of built-in functions that falls back to plugins of `kind` (for Steps also of `family`) for names that are
    not built in. Length and iteration cover built-in functions only."""

    def __init__(self, table: Mapping[str, E], kind: type[E], family: str = "") -> None:
        self._table, self._kind, self._family = table, kind, family

    def __getitem__(self, name: str) -> E:
        if name in self._table or name in built_in_names():
            return self._table[name]
        found = plugins(built_in_names())[name]
        if not self._takes(found):
            raise KeyError(name)
        return found  # type: ignore[return-value]

    def _takes(self, entry: Entry) -> bool:
        if not isinstance(entry, self._kind):
            return False
        return not self._family or getattr(entry, "family", "") == self._family

    def every(self) -> tuple[str, ...]:
        """Return all names, including plugins."""
        return (*self._table, *(name for name, entry in plugins(built_in_names()).items() if self._takes(entry)))

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


MAPPERS: Mapping[str, Mapper] = Extended(mappers.ENTRIES, Mapper)
POINTS: Mapping[str, PointFunction] = Extended(_POINTS, PointFunction)
REDUCERS: Mapping[str, Reducer] = Extended(reducers.ENTRIES, Reducer)
OPERATORS: Mapping[str, Operator] = Extended(operators.ENTRIES, Operator)
STEPS: Mapping[str, Mapping[str, Step]] = MappingProxyType(
    {family: Extended(table, Step, family) for family, table in _STEPS.items()}
)
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
        what = " and ".join(_FAMILY_WORDS[o] for o in others)
        raise QueryError(f"{name} is not a {_FAMILY_WORDS[family]}; it exists as {what}").with_culprit(name)
    hint = name_hint(name, known) or all_hint(known)
    raise QueryError(f"unknown {_FAMILY_WORDS[family]} {name!r:.80}{hint}").with_culprit(name)


_FAMILY_WORDS = {
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
