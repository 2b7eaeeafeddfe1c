"""The example shop and its visitors as processes, for tests here and for those of the notebook."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.bookkeeper.polling import hear

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@contextlib.contextmanager
def example(name: str, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A program of the examples; killed at the end if it still runs."""
    command = [sys.executable, "-P", str(EXAMPLES / f"{name}.py"), *arguments]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": "/usr/bin:/bin", **environment},
    ) as running:
        try:
            yield running
        finally:
            running.kill()


@contextlib.contextmanager
def shop(*arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The shop on any port, and its address."""
    with example("shop", "--port", "0", *arguments, **environment) as running:
        yield running, hear(running).removeprefix("Shop: ")


def visit(url: str, *arguments: str, **environment: str) -> dict[str, Mapping[str, Any]]:
    """Let visitors in until they end by themselves; what they saw."""
    with example("shop_load", "--url", url, *arguments, **environment) as running:
        told, errors = running.communicate(timeout=60)
    assert running.returncode == 0, errors
    assert errors == ""
    found: dict[str, Mapping[str, Any]] = json.loads(told)
    return found
