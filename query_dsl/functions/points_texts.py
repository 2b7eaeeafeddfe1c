"""Point functions of texts. Regular expressions are RE2, which runs in time linear in the text."""

from __future__ import annotations

import re
from collections.abc import Callable

import re2

from query_dsl.functions.points_casts import TextInterner, map_texts
from query_dsl.functions.registry import Args, Argument, PointContext, PointFunction
from query_dsl.results.result_cells import BOOLEAN, STRING, Cells, Example, of_type
from query_dsl.tree.entry_table import read_only_table
from query_dsl.tree.query_errors import QueryError

MAX_TEXT = 65_536
"""Maximum length of a text made by `replace`, in characters."""
MAX_REPLACEMENT = 1_000
_PIECE = re.compile(r"\\(.?)", re.DOTALL)


class _Replace(PointFunction):
    def check(self, args: Args) -> None:
        _template(args["replacement"], re2.compile(args["pattern"]).groups)


def _template(text: str, groups: int) -> list[str | int]:
    """Parse a replacement to texts and group numbers. QueryError if it is too long or invalid."""
    if len(text) > MAX_REPLACEMENT:
        raise QueryError(f"replace: replacement has {len(text)} characters: use at most {MAX_REPLACEMENT}")
    out: list[str | int] = []
    at = 0
    for piece in _PIECE.finditer(text):
        out.append(text[at : piece.start()])
        out.append(_escaped(piece[1], groups))
        at = piece.end()
    out.append(text[at:])
    return out


def _escaped(what: str, groups: int) -> str | int:
    if what == "\\":
        return what
    if not (what.isascii() and what.isdigit()):
        raise QueryError(f"replace: \\{what} in replacement: write \\1 to \\9 for a group, \\0 for all, \\\\ for \\")
    if int(what) > groups:
        raise QueryError(f"replace: \\{what} in replacement, but the pattern has {groups} groups")
    return int(what)


def _match(column: Cells, args: Args, points: PointContext) -> Cells:
    pattern = re2.compile(args["pattern"])
    found, _ = map_texts(
        points.strings, column.cells, column.present, lambda text: int(pattern.fullmatch(text) is not None)
    )
    return of_type(BOOLEAN, found, column.present)


def _replace(column: Cells, args: Args, points: PointContext) -> Cells:
    pattern = re2.compile(args["pattern"])
    template = _template(args["replacement"], pattern.groups)
    texts = TextInterner("replace", points)

    def replaced(text: str) -> int:
        made = pattern.sub(_expander(template, text), text)
        _check_length(len(made), text)
        return texts.cell(made)

    cells, _ = map_texts(points.strings, column.cells, column.present, replaced)
    return of_type(STRING, cells, column.present)


def _expander(template: list[str | int], text: str) -> Callable[[re.Match[str]], str]:
    """Return the replacement of each match in `text`. It raises once the replacements alone are too long."""
    length = 0

    def fill(found: re.Match[str]) -> str:
        nonlocal length
        # a group that did not match is ""
        made = "".join(piece if isinstance(piece, str) else found.group(piece) or "" for piece in template)
        length += len(made)
        _check_length(length, text)
        return made

    return fill


def _check_length(length: int, text: str) -> None:
    if length > MAX_TEXT:
        raise QueryError(f"replace makes a text of {length} characters or more from {text!r:.80}: at most {MAX_TEXT}")


PATTERN = Argument("pattern", "regex", "a regular expression (RE2)")

TEXTS = read_only_table(
    PointFunction(
        name="match",
        summary="True if the whole text matches the regular expression: STRING to BOOLEAN.",
        example="fetch('build.version').match('2\\\\..*')",
        case=Example((("2.1", None, "12.1"),), (1.0, None, 0.0)),
        case_args="'2[.].*'",
        arguments=(PATTERN,),
        run=_match,
        numbers=False,
        texts=True,
        unit="true or false",
    ),
    _Replace(
        name="replace",
        summary="Every place that matches the regular expression is replaced; \\1 is its first group (STRING).",
        example="fetch('build.version').replace('-.*', '')",
        case=Example((("2-beta", None, "12"),), (2.0, None, 12.0)),
        case_args="'-.*', ''",
        arguments=(PATTERN, Argument("replacement", "text", "the replacement; \\1 to \\9 are groups")),
        run=_replace,
        numbers=False,
        texts=True,
    ),
)
