"""The documents name files that exist, and say what the program says."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FOLDERS = "alerts|artimon|benchmarks|bookkeeper|clients|examples|pipeline|query_dsl|scripts|sources|tests|varstore"
PACKAGES = ("alerts", "artimon", "bookkeeper", "pipeline", "query_dsl", "sources", "varstore")
FOREIGN = ("CHANGELOG", "CONTRIBUTING", "Counter", "Gauge", "NAME", "Poller", "PREFIX", "REGISTRY", "Value")
CODE = re.compile(rf"`((?:{FOLDERS})/[\w./-]+\.\w+)`")
BARE = re.compile(r"`(\w+\.(?:py|js|thrift))`")
DOTTED = re.compile(r"`([A-Z]\w+)\.(\w+)`")
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_a_document_names_exist(document: Path) -> None:
    text = document.read_text()
    missing = [name for name in CODE.findall(text) if not (ROOT / name).exists()]
    missing += [link for link in LINK.findall(text) if not (document.parent / link).exists()]
    assert not missing


def test_files_named_without_a_folder_exist() -> None:
    """`greeter.py` is the file that the tutorial asks the reader to write."""
    names = {path.name for root in FOLDERS.split("|") for path in (ROOT / root).rglob("*.*")} | {"greeter.py"}
    missing = [(d.name, name) for d in DOCUMENTS for name in BARE.findall(d.read_text()) if name not in names]
    assert missing == []


def test_methods_that_a_document_names_exist() -> None:
    """Classes of other projects (`Gauge.set_function`) are left out, as are those of the interface definitions."""
    members: dict[str, set[str]] = {}
    for root in PACKAGES:
        for path in (ROOT / root).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    members.setdefault(node.name, set()).update(_names_in(node))
    missing = [
        f"{document.name}: {owner}.{name}"
        for document in DOCUMENTS
        for owner, name in DOTTED.findall(document.read_text())
        if owner not in FOREIGN and name not in members.get(owner, ())
    ]
    assert missing == []


def _names_in(node: ast.ClassDef) -> set[str]:
    names = {part.name for part in ast.walk(node) if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)}
    names |= {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
    return names | {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def test_the_import_order_is_that_of_the_contracts() -> None:
    """docs/architecture.md shows the layers that import-linter enforces."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    order = text.split("## Import order")[1].split("```")[1]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [one for one in contracts if one["type"] == "layers"]
    packages = {one["containers"][0]: one["layers"] for one in layers if len(one.get("containers", ())) == 1}
    roots = next(one["layers"] for one in layers if "containers" not in one)
    shown = dict(line.split(": ", 1) for line in order.splitlines() if ": " in line)
    assert " ".join(order.split("bookkeeper:")[0].split()) == " > ".join(roots)
    assert shown == {name: " > ".join(packages[name]) for name in shown}
    assert set(shown) == set(PACKAGES) - {"artimon"}


def test_the_walk_of_one_sample_names_every_package_on_its_way() -> None:
    walked = {name.split("/")[0] for name in CODE.findall((ROOT / "docs" / "architecture.md").read_text())}
    assert walked >= {"bookkeeper", "sources", "pipeline", "varstore", "query_dsl", "artimon"}
