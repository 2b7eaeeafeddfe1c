"""Tables of the window functions. New entries belong in the file of the function."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from artimon.compute import basic_windows, changes, differences, durations, regression, spread
from artimon.compute import exponential as smoothing
from artimon.compute.function import Function, WindowFunction
from artimon.compute.promql_functions import PROMQL_FUNCTIONS

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        function.name: function
        for module in (basic_windows, differences, changes, durations, spread, smoothing, regression)
        for function in module.FUNCTIONS
    }
)
"""Functions of the language."""
WINDOW_FUNCTIONS: Mapping[str, WindowFunction] = MappingProxyType({**FUNCTIONS, **PROMQL_FUNCTIONS})
"""Functions that shards know."""
