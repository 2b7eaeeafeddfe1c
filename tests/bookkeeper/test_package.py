"""Promises of the installed package."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import bookkeeper
from benchmarks import increment

FOLDER = Path(bookkeeper.__file__).parent
ALLOWED = {"bookkeeper", "thriftpy2", "kazoo"}


MODULES = sorted(path for path in FOLDER.rglob("*.py") if path.parent.name != "integrations")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(FOLDER)))
def test_every_module_is_python_3_9_and_imports_little(path: Path) -> None:
    """Applications are older than platforms; and they do not want our dependencies."""
    import sys

    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            top = name.partition(".")[0]
            assert top in ALLOWED or top in sys.stdlib_module_names, f"{path.name} imports {name}"


def test_the_public_names_are_there() -> None:
    """The whole interface, typed."""
    assert (FOLDER / "py.typed").exists()
    for name in bookkeeper.__all__:
        assert getattr(bookkeeper, name)
    for kind in ("integer", "double", "boolean", "string"):
        verbs = ("add_to", "set", "get", "remove") if kind in ("integer", "double") else ("set", "get", "remove")
        assert all(f"{verb}_{kind}_var" in bookkeeper.__all__ for verb in verbs)


def test_the_benchmark_prints_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """One JSON object a line, with ratios where there is a peer; figures of a short run mean nothing."""
    figures = increment.run(json=True, rounds=1, loops=50, requests=20)
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed == list(figures)
    assert [line["name"] for line in printed][:2] == ["increment.handle", "increment.call"]
    assert all(line["ratio"] > 0 for line in printed if line["peer"])
    names = [line["name"] for line in printed]
    assert len(set(names)) == len(names)
    contracts = {"increment.snapshot", "increment.bytes", "increment.web", "increment.handle@4threads"}
    peers = {"peer.prometheus_client.handle", "peer.prometheus_client.call", "peer.opentelemetry.call"}
    assert contracts | peers <= set(names)
