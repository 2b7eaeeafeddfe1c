"""Rendering of templates within limits of steps and output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from alerts.templates.template_functions import NO_FUNCTION, OWN_FUNCTIONS, TemplateData, check_size, truth
from alerts.templates.template_nodes import (
    Assign,
    Block,
    Call,
    Const,
    Dot,
    Expr,
    Field,
    If,
    Jump,
    Print,
    Range,
    Statement,
    Template,
    TemplateError,
    Text,
    Variable,
)
from alerts.templates.value_formats import go_text

MAX_STEPS = 20_000
"""Limit of the nodes that one rendering visits."""


class _JumpSignal(Exception):
    def __init__(self, ends_loop: bool) -> None:
        self.ends_loop = ends_loop


def render(template: Template, data: TemplateData) -> str:
    """Return the text of a template. Raises TemplateError."""
    try:
        return _Renderer(data).text(template.block)
    except _JumpSignal:
        raise TemplateError("break and continue belong into a loop") from None
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as problem:
        if isinstance(problem, TemplateError):
            raise
        raise TemplateError(f"{problem!s:.200}") from None
    except RecursionError:
        raise TemplateError("the template nests too deeply") from None


class _Renderer:
    def __init__(self, data: TemplateData) -> None:
        self._data, self._steps, self._size = data, 0, 0
        self._out: list[str] = []
        root = {
            "Labels": data.labels,
            "ExternalLabels": data.context.external_labels,
            "ExternalURL": data.context.external_url,
            "Value": data.value,
        }
        self._root = root
        self._scopes: list[dict[str, Any]] = [
            {
                "$": root,
                "$labels": data.labels,
                "$externalLabels": data.context.external_labels,
                "$externalURL": data.context.external_url,
                "$value": data.value,
                **data.own,
            }
        ]
        self._dot: list[Any] = [root]

    def text(self, block: Block) -> str:
        self._block(block)
        return "".join(self._out)

    def _count(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise TemplateError(f"more than {MAX_STEPS} steps: shorten its loops")

    def _block(self, block: Block) -> None:
        for one in block:
            self._count()
            self._statement(one)

    def _statement(self, one: Statement) -> None:
        match one:
            case Text(text):
                self._write(text)
            case Print(expr):
                self._write(go_text(self._value(expr)))
            case Assign(name, expr, declare):
                value = self._value(expr)
                scope = (
                    next((s for s in reversed(self._scopes) if name in s), None) if not declare else self._scopes[-1]
                )
                if scope is None:
                    raise TemplateError(f"undefined variable: {name}")
                scope[name] = value
            case If():
                self._if(one)
            case Range():
                self._range(one)
            case Jump(ends_loop):
                raise _JumpSignal(ends_loop)

    def _write(self, text: str) -> None:
        self._size += len(text)
        check_size(self._size)
        self._out.append(text)

    def _within(self, block: Block, dot: Any, **variables: Any) -> None:
        """Run a block in a scope of its own."""
        depth = len(self._scopes), len(self._dot)
        self._scopes.append({name: value for name, value in variables.items() if name})
        self._dot.append(dot)
        try:
            self._block(block)
        finally:
            del self._scopes[depth[0] :]
            del self._dot[depth[1] :]

    def _if(self, one: If) -> None:
        value = self._value(one.condition)
        scope = {one.variable: value} if one.variable else {}
        chosen = one.then if truth(value) else one.otherwise
        self._within(chosen, value if one.with_ and truth(value) else self._dot[-1], **scope)

    def _range(self, one: Range) -> None:
        pairs = list(_pairs(self._value(one.over)))
        if not pairs:
            self._within(one.otherwise, self._dot[-1])
        for index, element in pairs:
            self._count()
            try:
                self._within(one.body, element, **{one.index: index, one.element: element})
            except _JumpSignal as jump:
                if jump.ends_loop:
                    return

    def _value(self, expr: Expr) -> Any:
        self._count()
        match expr:
            case Const(value):
                return value
            case Dot():
                return self._dot[-1]
            case Variable(name):
                return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)
            case Field(base, name, position):
                return self._field(self._value(base), name, position)
            case Call():
                return self._call(expr)

    def _field(self, of: Any, name: str, position: int) -> Any:
        if isinstance(of, Mapping):
            if of is self._root or "Labels" in of:  # a struct, not a map
                if name not in of:
                    raise TemplateError(f"can't evaluate field {name}", position)
                return of[name]
            return of.get(name, "")
        raise TemplateError(f"can't evaluate field {name} of {go_text(of)!r:.60}", position)

    def _call(self, call: Call) -> Any:
        args = self._arguments(call)
        try:
            found = self._apply(call.function, args)
        except TemplateError as problem:
            if problem.position is None:
                problem.position = call.position
            raise
        except TypeError:
            raise TemplateError(f"{call.function}: wrong number or type of arguments", call.position) from None
        if isinstance(found, str):
            check_size(len(found))
        return found

    def _arguments(self, call: Call) -> list[Any]:
        """Return the values of the arguments; `and` and `or` stop at the one that decides."""
        args = []
        for one in call.args:
            args.append(self._value(one))
            if call.function in ("and", "or") and truth(args[-1]) == (call.function == "or"):
                break
        return args

    def _apply(self, function: str, args: Sequence[Any]) -> Any:
        if function == NO_FUNCTION:
            raise TemplateError("can't give argument to non-function")
        if function == "query":
            (text,) = args
            return list(self._data.context.query(str(text)))
        if function == "externalURL":
            return self._data.context.external_url
        if function == "pathPrefix":
            return urlsplit(self._data.context.external_url).path
        return OWN_FUNCTIONS[function](*args)


def _pairs(over: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(over, Mapping):
        return iter([(key, over[key]) for key in sorted(over)])
    if isinstance(over, Sequence) and not isinstance(over, str):
        return enumerate(over)
    if isinstance(over, int) and not isinstance(over, bool):
        return ((at, at) for at in range(max(0, min(over, MAX_STEPS + 1))))
    if over is None or over == "":
        return iter(())
    raise TemplateError(f"range can't iterate over {go_text(over):.60}")
