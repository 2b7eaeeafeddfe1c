"""The integrations bring nothing with them: Python 3.9, the standard library, a framework only when it is used."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import bookkeeper
from bookkeeper import integrations
from tests.bookkeeper.polling import REPOSITORY

FOLDER = Path(integrations.__file__).parent
MODULES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
FRAMEWORKS = ("celery", "gunicorn", "django", "flask", "starlette", "fastapi", "werkzeug", "uwsgi", "prometheus_client")


def imported(nodes: list[ast.stmt]) -> Iterator[str]:
    """Top-level names that statements import when the module is loaded."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]
        elif isinstance(node, ast.Try):
            yield from imported([*node.body, *node.orelse, *node.finalbody])


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_python_3_9_and_loads_no_framework(name: str) -> None:
    tree = ast.parse((FOLDER / f"{name}.py").read_text(), feature_version=(3, 9))
    assert set(imported(tree.body)) <= {"bookkeeper", *sys.stdlib_module_names}


def test_they_load_where_no_framework_is_and_bookkeeper_loads_none_of_them(tmp_path: Path) -> None:
    script = f"""
import sys
for name in {FRAMEWORKS}: sys.modules[name] = None
import bookkeeper
ours = [name for name in sys.modules if name.startswith("bookkeeper.")]
assert not [n for n in ours if n.startswith(("bookkeeper.export", "bookkeeper.integrations", "bookkeeper.testing"))]
import importlib
for name in {MODULES}: importlib.import_module("bookkeeper.integrations." + name)
import bookkeeper.testing, bookkeeper.exposition
assert bookkeeper.default().endpoint is None
try:
    bookkeeper.integrations.celery.install()
except ImportError:
    print("done")
"""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "done\n", done.stderr


def test_the_package_that_applications_install_has_them(tmp_path: Path) -> None:
    """The files of the wheel are those of the folder: code, contracts and the mark that it is typed."""
    from hatchling.builders.wheel import WheelBuilder

    root = Path(bookkeeper.__file__).parent
    builder = WheelBuilder(str(root))
    packed = {file.distribution_path for file in builder.recurse_included_files()}
    wanted = {f"bookkeeper/{path.relative_to(root)}" for path in root.rglob("*.py")}
    wanted |= {f"bookkeeper/{path.name}" for path in root.glob("*.thrift")} | {"bookkeeper/py.typed"}
    assert packed == wanted
