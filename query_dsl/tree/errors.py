"""What goes wrong with a query, said so that its writer can mend it: where, what, and which names come near."""

from __future__ import annotations

from collections.abc import Iterable

from artimon.runtime.text import near_names


class QueryError(ValueError):
    """A query that cannot be read or answered.

    `position` counts characters from the start of `text` (None where the query was built in Python); `length` is how
    many are meant. `str` shows the line with a caret. `of_query` is False where no place of the text is at fault.
    `culprit` is the value that is wrong, if it is one: the parser knows where it stands."""

    of_query = True
    culprit: object = None

    def __init__(self, message: str, position: int | None = None, text: str | None = None, length: int = 1) -> None:
        message = _printable(message)
        super().__init__(message)
        self.message, self.position, self.text, self.length = message, position, text, length

    def about(self, culprit: object) -> QueryError:
        """The same error, of an argument; the innermost one that says so is right."""
        if self.culprit is None:
            self.culprit = culprit
        return self

    def at(self, position: int | None, text: str | None, length: int = 1) -> QueryError:
        """The same error with a place, unless it knows a better one already."""
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
        return f"{self.message}\n{caret(self.text, self.position, self.length)}"


def _printable(text: str) -> str:
    """The text with lone surrogates, which no encoding can write, replaced one by one."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class NothingSelected(QueryError):
    """A selector that no series fits. The text says which matcher is to blame."""


WIDTH = 100


def caret(text: str, position: int, length: int = 1) -> str:
    """The line of `text` that holds `position` (cut to 100 characters around it) over a line with carets."""
    start = text.rfind("\n", 0, position) + 1
    stop = text.find("\n", position)
    line = text[start : stop if stop >= 0 else len(text)]
    column = position - start
    cut = max(0, column - WIDTH // 2)
    shown = _printable(line[cut : cut + WIDTH])
    marks = "^" * max(1, min(length, len(shown) - (column - cut)))
    return f"  {shown}\n  {' ' * (column - cut)}{marks}"


def near(word: str, known: Iterable[str], limit: int = 3) -> str:
    """`; near: a, b` with the known words most like `word`, or nothing."""
    found = near_names(word, known, limit)
    return f"; near: {', '.join(found)}" if found else ""


def list_of(known: Iterable[str]) -> str:
    """`; there are: a, b, c`, where nothing comes near."""
    return f"; there are: {', '.join(known)}"
