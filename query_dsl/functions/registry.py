"""Entries of functions: name, arguments, documentation. Builder, parser, printer and the reference page use functions
only through entries; to add a function, add an entry to the table of its family."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from artimon.compute.function import Described
from artimon.compute.params import REQUIRED
from query_dsl.results.result_cells import Cells, Ints
from query_dsl.tree.calendar_units import parse_zone
from query_dsl.tree.literals import checked_literal
from query_dsl.tree.nodes import BoundArguments
from query_dsl.tree.query_errors import QueryError, similar_hint
from query_dsl.tree.selector import compile_regex, parse_selector
from query_dsl.tree.times import Instant, format_duration, parse_duration, parse_instant

MAX_REGEX = 1_000
MAX_TEXTS = 1_000

Args = Mapping[str, Any]
"""All arguments of a function by name, defaults included; durations in milliseconds."""
Kind = Literal[
    "duration", "number", "integer", "text", "flag", "choice", "label", "labels", "texts", "regex", "zone", "instant",
    "value", "selector",
]  # fmt: skip
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument. `unit` is the unit of a number; durations include theirs. `least` and `most` are inclusive bounds,
    `above` and `below` exclusive."""

    name: str
    kind: Kind
    summary: str
    default: Any = REQUIRED
    unit: str = ""
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    @property
    def required(self) -> bool:
        return self.default is REQUIRED

    def read(self, value: object, function: str) -> Any:
        """Check and convert a value for the tree: durations to ms, lists to tuples. QueryError if it is invalid."""
        if value is None and self.default is None:
            return None
        what = f"{function}: {self.name}"
        try:
            return _PARSERS[self.kind](self, checked_literal(value, what), what)
        except QueryError as problem:
            raise problem.with_culprit(value) from None

    def show(self, value: Any) -> str:
        """Format a value such that `read` returns it unchanged."""
        if value is None:
            return "None"
        if self.kind == "duration":
            return repr(format_duration(value))
        if self.kind in ("labels", "texts"):
            return repr(list(value))
        if self.kind == "instant":
            return show_instant(value)
        return repr(value)


def show_instant(instant: Instant) -> str:
    """Format an instant as a literal of the language."""
    text = str(instant)
    return str(instant.ms) if text.endswith("ms") and not instant.relative else repr(text)


def _number(argument: Argument, value: object, what: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise QueryError(f"{what} takes a number, not {value!r:.80}")
    for bound, inside, text in (
        (argument.least, operator.ge, "at least"),
        (argument.most, operator.le, "at most"),
        (argument.above, operator.gt, "more than"),
        (argument.below, operator.lt, "less than"),
    ):
        if bound is not None and not inside(value, bound):
            raise QueryError(f"{what}={value!r:.80}: use a number that is {text} {bound:g}")
    return value


def _integer(argument: Argument, value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise QueryError(f"{what} takes a whole number, not {value!r:.80}")
    return int(_number(argument, value, what))


def _text(_argument: Argument, value: object, what: str) -> str:
    if not isinstance(value, str):
        raise QueryError(f"{what} takes a text in quotes, not {value!r:.80}")
    return value


def _flag(_argument: Argument, value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise QueryError(f"{what} takes True or False, not {value!r:.80}")
    return value


def _choice(argument: Argument, value: object, what: str) -> str:
    text = _text(argument, value, what)
    if text not in argument.choices:
        hint = similar_hint(text, argument.choices) or f"; there are: {', '.join(argument.choices)}"
        raise QueryError(f"{what} cannot be {text!r:.80}{hint}")
    return text


def _label(argument: Argument, value: object, what: str) -> str:
    text = _text(argument, value, what)
    if not _LABEL.fullmatch(text):
        raise QueryError(f"{what}: {text!r:.80} is not a label name: use letters, digits and _, no digit first")
    return text


def _labels(argument: Argument, value: object, what: str) -> tuple[str, ...]:
    names = _texts(argument, value, what)
    if len(set(names)) != len(names):
        raise QueryError(f"{what}={list(names)!r:.80} names a label twice")
    return tuple(_label(argument, name, what) for name in names)


def _texts(_argument: Argument, value: object, what: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(v, str) for v in value):
        raise QueryError(f'{what} takes a list of texts, as in ["a", "b"], not {value!r:.80}')
    if len(value) > MAX_TEXTS:
        raise QueryError(f"{what} has {len(value)} texts: use at most {MAX_TEXTS}")
    return tuple(value)


def _regex(argument: Argument, value: object, what: str) -> str:
    text = _text(argument, value, what)
    if len(text) > MAX_REGEX:
        raise QueryError(f"{what} has {len(text)} characters: use at most {MAX_REGEX}")
    compile_regex(text)
    return text


def _zone(argument: Argument, value: object, what: str) -> str:
    return parse_zone(_text(argument, value, what), what)


def _value(_argument: Argument, value: object, what: str) -> int | float | bool | str:
    if not isinstance(value, bool | int | float | str):
        raise QueryError(f"{what} takes a number, a text, True or False, not {value!r:.80}")
    return value


def _selector(argument: Argument, value: object, what: str) -> str:
    return str(parse_selector(_text(argument, value, what), of_all=False))


_PARSERS: Mapping[str, Callable[[Argument, object, str], Any]] = {
    "duration": lambda _argument, value, what: parse_duration(value, what),
    "number": _number,
    "integer": _integer,
    "text": _text,
    "flag": _flag,
    "choice": _choice,
    "label": _label,
    "labels": _labels,
    "texts": _texts,
    "regex": _regex,
    "zone": _zone,
    "instant": lambda _argument, value, what: parse_instant(value, what),
    "value": _value,
    "selector": _selector,
}


@dataclass(frozen=True, kw_only=True)
class Entry(Described):
    """Base of all entries."""

    arguments: tuple[Argument, ...] = ()

    def argument(self, name: str) -> Argument | None:
        return next((argument for argument in self.arguments if argument.name == name), None)

    def check(self, _args: Args) -> None:
        """Raise QueryError for an invalid combination of arguments. Families override this."""


def bind_arguments(entry: Entry, positional: Sequence[object], named: Mapping[str, object]) -> BoundArguments:
    """Bind the arguments of a call, in entry order. QueryError for missing, unknown, repeated or invalid ones."""
    arguments, name = entry.arguments, entry.name
    if len(positional) > len(arguments):
        wanted = ", ".join(argument.name for argument in arguments) or "no argument"
        raise QueryError(f"{name} takes {wanted}; {len(positional)} given")
    said: dict[str, object] = {argument.name: value for argument, value in zip(arguments, positional, strict=False)}
    for key, value in named.items():
        if entry.argument(key) is None:
            known = [argument.name for argument in arguments]
            hint = similar_hint(key, known) or f"; there are: {', '.join(known) or 'none'}"
            raise QueryError(f"{name} has no argument {key}={hint}").with_culprit(value)
        if key in said:
            raise QueryError(f"{name}: {key} is given twice")
        said[key] = value
    out = []
    for argument in arguments:
        if argument.name in said:
            value = argument.read(said[argument.name], name)
            if argument.required or _differs(value, argument.default):
                out.append((argument.name, value))
        elif argument.required:
            raise QueryError(f"{name} needs {argument.name}: {argument.summary}")
    entry.check(with_defaults(entry, tuple(out)))
    return tuple(out)


def _differs(value: object, default: object) -> bool:
    return type(value) is not type(default) or repr(value) != repr(default)


def with_defaults(entry: Entry, said: BoundArguments) -> Args:
    """Return all arguments, defaults included. A default of kind duration is in milliseconds."""
    return {argument.name: argument.default for argument in entry.arguments} | dict(said)


def show_arguments(entry: Entry, said: BoundArguments) -> list[str]:
    """Format the arguments: required ones by position, others by name."""
    values = dict(said)
    out = []
    for argument in entry.arguments:
        if argument.name in values:
            text = argument.show(values[argument.name])
            out.append(text if argument.required else f"{argument.name}={text}")
    return out


@dataclass(slots=True)
class PointContext:
    """Context of a point function: `times` (n,) in epoch ms, of each sample or the last that a bucket covers, and the
    string table `strings` of STRING cells, which `add_text` extends."""

    times: Ints
    strings: list[str]

    def add_text(self, text: str) -> int:
        """Append a text and return its cell."""
        self.strings.append(text)
        return len(self.strings) - 1


@dataclass(frozen=True, kw_only=True)
class PointFunction(Entry):
    """A function of single values. `run` returns cells of the same series; values it masks become missing."""

    run: Callable[[Cells, Args, PointContext], Cells]
    numbers: bool = True
    """True if it accepts numbers (INTEGER, DOUBLE, BOOLEAN as 1/0)."""
    texts: bool = False
    """True if it accepts STRING."""
