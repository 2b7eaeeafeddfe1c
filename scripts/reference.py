"""The tables of docs/functions.md; `python -m scripts.reference docs/functions.md` makes them anew."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from query_dsl.functions.registry import Argument, Entry
from query_dsl.functions.step import Step
from query_dsl.functions.tables import TABLES
from query_dsl.tree.times import format_duration

BEGIN, END = "<!-- functions: made by scripts/reference.py -->", "<!-- end of functions -->"
TITLES = {
    "window": "Over windows: `.map(NAME, window)`, `.bucketize(NAME, step)`",
    "point": "Of single values: `.map(NAME)`",
    "map": "Of whole series: `.map(NAME)`",
    "reduce": "Over classes: `.reduce(NAME, by=[..])`, or `.NAME(by=[..])`",
    "operator": "Between operands: `apply(NAME, a, b)`",
    "filter": "Filters: `.filter(NAME)`",
    "fill": "Fillers: `.fill(NAME)`",
    "transform": "Transforms: `.transform(NAME)`, or `.NAME()`",
    "presence": "Presence: `.NAME()`",
}


def function_tables() -> str:
    """Markdown tables of every registered function."""
    return "\n\n".join(_table(title, TABLES[family].values()) for family, title in TITLES.items() if TABLES[family])


def _table(title: str, entries: Iterable[Entry]) -> str:
    rows = [f"| `{e.name}` | {_cell(e.summary)} | {_arguments(e)} | {e.unit} | {_code(e.example)} |" for e in entries]
    head = ["| name | what | arguments | unit | example |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([f"### {title}", "", *head, *rows])


def _arguments(entry: Entry) -> str:
    operands = [f"`{name}`: another query" for name in entry.operands] if isinstance(entry, Step) else []
    return "<br>".join([*operands, *(_argument(argument) for argument in entry.arguments)])


def _argument(argument: Argument) -> str:
    unit = f" (unit: {argument.unit})" if argument.unit else ' (a duration, as "5m")' * (argument.kind == "duration")
    choices = f"; one of {', '.join(argument.choices)}" if argument.choices else ""
    default = "" if argument.required else f" (`{_default(argument)}`)"
    return _cell(f"`{argument.name}`{default}: {argument.summary}{unit}{choices}")


def _default(argument: Argument) -> str:
    value = argument.default
    return format_duration(value) if argument.kind == "duration" and value is not None else repr(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


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
