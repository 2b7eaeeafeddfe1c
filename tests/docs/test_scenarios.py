"""docs/transport_scenarios.md: each of the 42 scenarios has a row, and each test that a row names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "transport_scenarios.md"
NAMED = re.compile(r"(tests/[\w/]+\.py)::(\w+)")
NUMBERED = re.compile(r"^def (test_scenarios?_(\d\d)(?:_and_(\d\d))?_\w+)", re.MULTILINE)


def scenario_rows() -> dict[int, str]:
    found = {}
    for line in PAGE.read_text().splitlines():
        if match := re.match(r"\| (\d+) \|", line):
            assert int(match[1]) not in found, f"{match[1]} stands twice"
            found[int(match[1])] = line
    return found


@cache
def names_in(path: Path) -> frozenset[str]:
    if not path.is_file():
        return frozenset()
    nodes = ast.walk(ast.parse(path.read_text()))
    return frozenset(n.name for n in nodes if isinstance(n, ast.FunctionDef) and n.name.startswith("test"))


def test_each_scenario_has_a_row_and_a_test() -> None:
    assert sorted(scenario_rows()) == list(range(1, 43))
    assert [number for number, line in scenario_rows().items() if not NAMED.search(line)] == []


def test_every_named_test_exists() -> None:
    missing = [
        f"{number}: {path}::{name}"
        for number, line in scenario_rows().items()
        for path, name in NAMED.findall(line)
        if name not in names_in(ROOT / path)
    ]
    assert missing == []


def test_every_test_that_is_named_after_a_scenario_stands_in_its_row() -> None:
    found = scenario_rows()
    left_out = [
        f"{number}: {where}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for match in NUMBERED.finditer(path.read_text())
        for number in filter(None, match.groups()[1:])
        if (where := f"{path.relative_to(ROOT)}::{match[1]}") not in re.split("[, ]+", found[int(number)])
    ]
    assert left_out == []
