"""Names, labels and their canonical text, for the whole platform.

Canonical text is `name{k="v",k2="v2"}`: labels in UTF-8 byte order of their names, values quoted with `\\\\`, `\\"` and
`\\n` as the only escapes, empty values dropped, `name{}` without labels. Equal text = the same series.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

NAME_BYTES = 255
LABELS = 40
VALUE_BYTES = 1024
LABEL_NAME_BYTES = 255

Key = tuple[str, ...]
"""Label names and values in turn, see `key_of`."""

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:/\-]*")
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_PAIR = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"')
_ESCAPE = re.compile(r'\\([\\"n])')
_UNESCAPED = {"\\": "\\", '"': '"', "n": "\n"}


class LabelError(ValueError):
    """Invalid name, label or canonical text. The message names it and says what to do."""


def short_repr(value: object) -> str:
    """First 80 characters of the `repr` of an object; its type name if `repr` fails."""
    try:
        text = repr(value)
    except Exception:
        text = f"<{type(value).__name__}>"
    return text[:80]


def key_of(labels: Mapping[str, str]) -> Key:
    """Label names and values in turn, sorted by name, without empty values. Equal keys mean equal labels."""
    flat: list[str] = []
    for label, value in sorted(labels.items()):
        if value:
            flat += (label, value)
    return tuple(flat)


def validate_name(name: str) -> str:
    """Return the variable name if it is valid: `[a-zA-Z_][a-zA-Z0-9_.:/-]*`, at most 255 bytes. Else LabelError."""
    if not issubclass(type(name), str):  # unlike isinstance this calls nothing of the object
        raise LabelError(f"variable name {short_repr(name)} is of type {type(name).__name__}: give a str")
    if not _NAME.fullmatch(name):
        raise LabelError(
            f"variable name {name!r:.80}: begin with a letter or _, then use letters, digits, and _ . : / - only"
        )
    if len(name) > NAME_BYTES:
        raise LabelError(f"variable name {name!r:.80}… has {len(name)} bytes: use at most {NAME_BYTES}")
    return name


def validate_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return the labels if they are valid, else raise LabelError.

    An empty value means that the label is absent; it does not count towards the 40 labels."""
    try:
        items = labels.items()
    except AttributeError:
        raise LabelError(f"labels {short_repr(labels)}: give a mapping of label names to values") from None
    count = 0
    for label, value in items:
        validate_label(label, value)
        count += value != ""
    if count > LABELS:
        raise LabelError(f"{count} labels: use at most {LABELS}")
    return labels


def validate_label(label: str, value: str) -> None:
    """Raise LabelError unless `label` is a valid name and `value` a valid value."""
    if not issubclass(type(label), str) or not _LABEL_NAME.fullmatch(label):
        raise LabelError(
            f"label name {short_repr(label)}: begin with a letter or _, then use letters, digits and _ only"
        )
    if label.startswith("__"):
        raise LabelError(f"label name {label!r:.80}: names that begin with __ are reserved, rename it")
    if len(label) > LABEL_NAME_BYTES:
        raise LabelError(f"label name {label!r:.80}… has {len(label)} bytes: use at most {LABEL_NAME_BYTES}")
    if not issubclass(type(value), str):
        raise LabelError(
            f"label {label!r} has the value {short_repr(value)} of type {type(value).__name__}: give a str"
        )
    if len(value) * 4 > VALUE_BYTES or not value.isascii():
        _validate_length(label, value)


def _validate_length(label: str, value: str) -> None:
    try:
        size = len(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise LabelError(
            f"label {label!r} has the value {value!r:.80}, which UTF-8 cannot hold: remove lone surrogates"
        ) from None
    if size > VALUE_BYTES:
        raise LabelError(f"label {label!r} has a value of {size} bytes: use at most {VALUE_BYTES} of UTF-8")


def canonical(name: str, labels: Mapping[str, str]) -> str:
    """Canonical text of a name and labels. LabelError if one is invalid.

    >>> canonical("http.requests", {"route": "/", "code": "200", "zone": ""})
    'http.requests{code="200",route="/"}'
    """
    validate_name(name)
    validate_labels(labels)
    return canonical_unchecked(name, labels)


def canonical_unchecked(name: str, labels: Mapping[str, str]) -> str:
    """Like `canonical`, for a name and labels validated before."""
    # Label names are ASCII, so the order of code points is the order of UTF-8 bytes.
    pairs = [f'{label}="{_escape(value)}"' for label, value in sorted(labels.items()) if value]
    return f"{name}{{{','.join(pairs)}}}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def parse_canonical(text: str) -> tuple[str, dict[str, str]]:
    """Parse a canonical text into name and labels; the exact inverse of `canonical`.

    LabelError for any text that `canonical` would not produce: wrong order, repeated or empty labels, other escapes,
    spaces.

    >>> parse_canonical('http.requests{code="200",route="/"}')
    ('http.requests', {'code': '200', 'route': '/'})
    """
    name, brace, rest = text.partition("{")
    if not brace or not rest.endswith("}"):
        raise LabelError(f'canonical text {text!r:.120}: write it as name{{label="value",…}}')
    labels, is_sorted = _parse_pairs(text, rest[:-1])
    validate_name(name)
    if len(labels) > LABELS:
        validate_labels(labels)
    if not is_sorted:  # texts of sorted pairs are canonical: _PAIR takes no other escapes and nothing between pairs
        raise LabelError(f"text {text!r:.120} is not canonical: sort the labels, drop empty values and repetitions")
    return name, labels


def _parse_pairs(text: str, pairs: str) -> tuple[dict[str, str], bool]:
    """Return valid labels, and whether names ascend and no value is empty."""
    labels: dict[str, str] = {}
    at, last, is_sorted = 0, "", True
    while at < len(pairs):
        if at:
            if pairs[at] != ",":
                raise LabelError(f"canonical text {text!r:.120}: put a comma between labels, at {pairs[at:]!r:.40}")
            at += 1
        pair = _PAIR.match(pairs, at)
        if pair is None:
            raise LabelError(f'canonical text {text!r:.120}: expected label="value" at {pairs[at:]!r:.40}')
        label, value = pair.groups()
        if "\\" in value:
            value = _ESCAPE.sub(lambda found: _UNESCAPED[found[1]], value)
        if (
            label.startswith("__")
            or len(label) > LABEL_NAME_BYTES
            or len(value) * 4 > VALUE_BYTES
            or not value.isascii()
        ):
            validate_label(label, value)
        is_sorted &= label > last and value != ""
        labels[label], last, at = value, label, pair.end()
    return labels, is_sorted
