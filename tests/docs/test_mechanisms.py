"""docs/transport.md: each mechanism of the predecessors has one row, and what a row names exists."""

from __future__ import annotations

import re
from pathlib import Path

from tests.docs.test_scenarios import names_in

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| (\d\.\d+) \| ([^|]+) \| (\w+) \| (.+) \|$", re.MULTILINE)
NAMED = re.compile(r"`([\w/]+\.py)::(\w+)`")
CODE = re.compile(r"`(pipeline/[\w/.]+|artimon/[\w/.]+\.py)`")
COUNTS = {"0": 22, "1": 14, "2": 28, "3": 14}

ROWS = ROW.findall((ROOT / "docs" / "transport.md").read_text())


def test_each_mechanism_has_one_row() -> None:
    wanted = [f"{part}.{n}" for part, count in COUNTS.items() for n in range(1, count + 1)]
    assert [row[0] for row in ROWS] == wanted
    assert {row[2] for row in ROWS} == {"here", "replaced", "refused"}
    assert sum(row[2] == "refused" for row in ROWS) <= 10


def test_a_replacement_names_a_test_that_exists() -> None:
    for id, _, kind, where in ROWS:
        tests = NAMED.findall(where)
        assert tests or kind != "replaced", f"{id} names no test"
        for path, name in tests:
            assert name in names_in(ROOT / "tests" / "pipeline" / path), f"{id}: {path}::{name}"


def test_code_that_is_named_exists() -> None:
    missing = [(id, path) for id, _, _, where in ROWS for path in CODE.findall(where) if not (ROOT / path).exists()]
    assert missing == []
