"""Grammar of a line: accepted forms, refusals with their messages, and no other effect."""

from __future__ import annotations

import math
from contextlib import suppress
from time import perf_counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from artimon.model.labels import canonical
from artimon.model.values import INT64_MAX, INT64_MIN, Kind, Value
from sources.base.source_errors import LineError
from sources.dropin.line_grammar import CommentMetadata, parse_line, parse_metadata, parse_value

LABELS: list[tuple[bytes, dict[str, str]]] = [
    (b"", {}),
    (b"{}", {}),
    (b"{class=lb,name=/env/node_name,host=device1}", {"class": "lb", "name": "/env/node_name", "host": "device1"}),
    (b'{a="x"}', {"a": "x"}),
    (b"{a='x, {y}'}", {"a": "x, {y}"}),
    (b'{a="\\"\\\\\\n\'"}', {"a": "\"\\\n'"}),
    (b"{ a = b , c = d e , }", {"a": "b", "c": "d e"}),
    (b"{a=b=c}", {"a": "b=c"}),
    (b"{a=C:\\temp}", {"a": "C:\\temp"}),
    (b"{a=}", {"a": ""}),
    ("{a=ünï}".encode(), {"a": "ünï"}),
]


@pytest.mark.parametrize(("text", "labels"), LABELS, ids=lambda case: repr(case)[:40])
def test_labels_quoted_or_not(text: bytes, labels: dict[str, str]) -> None:
    line = parse_line(b"1377269041486 lb.ltm.node.requests" + text + b" 42")
    assert (line.time_ms, line.name, line.labels, line.value) == (1377269041486, "lb.ltm.node.requests", labels, 42)
    assert line.text == b"lb.ltm.node.requests" + text


VALUES: list[tuple[bytes, Value]] = [
    (b"0", 0),
    (b"-7", -7),
    (b"+7", 7),
    (b"9223372036854775807", INT64_MAX),
    (b"-9223372036854775808", INT64_MIN),
    (b"1.0", 1.0),
    (b"-.5", -0.5),
    (b"5.", 5.0),
    (b"1e3", 1000.0),
    (b"99999999999999999999.", 1e20),
    (b"inf", math.inf),
    (b"-Infinity", -math.inf),
    (b"true", True),
    (b"T", True),
    (b"False", False),
    (b"F", False),
    (b"'it'", "it"),
    (b'"a \\"b\\" \\\\ \\n"', 'a "b" \\ \n'),
    (b"''", ""),
]


@pytest.mark.parametrize(("text", "value"), VALUES, ids=lambda case: repr(case)[:30])
def test_values_have_the_type_that_they_are_written_in(text: bytes, value: Value) -> None:
    found = parse_value(text)
    assert found == value
    assert type(found) is type(value)


BAD: list[tuple[bytes, str]] = [
    (b"hello", "begin with the time"),
    (b"-5 a 1", "begin with the time"),
    (b"1.5 a 1", "begin with the time"),
    (b"1 ", "begin with the time"),
    (b"1 {a=b} 1", "want the name"),
    (b"1 a", "no value"),
    (b"1 a{b=c}", "no value"),
    (b"1 a{b=c}5", "want a space"),
    (b"1 a{b=c 5", "want label=value or }"),
    (b'1 a{b="c} 5', "want label=value or }"),
    (b"1 a{b} 5", "want label=value or }"),
    (b"1 a{b=c,b=d} 5", "twice"),
    (b"1 a 1_000", "want a number"),
    (b"1 a five", "want a number"),
    (b"1 a 'x", "want a number"),
    (b"1 a 5 6", "want a number"),
    (b"1 a t", "want a number"),
    (b"1 a 9223372036854775808", "64 bits"),
    (b"1 a \xd9\xa3", "want a number"),
    (b"1 a\xff 5", "UTF-8 at byte 2"),
    (b"1 a{b=\xff} 5", "UTF-8"),
    (b"1 a '\xff'", "UTF-8"),
    (b"1 a '\\x'", "not a valid escape"),
    (b"1 a '" + b"x" * 40_000 + b"'", "at most 32768"),
]


@pytest.mark.parametrize(("line", "words"), BAD, ids=lambda case: repr(case)[:30])
def test_a_bad_line_is_refused_with_what_is_wrong(line: bytes, words: str) -> None:
    with pytest.raises(LineError, match=words):
        parse_line(line)


@given(st.binary(max_size=200))
@example(b'1 a{b="\\')
def test_garbage_raises_nothing_but_the_typed_error(line: bytes) -> None:
    for text in (line, b"1 " + line, b"1 a{" + line, b"1 a " + line, b'1 a{b="' + line):
        with suppress(LineError):
            parse_line(text)
    parse_metadata(b"#" + line)


HOSTILE = [
    b"1 a{x=a" + b" " * 60_000,
    b"1 a " + b"1" * 60_000 + b"x",
    b"1 a{x" + b" " * 60_000,
    b'1 a{x="' + b"\\" * 60_000,
    b'1 a{x="a"' + b" " * 60_000,
    b"1" + b" " * 60_000 + b"!",
    b"1 a{" + b"x=y," * 15_000,
]


@pytest.mark.parametrize("line", HOSTILE, ids=lambda line: repr(line[:10]))
def test_no_line_takes_long(line: bytes) -> None:
    start = perf_counter()
    with pytest.raises(LineError):
        parse_line(line)
    parse_metadata(b"# help a" + line)
    assert perf_counter() - start < 5


names = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_.:/\-]{0,20}", fullmatch=True)
label_names = st.from_regex(r"[a-zA-Z][a-zA-Z0-9_]{0,10}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(names, st.dictionaries(label_names, texts, max_size=5))
def test_canonical_text_is_read_as_it_is(name: str, labels: dict[str, str]) -> None:
    line = parse_line(f"1 {canonical(name, labels)} 1".encode())
    assert (line.name, line.labels) == (name, {label: text for label, text in labels.items() if text})


def test_comments_tell_or_are_for_people() -> None:
    assert parse_metadata(b"# kind a.b counter") == CommentMetadata("kind", "a.b", Kind.COUNTER)
    assert parse_metadata(b"#kind a.b gauge \r") == CommentMetadata("kind", "a.b", Kind.GAUGE)
    assert parse_metadata(b"# unit a ms") == CommentMetadata("unit", "a", "ms")
    assert parse_metadata(b"# help a  Time it  took") == CommentMetadata("help", "a", "Time it  took")
    assert parse_metadata(b"# birth 1377269041486") == CommentMetadata("birth", "", 1377269041486)
    for plain in (b"#", b"# kind of a mess", b"# kind a", b"# birth", b"# birth soon", b"# written by cron"):
        assert parse_metadata(plain) is None
