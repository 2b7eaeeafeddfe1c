"""Window functions of the language, generated from the entries in artimon/compute/functions.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from artimon.compute.function import Function
from artimon.compute.functions import FUNCTIONS
from artimon.compute.params import Param
from query_dsl.functions.registry import Argument, Entry
from query_dsl.tree.entry_table import read_only_table


@dataclass(frozen=True, kw_only=True)
class Mapper(Function, Entry):
    """A window function of the language."""


def _mapper(function: Function) -> Mapper:
    return Mapper(**_parts(function), arguments=tuple(Argument(**_parts(param)) for param in function.params))


def _parts(entry: Function | Param) -> dict[str, Any]:
    return {field.name: getattr(entry, field.name) for field in fields(entry)}


ENTRIES: Mapping[str, Mapper] = read_only_table(*(_mapper(function) for function in FUNCTIONS.values()))
