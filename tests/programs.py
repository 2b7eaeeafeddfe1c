"""Debian programs that tests use. A test without its program is skipped with the reason; under CI it fails."""

from __future__ import annotations

import os
from functools import cache

import pytest

from artimon.runtime import settings
from scripts.programs import Program, find


@cache
def _found(name: str) -> Program | None:
    return find(name, settings.load().cache)


def require(name: str) -> Program:
    """Path of the program. Without it the test is skipped with the remedy, or fails under CI."""
    program = _found(name)
    if program is None:
        text = f"{name} is not on this machine: `./scripts/setup --programs {name}` fetches it"
        if os.environ.get("CI"):
            pytest.fail(text)
        pytest.skip(text)
    return program
