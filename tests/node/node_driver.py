"""A program of Node.js that answers calls: one JSON line each, `{"call": NAME, …}`, answered by one line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from artimon.runtime import settings
from scripts.node_packages import NodeError, ensure
from tests.waiting import LIMIT_S

FOLDER = Path(__file__).parent


@cache
def _installed(name: str) -> Path | str:
    try:
        return ensure(FOLDER / name, settings.load().cache)
    except NodeError as problem:
        return f"{problem}; `python -m scripts.node_packages tests/node/{name}` installs what this test needs"


def find(name: str) -> Path | None:
    """Return the folder of tests/node/`name` with its packages, None if they cannot be had."""
    found = _installed(name)
    return found if isinstance(found, Path) else None


def require(name: str) -> Path:
    """Return the folder of tests/node/`name` with its packages. Without them the test is skipped with the remedy."""
    found = _installed(name)
    if isinstance(found, str):
        pytest.skip(found)
    return found


class NodeDriver:
    """One process; calls come one after another."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def call(self, name: str, **arguments: Any) -> Any:
        """Return the answer of a call. Raises AssertionError with the error of the program."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"call": name, **arguments}) + "\n")
        stdin.flush()
        line = stdout.readline()
        assert line, f"the program ended with {self._process.wait(LIMIT_S)}"
        told = json.loads(line)
        assert "error" not in told, told["error"]
        return told.get("value")


@contextmanager
def driving(command: Sequence[str | Path], folder: Path) -> Iterator[NodeDriver]:
    """Run a program of Node.js; it ends with its standard input."""
    with subprocess.Popen(
        ["node", *command], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield NodeDriver(process)
        finally:
            process.kill()
