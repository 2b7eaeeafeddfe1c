"""The table of inputs in docs/security.md is whole: each line has a test, each znode, folder and topic has a line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from artimon.stack.topics import TOPICS

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("artimon", "bookkeeper", "sources", "pipeline", "varstore", "query_dsl", "alerts")
_PLACE = re.compile(r"/artimon/([a-z][a-z-]*)(?:/.*)?")
COLUMNS = 5


def input_rows() -> list[list[str]]:
    page = (ROOT / "docs" / "security.md").read_text()
    section = page.partition("\n## Inputs\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def constants() -> Iterator[tuple[Path, str]]:
    """Texts of the product's code, those within f-strings too, but for docstrings."""
    for folder in PRODUCT:
        for file in (ROOT / folder).rglob("*.py"):
            tree = ast.parse(file.read_text())
            documents = {
                id(node.value)
                for node in ast.walk(tree)
                if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            }
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
                    yield file, node.value


def test_every_line_names_a_test_that_exists() -> None:
    assert len(input_rows()) > 25
    for row in input_rows():
        assert len(row) == COLUMNS, row
        assert all(row), f"an empty cell: {row}"
        file, _, name = row[-1].strip("`").partition("::")
        assert re.search(rf"^(async )?def {re.escape(name)}\(", (ROOT / file).read_text(), re.MULTILINE), row[-1]


def test_every_znode_and_folder_that_the_code_knows_has_a_line() -> None:
    listed = " ".join(row[0] for row in input_rows())
    found = {match[1]: file for file, text in constants() if (match := _PLACE.fullmatch(text))}
    assert len(found) > 15
    for name, file in found.items():
        assert f"`/artimon/{name}`" in listed, f"/artimon/{name} of {file.relative_to(ROOT)} is not in docs/security.md"


def test_every_topic_has_a_line() -> None:
    listed = " ".join(row[0] for row in input_rows())
    for topic in TOPICS:
        assert f"`{topic.name}`" in listed, topic.name
