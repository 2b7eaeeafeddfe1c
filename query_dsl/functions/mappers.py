"""Window functions of the language, generated from the entries in artimon/compute/functions.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from artimon.compute.function import Function
from artimon.compute.functions import FUNCTIONS
from artimon.compute.params import REQUIRED as NO_DEFAULT
from artimon.compute.params import Param
from query_dsl.functions.registry import REQUIRED, Argument, Entry
from query_dsl.tree.names import read_only_table


@dataclass(frozen=True, kw_only=True)
class Mapper(Function, Entry):
    """A window function of the language."""


def _mapper(function: Function) -> Mapper:
    held = {field.name: getattr(function, field.name) for field in fields(Function)}
    return Mapper(**held, arguments=tuple(_argument(param) for param in function.params))


def _argument(param: Param) -> Argument:
    default = REQUIRED if param.default is NO_DEFAULT else param.default
    bounds = {name: getattr(param, name) for name in ("least", "most", "above", "below", "choices")}
    return Argument(param.name, param.kind, param.summary, default, param.unit, **bounds)


ENTRIES: Mapping[str, Mapper] = read_only_table(*(_mapper(function) for function in FUNCTIONS.values()))
