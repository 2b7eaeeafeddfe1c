"""Printer of trees: parsing the text gives the same tree. User-defined functions print as `own(NAME)`."""

from __future__ import annotations

from query_dsl.functions.registry import Entry, show_arguments, show_instant
from query_dsl.functions.tables import MAPPERS, OPERATORS, POINTS, REDUCERS, STEPS, built_in_names
from query_dsl.language.class_joins import match_classes
from query_dsl.tree import nodes
from query_dsl.tree.nodes import Binary, LabelMatching, Node, NullRules, UserFunction
from query_dsl.tree.times import format_duration

_ATOM = 100
_UNARY = 8
_RESERVED = frozenset({"range"})
"""Reducers whose name is taken by another method."""
_SHORT = frozenset({"rate", "increase", "delta"})
_POWER = 9


def print_node(node: Node) -> str:
    """Return the text of a tree."""
    return _print(node)[0]


def _print(node: Node) -> tuple[str, int]:
    """Return (text, precedence of its outermost operator)."""
    match node:
        case Binary():
            return _binary(node)
        case nodes.Scalar(value=value):
            return _scalar(value)
        case nodes.Unary(op=op, child=child):
            return ("-" if op == "neg" else "~") + _grouped(child, _UNARY), _UNARY
        case nodes.Fetch(selector=selector):
            more = f", resolution={node.resolution!r}" if node.resolution else ""
            more += f", default={node.default!r}" if node.default is not None else ""
            return f"fetch({str(selector)!r}{more})", _ATOM
        case nodes.Samples(selector=selector):
            return f"samples({str(selector)!r})", _ATOM
        case nodes.Absent(selector=selector):
            more = f", expected={list(node.expected)!r}" if node.expected else ""
            return f"absent({str(selector)!r}{more})", _ATOM
        case nodes.Clock(reading=reading):
            return f"{reading}()", _ATOM
        case nodes.Apply(function=function, operands=operands, match=match, args=args):
            parts = [_udf(function), *(_print(operand)[0] for operand in operands)]
            return f"apply({', '.join(parts)}{_match(match)}{_udf_args(args)})", _ATOM
    child = nodes.children(node)[0]
    return f"{_grouped(child, _ATOM)}.{_method(node)}", _ATOM


def _udf(function: UserFunction) -> str:
    return f"own({function.name!r})"


def _udf_args(args: nodes.BoundArguments) -> str:
    return "".join(f", {name}={value!r}" for name, value in args)


def _grouped(node: Node, precedence: int) -> str:
    text, own = _print(node)
    return f"({text})" if own < precedence else text


def _scalar(value: float | bool | str) -> tuple[str, int]:
    text = repr(value)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # numbers need parentheses before a method, because 1.abs() is invalid Python
    return text, _UNARY if number else _ATOM


def _binary(node: Binary) -> tuple[str, int]:
    """Print the chain of left operands in a loop, so that a sum of 500 terms does not recurse."""
    chain = [node]
    while isinstance(chain[-1].left, Binary):
        chain.append(chain[-1].left)
    text, precedence = _print(chain[-1].left)
    for link in reversed(chain):
        operator = OPERATORS[link.op]
        own = link.match not in (LabelMatching(), match_classes(link.op, link.left, link.right, LabelMatching()))
        match = _match(link.match) if own else ""
        text_right = isinstance(link.right, nodes.Scalar) and isinstance(link.right.value, str)
        if operator.method and not text_right:  # `where` reads a text as a condition
            left = text if precedence == _ATOM else f"({text})"
            text = f"{left}.{operator.method}({_print(link.right)[0]}{match})"
            precedence = _ATOM
            continue
        if own or not operator.symbol:
            right = _print(link.right)[0]
            text, precedence = f"apply({link.op!r}, {text}, {right}{match})", _ATOM
            continue
        # comparisons do not chain; other operators are left-associative
        power = operator.precedence == _POWER  # right-associative, and its right operand may have a sign
        loose = precedence < operator.precedence or (
            (operator.family == "comparison" or power) and precedence == operator.precedence
        )
        left = f"({text})" if loose else text
        least = _UNARY if power else operator.precedence + 1
        text = f"{left} {operator.symbol} {_grouped(link.right, least)}"
        precedence = operator.precedence
    return text, precedence


def _match(match: LabelMatching) -> str:
    out = ""
    for name in ("on", "ignoring", "group_left", "group_right"):
        labels = getattr(match, name)
        if labels is not None:
            out += f", {name}={list(labels)!r}"
    if match.unmatched != "drop":
        out += f", unmatched={match.unmatched!r}"
    return out + (f", fill={match.fill!r}" if match.fill is not None else "")


def _method(node: Node) -> str:
    match node:
        case nodes.Range(range_ms=ms):
            return f"range({format_duration(ms)!r})"
        case nodes.Between(start=start, end=end):
            return f"between({show_instant(start)}, {show_instant(end)})"
        case nodes.At(instant=instant):
            return f"at({show_instant(instant)})"
        case nodes.Offset(offset_ms=ms):
            return f"offset({format_duration(ms)!r})"
        case nodes.Window():
            return _window(node)
        case nodes.Bucketize():
            return _bucketize(node)
        case nodes.Point(function=function, args=args):
            return f"map({', '.join([repr(function), *show_arguments(POINTS[function], args)])})"
        case nodes.Reduce():
            return _reduce(node)
        case nodes.Transform():
            return _step(node)
        case nodes.ToScalar():
            return "scalar()"
        case nodes.Named(name=name):
            return f"named({name!r})"
    raise TypeError(f"no text for {type(node).__name__}")


def _function(function: str | UserFunction, entry: Entry | None, args: nodes.BoundArguments) -> tuple[str, str]:
    """Return (name as a literal, arguments after a comma)."""
    if isinstance(function, UserFunction):
        return _udf(function), _udf_args(args)
    shown = [f"{name}={_argument(entry, name, value)}" for name, value in args]
    return repr(function), "".join(f", {text}" for text in shown)


def _argument(entry: Entry | None, name: str, value: object) -> str:
    argument = entry.argument(name) if entry is not None else None
    return argument.show(value) if argument is not None else repr(value)


def _window(node: nodes.Window) -> str:
    extra = _rules(node.rules)
    if node.after_ms:
        extra = f", after={format_duration(node.after_ms)!r}{extra}"
    gap = _gap(node.max_gap_ms)
    window = repr(format_duration(node.before_ms)) if node.before_ms is not None else ""
    if node.since is not None:
        gap += f", since={str(node.since)!r}, zone={node.since.zone!r}"
    if node.function in _SHORT and not extra:
        return f"{node.function}({(window + gap).removeprefix(', ')})"
    entry = MAPPERS.get(node.function) if isinstance(node.function, str) else None
    name, args = _function(node.function, entry, node.args)
    return f"map({name}{', ' + window if window else ''}{args}{extra}{gap})"


def _gap(ms: int | None) -> str:
    return f", max_gap={format_duration(ms)!r}" if ms is not None else ""


def _bucketize(node: nodes.Bucketize) -> str:
    entry = MAPPERS.get(node.function) if isinstance(node.function, str) else None
    name, args = _function(node.function, entry, node.args)
    step = format_duration(node.step_ms) if node.unit is None else str(node.unit)
    zone = "" if node.unit is None else f", zone={node.unit.zone!r}"
    return f"bucketize({name}, {step!r}{args}{_rules(node.rules)}{_gap(node.max_gap_ms)}{zone})"


def _reduce(node: nodes.Reduce) -> str:
    labels = f"by={list(node.by)!r}" if node.by is not None else f"without={list(node.without or ())!r}"
    if isinstance(node.function, UserFunction):
        return f"reduce({_udf(node.function)}, {labels}{_rules(node.rules)}{_udf_args(node.args)})"
    shown = show_arguments(REDUCERS[node.function], node.args)
    if node.function in _RESERVED or node.function not in built_in_names():  # functions of plugins are not methods
        return f"reduce({', '.join([repr(node.function), *shown, labels])}{_rules(node.rules)})"
    return f"{node.function}({', '.join([*shown, labels])}{_rules(node.rules)})"


def _step(node: nodes.Transform) -> str:
    entry = STEPS[node.family][node.function]
    others = [_print(other)[0] for other in node.operands]
    shown = show_arguments(entry, node.args)
    if node.family == "filter" and node.function == "fits" and any(mark in shown[0] for mark in "{.*"):
        return f"filter({', '.join(shown)})"
    if node.family == "presence":
        return f"{node.function}({', '.join([*others, *shown])})"
    return f"{node.family}({', '.join([repr(node.function), *others, *shown])})"


def _rules(rules: NullRules) -> str:
    out = f", nulls={rules.nulls!r}" if rules.nulls != "skip" else ""
    return out + (f", min_count={rules.min_count}" if rules.min_count is not None else "")
