"""Where in a file of flows something stands: the lines of the keys of TOML and JSON. A help for people; what a file
means is read by the parsers of the standard library."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

Path = tuple[str | int, ...]
_TABLE = re.compile(r"^\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"""^\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")
_LONG = re.compile(r'"""|\'\'\'')


def line_of(lines: dict[Path, int], path: Path) -> int | None:
    """The line of a path, or of the nearest thing around it."""
    while path:
        if path in lines:
            return lines[path]
        path = path[:-1]
    return None


def toml_lines(text: str) -> dict[Path, int]:
    """Lines (from 1) of tables and keys."""
    found: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    inside = ""
    for number, line in enumerate(text.splitlines(), 1):
        if inside:
            inside = "" if inside in line else inside
            continue
        if head := _TABLE.match(line):
            table = _table(_parts(head[2]), counts, many=head[1] == "[[")
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            found.setdefault((*table, *_parts(key[1])), number)
            inside = _opens(line)
    return found


def json_lines(text: str) -> dict[Path, int]:
    """Lines (from 1) of the members of objects and the items of arrays. `text` is JSON that can be read."""
    found: dict[Path, int] = {}
    _Json(text, lambda path, at: found.setdefault(path, text.count("\n", 0, at) + 1)).value((), 0)
    return found


def _parts(name: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(name))


def _table(names: tuple[str, ...], counts: dict[Path, int], many: bool) -> Path:
    """The path of a table's head, with the number of the item for each array of tables."""
    path: Path = ()
    for name in names[:-1]:
        path = (*path, name)
        if path in counts:
            path = (*path, counts[path])
    path = (*path, names[-1])
    if many:
        counts[path] = counts.get(path, -1) + 1
        return (*path, counts[path])
    return path


def _opens(line: str) -> str:
    """The quotes of a text of several lines that begins here and does not end."""
    marks = _LONG.findall(line)
    return marks[0] if len(marks) % 2 else ""


class _Json:
    """Walks over JSON and tells where each value begins."""

    _blank = re.compile(r"\s*")

    def __init__(self, text: str, tell: Callable[[Path, int], object]) -> None:
        self._text, self._tell, self._decoder = text, tell, json.JSONDecoder()

    def value(self, path: Path, at: int) -> int:
        """The position behind the value that begins at or after `at`."""
        at = self._skip(at)
        if path:
            self._tell(path, at)
        if self._text[at] == "{":
            return self._items(path, at + 1, "}")
        if self._text[at] == "[":
            return self._items(path, at + 1, "]")
        return self._decoder.raw_decode(self._text, at)[1]

    def _items(self, path: Path, at: int, end: str) -> int:
        number = 0
        at = self._skip(at)
        while self._text[at] != end:
            step: str | int = number
            if end == "}":
                step, at = self._decoder.raw_decode(self._text, at)
                at = self._skip(at) + 1  # the colon
            at = self._skip(self.value((*path, step), at))
            number += 1
            if self._text[at] == ",":
                at = self._skip(at + 1)
        return at + 1

    def _skip(self, at: int) -> int:
        found = self._blank.match(self._text, at)
        return found.end() if found else at
