"""Debian programs and namespaces that tests use. A test without them is skipped with the reason; under CI it fails."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

from artimon.runtime import settings
from scripts.programs import Program, find

ISOLATED = Path(__file__).resolve().parents[1] / "scripts" / "isolated"


@cache
def _found(name: str) -> Program | None:
    return find(name, settings.load().cache)


def require(name: str) -> Program:
    """Path of the program. Without it the test is skipped with the remedy, or fails under CI."""
    program = _found(name)
    if program is None:
        _leave_out(f"{name} is not on this machine: `./scripts/setup --programs {name}` fetches it")
    return program


def require_isolated() -> str:
    """Path of scripts/isolated. Where namespaces cannot be made, its error says how to permit them."""
    done = subprocess.run([ISOLATED, "true"], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 2:
        _leave_out(done.stderr)
    return str(ISOLATED)


def _leave_out(text: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(text)
    pytest.skip(text)
