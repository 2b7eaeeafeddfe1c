"""Syntax tree of PromQL, and its construction from a text.

The parser is `promql-parser`. Deep input overflows the stack of its process, so a linear scan limits nesting and
operators first. https://prometheus.io/docs/prometheus/latest/querying/basics/ defines the language.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import promql_parser as parser

from artimon.model.select import NAME, Matcher
from query_dsl.tree.query_errors import QueryError

MAX_LENGTH = 16 * 1024
MAX_NESTING = 100
MAX_OPERATORS = 250
TOO_DEEP = "the query nests too deeply: split it"
SCALARS = frozenset(("time", "pi", "scalar", "step", "range", "start", "end", "min_of", "max_of"))
"""Functions that return a scalar."""
ValueType = Literal["scalar", "string", "vector", "matrix"]


class PromqlError(QueryError):
    """A PromQL query that cannot be parsed or evaluated."""


class NotSupported(PromqlError):
    """Part of PromQL that is not supported: native histograms and some experimental features."""


@dataclass(frozen=True, slots=True)
class At:
    """Modifier `@`: a fixed time, or the start or end of the query."""

    time_ms: int | None = None
    edge: Literal["", "start", "end"] = ""


@dataclass(frozen=True, slots=True)
class Number:
    value: float


@dataclass(frozen=True, slots=True)
class Text:
    value: str


@dataclass(frozen=True, slots=True)
class Selector:
    """Vector selector. `range_ms` 0: the newest sample within the look-back; else the samples of the range."""

    matchers: tuple[Matcher, ...]
    range_ms: int = 0
    offset_ms: int = 0
    at: At | None = None


@dataclass(frozen=True, slots=True)
class Subquery:
    """`child` at each multiple of `step_ms` (0: the default step) within the range."""

    child: Node
    range_ms: int
    step_ms: int
    offset_ms: int
    at: At | None


@dataclass(frozen=True, slots=True)
class Paren:
    child: Node


@dataclass(frozen=True, slots=True)
class Negation:
    child: Node


@dataclass(frozen=True, slots=True)
class Call:
    """`position`: offset of the name in the text."""

    function: str
    args: tuple[Node, ...]
    position: int


@dataclass(frozen=True, slots=True)
class Aggregation:
    function: str
    child: Node
    param: Node | None
    labels: tuple[str, ...]
    without: bool
    position: int


@dataclass(frozen=True, slots=True)
class Matching:
    """Vector matching by `labels` (`on`), or by all others. `group` is the side with many series, "" for one-to-one."""

    on: bool = False
    labels: tuple[str, ...] = ()
    group: Literal["", "left", "right"] = ""
    include: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Binary:
    op: str
    left: Node
    right: Node
    bool_modifier: bool
    matching: Matching


Node = Number | Text | Selector | Subquery | Paren | Negation | Call | Aggregation | Binary


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query and its text."""

    text: str
    node: Node


LAST_ASCII = 0x7F
_TOKEN = re.compile(
    r"""(?P<space>\s+|\#[^\n]*)|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`[^`]*`)"""
    r"""|(?P<word>[a-zA-Z_:][\w:]*)|(?P<number>[0-9.][\w.]*)|(?P<open>[([{])|(?P<close>[)\]}])|(?P<sign>[^\w\s])""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|([0-3][0-7]{2})|.)", re.DOTALL)
_CALLED = re.compile(r"\s*(\(|by\b|without\b)", re.IGNORECASE)
_PAIRS = {")": "(", "]": "[", "}": "{"}
_WORD_OPERATORS = frozenset(("and", "or", "unless", "atan2"))
_EXPERIMENTAL = frozenset(("info", "limit_ratio", "histogram_quantiles"))

_EXPERIMENTAL_SYNTAX = re.compile(
    r"\b(smoothed|anchored)\b|\[[^\]\[\"']*[+*/^%(-][^\]\[\"']*\]|\boffset\s+[-+]?\s*(\(|(step|range|min|max)\s*\(|\S+\s*[*/^%])"
    r"|\b(step|range|start|end)\s*\(\s*\)",
    re.IGNORECASE,
)


def parse(text: str) -> Query:
    """Parse PromQL. Raises PromqlError with the place where it is known, NotSupported for native histograms and some
    experimental features."""
    calls = _scan(text)
    try:
        return Query(text, _Builder(text, calls).node(_parsed(text, calls)))
    except RecursionError:
        raise PromqlError(TOO_DEEP, None, text) from None


def format_text(text: str) -> str:
    """Return the text with the usual line breaks and indentation. Raises PromqlError."""
    return str(_parsed(text, _scan(text)).prettify())


def _parsed(text: str, calls: Mapping[str, list[int]]) -> Any:
    try:
        return parser.parse(text)
    except BaseException as problem:
        _check_library(problem)
        if re.search("[<>]/", text):
            raise NotSupported("native histograms are not supported", None, text) from None
        experimental = _EXPERIMENTAL_SYNTAX.search(text)
        if experimental is not None:
            raise NotSupported(
                "arithmetic of durations, smoothed and anchored are experimental and not supported",
                experimental.start(),
                text,
            ) from None
        for name in _EXPERIMENTAL & calls.keys():
            raise _experimental(name, calls[name][0], text) from None
        raise PromqlError(str(problem) or "this is not PromQL", None, text) from None


def _experimental(name: str, position: int, text: str) -> NotSupported:
    return NotSupported(f"{name} is experimental and not supported", position, text)


def _check_library(problem: BaseException) -> None:
    """Raise `problem` again unless the parser raised it: as an Exception, or as a PanicException, which is only a
    BaseException."""
    if not isinstance(problem, Exception) and type(problem).__name__ != "PanicException":
        raise problem


def parse_duration(text: str) -> int:
    """Parse a duration such as 1h30m to milliseconds. Raises PromqlError."""
    try:
        return _milliseconds(parser.parse_duration(text))
    except BaseException as problem:
        _check_library(problem)
        raise PromqlError(f"not a valid duration: {text!r:.60}") from None


def value_type(node: Node) -> ValueType:
    """Return the type of the value of an expression."""
    match node:
        case Number():
            return "scalar"
        case Text():
            return "string"
        case Selector(range_ms=0) | Aggregation():
            return "vector"
        case Selector() | Subquery():
            return "matrix"
        case Paren(child) | Negation(child):
            return value_type(child)
        case Binary(left=left, right=right):
            return "scalar" if value_type(left) == value_type(right) == "scalar" else "vector"
        case Call(function=function):
            return "scalar" if function in SCALARS else "vector"


def without_parens(node: Node) -> Node:
    """Return the expression inside parentheses."""
    while isinstance(node, Paren):
        node = node.child
    return node


def longest_window_ms(node: Node) -> int:
    """Return the longest range of a selector or subquery, at least 1."""
    match node:
        case Selector(range_ms=found):
            return max(1, found)
        case Subquery(child=child, range_ms=found):
            return found + longest_window_ms(child)
        case Paren(child) | Negation(child) | Aggregation(child=child):
            return longest_window_ms(child)
        case Binary(left=left, right=right):
            return max(longest_window_ms(left), longest_window_ms(right))
        case Call(args=args):
            return max(map(longest_window_ms, args), default=1)
    return 1


def children(node: Node) -> tuple[Node, ...]:
    """Return the nodes of which a node is made."""
    match node:
        case Subquery(child=child) | Paren(child) | Negation(child):
            return (child,)
        case Aggregation(child=child, param=param):
            return (child,) if param is None else (child, param)
        case Binary(left=left, right=right):
            return left, right
        case Call(args=args):
            return args
    return ()


def selectors(node: Node) -> Iterator[Selector]:
    """Yield the selectors of a tree."""
    if isinstance(node, Selector):
        yield node
    for child in children(node):
        yield from selectors(child)


def _scan(text: str) -> dict[str, list[int]]:
    """Return the places of each word that parentheses or a grouping follow. Raises PromqlError beyond the limits."""
    if len(text) > MAX_LENGTH:
        raise PromqlError(f"the query has {len(text)} characters: use at most {MAX_LENGTH}", MAX_LENGTH, text)
    if not text.strip():
        raise PromqlError("the query is empty", 0, text)
    places: dict[str, list[int]] = {}
    opened: list[tuple[str, int]] = []
    operators = at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise PromqlError("this text has no closing quote" if text[at] in "\"'`" else "unexpected", at, text)
        kind, word = found.lastgroup, found[0]
        if kind == "word":
            operators += word.lower() in _WORD_OPERATORS
            if _CALLED.match(text, found.end()):
                places.setdefault(word.lower(), []).append(at)
        elif kind == "text" and word[0] != "`":
            for escape in _ESCAPE.finditer(word):  # the library takes a byte for a character
                if (int(escape[1], 16) if escape[1] else int(escape[2] or "0", 8)) > LAST_ASCII:
                    raise PromqlError(f"{escape[0]} is a byte, not a character: write \\u or the character", at, text)
        elif kind == "sign":
            if word in "\"'`":
                raise PromqlError("this text has no closing quote", at, text)
            operators += word not in ",:"
        elif kind == "open":
            opened.append((word, at))
        elif kind == "close" and (not opened or opened.pop()[0] != _PAIRS[word]):
            raise PromqlError(f"this {word!r} has no opening bracket", at, text)
        if len(opened) > MAX_NESTING:
            raise PromqlError(f"brackets nest more than {MAX_NESTING} deep", at, text)
        if operators > MAX_OPERATORS:
            raise PromqlError(f"more than {MAX_OPERATORS} operators in one query", at, text)
        at = found.end()
    if opened:
        raise PromqlError(f"this {opened[-1][0]!r} is not closed", opened[-1][1], text)
    return places


def argument_position(text: str, position: int, number: int) -> int:
    """Return the offset of an argument of the call or aggregation whose name is at `position`."""
    found = _TOKEN.match(text, position)
    depth, before, grouped = 0, number, False
    while found is not None:
        kind, word = found.lastgroup, found[0]
        starts = depth == 1 and not grouped and before == 0
        if starts and kind != "space":
            return found.start()
        grouped |= depth == 0 and word.lower() in ("by", "without")
        before -= depth == 1 and not grouped and word == ","
        depth += (kind == "open") - (kind == "close")
        grouped &= not (depth == 0 and word == ")")
        found = _TOKEN.match(text, found.end())
    return position


def _milliseconds(found: timedelta | None) -> int:
    return 0 if found is None else round(found / timedelta(milliseconds=1))


class _Builder:
    """Converts the tree of the library; `places` are those of words, in the order of the text."""

    def __init__(self, text: str, places: dict[str, list[int]]) -> None:
        self._text, self._places = text, {word: iter(found) for word, found in places.items()}
        self._kinds: dict[str, Callable[[Any], Node]] = {
            "NumberLiteral": lambda one: Number(float(one.val)),
            "StringLiteral": lambda one: Text(str(one.val)),
            "ParenExpr": lambda one: Paren(self.node(one.expr)),
            "UnaryExpr": lambda one: Negation(self.node(one.expr)),
            "VectorSelector": self._selector,
            "MatrixSelector": lambda one: self._selector(one.vector_selector, _milliseconds(one.range)),
            "SubqueryExpr": self._subquery,
            "Call": self._call,
            "AggregateExpr": self._aggregation,
            "BinaryExpr": self._binary,
        }

    def node(self, one: Any) -> Node:
        return self._kinds[type(one).__name__](one)

    def _position(self, word: str) -> int:
        return next(self._places.get(word, iter(())), 0)

    def _at(self, one: Any) -> At | None:
        if one.at is None:
            return None
        kind = str(one.at.type).rpartition(".")[2].lower()
        if kind in ("start", "end"):
            return At(edge="start" if kind == "start" else "end")
        try:
            return At(round(one.at.at.timestamp() * 1000))
        except BaseException as problem:
            _check_library(problem)
            raise PromqlError("the time after @ is out of range", None, self._text) from None

    def _selector(self, one: Any, range_ms: int = 0) -> Selector:
        if one.matchers.or_matchers:
            raise NotSupported("`or` between matchers is not supported", None, self._text)
        ops = {"Equal": "=", "NotEqual": "!=", "Re": "=~", "NotRe": "!~"}
        matchers = [Matcher(m.name, ops[str(m.op).rpartition(".")[2]], m.value) for m in one.matchers.matchers]
        if one.name:
            matchers.insert(0, Matcher(NAME, "=", one.name))
        return Selector(tuple(matchers), range_ms, _milliseconds(one.offset), self._at(one))

    def _subquery(self, one: Any) -> Subquery:
        child = self.node(one.expr)
        return Subquery(
            child, _milliseconds(one.range), _milliseconds(one.step), _milliseconds(one.offset), self._at(one)
        )

    def _call(self, one: Any) -> Call:
        name = str(one.func.name)
        if name in _EXPERIMENTAL:
            raise _experimental(name, self._position(name), self._text)
        position = self._position(name)
        return Call(name, tuple(map(self.node, one.args)), position)

    def _aggregation(self, one: Any) -> Aggregation:
        name = str(one.op)
        position = self._position(name)
        if name in _EXPERIMENTAL:
            raise _experimental(name, position, self._text)
        param = None if one.param is None else self.node(one.param)
        child = self.node(one.expr)
        labels = () if one.modifier is None else tuple(one.modifier.labels)
        without = one.modifier is not None and str(one.modifier.type).endswith("Without")
        return Aggregation(name, child, param, labels, without, position)

    def _binary(self, one: Any) -> Binary:
        left, right, how = self.node(one.lhs), self.node(one.rhs), one.modifier
        if how is None:
            return Binary(str(one.op), left, right, False, Matching())
        if how.fill_values is not None and (how.fill_values.lhs is not None or how.fill_values.rhs is not None):
            raise NotSupported("fill is experimental and not supported", None, self._text)
        group = {"ManyToOne": "left", "OneToMany": "right"}.get(str(how.card).rpartition(".")[2], "")
        on = how.matching is not None and str(how.matching.type).endswith("Include")
        labels = () if how.matching is None else tuple(how.matching.labels)
        matching = Matching(on, labels, group, tuple(how.group_labels or ()))  # type: ignore[arg-type]
        return Binary(str(one.op), left, right, bool(how.return_bool), matching)
