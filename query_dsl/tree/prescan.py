"""Linear scan before parsing: limits length, nesting and operators, and finds unclosed brackets and quotes.

Deep input overflows the stack of recursive parsers; this scan is a loop that keeps only a list of open brackets.
"""

from __future__ import annotations

import re

from query_dsl.tree.query_errors import QueryError

MAX_LENGTH = 16 * 1024
MAX_NESTING = 100
MAX_OPERATORS = 500
MAX_DIGITS = 1_000
"""Maximum length of a number, in characters: conversion takes time that grows with the square of the digits."""
_WORD = re.compile(r"[0-9A-Za-z_]+")
_UNENCODABLE = re.compile("[\0\ud800-\udfff]")
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
        message = f"the query has {len(text)} characters: use at most {MAX_LENGTH}"
        raise QueryError(message, MAX_LENGTH, text, len(text) - MAX_LENGTH)
    if not text.strip():
        raise QueryError("the query is empty: begin with fetch('NAME')", 0, text)
    _Scan(text).run()


class _Scan:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.open: list[tuple[str, int]] = []
        self.operators = 0

    def fail(self, message: str, position: int) -> QueryError:
        return QueryError(message, position, self.text)

    def run(self) -> None:
        wrong = _UNENCODABLE.search(self.text)
        if wrong is not None:
            what = "the character NUL" if wrong[0] == "\0" else "half of a surrogate pair, for which UTF-8 has no form"
            raise self.fail(f"this is {what}: remove it", wrong.start())
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in "'\"":
                self.skip_string(char)
            elif char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif char.isascii() and (char.isalnum() or char == "_"):
                self.skip_word()
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
        elif char == "\\" or not char.isascii():
            # Python normalises some Unicode letters to others, so that the text would not mean what it shows
            raise self.fail(f"this character is not allowed in a query{_LOOKS_LIKE.get(char, '')}", self.at)

    def skip_word(self) -> None:
        found = _WORD.match(self.text, self.at)
        end = self.at + 1 if found is None else found.end()
        if end - self.at > MAX_DIGITS and self.text[self.at].isdigit():
            raise QueryError(
                f"this number has {end - self.at} digits: use at most {MAX_DIGITS}", self.at, self.text, end - self.at
            )
        self.at = end

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
