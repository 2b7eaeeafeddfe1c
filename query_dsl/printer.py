"""Tree to text, such that parsing it gives the same tree."""

from __future__ import annotations

from query_dsl import nodes
from query_dsl.nodes import Binary, Match, Node, Rules
from query_dsl.operators import OPERATORS
from query_dsl.timing import Instant, format_duration

_ATOM = 100
_UNARY = 8
_SHORT = frozenset({"rate", "increase", "delta"})
_REDUCERS_SHORT = frozenset({"mean", "sum", "min", "max", "count"})


def print_node(node: Node) -> str:
    """The text of a tree."""
    return _print(node)[0]


def _print(node: Node) -> tuple[str, int]:
    """(text, precedence of its outermost operator)."""
    match node:
        case Binary():
            return _binary(node)
        case nodes.Scalar(value=value):
            return _scalar(value)
        case nodes.Unary(op=op, child=child):
            return ("-" if op == "neg" else "~") + _grouped(child, _UNARY), _UNARY
        case nodes.Fetch(selector=selector):
            return f"fetch({str(selector)!r})", _ATOM
        case nodes.Samples(selector=selector):
            return f"samples({str(selector)!r})", _ATOM
        case nodes.Absent(selector=selector):
            return f"absent({str(selector)!r})", _ATOM
    (child,) = nodes.children(node)
    return f"{_grouped(child, _ATOM)}.{_method(node)}", _ATOM


def _grouped(node: Node, precedence: int) -> str:
    text, own = _print(node)
    return f"({text})" if own < precedence else text


def _scalar(value: float | bool | str) -> tuple[str, int]:
    text = repr(value)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # numbers are bracketed before a method, since 1.abs() is no Python
    return text, _UNARY if number else _ATOM


def _binary(node: Binary) -> tuple[str, int]:
    """The chain of left operands is printed in a loop: a sum of 500 terms is no recursion."""
    chain = [node]
    while isinstance(chain[-1].left, Binary):
        chain.append(chain[-1].left)
    text, precedence = _print(chain[-1].left)
    for link in reversed(chain):
        operator = OPERATORS[link.op]
        if link.match != Match():
            right = _print(link.right)[0]
            text, precedence = f"apply({link.op!r}, {text}, {right}{_match(link.match)})", _ATOM
            continue
        # a comparison takes no comparison on either side, other operators group to the left
        loose = precedence < operator.precedence or (
            operator.family == "comparison" and precedence == operator.precedence
        )
        left = f"({text})" if loose else text
        text = f"{left} {operator.symbol} {_grouped(link.right, operator.precedence + 1)}"
        precedence = operator.precedence
    return text, precedence


def _match(match: Match) -> str:
    out = ""
    for name in ("on", "ignoring", "group_left", "group_right"):
        labels = getattr(match, name)
        if labels is not None:
            out += f", {name}={list(labels)!r}"
    if match.unmatched != "error":
        out += f", unmatched={match.unmatched!r}"
    return out + (f", fill={match.fill!r}" if match.fill is not None else "")


def _method(node: Node) -> str:
    match node:
        case nodes.Range(range_ms=ms):
            return f"range({format_duration(ms)!r})"
        case nodes.Between(start=start, end=end):
            return f"between({_instant(start)}, {_instant(end)})"
        case nodes.At(instant=instant):
            return f"at({_instant(instant)})"
        case nodes.Offset(offset_ms=ms):
            return f"offset({format_duration(ms)!r})"
        case nodes.Window():
            return _window(node)
        case nodes.Bucketize(function=function, step_ms=step, rules=rules):
            return f"bucketize({function!r}, {format_duration(step)!r}{_rules(rules)})"
        case nodes.Point(function=function, args=args):
            return f"map({', '.join([repr(function), *map(repr, args)])})"
        case nodes.Reduce():
            return _reduce(node)
        case nodes.Named(name=name):
            return f"named({name!r})"
    raise TypeError(f"no text for {type(node).__name__}")


def _instant(instant: Instant) -> str:
    text = str(instant)
    return str(instant.ms) if text.endswith("ms") and not instant.relative else repr(text)


def _window(node: nodes.Window) -> str:
    extra = _rules(node.rules)
    if node.after_ms:
        extra = f", after={format_duration(node.after_ms)!r}{extra}"
    gap = f", max_gap={format_duration(node.max_gap_ms)!r}" if node.max_gap_ms is not None else ""
    window = repr(format_duration(node.before_ms)) if node.before_ms is not None else ""
    if node.function in _SHORT and not extra:
        return f"{node.function}({(window + gap).removeprefix(', ')})"
    return f"map({node.function!r}{', ' + window if window else ''}{extra}{gap})"


def _reduce(node: nodes.Reduce) -> str:
    labels = f"by={list(node.by)!r}" if node.by is not None else f"without={list(node.without or ())!r}"
    if node.function in _REDUCERS_SHORT:
        return f"{node.function}({labels}{_rules(node.rules)})"
    return f"reduce({node.function!r}, {labels}{_rules(node.rules)})"


def _rules(rules: Rules) -> str:
    out = f", nulls={rules.nulls!r}" if rules.nulls != "skip" else ""
    return out + (f", min_count={rules.min_count}" if rules.min_count is not None else "")
