r"""Grammar of one line of a Prometheus page: text 0.0.4 and OpenMetrics 1.0. Pure; see docs/sources.md.

    sample   := name [ "{" [label "=" quoted {"," label "=" quoted} [","]] "}" ] value [time] ["#" exemplar]
    metadata := "# HELP" name text | "# TYPE" name type | "# UNIT" name unit

In quotes `\\`, `\"` and `\n` are the escapes; any other backslash is literal, as in Prometheus.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from sources.base.line_text import MAX_METADATA_BYTES, MAX_NUMBER_BYTES, SPACE, decode_text, printable
from sources.base.source_errors import LineError

_SAMPLE = re.compile(
    rb"""([a-zA-Z_:][a-zA-Z0-9_:]*+)[ \t]*+(?:\{((?:[^"}]++|"(?:[^"\\]++|\\.)*+")*+)\})?[ \t]*+"""
    rb"""([^ \t{}#"]++)(?:[ \t]++(-?[0-9][0-9.eE+-]*+))?[ \t]*+(\#.*+)?""",
    re.DOTALL,
)
_PAIR = re.compile(rb"""[ \t]*+([a-zA-Z_][a-zA-Z0-9_]*+)[ \t]*+=[ \t]*+"((?:[^"\\]++|\\.)*+)"[ \t]*+(,|$)""", re.DOTALL)
_BLANK = re.compile(rb"[ \t]*+$")
_ESCAPE = re.compile(r'\\([\\"n])')
_HELP_ESCAPE = re.compile(r"\\([\\n])")
_PLAIN = {"\\": "\\", '"': '"', "n": "\n"}
_META = re.compile(rb"#[ \t]*+(HELP|TYPE|UNIT)[ \t]++([a-zA-Z_:][a-zA-Z0-9_:]*+)(?:[ \t]++(.*+))?", re.DOTALL)
TYPES = frozenset(
    {"counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset", "unknown", "untyped"}
)


class ParsedSample(NamedTuple):
    """Parsed line; `text` is the series as written: equal bytes mean the same series."""

    text: bytes
    name: str
    labels: dict[str, str]
    value: float
    timed: bool
    exemplar: bool


class Metadata(NamedTuple):
    """Line of metadata: `what` is HELP, TYPE or UNIT."""

    what: str
    name: str
    value: str


def parse_sample(line: bytes) -> ParsedSample:
    """Parse a line without its newline that is neither blank nor a comment. Raises LineError."""
    line = line.strip(SPACE)
    found = _SAMPLE.fullmatch(line)
    if found is None:
        raise LineError(f"not a sample: {printable(line)}")
    labels = parse_labels(found[2]) if found[2] else {}
    end = found.end(2) + 1 if found[2] is not None else found.end(1)
    name = found[1].decode("ascii")
    return ParsedSample(line[:end], name, labels, parse_value(found[3]), found[4] is not None, found[5] is not None)


def split_sample(line: bytes) -> tuple[bytes, bytes, bytes]:
    """Return series, value and time of a line as they are written; b"" for no time. Raises LineError."""
    found = _SAMPLE.fullmatch(line.strip(SPACE))
    if found is None:
        raise LineError(f"not a sample: {printable(line)}")
    end = found.end(2) + 1 if found[2] is not None else found.end(1)
    return found.string[:end], found[3], found[4] or b""


def _unescape_value(text: bytes) -> str:
    return _unescaped(decode_text(text), _ESCAPE)


def parse_labels(text: bytes, unescape: Callable[[bytes], str] = _unescape_value) -> dict[str, str]:
    """Parse the labels between braces; `unescape` decodes a value. Raises LineError."""
    labels: dict[str, str] = {}
    at = 0
    while not _BLANK.match(text, at):
        pair = _PAIR.match(text, at)
        if pair is None:
            raise LineError(f'want label="value" at {printable(text[at:])}')
        label = pair[1].decode("ascii")
        if label in labels:
            raise LineError(f"label {label} occurs twice")
        labels[label] = unescape(pair[2])
        at = pair.end()
    return labels


def parse_value(text: bytes) -> float:
    """Parse a number in the notation of Go and OpenMetrics, including NaN and infinity. Raises LineError."""
    try:
        if len(text) > MAX_NUMBER_BYTES or b"_" in text:
            raise ValueError
        return float(text)
    except ValueError:
        raise LineError(f"value {printable(text)}: want a number, NaN, +Inf or -Inf") from None


def parse_metadata(line: bytes) -> Metadata | None:
    """Parse the metadata of a line that begins with #, None for an ordinary comment."""
    found = _META.fullmatch(line.strip(SPACE))
    if found is None:
        return None
    what, name, rest = found[1].decode("ascii"), found[2].decode("ascii"), found[3] or b""
    if what != "HELP":
        return Metadata(what, name, rest.strip(SPACE).decode("utf-8", "replace")[:100])
    return Metadata(what, name, _unescaped(rest[:MAX_METADATA_BYTES].decode("utf-8", "ignore"), _HELP_ESCAPE))


def _unescaped(text: str, escape: re.Pattern[str]) -> str:
    return escape.sub(lambda found: _PLAIN[found[1]], text) if "\\" in text else text
