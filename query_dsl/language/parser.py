"""Parser of query text: a subset of Python's expression grammar, read with `ast` by an allow-list and never evaluated.

Allowed: calls of FUNCTIONS and METHODS, literals, lists of literals, + - * / % **, one comparison at a time, & | ~,
and unary minus. Bare names are allowed only as function names (`map(mean, "5m")`) and for the numbers `nan`, `inf`.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import FunctionType, MappingProxyType

from query_dsl.functions.tables import OPERATORS, STEPS
from query_dsl.language.expression import Expr, apply, floor_divide, operand_of
from query_dsl.language.methods import FUNCTIONS, METHODS, parameters_of
from query_dsl.tree import nodes
from query_dsl.tree.prescan import prescan
from query_dsl.tree.query_errors import QueryError, all_hint, similar_hint
from query_dsl.tree.syntax_hints import argument_hint, foreign_hint, name_hint, syntax_hint, usual_arguments

_BINARY: Mapping[type[ast.AST], str] = MappingProxyType(
    {
        ast.Add: "add",
        ast.Sub: "sub",
        ast.Mult: "mul",
        ast.Div: "div",
        ast.FloorDiv: "floordiv",
        ast.Mod: "mod",
        ast.Pow: "pow",
        ast.BitAnd: "and",
        ast.BitOr: "or",
    }
)
_COMPARE: Mapping[type[ast.AST], str] = MappingProxyType(
    {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
)
_NUMBERS = MappingProxyType({"nan": float("nan"), "inf": float("inf")})
_TAKES_NAME = frozenset({"map", "reduce", "apply", "bucketize"})
_OPERATORS = frozenset(name for name, one in OPERATORS.items() if one.family in ("arithmetic", "comparison"))
_TAKES_QUERY = frozenset(
    {"apply", "where", "and_", "or_", "unless", "transform", *_OPERATORS}
    | {name for table in STEPS.values() for name, step in table.items() if step.operands}
)
"""Calls that accept queries as arguments."""
_HINTS: Mapping[type[ast.AST], str] = MappingProxyType(
    {
        ast.BoolOp: "write & for and, | for or, with each comparison in parentheses",
        ast.Lambda: "own functions exist in Python only, not in text",
        ast.IfExp: "a query cannot contain if",
        ast.JoinedStr: "write a plain text without f",
        ast.Subscript: "a query cannot contain subscripts: select series with the selector",
        ast.NamedExpr: "a query cannot contain an assignment",
        ast.Tuple: "write a list [..], or one expression",
        ast.Dict: "put the selector in quotes: fetch('name{label=\"value\"}')",
        ast.Set: "put the selector in quotes: fetch('name{label=\"value\"}')",
        ast.Not: "write ~(…) in place of not",
        ast.BinOp: "write numbers here, with + - * / // % ** between them",
        ast.UAdd: "remove the +: only - is a unary operator of numbers",
    }
)


def parse(text: str) -> Expr:
    """Parse a query; QueryError has the place and the cause. The text is never executed."""
    if not isinstance(text, str):
        raise QueryError(f"a query is a text, not {text!r:.80}")
    prescan(text)
    try:
        expr = _TreeConverter(text).read(_tree(text))
    except QueryError as problem:
        raise problem.with_position(0, text, len(text)) from None
    except RecursionError:
        raise QueryError("the query is nested too deeply", 0, text, len(text)) from None
    return Expr(expr.node, expr.depth, text, parts=expr.parts)


def _tree(text: str) -> ast.expr:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # for escapes such as "\d", which selectors allow
            # parentheses allow a query to span several lines
            return ast.parse(f"(\n{text}\n)", mode="eval").body
    except SyntaxError as problem:
        line, column = (problem.lineno or 2) - 1, (problem.offset or 1) - 1
        position = min(_position(text, line, column), max(0, len(text.rstrip()) - 1))
        foreign = foreign_hint(text)
        if foreign:
            raise QueryError(f"not a query: {foreign}", 0, text, len(text)) from None
        reason = syntax_hint(problem.msg.removeprefix("invalid syntax. "), text, position)
        raise QueryError(f"not a query: {reason}", position, text) from None
    except (ValueError, RecursionError, MemoryError):
        raise QueryError("not a query: nested too deeply", 0, text, len(text)) from None


def _position(text: str, line: int, column: int) -> int:
    """Convert a line and column of the text to a character position; lines count from 1."""
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1 or len(text)
    return min(start + max(0, column), len(text))


class _TreeConverter:
    """Converts a Python tree to expressions by calling the builder, and records the place of each node."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.split("\n")
        self.receivers: list[Expr] = []
        """Series of the calls of `where` around, for which `value` stands; the innermost is the last."""

    def span(self, tree: ast.expr) -> nodes.Span:
        start = self.place(tree.lineno, tree.col_offset)
        stop = self.place(tree.end_lineno or tree.lineno, tree.end_col_offset or 0)
        return start, max(1, stop - start)

    def place(self, line: int, byte_column: int) -> int:
        """Convert a place of `ast`, which counts lines from 1 (our parenthesis is the first) and columns in bytes."""
        row = min(max(0, line - 2), len(self.lines) - 1)
        column = len(self.lines[row].encode()[:byte_column].decode(errors="ignore"))
        return sum(len(before) + 1 for before in self.lines[:row]) + column

    def fail(self, tree: ast.expr, message: str) -> QueryError:
        position, length = self.span(tree)
        return QueryError(message, position, self.text, length)

    def with_place(self, tree: ast.expr, build: Callable[..., Expr], *args: object, **options: object) -> Expr:
        """Call the builder; its errors and its node get the place of `tree`."""
        return self.build_at(self.span(tree), {}, build, *args, **options)

    def build_at(
        self,
        span: nodes.Span,
        places: Mapping[int, nodes.Span],
        build: Callable[..., Expr],
        *args: object,
        **options: object,
    ) -> Expr:
        """Do the same with a given span; `places` maps the `id` of an argument value, if unique, to its place."""
        try:
            made = build(*args, **options)
        except QueryError as problem:
            position, length = span if problem.culprit is None else places.get(id(problem.culprit), span)
            raise problem.with_position(position, self.text, length) from None
        return Expr(dataclasses.replace(made.node, span=span), made.depth, parts=made.parts)

    def read(self, tree: ast.expr) -> Expr:
        """Convert an expression; the chain of left operands of binary operators is read in a loop."""
        chain: list[tuple[ast.BinOp, str]] = []
        while isinstance(tree, ast.BinOp):
            op = _BINARY.get(type(tree.op))
            if op is None:
                raise self.fail(tree, "this operator is not available: there are + - * / % ** & | and comparisons")
            chain.append((tree, op))
            tree = tree.left
        expr = self.single(tree)
        for link, op in reversed(chain):
            build = floor_divide if op == "floordiv" else apply
            expr = self.with_place(link, build, op, expr, self.read(link.right))
        return expr

    def single(self, tree: ast.expr) -> Expr:
        match tree:
            case ast.Call():
                return self.call(tree)
            case ast.Compare():
                return self.comparison(tree)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.with_place(tree, lambda e: -e, self.read(operand))
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return self.with_place(tree, lambda e: ~e, self.read(operand))
            case ast.Constant(value=bool() | int() | float() | str() as value):
                return self.with_place(tree, operand_of, value, "literal")
            case ast.Name(id=name):
                return self.name(tree, name)
            case ast.Attribute(attr=name):
                self.refuse_bare_name(tree)
                told = f"call it: .{name}(…)" if name in METHODS else self.unknown_method(name)
                raise self.fail_at_end(tree, name, told)
        kind = type(tree.op) if isinstance(tree, ast.UnaryOp) else type(tree)
        raise self.fail(tree, _HINTS.get(kind, "this is not allowed in a query"))

    def refuse_bare_name(self, tree: ast.Attribute) -> None:
        """Raise QueryError for a dotted name in place of a query, such as a variable without fetch()."""
        inner = tree.value
        while isinstance(inner, ast.Attribute):
            inner = inner.value
        if isinstance(inner, ast.Name) and inner.id not in FUNCTIONS:
            name = ast.unparse(tree)
            raise self.fail(tree, f"unknown name {name!r:.40}: read data with fetch({name!r:.40})")

    def name(self, tree: ast.expr, name: str) -> Expr:
        if name in _NUMBERS:
            return Expr(nodes.Scalar(_NUMBERS[name], span=self.span(tree)))
        if name == "value" and self.receivers:
            return self.receivers[-1]
        if name in FUNCTIONS:
            raise self.fail(tree, f"call it: {name}(…)")
        near = similar_hint(name, FUNCTIONS)
        raise self.fail(tree, f"unknown name {name!r:.40}{near}: read data with fetch({name!r:.40})")

    def comparison(self, tree: ast.Compare) -> Expr:
        if len(tree.ops) > 1:
            raise self.fail(tree, "comparisons do not chain: write (a > 1) & (a < 5), each in parentheses")
        op = _COMPARE.get(type(tree.ops[0]))
        if op is None:
            raise self.fail(tree, "in, is and not are not supported: use == != < <= > >=")
        return self.with_place(tree, apply, op, self.read(tree.left), self.read(tree.comparators[0]))

    def unknown_method(self, name: str) -> str:
        return f"unknown function .{name}(){name_hint(name, METHODS) or all_hint(METHODS)}"

    def unknown_function(self, name: str) -> str:
        if name in METHODS:
            return f"{name} is a method: write fetch('NAME').{name}(…{usual_arguments(name)})"
        return f"unknown function {name}(){name_hint(name, FUNCTIONS) or all_hint(FUNCTIONS)}"

    def call(self, tree: ast.Call) -> Expr:
        match tree.func:
            case ast.Attribute(value=receiver, attr=name):
                if name not in METHODS:
                    raise self.fail_at_end(tree.func, name, self.unknown_method(name))
                of = self.read(receiver)
                if name != "where":
                    return self.invoke(tree, name, METHODS[name], [of])
                self.receivers.append(of)
                found = self.invoke(tree, name, METHODS[name], [of])
                self.receivers.pop()
                return found
            case ast.Name(id=name):
                if name not in FUNCTIONS:
                    raise self.fail(tree.func, foreign_hint(self.text) or self.unknown_function(name))
                return self.invoke(tree, name, FUNCTIONS[name], [])
        raise self.fail(tree, "only named functions can be called")

    def fail_at_end(self, tree: ast.expr, name: str, message: str) -> QueryError:
        """Return a QueryError that marks the last word of `tree`."""
        position, length = self.span(tree)
        return QueryError(message, position + length - len(name), self.text, len(name))

    def invoke(self, tree: ast.Call, name: str, build: Callable[..., Expr], given: list[object]) -> Expr:
        args = given + [self.argument(name, i, a) for i, a in enumerate(tree.args)]
        options: dict[str, object] = {}
        for keyword in tree.keywords:
            if keyword.arg is None:
                raise self.fail(keyword.value, "** is not allowed in a query")
            if keyword.arg in options:
                raise self.fail(keyword.value, f"{keyword.arg}= is given twice")
            options[keyword.arg] = self.value(name, keyword.value)
        self.check_call(tree, name, build, args, options)
        written = [*zip(args[len(given) :], tree.args, strict=True)]
        written += [(options[str(word.arg)], word.value) for word in tree.keywords]
        ids = [id(value) for value, _ in written]
        places = {id(value): self.span(where) for value, where in written if ids.count(id(value)) == 1}
        try:
            return self.build_at(self.call_span(tree), places, build, *args, **options)
        except QueryError as problem:
            raise self.inside_selector(problem, tree) from None

    def call_span(self, tree: ast.Call) -> nodes.Span:
        """Return the span of a call; for a method, without the expression before the dot."""
        start, length = self.span(tree)
        if isinstance(tree.func, ast.Attribute):
            before, own = self.span(tree.func)
            name = before + own - len(tree.func.attr)
            return name, start + length - name
        return start, length

    def argument(self, function: str, index: int, tree: ast.expr) -> object:
        if isinstance(tree, ast.Starred):
            raise self.fail(tree, "* is not allowed in a query")
        if index == 0 and function in _TAKES_NAME and isinstance(tree, ast.Name):
            return tree.id
        return self.value(function, tree)

    def value(self, function: str, tree: ast.expr) -> object:
        """Convert an argument to a literal, or to a query where the function takes queries."""
        literal = isinstance(tree, ast.Constant | ast.List) or (isinstance(tree, ast.Name) and tree.id in _NUMBERS)
        minus = isinstance(tree, ast.UnaryOp) and isinstance(tree.operand, ast.Constant | ast.Name)
        if function in _OPERATORS:  # without a call or a name it is a number: its method keeps the name
            literal = not any(isinstance(part, ast.Call | ast.Name) for part in ast.walk(tree)) or literal
        return self.read(tree) if function in _TAKES_QUERY and not (literal or minus) else self.literal(tree)

    def literal(self, tree: ast.expr) -> object:
        match tree:
            case ast.Constant(value=None):
                return None
            case ast.List(elts=elements):
                return [self.literal(element) for element in elements]
            case ast.Constant() | ast.UnaryOp() | ast.BinOp() | ast.Name(id="inf" | "nan"):
                node = self.read(tree).node
                if isinstance(node, nodes.Scalar):
                    return node.value
            case ast.Call(func=ast.Name(id="own")):  # printed form of a user-defined function
                raise self.fail(tree, _HINTS[ast.Lambda])
            case ast.Name() | ast.Attribute():
                name = ast.unparse(tree)
                raise self.fail(tree, f'put {name:.40} in quotes: "{name:.40}"')
        raise self.fail(tree, _HINTS.get(type(tree), "a literal is expected here: a text, a number or a list"))

    def check_call(
        self, tree: ast.Call, name: str, build: Callable[..., Expr], args: list[object], options: dict[str, object]
    ) -> None:
        signature = _signature(build)
        parameters = signature.parameters.values()
        known = [p.name for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
        open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)  # the entry of the function checks its arguments
        for keyword in tree.keywords:
            if keyword.arg not in known and not open_ended:
                shown = [k for k in known if k != "self"]
                hint = similar_hint(str(keyword.arg), shown) or f"; there are: {', '.join(shown) or 'none'}"
                raise self.fail(keyword.value, f"{name}() has no argument {keyword.arg}={hint}")
        try:
            signature.bind(*args, **options)
        except TypeError as problem:
            misfit = argument_hint(str(problem))
            raise self.fail(tree, f"{name}(): {misfit}; it takes {name}{parameters_of(build)}") from None

    def inside_selector(self, problem: QueryError, tree: ast.Call) -> QueryError:
        """Convert a place within a selector to a place within the query."""
        if problem.text == self.text or not tree.args or problem.position is None:
            return problem
        start, length = self.span(tree.args[0])
        literal = self.text[start : start + length]
        if problem.text is not None and literal[1:-1] == problem.text:
            return QueryError(problem.message, start + 1 + problem.position, self.text, problem.length)
        return QueryError(problem.message, start, self.text, length)


def _signature(build: Callable[..., Expr]) -> inspect.Signature:
    """Return the signature of a function or bound method; cached, because it is the costliest part of a call."""
    function = getattr(build, "__func__", build)
    if not isinstance(function, FunctionType):
        return inspect.signature(build)
    return _signature_of(function, function is not build)


@lru_cache(maxsize=512)
def _signature_of(function: FunctionType, bound: bool) -> inspect.Signature:
    signature = inspect.signature(function)
    return signature.replace(parameters=[*signature.parameters.values()][1:]) if bound else signature
