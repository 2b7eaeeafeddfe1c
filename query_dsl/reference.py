"""The tables of docs/query.md, made from the registries: `python -m query_dsl.reference docs/query.md` renews them."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from query_dsl.mappers import MAPPERS
from query_dsl.names import Entry
from query_dsl.operators import OPERATORS
from query_dsl.points import POINTS
from query_dsl.reducers import REDUCERS

BEGIN, END = "<!-- functions: made by query_dsl.reference -->", "<!-- end of functions -->"


def function_tables() -> str:
    """Markdown tables of every registered function."""
    parts = [
        _table("Over windows: `.map(NAME, window)`, `.bucketize(NAME, step)`", MAPPERS.values()),
        _table("Of single values: `.map(NAME, …)`", POINTS.values()),
        _table("Over classes: `.reduce(NAME, by=[..])`", REDUCERS.values()),
        _table("Between operands: `apply(NAME, a, b)`", OPERATORS.values()),
    ]
    return "\n\n".join(parts)


def _table(title: str, entries: Iterable[Entry]) -> str:
    rows = [f"| `{e.name}` | {e.summary} | {_code(e.example)} |" for e in entries]
    return "\n".join([f"### {title}", "", "| name | what | example |", "| --- | --- | --- |", *rows])


def _code(text: str) -> str:
    return "`" + text.replace("|", "\\|") + "`"


def renewed(page: str) -> str:
    """The page with fresh tables between its two marks; ValueError if a mark is missing."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs the lines {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{function_tables()}\n\n{END}{tail}"


def main(arguments: list[str]) -> int:
    """Renew the page that is named."""
    page = Path(arguments[0])
    page.write_text(renewed(page.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
