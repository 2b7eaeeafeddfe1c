"""Splits bytes into lines."""

from __future__ import annotations


def split_lines(data: bytes, longest: int, final: bool, most: int) -> tuple[int, list[bytes]]:
    """Return (bytes used, at most `most` lines without their ends). An unterminated line is left, unless `final` (no
    more bytes come). A line longer than `longest` bytes is cut into pieces of that length. Empty lines are used and
    left out."""
    lines: list[bytes] = []
    at = 0
    while at < len(data) and len(lines) < most:
        end = data.find(b"\n", at, at + longest + 1)
        if end >= 0:
            line, after = data[at:end], end + 1
        elif len(data) - at >= longest:
            line = data[at : at + longest]
            after = at + longest
            if data[after : after + 1] == b"\n":
                after += 1
        elif final:
            line, after = data[at:], len(data)
        else:
            break
        if line.endswith(b"\r"):
            line = line[:-1]
        if line:
            lines.append(line)
        at = after
    return at, lines
