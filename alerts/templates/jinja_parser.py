"""Parser of the templates of our own rule files: the syntax tree of Jinja2, converted to ours. Nothing is compiled.

Names: `labels`, `value`, `rule`, `threshold`, `external_labels`, `external_url`, and those of `for` and `set`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

from jinja2 import Environment, TemplateSyntaxError, nodes

from alerts.templates.template_functions import GO_FUNCTIONS, MAX_NUMBER, OF_DATA
from alerts.templates.template_nodes import (
    Assign,
    Block,
    Call,
    Const,
    Expr,
    If,
    Print,
    Range,
    Statement,
    Template,
    TemplateError,
    Text,
    Variable,
)

MAX_LENGTH = 4 * 1024
MAX_DEPTH = 50
PAIR = "$pair"
"""Variable of a loop with two names."""
NAMES = MappingProxyType(
    {
        "labels": "$labels",
        "value": "$value",
        "external_labels": "$externalLabels",
        "external_url": "$externalURL",
        "rule": "$rule",
        "threshold": "$threshold",
    }
)
_COMPARISONS = {
    "eq": "same",
    "ne": "same",
    "lt": "lt",
    "lteq": "le",
    "gt": "gt",
    "gteq": "ge",
    "in": "in",
    "notin": "in",
}
_NEGATED = frozenset(("ne", "notin"))
_ARITHMETIC: Mapping[type[nodes.BinExpr], str] = MappingProxyType(
    {nodes.Add: "add", nodes.Sub: "sub", nodes.Mul: "mul", nodes.Div: "div", nodes.Mod: "mod"}
)
_FILTERS = frozenset(
    ("upper", "lower", "title", "default", "join", "length", "round", "int", "float", "string", "trim", "replace",
     "urlencode", "format", "first", "humanize", "humanize1024", "humanizeDuration", "humanizePercentage",
     "humanizeTimestamp", "stripPort", "stripDomain", "items")
)  # fmt: skip
_ENVIRONMENT = Environment(autoescape=False, keep_trailing_newline=True)  # noqa: S701  # never renders: texts are no HTML


def is_template(text: str) -> bool:
    """True if a text has parts of a template."""
    return "{{" in text or "{%" in text or "{#" in text


def parse_jinja(text: str) -> Template:
    """Parse a template in the syntax of Jinja2. Raises TemplateError with the position of the line."""
    if len(text) > MAX_LENGTH:
        raise TemplateError(f"more than {MAX_LENGTH} characters: shorten it", 0)
    starts = [0, *(found.end() for found in re.finditer("\n", text))]
    try:
        tree = _ENVIRONMENT.parse(text)
        return Template(text, _Converter(starts).block(tree.body))
    except TemplateSyntaxError as problem:
        raise TemplateError(str(problem.message), starts[min(problem.lineno, len(starts)) - 1]) from None
    except (RecursionError, ValueError, OverflowError) as problem:
        if isinstance(problem, TemplateError):
            raise
        raise TemplateError("nests too deeply, or has a number that is too long", 0) from None


class _Converter:
    """Conversion of nodes. `_known` are the names that `for` and `set` have defined so far."""

    def __init__(self, starts: Sequence[int]) -> None:
        self._starts, self._depth = starts, 0
        self._known: set[str] = set()
        self._statements: Mapping[type[nodes.Node], Callable[[Any], Block]] = {
            nodes.Output: self._output,
            nodes.If: self._if,
            nodes.For: self._for,
            nodes.Assign: self._assign,
        }
        self._expressions: Mapping[type[nodes.Node], Callable[[Any], Expr]] = {
            nodes.Const: self._constant,
            nodes.TemplateData: lambda one: Const(one.data),
            nodes.Name: self._name,
            nodes.Getattr: lambda one: self._call("index", one, one.node, nodes.Const(one.attr)),
            nodes.Getitem: lambda one: self._call("index", one, one.node, one.arg),
            nodes.Filter: self._filter,
            nodes.Test: self._test,
            nodes.Compare: self._compare,
            nodes.And: lambda one: self._call("and", one, one.left, one.right),
            nodes.Or: lambda one: self._call("or", one, one.left, one.right),
            nodes.Not: lambda one: self._call("not", one, one.node),
            nodes.Neg: lambda one: self._call("neg", one, one.node),
            nodes.Pos: lambda one: self.expr(one.node),
            nodes.Concat: lambda one: self._call("concat", one, *one.nodes),
            nodes.CondExpr: self._choice,
            nodes.List: lambda one: self._call("list", one, *one.items),
            nodes.Tuple: lambda one: self._call("list", one, *one.items),
            nodes.Call: self._method,
            **{kind: self._binary(name) for kind, name in _ARITHMETIC.items()},
        }

    def _place(self, node: nodes.Node) -> int:
        return self._starts[min(node.lineno or 1, len(self._starts)) - 1]

    def _fail(self, message: str, node: nodes.Node) -> NoReturn:
        raise TemplateError(message, self._place(node))

    def block(self, body: Sequence[nodes.Node]) -> Block:
        """Convert statements."""
        self._depth += 1
        found: list[Statement] = []
        for one in body:
            convert = self._statements.get(type(one))
            if convert is None or self._depth > MAX_DEPTH:
                self._fail(f"{type(one).__name__} is not supported: use text, expressions, if, for and set", one)
            found += convert(one)
        self._depth -= 1
        return tuple(found)

    def expr(self, node: nodes.Node) -> Expr:
        """Convert an expression."""
        convert = self._expressions.get(type(node))
        if convert is None:
            self._fail(f"{type(node).__name__} is not supported in an expression", node)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"nests more than {MAX_DEPTH} deep", node)
        found = convert(node)
        self._depth -= 1
        return found

    # --- statements

    def _output(self, node: nodes.Output) -> Block:
        return tuple(
            Text(one.data) if isinstance(one, nodes.TemplateData) else Print(self.expr(one)) for one in node.nodes
        )

    def _if(self, node: nodes.If) -> Block:
        otherwise = self.block(node.else_)
        for one in reversed(node.elif_):
            otherwise = (If(self.expr(one.test), self.block(one.body), otherwise),)
        return (If(self.expr(node.test), self.block(node.body), otherwise),)

    def _for(self, node: nodes.For) -> Block:
        if node.test is not None or node.recursive:
            self._fail("write the condition of the loop as an if within it", node)
        over = self._call("iterate", node, node.iter)
        target = node.target.items if isinstance(node.target, nodes.Tuple) else [node.target]
        names = [one.name for one in target if isinstance(one, nodes.Name)]
        if len(names) != len(target) or len(names) > 2 or set(names) & NAMES.keys():
            self._fail("a loop has one or two names, which are not those of the data", node)
        before = set(self._known)
        self._known |= set(names)
        body = self.block(node.body)
        if len(names) == 2:  # pairs, as of labels.items()
            pair = Variable(PAIR)
            parts = (Assign(name, Call("index", (pair, Const(at)), 0), True) for at, name in enumerate(names))
            body = (*parts, *body)
        self._known = before
        return (Range(over, body, self.block(node.else_), "", PAIR if len(names) == 2 else names[0]),)

    def _assign(self, node: nodes.Assign) -> Block:
        if not isinstance(node.target, nodes.Name) or node.target.name in NAMES:
            self._fail("set defines one name, which is not one of the data", node)
        value = self.expr(node.node)
        self._known.add(node.target.name)
        return (Assign(node.target.name, value, True),)

    # --- expressions

    def _call(self, function: str, at: nodes.Node, *args: nodes.Node) -> Expr:
        return Call(function, tuple(map(self.expr, args)), self._place(at))

    def _constant(self, node: nodes.Const) -> Expr:
        if isinstance(node.value, complex) or (isinstance(node.value, int) and abs(node.value) >= MAX_NUMBER):
            self._fail("a number beyond 64 bits", node)
        return Const(node.value)

    def _binary(self, name: str) -> Callable[[nodes.BinExpr], Expr]:
        return lambda one: self._call(name, one, one.left, one.right)

    def _name(self, node: nodes.Name) -> Expr:
        if node.name in self._known:
            return Variable(node.name)
        if node.name not in NAMES:
            self._fail(f"unknown name {node.name!r:.60}: there are {', '.join(NAMES)}; labels are labels.NAME", node)
        return Variable(NAMES[node.name])

    def _filter(self, node: nodes.Filter) -> Expr:
        if node.node is None or node.kwargs or node.dyn_args or node.dyn_kwargs:
            self._fail(f"{node.name}: give plain arguments", node)
        if node.name not in _FILTERS:
            self._fail(f"unknown filter {node.name!r:.60}: there are {', '.join(sorted(_FILTERS))}", node)
        return self._call(node.name, node, node.node, *node.args)

    def _test(self, node: nodes.Test) -> Expr:
        if node.name not in ("defined", "undefined") or node.args:
            self._fail(f"unknown test {node.name!r:.60}: there are defined and undefined", node)
        found = self._call("same", node, node.node, nodes.Const(""))
        return Call("not", (found,), self._place(node)) if node.name == "defined" else found

    def _compare(self, node: nodes.Compare) -> Expr:
        if len(node.ops) != 1:
            self._fail("compare two values, and join comparisons by and", node)
        (operand,) = node.ops
        found = self._call(_COMPARISONS[operand.op], node, node.expr, operand.expr)
        return Call("not", (found,), self._place(node)) if operand.op in _NEGATED else found

    def _choice(self, node: nodes.CondExpr) -> Expr:
        return self._call("choose", node, node.test, node.expr1, node.expr2 or nodes.Const(""))

    def _method(self, node: nodes.Call) -> Expr:  # noqa: RET503  # _fail does not return
        """Convert `labels.items()` and functions called by name."""
        if node.kwargs or node.dyn_args or node.dyn_kwargs:
            self._fail("give plain arguments", node)
        if isinstance(node.node, nodes.Getattr) and node.node.attr == "items" and not node.args:
            return self._call("items", node, node.node.node)
        if isinstance(node.node, nodes.Name) and node.node.name in GO_FUNCTIONS.keys() | OF_DATA | {"range"}:
            return self._call(node.node.name, node, *node.args)
        self._fail("only items() of labels and the functions of templates can be called", node)
