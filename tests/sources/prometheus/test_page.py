"""Pages of Prometheus, good and bad, without a server."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families as parse_text

from artimon.model.values import Kind
from sources.base.source_errors import LineError, PollError
from sources.scrape.prometheus.exposition_reader import Exposition, ExpositionLimits, ExpositionReader
from sources.scrape.prometheus.exposition_text import parse_sample

OM = b"""# TYPE foo counter
# UNIT foo seconds
# HELP foo Some\\nhelp \\\\ and \\"more
foo_total{a="b"} 17.0 1520879607.789 # {trace_id="a} # 3"} 1.0 1520879607.789
foo_created{a="b"} 1520430000.123
# TYPE h histogram
h_bucket{le="1.0"} 1
h_bucket{le="+Inf"} 2
h_count 2
h_sum 3.5
h_created 1520430001
# TYPE g gaugehistogram
g_bucket{le="+Inf"} 4
g_gcount 4
g_gsum -2
# TYPE s summary
s{quantile="0.5"} NaN
s_count 0
s_sum 0
# TYPE e stateset
e{e="on"} 1
# TYPE i info
i_info{v="1"} 1
# TYPE u unknown
u 1
plain_total 1
# EOF
"""


def read(data: bytes, openmetrics: bool = False, ended: bool = True, **limits: int) -> Exposition:
    return ExpositionReader(limits=ExpositionLimits(**limits)).read(data, openmetrics, ended)


def values(page: Exposition) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    keys = [
        (name, frozenset(labels.items())) for name, labels in zip(page.schema.names, page.schema.labels, strict=True)
    ]
    return dict(zip(keys, page.values.tolist(), strict=True))


def by_name(page: Exposition, column: Any) -> dict[str, int]:
    return dict(zip(page.schema.names, column.tolist(), strict=True))


def test_kinds_units_help_and_births_are_those_of_the_family() -> None:
    page = read(OM, openmetrics=True)
    kinds = by_name(page, page.schema.kinds)
    counters = {name for name, kind in kinds.items() if kind == Kind.COUNTER}
    assert counters == {"foo_total", "h_bucket", "h_count", "h_sum", "s_count", "s_sum"}
    assert {name for name, kind in kinds.items() if kind == Kind.UNKNOWN} == {"u", "plain_total"}
    assert "foo_created" not in kinds
    assert page.schema.units == {"foo_total": "seconds"}
    assert page.schema.help == {"foo_total": 'Some\nhelp \\ and \\"more'}
    assert page.created_ms is not None
    born = by_name(page, page.created_ms)
    assert {name: ms for name, ms in born.items() if ms} == {
        "foo_total": 1520430000123,
        "h_bucket": 1520430001000,
        "h_count": 1520430001000,
        "h_sum": 1520430001000,
    }
    assert dict(page.ignored) == {"timestamp": 1, "exemplar": 1}
    assert not page.faults.counts


def test_the_text_format_knows_counters_by_their_own_name() -> None:
    page = read(
        b'# TYPE x_total counter\nx_total 1\n# TYPE h histogram\nh_bucket{le="1"} 1\nh_created 5\n# TYPE y gauge\ny 2\n'
    )
    assert by_name(page, page.schema.kinds) == {"x_total": 1, "h_bucket": 1, "y": 2}


@pytest.mark.parametrize(
    ("line", "labels", "value"),
    [
        (b'a{b="c"} 1', {"b": "c"}, 1.0),
        (b'  a { b = "c" , } 1', {"b": "c"}, 1.0),
        (b"a\t1", {}, 1.0),
        (b"a{} -2e3", {}, -2000.0),
        (b'a{b="}{ , #",c=""}1', {"b": "}{ , #", "c": ""}, 1.0),
        (rb'a{b="\\ \" \n \x"} +Inf', {"b": '\\ " \n \\x'}, math.inf),
        ('a{b="ü"} -inf'.encode(), {"b": "ü"}, -math.inf),
        (b"a 1 -1520879607789", {}, 1.0),
        (b"a:b 1\r", {}, 1.0),
    ],
)
def test_a_line(line: bytes, labels: dict[str, str], value: float) -> None:
    sample = parse_sample(line)
    assert (sample.labels, sample.value) == (labels, value)
    page = read(line + b"\n" + line.replace(b"a", b"z", 1) + b"\n")
    assert page.values.tolist() == [value, value]


BAD = [
    b"a", b"a{", b'a{b="c" 1', b'a{b="c"}', b"a{b=c} 1", b'a{b="c",,} 1', b'a{b="c"d="e"} 1', b'a{b="c",b="d"} 1',
    b"1a 1", b"a 1_000", b"a 0x1p3", b"a one", b"a 1 x", b"a 1 1 1", b'a{b="\xff"} 1', b'a{1b="c"} 1', b"\x00",
    b"a " + b"9" * 500, "a ١".encode(), b'{b="c"} 1', b"a.b 1",
]  # fmt: skip


@pytest.mark.parametrize("line", BAD)
def test_a_bad_line_is_counted_and_named_and_the_others_count(line: bytes) -> None:
    with pytest.raises(LineError):
        parse_sample(line)
    page = read(b"ok 1\n" + line + b"\nfine 2\n")
    assert page.faults.counts == {"bad line": 1}
    assert page.schema.names == ["ok", "fine"]
    assert page.faults.examples["bad line"].startswith("line 2: ")
    with pytest.raises(PollError, match="line 1"):
        read(line + b"\n")


def test_a_page_that_was_cut_is_not_taken_for_a_whole_one() -> None:
    with pytest.raises(PollError, match="# EOF"):
        read(OM[:300], openmetrics=True)
    page = read(b"a 1\nb 12", ended=False)
    assert (list(page.schema.names), page.faults.counts) == (["a"], {"half-written": 1})
    assert read(b"a 1\nb 12", ended=True).values.tolist() == [1, 12]
    assert len(read(b"").values) == len(read(b"# EOF", openmetrics=True).values) == 0


def test_limits() -> None:
    page = b"".join(b'c{n="%d"} %d\n' % (i, i) for i in range(100))
    cut = read(page, series=10)
    assert cut.values.tolist() == list(range(10))
    assert cut.faults.counts == {"too many series": 90}
    assert read(page, lines=10).faults.counts == {"page limit": 90}
    assert read(b"ok 1\n" + page[:50].replace(b"0", b"x" * 100), line_bytes=60).faults.counts["bad line"]


def test_a_series_that_stands_there_twice_counts_once() -> None:
    page = read(b'a{x="1",y="2"} 1\na{y="2",x="1"} 2\nb 3\na{x="1",y="2",z=""} 4\n')
    assert page.values.tolist() == [1, 3]
    assert page.faults.counts == {"same series twice": 2}


def test_labels_of_the_target_win_and_the_pages_own_are_exported() -> None:
    reader = ExpositionReader(frozenset({"job", "instance"}))
    page = reader.read(b'a{job="x",exported_job="y",instance=""} 1\n', False, True)
    assert page.schema.labels == [{"exported_exported_job": "x", "exported_job": "y"}]


def test_the_schema_stays_until_the_page_has_other_series_or_says_other_things() -> None:
    reader = ExpositionReader()
    first = reader.read(b"# TYPE a gauge\na 1\nb 2\n", False, True)
    same = reader.read(b"# TYPE a gauge\na 3\nb 4\n", False, True)
    assert same.schema is first.schema
    assert same.values.tolist() == [3, 4]
    for changed in (b"# TYPE a gauge\nb 4\na 3\n", b"# TYPE a counter\na 3\nb 4\n", b"# TYPE a counter\na 3\n"):
        now = reader.read(changed, False, True)
        assert now.schema.id != same.schema.id
        same = now
    assert [Kind(kind) for kind in same.schema.kinds] == [Kind.COUNTER]


def test_series_that_come_and_go_are_forgotten() -> None:
    reader = ExpositionReader(limits=ExpositionLimits(series=10))
    for turn in range(50):
        page = reader.read(b"".join(b'a{n="%d"} 1\n' % (10 * turn + i) for i in range(10)), False, True)
        assert len(page.values) == 10
        assert not page.faults.counts
    assert len(reader._known) <= 50


PIECES = st.sampled_from(
    [b"a", b"b_total", b"{", b"}", b'x="y"', b",", b'"', b"\\", b" ", b"1", b"NaN", b"#", b"\n", b"# TYPE a ",
     b"counter", b"_created", b"\xff", b"1e999", b"-"]
)  # fmt: skip


@given(st.binary(max_size=300) | st.lists(PIECES, max_size=40).map(b"".join))
def test_no_bytes_make_the_reader_raise_anything_but_garbage(data: bytes) -> None:
    for openmetrics in (False, True):
        page = read(b'ok{z="b"} 1\n' + data + b"\n# EOF\n", openmetrics)
        assert len(page.values) == len(page.schema) > 0
        with contextlib.suppress(PollError):
            read(data, openmetrics)


NAMES = st.from_regex(r"[a-z][a-z_]{0,6}[a-z]", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\x85\u2028\u2029\x0b\x0c\x1c\x1d\x1e"), max_size=12)
NUMBERS = st.floats(allow_nan=False) | st.integers(-(2**53), 2**53).map(float)
LABELS = st.dictionaries(NAMES, TEXTS, max_size=3).map(lambda labels: tuple(sorted(labels.items())))
SERIES = st.dictionaries(st.tuples(NAMES, LABELS), NUMBERS, max_size=8)


def written(name: str, labels: tuple[tuple[str, str], ...], number: float) -> str:
    def quoted(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    pairs = ",".join(f'{label}="{quoted(value)}"' for label, value in labels)
    return f"{name}{{{pairs}}} {number!r}"


@given(SERIES)
def test_another_parser_finds_the_same(series: dict[tuple[str, tuple[tuple[str, str], ...]], float]) -> None:
    lines = [written(name, labels, number) for (name, labels), number in sorted(series.items())]
    text = "".join(f"{line}\n" for line in lines)
    found = values(read(text.encode()))
    other: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in parse_text(text):
        for sample in family.samples:
            labels = frozenset((label, value) for label, value in sample.labels.items() if value)
            other.setdefault((sample.name, labels), sample.value)
    assert found == other
