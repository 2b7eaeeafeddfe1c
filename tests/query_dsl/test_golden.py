"""Every case of tests/golden/query: plain text in, plain text out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from artimon.model.values import Kind, Value
from query_dsl import Matrix, QueryError, parse
from query_dsl.evaluation.evaluator import answer
from query_dsl.results.raw_series import RawSeries
from query_dsl.stores.levels import SETTLE_MS
from query_dsl.tree.times import parse_duration
from tests.query_dsl.plain_store import PlainStore, Sample

FOLDER = Path(__file__).parent.parent / "golden" / "query"
KINDS = {"counter": Kind.COUNTER, "gauge": Kind.GAUGE}
SERIES = re.compile(r"(?P<name>[\w.]*)(?:\{(?P<labels>[^}]*)\})?")


@dataclass
class Case:
    name: str
    store: PlainStore = field(default_factory=PlainStore)
    end: int = 0
    query: str = ""
    rows: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: str = ""
    nothing: bool = False
    """The answer has no series."""


def read(text: str) -> list[Case]:
    cases: list[Case] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        if word == "case":
            cases.append(Case(rest))
            continue
        case = cases[-1]
        match word:
            case "levels":
                step, _, count = rest.partition(" x ")
                case.store.level_table = ((parse_duration(step, "step"), int(count)),)
            case "end":
                case.end = int(rest)
            case "load":
                load(case.store, rest)
            case "query":
                case.query = rest
            case "note":
                case.notes.append(rest)
            case "error":
                case.error = rest
            case "nothing":
                case.nothing = True
            case _:
                case.rows.append(line)
    return cases


def load(store: PlainStore, text: str) -> None:
    words = text.split(" ")
    kind = KINDS[words.pop(0)] if words[0] in KINDS else Kind.UNKNOWN
    found = SERIES.fullmatch(words.pop(0))
    assert found is not None
    labels = dict(re.findall(r'(\w+)="([^"]*)"', found["labels"] or ""))
    ended = int(words.pop(0).removeprefix("ended=")) if words[0].startswith("ended=") else 0
    store.add(found["name"], labels, [sample(w) for w in words], kind, ended)


def sample(word: str) -> Sample:
    time, _, rest = word.partition(":")
    value, _, birth = rest.partition("@")
    parsed: Value = float("nan") if value == "nan" else json.loads(value)
    return Sample(int(time), parsed, int(birth or 0))


def shown(matrix: Matrix | RawSeries) -> list[str]:
    """A line a series; raw samples as TIME:VALUE."""
    if isinstance(matrix, RawSeries):
        return [
            " ".join(
                [
                    f"{name} {row['type']}",
                    *(f"{t}:{_word(v)}" for t, v in zip(row["times"], row["values"], strict=True)),
                ]
            )
            for name, row in zip(matrix.series, matrix.to_dict()["series"], strict=True)
        ]
    return [
        f"{name} {row['type']} " + " ".join(_word(v) for v in row["values"])
        for name, row in zip(matrix.series, matrix.to_dict()["series"], strict=True)
    ]


def _word(value: object) -> str:
    if value is None:
        return "NA"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    if isinstance(value, str) and value in ("NaN", "Infinity", "-Infinity"):
        return value
    return json.dumps(value)


FILES = {path.stem: read(path.read_text()) for path in sorted(FOLDER.glob("*.txt"))}
CASES = [case for cases in FILES.values() for case in cases]


def check_each(cases: Sequence[Case], check: Callable[[Case], None]) -> None:
    """Check all cases in one test; the failure names each case that fails."""
    failed = []
    for case in cases:
        try:
            check(case)
        except (Exception, pytest.fail.Exception) as error:
            failed.append(f"case {case.name}\nquery {case.query}\n{type(error).__name__}: {error}")
    assert not failed, f"{len(failed)} of {len(cases)} cases:\n" + "\n\n".join(failed)


@pytest.mark.parametrize("file", FILES)
def test_cases(file: str) -> None:
    """Rows, types, values, order, notes and errors are as written."""
    check_each(FILES[file], check_case)


def test_a_wrong_case_is_named_and_the_others_are_checked() -> None:
    wrong = [replace(case, rows=["wrong"], error="") for case in FILES["sets"][:2]]
    with pytest.raises(AssertionError) as caught:
        check_each([wrong[0], FILES["sets"][2], wrong[1]], check_case)
    assert str(caught.value).startswith("2 of 3 cases:")
    assert all(f"case {case.name}\n" in str(caught.value) for case in wrong)


def check_case(case: Case) -> None:
    assert [bool(case.rows), bool(case.error), case.nothing].count(True) == 1, "a case has rows, nothing or an error"
    if case.error:
        with pytest.raises(QueryError) as caught:
            answer(parse(case.query), case.store, case.end + SETTLE_MS)
        assert case.error in str(caught.value)
        return
    query = parse(case.query)
    assert parse(str(query)).equals(query)
    matrix = answer(query, case.store, case.end + SETTLE_MS)
    assert shown(matrix) == case.rows
    for note in case.notes:
        assert any(note in given for given in matrix.notes), matrix.notes
