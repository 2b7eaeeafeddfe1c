"""Matchers on label values: exact, prefix, and regular expressions in linear time (RE2)."""

from __future__ import annotations

from collections.abc import Callable

import re2

from artimon.model.select import NAME, Matcher, SelectError

PATTERN_BYTES = 4_096
_PATTERN_MEMORY = 8 * 1024 * 1024

Test = Callable[[str], bool]


def compile_matcher(matcher: Matcher) -> Test:
    """Compile a test of values; an absent label has "". SelectError for an unknown operator or a bad pattern."""
    value = matcher.value
    match matcher.op:
        case "=":
            return value.__eq__
        case "!=":
            return value.__ne__
        case "=~":
            return _pattern(matcher)
        case "!~":
            return _negated(_pattern(matcher))
        case "prefix" if matcher.label == NAME:
            return lambda name: name.startswith(value)
        case "prefix":
            raise SelectError(f"prefix of label {matcher.label!r}: only names have prefixes, write =~ with a pattern")
        case _:
            raise SelectError(f"operator {matcher.op!r} of label {matcher.label!r}: use one of = != =~ !~")


def _negated(test: Test) -> Test:
    return lambda value: not test(value)


def _pattern(matcher: Matcher) -> Test:
    where = f"pattern {matcher.value[:200]!r} of label {matcher.label!r}"
    if len(matcher.value.encode()) > PATTERN_BYTES:
        raise SelectError(f"{where}: more than {PATTERN_BYTES} bytes")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_MEMORY
    try:
        compiled = re2.compile(matcher.value, options=options)
    except re2.error as error:
        text = error.args[0] if error.args else error
        raise SelectError(f"{where}: {text.decode() if isinstance(text, bytes) else text}") from error
    return lambda value: compiled.fullmatch(value) is not None
