"""Debian programs that tests use: found, or the test is left out with the reason, which under CI is a failure."""

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
    """The program, or the test is skipped: ./scripts/test says how to get it. Fails under CI."""
    program = _found(name)
    if program is None:
        text = f"{name} is not on this machine: `./scripts/setup --programs {name}` fetches it"
        if os.environ.get("CI"):
            pytest.fail(text)
        pytest.skip(text)
    return program
