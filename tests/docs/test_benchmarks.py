"""Every benchmark that is named somewhere as `artimon bench NAME` exists, and those that are part of another can be run
by it."""

from __future__ import annotations

import importlib
import re

import pytest

from artimon.stack.bench import known_benchmarks
from benchmarks import varstore
from tests.docs.test_architecture import DOCUMENTS, ROOT

NAMED = re.compile(r"artimon bench ([a-z]\w*)")
TEXTS = [*DOCUMENTS, *sorted((ROOT / "benchmarks").glob("*.py"))]


def test_benchmarks_that_are_named_exist() -> None:
    assert {name for path in TEXTS for name in NAMED.findall(path.read_text())} <= set(known_benchmarks())


@pytest.mark.parametrize("name", varstore.OTHERS)
def test_a_part_of_a_benchmark_can_be_run(name: str) -> None:
    assert callable(importlib.import_module(f"benchmarks.{name}").run)
