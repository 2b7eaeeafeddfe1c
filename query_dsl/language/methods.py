"""Methods of expressions for single registered functions: `.topk(5, by=["dc"])`, `.ewma("10m", alpha=0.3)`.

They are generated from the entries, with signature and docstring for completion and `help`. A name in several families
belongs to the first of: methods of Expr itself, reducers, window functions, points, steps."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from query_dsl.functions.operators_kernels import Operator
from query_dsl.functions.registry import Entry
from query_dsl.functions.step import Step
from query_dsl.functions.tables import MAP_STEPS, MAPPERS, OPERATORS, POINTS, REDUCERS, STEPS
from query_dsl.language.expression import Expr, absent, apply, fetch, now, samples, time

_POSITIONAL, _KEYWORD = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
_DEFINED_METHODS = (
    "range", "between", "at", "offset", "map", "rate", "increase", "delta", "bucketize", "reduce", "named", "filter",
    "fill", "transform", "scalar", "where", "and_", "or_", "unless",
)  # fmt: skip
_OF_CLASSES = {"zscore": "standardize"}
"""Reducers that a window function of another name stands for, if `by` or `without` is given."""
_SINCE = {"since": None, "zone": None}
_RULES = {"nulls": "skip", "min_count": None}


class _RequiredMarker:
    """Default of a required argument that follows an optional one; the entry reports it as missing."""

    def __repr__(self) -> str:
        return "…"


_REQUIRED_MARKER = _RequiredMarker()


def _parameters(entry: Entry, before: Mapping[str, Any], after: Mapping[str, Any]) -> inspect.Signature:
    own = [
        inspect.Parameter(a.name, _POSITIONAL, default=inspect.Parameter.empty if a.required else a.default)
        for a in entry.arguments
    ]
    first = [inspect.Parameter(name, _POSITIONAL, default=default) for name, default in before.items()]
    if isinstance(entry, Step):
        first += [inspect.Parameter(name, _POSITIONAL) for name in entry.operands]
    if any(p.default is not inspect.Parameter.empty for p in first):  # required ones cannot follow optional ones
        own = [p.replace(default=_REQUIRED_MARKER) if p.default is inspect.Parameter.empty else p for p in own]
    rest = [inspect.Parameter(name, _KEYWORD, default=default) for name, default in after.items()]
    every = [inspect.Parameter("self", _POSITIONAL), *first, *own, *rest]
    return inspect.Signature(sorted(every, key=lambda p: p.kind))


def _method(entry: Entry, call: Callable[..., Expr], signature: inspect.Signature) -> Callable[..., Expr]:
    def method(self: Expr, *args: object, **named: object) -> Expr:
        return call(self, *args, **named)

    method.__name__ = entry.name
    method.__qualname__ = f"Expr.{entry.name}"
    method.__doc__ = f"{entry.summary} As in {entry.example}."
    method.__signature__ = signature  # type: ignore[attr-defined]
    return method


def _reducer_method(entry: Entry) -> Callable[..., Expr]:
    def call(self: Expr, *args: object, **named: Any) -> Expr:
        return self.reduce(entry.name, *args, **named)

    signature = _parameters(entry, {}, {"by": None, "without": None, **_RULES})
    if not entry.arguments:  # accept a window given by mistake, so that `reduce` can explain the error
        every = [*signature.parameters.values()]
        every.insert(1, inspect.Parameter("window", inspect.Parameter.VAR_POSITIONAL))
        signature = inspect.Signature(every)
    return _method(entry, call, signature)


def _window_method(entry: Entry, before: Mapping[str, Any], after: Mapping[str, Any]) -> Callable[..., Expr]:
    def call(self: Expr, *args: object, **named: Any) -> Expr:
        if entry.name in _OF_CLASSES and ("by" in named or "without" in named):
            return self.reduce(_OF_CLASSES[entry.name], *args, **named)
        if "window" in before and "window" in named:
            args = (named.pop("window"), *args)
        elif "window" in before and not args:
            args = (None,)
        return self.map(entry.name, *args, **named)

    return _method(entry, call, _parameters(entry, before, after))


def _transform_method(entry: Step) -> Callable[..., Expr]:
    def call(self: Expr, *args: object, **named: Any) -> Expr:
        if entry.family == "transform":
            return self.transform(entry.name, *args, **named)
        return self._step(entry.family, entry.name, args, named)

    return _method(entry, call, _parameters(entry, {}, {}))


_MATCHING = tuple(
    parameter for parameter in inspect.signature(apply).parameters.values()
    if parameter.kind is _KEYWORD and parameter.name != "gives"
)  # fmt: skip
"""Parameters of operators that say how series pair."""


def _operator_method(operator: Operator, other: Callable[..., Expr] | None) -> Callable[..., Expr]:
    """Method of an operator for a query as its operand. `other`: method of the same name for anything else."""
    pairing = {parameter.name for parameter in _MATCHING}

    def call(self: Expr, *args: object, **named: Any) -> Expr:
        if other is not None and not (args and isinstance(args[0], Expr)) and not pairing & named.keys():
            return other(self, *args, **named)
        operands = [named.pop(name) for name in ("other", "number") if name in named]
        return apply(operator.name, self, *args, *operands, **named)

    own = [inspect.Parameter("self", _POSITIONAL), inspect.Parameter("other", _POSITIONAL)]
    first = own if other is None else [*inspect.signature(other).parameters.values()]
    method = _method(operator, call, inspect.Signature([*first, *_MATCHING]))
    method.__doc__ = f'{operator.summary} As in a.{operator.name}(b, on=["host"]).'
    if other is not None:
        method.__doc__ = f"{other.__doc__} With a query, pairs series as {operator.symbol or operator.name} does."
    return method


def _methods() -> dict[str, Callable[..., Expr]]:
    methods: dict[str, Callable[..., Expr]] = {name: vars(Expr)[name] for name in _DEFINED_METHODS}
    made = [(name, _reducer_method(entry)) for name, entry in REDUCERS.items()]
    for name, entry in MAPPERS.items():
        gap = {"max_gap": None} if entry.predecessor else {}
        gap |= {"by": None, "without": None} if name in _OF_CLASSES else {}
        made.append((name, _window_method(entry, {"window": None}, {"after": None, **_SINCE, **_RULES, **gap})))
    made += [(name, _window_method(point, {}, {})) for name, point in POINTS.items()]
    made += [(name, _window_method(step, {}, {})) for name, step in MAP_STEPS.items()]
    for family in ("transform", "presence"):
        made += [(name, _transform_method(step)) for name, step in STEPS[family].items()]
    for name, method in made:
        if name not in methods and not hasattr(Expr, name):
            methods[name] = method
    for name, operator in OPERATORS.items():
        if operator.family in ("arithmetic", "comparison"):
            methods[name] = _operator_method(operator, methods.get(name))
    for name, method in methods.items():
        setattr(Expr, name, method)
    return methods


METHODS: Mapping[str, Callable[..., Expr]] = MappingProxyType(_methods())
"""Methods that query text may call on an expression; the parser accepts no others."""
FUNCTIONS: Mapping[str, Callable[..., Expr]] = MappingProxyType(
    {"fetch": fetch, "samples": samples, "absent": absent, "apply": apply, "now": now, "time": time}
)


def method_summaries(table: Mapping[str, Callable[..., Expr]]) -> dict[str, str]:
    """Return name -> arguments and first sentence of the docstring, for pages and completion."""
    return {name: f"{parameters_of(call)} · {_sentence(call)}" for name, call in table.items()}


def parameters_of(call: Callable[..., Expr]) -> str:
    """Format the parameters of a call, with parentheses."""
    shown = []
    for parameter in inspect.signature(call).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD or parameter.name == "self":
            continue
        if parameter.kind is parameter.VAR_POSITIONAL and parameter.name == "window":
            continue  # exists for an error message only
        star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
        optional = "=…" if parameter.kind is parameter.KEYWORD_ONLY else ""
        if parameter.name not in _RULES:
            shown.append(f"{star}{parameter.name}{optional}")
    return f"({', '.join(shown)})"


def _sentence(call: Callable[..., Expr]) -> str:
    text = " ".join((call.__doc__ or "").split())
    return re.split(r"(?<=[.;:])\s|: `", text, maxsplit=1)[0].rstrip(".;:")
