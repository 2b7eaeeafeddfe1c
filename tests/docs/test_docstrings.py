"""Examples in docstrings are right, and the docstring of a package names modules that exist."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("alerts", "artimon", "bookkeeper", "pipeline", "query_dsl", "sources", "varstore")
SOURCES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
WITH_EXAMPLES = [path for path in SOURCES if re.search(r"^\s*>>> ", path.read_text(), re.MULTILINE)]
ROW = re.compile(r"^ {4}(\w+(?:, \w+)*) {2,}\S", re.MULTILINE)


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_of_docstrings_hold(path: Path) -> None:
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    assert doctest.testmod(module).failed == 0


def test_tables_of_modules_name_files_that_exist() -> None:
    missing = [
        f"{path.parent.relative_to(ROOT)}: {name}"
        for path in SOURCES
        if path.name == "__init__.py"
        for row in ROW.findall(ast.get_docstring(ast.parse(path.read_text())) or "")
        for name in row.split(", ")
        if not (path.parent / f"{name}.py").exists() and not (path.parent / name).exists()
    ]
    assert missing == []
