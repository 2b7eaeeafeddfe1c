"""Lines of text protocols: division of a body, numbers and texts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from sources.base.source_errors import SourceError

MAX_LINE = 64 * 1024
"""Bytes of a line."""
MAX_NUMBER = 64
"""Bytes of a number."""
_DECIMAL = re.compile(rb"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|nan|inf|infinity)", re.IGNORECASE)


class LineFault(SourceError, ValueError):
    """Error: one line of a body cannot be taken; the text names the fault, `reason` is the key of its count."""

    def __init__(self, text: str, reason: str = "bad line") -> None:
        super().__init__(text)
        self.reason = reason


def lines_of(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the bytes of each line that is not blank; a long one is cut after the limit."""
    for number, line in enumerate(body.split(b"\n"), 1):
        stripped = line[: MAX_LINE + 1].strip()
        if stripped:
            yield number, stripped


def check_length(line: bytes) -> None:
    """Raise LineFault for a line that is too long."""
    if len(line) > MAX_LINE:
        raise LineFault(f"a line of more than {MAX_LINE:,} bytes", "long line")


def decimal(text: bytes) -> float:
    """Parse a number. Raises LineFault."""
    if len(text) > MAX_NUMBER or not _DECIMAL.fullmatch(text):
        raise LineFault(f"{text[:40]!r} is not a number")
    return float(text)


def finite(text: bytes) -> float:
    """Parse a finite number. Raises LineFault."""
    value = decimal(text)
    if not math.isfinite(value):
        raise LineFault(f"{text[:40]!r} is not finite")
    return value


def text_of(data: bytes) -> str:
    """Decode UTF-8. Raises LineFault."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise LineFault(f"{data[:40]!r} is not UTF-8") from None
