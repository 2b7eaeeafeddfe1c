"""Linear scan before parsing: limits length, nesting and operators, and finds unclosed brackets and quotes.

Deep input overflows the stack of recursive parsers; this scan is a loop that keeps only a list of open brackets.
"""

from __future__ import annotations

from query_dsl.tree.query_errors import QueryError

MAX_LENGTH = 16 * 1024
MAX_NESTING = 100
MAX_OPERATORS = 500
_PAIRS = {")": "(", "]": "[", "}": "{"}
_LOOKS_LIKE = (
    dict.fromkeys("\u2018\u2019\u201a\u201c\u201d\u201e\u00ab\u00bb\u00b4", """: write straight quotes, ' or \"""")
    | dict.fromkeys("\u00a0\u202f\u2009\u200b\ufeff", ": it is a special space, write a plain one")
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", ": write -")
    | {
        "\u00d7": ": write *",
        "\u00f7": ": write /",
        "\u2264": ": write <=",
        "\u2265": ": write >=",
        "\u2260": ": write !=",
    }
)
"""Typographic characters that word processors insert -> hint."""
_OPERATORS = frozenset("+-*/%&|~<>=!^@.")


def prescan(text: str) -> None:
    """Raise QueryError with the place of the first violation."""
    if len(text) > MAX_LENGTH:
        raise QueryError(f"the query has {len(text)} characters: use at most {MAX_LENGTH}")
    _Scan(text).run()


class _Scan:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.open: list[tuple[str, int]] = []
        self.operators = 0

    def fail(self, message: str, position: int) -> QueryError:
        return QueryError(message, position, self.text)

    def run(self) -> None:
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in "'\"":
                self.skip_string(char)
            elif char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                self.scan_bracket(char)
                self.at += 1
        if self.open:
            bracket, position = self.open[-1]
            raise self.fail(f"this {bracket!r} is not closed", position)

    def scan_bracket(self, char: str) -> None:
        if char in "([{":
            self.open.append((char, self.at))
            if len(self.open) > MAX_NESTING:
                raise self.fail(f"brackets nest more than {MAX_NESTING} deep", self.at)
        elif char in ")]}":
            if not self.open or self.open.pop()[0] != _PAIRS[char]:
                raise self.fail(f"this {char!r} has no opening bracket", self.at)
        elif char in _OPERATORS:
            self.count_operator(char)
        elif char == "\0" or char == "\\" or not char.isascii():
            # Python normalises some Unicode letters to others, so that the text would not mean what it shows
            raise self.fail(f"this character is not allowed in a query{_LOOKS_LIKE.get(char, '')}", self.at)

    def count_operator(self, char: str) -> None:
        follows = self.at and self.text[self.at - 1] in "<>=!*/" and char in "=*/<>"
        digit = char == "." and self.at and self.text[self.at - 1].isdigit()
        if not follows and not digit:
            self.operators += 1
        if self.operators > MAX_OPERATORS:
            raise self.fail(f"more than {MAX_OPERATORS} operators and calls in one query", self.at)

    def skip_string(self, mark: str) -> None:
        start = self.at
        closing = mark * 3 if self.text.startswith(mark * 3, start) else mark
        self.at += len(closing)
        while self.at < len(self.text):
            if self.text[self.at] == "\\":
                self.at += 2
            elif self.text.startswith(closing, self.at):
                self.at += len(closing)
                return
            elif self.text[self.at] == "\n" and len(closing) == 1:
                break
            else:
                self.at += 1
        raise self.fail("this text has no closing quote", start)
