"""From a position in a scalar's value to its place in the file, as exactly as the way it is written allows."""

from __future__ import annotations

from alerts.rules.yamltree import Text


def position_of(text: Text, position: int) -> tuple[int, int]:
    """Line and column (from 1) of the character at `position` of the value.

    Exact for plain and quoted scalars without escapes or line breaks, and for every line of a block that stands in the
    file as it is in the value; else the place where the scalar begins."""
    position = max(0, min(position, max(0, len(text.value) - 1)))
    inline = text.raw.find(text.value)
    if inline >= 0 and "\n" not in text.raw[: inline + len(text.value)]:
        return text.line, text.column + inline + position
    return _in_block(text, position) or (text.line, text.column)


def _in_block(text: Text, position: int) -> tuple[int, int] | None:
    """Follows the lines of the value down the lines of the file."""
    before = text.value[:position].count("\n")
    start = text.value.rfind("\n", 0, position) + 1
    wanted = text.value.split("\n")[: before + 1]
    raw, row = text.raw.split("\n"), 0
    for number, line in enumerate(wanted):
        while row < len(raw) and line.strip() not in raw[row]:
            row += 1
        if row >= len(raw):
            return None
        if number == before:
            shift = text.column - 1 if row == 0 else 0
            inside = raw[row].find(line) if line.strip() else -1
            return (text.line + row, shift + inside + 1 + position - start) if inside >= 0 else None
        row += 1
    return None
