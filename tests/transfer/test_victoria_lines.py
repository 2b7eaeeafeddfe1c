"""Lines of VictoriaMetrics' export: the compiled parser gives what the complete one gives, or leaves the line to it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artimon.compute.kernels import kernels
from sources.history import victoria_format
from sources.history.import_builder import ImportBuilder

START_MS = 1_700_000_000_000
ODD = [
    *("-0", "-0.0", "-0e0", "0.1", "1e22", "1e23", "1E-7", "1e+300", "5e-324", "0.30000000000000004", "1e0001"),
    *("123456789012345678901", "9007199254740993", "01", "1.", ".5", "+1", "1e", "1_0", " 1", "1 "),
    *("null", "true", '"Infinity"', "nan", "", "[1]"),
]
numbers = st.one_of(
    st.sampled_from(ODD),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(2**70), 2**70).map(str),
    st.decimals(-1000, 1000, places=3).map(str),
)
plain_times = st.integers(START_MS, START_MS + 1000).map(str)
times = st.one_of(*[plain_times] * 8, numbers)
labels = st.dictionaries(
    st.sampled_from(["__name__", "a", "b"]), st.text(max_size=8).map(lambda text: text + ',"values":[')
)
metrics = st.one_of(
    labels.map(json.dumps), st.sampled_from(['{"__name__":"x"}', "{}", "[]", '{"a":1}', '{"a":"x"},"c":{}'])
)
seams = st.sampled_from([',"timestamps":['] * 8 + [', "timestamps": [', ',"values":[', ""])
ends = st.sampled_from(["]}"] * 8 + ["] } ", "]}}", "]", '],"c":1}', "]}\x0b", "]}\r"])


@st.composite
def lines(draw: st.DrawFn) -> str:
    few = draw(st.integers(0, 3))
    columns = [draw(st.lists(kind, min_size=few, max_size=few + draw(st.integers(0, 1)))) for kind in (numbers, times)]
    values, at = map(",".join, columns)
    return f'{{"metric":{draw(metrics)},"values":[{values}{draw(seams).join(["]", at])}{draw(ends)}'


def read(file: Path) -> Any:
    """Return all columns of all chunks as bits, the series and what was refused."""
    builder = ImportBuilder("s", START_MS + 10)
    chunks = list(victoria_format.read_victoria(file, builder))
    columns = [
        (
            c.samples.fingerprint.tobytes(),
            c.samples.time_ms.tobytes(),
            c.samples.cell.tobytes(),
            c.samples.type.tobytes(),
        )
        for c in chunks
    ]
    return columns, [c.series for c in chunks], builder.rejects.counts, builder.rejects.named


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on this machine")
@given(text=st.lists(lines(), max_size=4).map("\n".join))
def test_both_parsers_give_the_same(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("lines") / "a.jsonl"
    file.write_text(text)
    compiled = read(file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(victoria_format, "kernels", lambda: None)
        assert read(file) == compiled


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on this machine")
@pytest.mark.parametrize(
    ("text", "whole", "found"),
    [
        ("[1,-2.5,null,1e3]x", False, [1.0, -2.5, None, 1000.0]),
        ("[]", False, []),
        ("[17,-3]", True, [17, -3]),
        ("[1234,12345,12345678,123456789.0625]", False, [1234, 12345, 12345678, 123456789.0625]),
        ("[1700000000123,-170000000012]", True, [1700000000123, -170000000012]),
        ("[12:4]", False, None),
        ("[123/5]", False, None),
        ("[123\u0663]", False, None),
        ("[1.5]", True, None),
        ("[null]", True, None),
        ("[1", False, None),
        ("[1,", False, None),
        ("[1,]", False, None),
        ("[nul", False, None),
        ("[", False, None),
        ("[-", False, None),
        ("[1e", False, None),
    ],
)
def test_arrays_of_json(text: str, whole: bool, found: list[float | None] | None) -> None:
    compiled = kernels()
    assert compiled is not None
    given = compiled.json_numbers(text.encode(), 1, whole)
    assert (given is None) == (found is None)
    if given is not None and found is not None:
        numbers, end = given
        assert [None if value != value else value for value in numbers.tolist()] == found
        assert (numbers.dtype == np.int64) == whole
        assert text[end:] == text.partition("]")[2]


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on this machine")
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("item", ["1", "-7", "1700000000000"])
def test_an_array_is_read_to_its_bracket_and_never_beyond_the_text(item: str, whole: bool) -> None:
    """The shortest numbers fill the room for them to the last place."""
    compiled = kernels()
    assert compiled is not None
    text = f"[{','.join([item] * 50)}]".encode()
    found = compiled.json_numbers(text, 1, whole)
    assert found is not None
    assert (found[0].tolist(), found[1]) == ([int(item)] * 50, len(text))
    exact = compiled.json_numbers(text, 1, whole, most=50)
    assert exact is not None
    assert exact[0].tolist() == found[0].tolist()
    assert compiled.json_numbers(text, 1, whole, most=49) is None
    assert not any(compiled.json_numbers(text[:end], 1, whole) for end in range(1, len(text)))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    ("values", "at"), [("1,2", f"[{START_MS}],[{START_MS}]"), ("[1],[2]", f"{START_MS},{START_MS}"), ("1", "")]
)
def test_arrays_of_another_shape_are_bad_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: bool, values: str, at: str
) -> None:
    """A line after it is read."""
    if not compiled:
        monkeypatch.setattr(victoria_format, "kernels", lambda: None)
    file = tmp_path / "a.jsonl"
    file.write_text(
        f'{{"metric":{{"__name__":"a"}},"values":[{values}],"timestamps":[{at}]}}\n'
        f'{{"metric":{{"__name__":"b"}},"values":[7],"timestamps":[{START_MS}]}}\n'
    )
    columns, _, counts, named = read(file)
    assert [np.frombuffer(part[1], np.int64).tolist() for part in columns] == [[START_MS]]
    assert (counts, [line for line, _ in named]) == ({"bad line": 1}, [1])


def test_a_line_without_samples_beside_others(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(
        '{"metric":{"__name__":"a"},"values":[ ],"timestamps":[ ]}\n'
        f'{{"metric":{{"__name__":"b"}},"values":[7],"timestamps":[{START_MS}]}}\n'
    )
    columns, *_ = read(file)
    assert [np.frombuffer(part[1], np.int64).tolist() for part in columns] == [[START_MS]]
