"""Every benchmark that is named somewhere as `artimon bench NAME` exists, and those that are part of another can be run
by it."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatch

import pytest

from artimon.stack.bench import known_benchmarks
from benchmarks import page, varstore
from benchmarks.suite.aims import AIMS
from benchmarks.suite.changes import CHANGES
from benchmarks.suite.plan import PLAN
from benchmarks.suite.results import Record, read
from tests.docs.test_architecture import DOCUMENTS, ROOT

NAMED = re.compile(r"artimon bench ([a-z]\w*)")
TEXTS = [*DOCUMENTS, *sorted((ROOT / "benchmarks").glob("*.py"))]


RESULTS = ROOT / "docs" / "benchmarks.jsonl"
PROMISED = (
    *("pipeline", "pipeline.raw", "pipeline.cpu", "lag.hdfs.p99", "lag.buckets.p99"),
    *("storage.mixed", "storage.walk", "storage.read"),
    *("varstore.ingest", "varstore.ingest.unknown", "varstore.density", "varstore.density.mixed", "varstore.select"),
    *("varstore.rack", "varstore.rack.http", "varstore.restart"),
)
"""Names of lines that others look for: they stay as they are."""


REPORTS = ("emit_echo", "emit_limit", "fail", "find_peers", "run")
"""Functions that name a line only to print its limit or its failure."""


def printed_words(tree: ast.AST) -> Iterator[object]:
    """Constants, but for those that a call of one of REPORTS begins with or ends with."""
    reports: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in REPORTS:
            reports |= set(node.args)
    return (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and node not in reports)


def test_promised_lines_are_printed_in_one_place_each_and_documented() -> None:
    paths = [path for path in (ROOT / "benchmarks").rglob("*.py") if path.parent.name != "suite"]
    words = Counter(word for path in paths for word in printed_words(ast.parse(path.read_text())))
    assert {name for name in PROMISED if name not in {line for one in PLAN for line in one.promised}} == set()
    assert {name: words[name] for name in PROMISED if words[name] != 1} == {}
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert [name for name in PROMISED if f"`{name}`" not in page] == []


def test_the_page_is_made_from_the_results_and_the_template() -> None:
    """`artimon bench page docs/benchmarks.jsonl > docs/benchmarks.md` after each run."""
    records, made = read(RESULTS), (ROOT / "docs" / "benchmarks.md").read_text()
    assert made == page.page(records, page.TEMPLATE.read_text())
    assert page.digest(records, page.TEMPLATE.read_text()) in made
    for record in records[1:]:
        name = record["name"].removeprefix("benchmark.")
        rows = [line for line in made.splitlines() if line.startswith(f"| `{name}` |")]
        assert any(page.number(record.get("value")) in row or record.get("failed") for row in rows), name
    assert len({record["name"] for record in records}) == len(records)


def test_the_template_holds_no_figure() -> None:
    """Figures come from results, aims from a table; names in code may have digits."""
    text = re.sub(r"`[^`]*`", "", page.TEMPLATE.read_text())
    assert re.findall(r"[^\n]*\d[^\n]*", text) == []
    assert {name for _, name in page.PLACE.findall(page.TEMPLATE.read_text()) if name} == {one.name for one in PLAN}


def test_aims_and_changes_name_lines_of_the_plan() -> None:
    lines = {line for one in PLAN for line in one.promised_of("usual")} | {"varstore.snapshot.first.pause"}
    assert set(AIMS) | set(CHANGES) <= lines


def test_every_missed_aim_names_where_it_goes_and_other_designs() -> None:
    """`docs/tuning.md`, "Missed aims", has a row for each line of the page; a name there may end with `*`."""
    page_text, tuning = ((ROOT / "docs" / name).read_text() for name in ("benchmarks.md", "tuning.md"))
    missed = {name.removeprefix("limit.") for name in re.findall(r"(?m)^\| `(\S+)` \|.*: missed \|$", page_text)}
    section = tuning.partition("## Missed aims\n")[2].partition("\n## ")[0]
    named = {name for row in re.findall(r"(?m)^\| (`.*?) \|", section) for name in re.findall(r"`(\S+)`", row)}
    assert missed
    assert sorted(one for one in missed if not any(fnmatch(one, name) for name in named)) == []


def test_long_forms_have_the_time_that_they_need() -> None:
    """A benchmark is interrupted after a multiple of its planned duration."""
    for entry in PLAN:
        named = dict(zip(entry.arguments_of("long")[::2], entry.arguments_of("long")[1::2], strict=False))
        if entry.long is not None:
            assert entry.minutes_of("long") > entry.minutes
            assert entry.minutes_of("long") >= float(named.get("--minutes", 0)), entry.name


def test_a_page_says_what_failed_and_what_fell() -> None:
    machine = {"name": "machine", "date": "d", "commit": "c" * 40, "dirty": True, "machine": "m", "java": "17"}
    records: list[Record] = [
        {**machine, "libraries": {"numpy": "2"}, "load": 0.5, "form": "small"},
        {"name": "lag.buckets.p99", "value": 12.5, "unit": "s", "benchmark": "lag"},
        {"name": "lag.hdfs.p99", "failed": "a | b", "benchmark": "lag"},
        {"name": "benchmark.lag", "value": 60.0, "arguments": [], "load_start": 1.0, "load_end": 2.0},
    ]
    made = page.page(records, "{{machine}}\n{{runs}}\n{{failures}}\n{{changes}}\n{{lines: lag}}\n")
    assert "with changes that are not committed" in made
    assert "| form | **small: a trial" in made
    assert "| `lag.buckets.p99` | 3.4 | 12.5 | does not compare | polls spread" in made
    assert "the two columns do not compare" in made
    assert "| `lag.buckets.p99` | 12.5 | s |  |  | <= 3 at full size |" in made
    records[0]["form"] = "usual"
    made = page.page(records, "{{changes}}\n{{lines: lag}}\n")
    assert "| `lag.buckets.p99` | 3.4 | 12.5 | is worse | polls spread" in made
    assert "| `lag.buckets.p99` | 12.5 | s |  |  | <= 3: missed |" in made
    made = page.page(records, "{{failures}}\n")
    assert "| `lag.hdfs.p99` | a \\| b |" in made


def test_benchmarks_that_are_named_exist() -> None:
    assert {name for path in TEXTS for name in NAMED.findall(path.read_text())} <= set(known_benchmarks())


@pytest.mark.parametrize("name", varstore.OTHERS)
def test_a_part_of_a_benchmark_can_be_run(name: str) -> None:
    assert callable(importlib.import_module(f"benchmarks.{name}").run)
