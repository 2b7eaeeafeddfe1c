"""Every benchmark that is named somewhere as `artimon bench NAME` exists, and those that are part of another can be run
by it."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter

import pytest

from artimon.stack.bench import known_benchmarks
from benchmarks import varstore
from tests.docs.test_architecture import DOCUMENTS, ROOT

NAMED = re.compile(r"artimon bench ([a-z]\w*)")
TEXTS = [*DOCUMENTS, *sorted((ROOT / "benchmarks").glob("*.py"))]


PROMISED = (
    *("pipeline", "pipeline.raw", "pipeline.cpu", "lag.hdfs.p99", "lag.buckets.p99"),
    *("storage.mixed", "storage.walk", "storage.read"),
    *("varstore.ingest", "varstore.ingest.unknown", "varstore.density", "varstore.density.mixed", "varstore.select"),
    *("varstore.rack", "varstore.rack.http", "varstore.restart"),
)
"""Names of lines that others look for: they stay as they are."""


def test_promised_lines_are_printed_in_one_place_each_and_documented() -> None:
    texts = [ast.parse(path.read_text()) for path in (ROOT / "benchmarks").rglob("*.py")]
    words = Counter(node.value for text in texts for node in ast.walk(text) if isinstance(node, ast.Constant))
    assert {name: words[name] for name in PROMISED if words[name] != 1} == {}
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert [name for name in PROMISED if f"`{name}`" not in page] == []


def test_benchmarks_that_are_named_exist() -> None:
    assert {name for path in TEXTS for name in NAMED.findall(path.read_text())} <= set(known_benchmarks())


@pytest.mark.parametrize("name", varstore.OTHERS)
def test_a_part_of_a_benchmark_can_be_run(name: str) -> None:
    assert callable(importlib.import_module(f"benchmarks.{name}").run)
