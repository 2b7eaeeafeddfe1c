"""Errors of queries: they show the place, the cause and similar names, so that the author can fix the query."""

from __future__ import annotations

import re
from collections.abc import Iterable

from artimon.runtime.text import near_names


class QueryError(ValueError):
    """A query that cannot be parsed or answered.

    `position` is the offset in characters in `text` (None if the query was built in Python), `length` the number of
    characters to mark. `str` shows the line with carets. `of_query` is False if the text is not the cause.
    `culprit` is the wrong argument value, if there is one; the parser maps it to its place in the text."""

    of_query = True
    culprit: object = None

    def __init__(self, message: str, position: int | None = None, text: str | None = None, length: int = 1) -> None:
        self._long = self.of_query and has_long_words(message)
        message = _printable(_shortened(message) if self._long else message)
        super().__init__(message)
        self.message, self.position, self.text, self.length = message, position, text, length

    def with_culprit(self, culprit: object) -> QueryError:
        """Set the wrong argument value and return this error; the first (innermost) caller wins."""
        if self.culprit is None:
            self.culprit = culprit
        return self

    def with_position(self, position: int | None, text: str | None, length: int = 1) -> QueryError:
        """Set the place and return this error; a place that is set already is kept."""
        if not self.of_query:
            return self
        if self.position is None and position is not None:
            self.position, self.length = position, length
        if self.text is None:
            self.text = text
        return self

    def __str__(self) -> str:
        if self.position is None or self.text is None:
            return self.message
        width = WIDTH - MAX_ECHO // 2 if self._long else WIDTH  # both together show at most 200 characters
        return f"{self.message}\n{caret(self.text, self.position, self.length, width)}"


def _printable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 cannot encode."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


MAX_ECHO = 100
"""Maximum number of characters of long words and quoted texts in a message; the line below it shows as many."""
_WORD = re.compile(rf'"(?:[^"\\\n]|\\.)*"|\S{{{MAX_ECHO},}}')


def has_long_words(text: str) -> bool:
    """Return True if a message would not show all of the text."""
    return len(text) > MAX_ECHO and bool(_long_words(text))


def _long_words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text) if len(word) >= MAX_ECHO]


def _shortened(message: str) -> str:
    """Cut the middle of long words, so that a message does not repeat what is long in a query or in labels."""
    each = max(10, MAX_ECHO // len(_long_words(message)) // 2)
    return _WORD.sub(
        lambda word: word[0] if len(word[0]) < MAX_ECHO else f"{word[0][:each]}…{word[0][-each:]}", message
    )


class NothingHeld(QueryError):
    """The store holds nothing of the range."""


class NothingSelected(QueryError):
    """A selector that matches no series. The message names the matcher that rejects all of them."""


WIDTH = 100


def caret(text: str, position: int, length: int = 1, width: int = WIDTH) -> str:
    """Return the line of `text` that holds `position`, cut to `width` characters around it, above a line of carets."""
    start = text.rfind("\n", 0, position) + 1
    stop = text.find("\n", position)
    line = text[start : stop if stop >= 0 else len(text)]
    column = position - start
    cut = max(0, column - width // 2)
    shown = _printable(line[cut : cut + width])
    marks = "^" * max(1, min(length, len(shown) - (column - cut)))
    return f"  {shown}\n  {' ' * (column - cut)}{marks}"


def similar_hint(word: str, known: Iterable[str], limit: int = 3) -> str:
    """Return `; near: a, b` with the most similar known words, or "" if there are none."""
    found = near_names(word, known, limit)
    return f"; near: {', '.join(found)}" if found else ""


def all_hint(known: Iterable[str]) -> str:
    """Return `; there are: a, b, c`, for messages about a name without similar ones."""
    return f"; there are: {', '.join(known)}"
