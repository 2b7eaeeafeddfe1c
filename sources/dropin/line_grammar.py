"""Grammar of one line of a drop-in file: `<epoch_ms> name{label=value,…} value`. Pure; see docs/sources.md.

Labels and strings may be quoted with " or '. In quotes `\\\\`, `\\"`, `\\'` and `\\n` are the only escapes; outside of
quotes every character stands for itself.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from artimon.model.values import INT64_MAX, INT64_MIN, Kind, Value
from sources.base.line_text import MAX_METADATA_BYTES, MAX_NUMBER_BYTES, SPACE, decode_text, printable
from sources.base.source_errors import LineError

MAX_STRING = 32 * 1024
"""Maximum bytes of a STRING value, as in bookkeeper."""

_TIME = re.compile(rb"([0-9]{1,18})[ \t]+")
_NAME = re.compile(rb"[^\s{}\"'=,]+")
_PAIR = re.compile(
    rb"""([^=,{}"'\s]+)\s*=\s*(?:("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\s*|([^,{}"'\s][^,{}]*|))(?=[,}])""", re.DOTALL
)
_INTEGER = re.compile(rb"[+-]?[0-9]+")
_DECIMAL = re.compile(rb"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|nan|inf|infinity)", re.IGNORECASE)
_QUOTED = re.compile(rb""""(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_PLAIN = {"\\": "\\", '"': '"', "'": "'", "n": "\n"}
_TRUTH = {
    **dict.fromkeys((b"true", b"True", b"TRUE", b"T"), True),
    **dict.fromkeys((b"false", b"False", b"FALSE", b"F"), False),
}
_KINDS = {b"counter": Kind.COUNTER, b"gauge": Kind.GAUGE}


class ParsedLine(NamedTuple):
    """Parsed line; `text` is the series as written: equal bytes mean the same series."""

    time_ms: int
    text: bytes
    name: str
    labels: dict[str, str]
    value: Value


class CommentMetadata(NamedTuple):
    """Comment with metadata: `what` is kind, unit, help or birth; the last has no name."""

    what: str
    name: str
    value: str | Kind | int


def parse_line(line: bytes) -> ParsedLine:
    """Parse a line without its newline that is neither blank nor a comment. Raises LineError."""
    line = line.strip(SPACE)
    time = _TIME.match(line)
    if time is None:
        raise LineError(f"begins with {printable(line)}: begin with the time, milliseconds since 1970")
    name = _NAME.match(line, time.end())
    if name is None:
        raise LineError(f"want the name of a variable at {printable(line[time.end() :])}")
    labels, end = _labels(line, name.end())
    rest = line[end:]
    value = rest.strip(SPACE)
    if not value:
        raise LineError("no value at the end")
    if rest[:1] not in (b" ", b"\t"):
        raise LineError(f"want a space before the value at {printable(rest)}")
    return ParsedLine(int(time[1]), line[time.end() : end], decode_text(name[0]), labels, parse_value(value))


def _labels(line: bytes, at: int) -> tuple[dict[str, str], int]:
    """Return the labels that begin at `at`, if any, and the position after them."""
    labels: dict[str, str] = {}
    if line[at : at + 1] != b"{":
        return labels, at
    at += 1
    while not line.startswith(b"}", at := _skip(line, at)):
        pair = _PAIR.match(line, at)
        if pair is None:
            raise LineError(f"want label=value or }} at {printable(line[at:])}")
        label = decode_text(pair[1])
        if label in labels:
            raise LineError(f"label {label} occurs twice")
        labels[label] = decode_text(pair[3]).rstrip() if pair[2] is None else _text(pair[2])
        at = pair.end()
        at += line.startswith(b",", at)
    return labels, at + 1


def _skip(line: bytes, at: int) -> int:
    while line[at : at + 1] in (b" ", b"\t"):
        at += 1
    return at


def parse_value(value: bytes) -> Value:
    """Parse an INTEGER, DOUBLE, BOOLEAN or STRING by its notation. Raises LineError for anything else."""
    if _INTEGER.fullmatch(value):
        if len(value) > 20 or not INT64_MIN <= (number := int(value)) <= INT64_MAX:
            raise LineError(f"{printable(value)} does not fit 64 bits: write it with a point to have a decimal number")
        return number
    if len(value) <= MAX_NUMBER_BYTES and _DECIMAL.fullmatch(value):
        return float(value)
    if value in _TRUTH:
        return _TRUTH[value]
    if not _QUOTED.fullmatch(value):
        raise LineError(f"value {printable(value)}: want a number, true, false, or a text in quotes")
    if len(value) > MAX_STRING + 2:
        raise LineError(f"a text of {len(value) - 2} bytes: at most {MAX_STRING}")
    return _text(value)


def parse_metadata(line: bytes) -> CommentMetadata | None:
    """Parse the metadata of a comment, None for an ordinary comment."""
    words = line.strip(SPACE).lstrip(b"#").split(None, 2)
    if len(words) == 2 and words[0] == b"birth" and len(words[1]) <= 18 and words[1].isdigit():
        return CommentMetadata("birth", "", int(words[1]))
    if len(words) < 3 or words[0] not in (b"kind", b"unit", b"help"):
        return None
    what, name, value = words[0].decode("ascii"), words[1].decode("utf-8", "replace"), words[2].strip()
    if what != "kind":
        return CommentMetadata(what, name, value[:MAX_METADATA_BYTES].decode("utf-8", "replace"))
    return CommentMetadata(what, name, _KINDS[value]) if value in _KINDS else None


def _text(quoted: bytes) -> str:
    """Return the text in the quotes with escapes replaced."""
    text = decode_text(quoted)
    if "\\" not in text:
        return text[1:-1]
    return _ESCAPE.sub(_unescaped, text[1:-1])


def _unescaped(found: re.Match[str]) -> str:
    plain = _PLAIN.get(found[1])
    if plain is None:
        raise LineError(f"{found[0]!r} is not a valid escape: in quotes write \\\\, \\\", \\' or \\n")
    return plain
