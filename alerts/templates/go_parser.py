"""Parser of the templates of Prometheus: the part of Go's text/template that rule files use.

https://pkg.go.dev/text/template defines the language. `define`, `template` and `block` are not supported."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from alerts.templates.template_functions import GO_FUNCTIONS, NO_FUNCTION, OF_DATA, UNSUPPORTED
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

MAX_LENGTH = 64 * 1024
MAX_DEPTH = 50
PREDEFINED = frozenset(("$", "$labels", "$externalLabels", "$externalURL", "$value"))
_ACTION = re.compile(r"\{\{(-(?=\s))?")
_COMMENT = re.compile(r"\s*/\*.*?\*/\s*?(\s-)?\}\}", re.DOTALL)
_TOKEN = re.compile(
    r"""(?P<close>\s-\}\}|\}\})|(?P<space>\s+)|(?P<declare>:=)|(?P<assign>=)|(?P<comma>,)|(?P<pipe>\|)|(?P<open>\()|(?P<shut>\))"""
    r"""|(?P<raw>`[^`]*`)|(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<char>'(?:[^'\\\n]|\\.)')"""
    r"""|(?P<number>[+-]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.]))"""
    r"""|(?P<variable>\$\w*)|(?P<field>\.[^\W\d]\w*)|(?P<dot>\.)|(?P<word>[^\W\d]\w*)"""
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\", "'": "'", '"': '"'}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}|[0-7]{3}|.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int


def parse_go(text: str) -> Template:
    """Parse a template of Prometheus. Raises TemplateError with the position."""
    if len(text) > MAX_LENGTH:
        raise TemplateError(f"more than {MAX_LENGTH} characters: shorten it", 0)
    return Template(text, _Parser(text).parse())


class _Parser:
    """Recursive descent over the tokens of actions; `_scopes` are the names of variables in force."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._tokens: list[_Token] = []
        self._next = 0
        self._scopes: list[set[str]] = [set(PREDEFINED)]
        self._depth = self._loops = 0
        self._trim = False

    def parse(self) -> Block:
        block, end = self._block()
        if end is not None:
            self._fail(f"unexpected {{{{{end.text}}}}}", end)
        return block

    def _fail(self, message: str, token: _Token | int) -> NoReturn:
        raise TemplateError(message, token if isinstance(token, int) else token.position)

    # --- text and actions

    def _block(self) -> tuple[Block, _Token | None]:
        """Return statements up to the end of the text, or up to an `else` or `end`, which is returned too."""
        found: list[Statement] = []
        while True:
            start = _ACTION.search(self._text, self._at)
            plain = self._text[self._at : start.start() if start else len(self._text)]
            plain = plain.lstrip() if self._trim else plain
            if start is None:
                return (*found, *_texts(plain)), None
            found += _texts(plain.rstrip() if start[1] else plain)
            self._at = start.end()
            comment = _COMMENT.match(self._text, self._at)
            if comment:
                self._at, self._trim = comment.end(), bool(comment[1])
                continue
            self._tokens, self._next = list(self._lex(start.start())), 0
            head = self._peek()
            if head.kind == "word" and head.text in ("else", "end"):
                return tuple(found), head
            found.append(self._action())

    def _lex(self, start: int) -> Iterator[_Token]:
        while self._at < len(self._text):
            found = _TOKEN.match(self._text, self._at)
            if found is None or found.lastgroup is None:
                if self._text[self._at] in "\"'`":
                    self._fail("unterminated quoted string", self._at)
                self._fail(f"unexpected {self._text[self._at]!r} in an action", self._at)
            token = _Token(found.lastgroup, found[0], self._at)
            self._at = found.end()
            yield token
            if token.kind == "close":
                self._trim = "-" in token.text
                return
        self._fail("this action is not closed", start)

    def _peek(self) -> _Token:
        """Return the next token, spaces left out."""
        while self._tokens[self._next].kind == "space":
            self._next += 1
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._peek()
        self._next += 1
        return token

    def _close(self) -> None:
        token = self._take()
        if token.kind != "close":
            self._fail(f"unexpected {token.text!r:.40} in an action", token)

    # --- statements

    def _action(self) -> Statement:
        head = self._peek()
        if head.kind == "close":
            self._fail("missing value for command", head)
        if head.kind == "word":
            match head.text:
                case "if" | "with" | "range":
                    self._take()
                    return self._nested(head)
                case "break" | "continue":
                    if not self._loops:
                        self._fail(f"{head.text} outside of a range", head)
                    self._take()
                    self._close()
                    return Jump(head.text == "break")
                case "define" | "template" | "block":
                    self._fail(f"{head.text} is not supported in templates of rules", head)
        declared = self._declaration(1)
        expr = self._pipeline()
        self._close()
        if declared is None:
            return Print(expr)
        names, declares = declared
        self._scopes[-1].add(names[0])
        return Assign(names[0], expr, declares)

    def _declaration(self, most: int) -> tuple[list[str], bool] | None:
        """Return the names before `:=` or `=`, and True for `:=`; None without a declaration."""
        names: list[_Token] = []
        start = self._next
        while self._peek().kind == "variable" and len(names) < most:
            names.append(self._take())
            if self._peek().kind == "comma" and len(names) < most:
                self._take()
            else:
                break
        mark = self._peek()
        if not names or mark.kind not in ("declare", "assign"):
            self._next = start
            return None
        self._take()
        return [name.text for name in names], mark.kind == "declare"

    def _is_known(self, name: str) -> bool:
        return any(name in scope for scope in self._scopes)

    def _nested(self, head: _Token) -> Statement:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"actions nest more than {MAX_DEPTH} deep", head)
        self._scopes.append(set())
        declared = self._declaration(2 if head.text == "range" else 1)
        expr = self._pipeline()
        self._close()
        names = declared[0] if declared else []
        self._scopes[-1] |= set(names)
        self._loops += head.text == "range"
        self._scopes.append(set())
        body, end = self._block()
        self._scopes.pop()
        self._loops -= head.text == "range"
        otherwise = self._otherwise(head, end)
        self._scopes.pop()
        self._depth -= 1
        if head.text == "range":
            return Range(expr, body, otherwise, names[0] if len(names) > 1 else "", names[-1] if names else "")
        return If(expr, body, otherwise, names[0] if names else "", head.text == "with")

    def _otherwise(self, head: _Token, end: _Token | None) -> Block:
        if end is None:
            self._fail(f"{{{{{head.text}}}}} has no {{{{end}}}}", head)
        self._take()
        if end.text == "end":
            self._close()
            return ()
        more = self._peek()
        if more.kind == "word" and more.text == head.text and head.text in ("if", "with"):
            self._take()
            return (self._nested(more),)
        self._close()
        self._scopes.append(set())
        block, last = self._block()
        self._scopes.pop()
        if last is None or last.text != "end":
            self._fail(f"{{{{else}}}} of {{{{{head.text}}}}} has no {{{{end}}}}", end)
        self._take()
        self._close()
        return block

    # --- expressions

    def _pipeline(self) -> Expr:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail(f"brackets nest more than {MAX_DEPTH} deep", self._peek())
        value = self._command(None)
        while self._peek().kind == "pipe":
            self._take()
            value = self._command(value)
        self._depth -= 1
        return value

    def _command(self, piped: Expr | None) -> Expr:
        head = self._peek()
        if head.kind == "word" and head.text not in ("true", "false", "nil"):
            self._take()
            self._check_function(head)
            args = []
            while self._peek().kind not in ("close", "pipe", "shut"):
                args.append(self._operand())
            given = (*args, *(() if piped is None else (piped,)))
            return Call(head.text, given, head.position)
        value = self._operand()
        while self._peek().kind not in ("close", "pipe", "shut"):  # an error of the rendering, as in Go
            value = Call(NO_FUNCTION, (value, self._operand()), head.position)
        if piped is not None:
            self._fail(f"non executable command in pipeline: {head.text}", head)
        return value

    def _check_function(self, name: _Token) -> None:
        if name.text in UNSUPPORTED:
            self._fail(f"the function {name.text} is not supported", name)
        if name.text not in GO_FUNCTIONS and name.text not in OF_DATA:
            self._fail(f'function "{name.text}" not defined', name)

    def _operand(self) -> Expr:
        token = self._take()
        value = self._term(token)
        while self._tokens[self._next].kind == "field":
            field = self._take()
            if isinstance(value, Const):
                self._fail(f"unexpected {field.text!r} after a constant", field)
            value = Field(value, field.text[1:], field.position)
        return value

    def _term(self, token: _Token) -> Expr:  # noqa: RET503  # _fail does not return
        match token.kind:
            case "dot":
                return Dot()
            case "field":
                return Field(Dot(), token.text[1:], token.position)
            case "variable":
                if not self._is_known(token.text):
                    self._fail(f'undefined variable "{token.text}"', token)
                return Variable(token.text)
            case "raw":
                return Const(token.text[1:-1])
            case "string":
                return Const(_unquoted(token))
            case "char":
                return Const(ord(_unquoted(token)))
            case "number":
                return Const(_number(token.text))
            case "open":
                value = self._pipeline()
                shut = self._take()
                if shut.kind != "shut":
                    self._fail("this parenthesis is not closed", token)
                return value
            case "word" if token.text in ("true", "false", "nil"):
                return Const({"true": True, "false": False}.get(token.text))
            case "word":
                self._check_function(token)
                return Call(token.text, (), token.position)
        self._fail(f"unexpected {token.text.strip()!r:.40} in an action", token)


def _texts(text: str) -> tuple[Text, ...]:
    return (Text(text),) if text else ()


def _number(text: str) -> int | float:
    if re.fullmatch(r"[+-]?\d{1,19}", text):
        return int(text)
    return int(text, 16) if "x" in text.lower() else float(text)


def _unquoted(token: _Token) -> str:
    def one(found: re.Match[str]) -> str:
        code = found[1]
        if code in _ESCAPES:
            return _ESCAPES[code]
        if len(code) > 1:
            number = int(code, 8) if code[0].isdecimal() else int(code[1:], 16)
            if number < 0x110000:
                return chr(number)
        raise TemplateError("invalid escape", token.position)

    return _ESCAPE.sub(one, token.text[1:-1])
