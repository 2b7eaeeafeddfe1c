"""The commands that a process loads: its own module of commands, not all."""

from __future__ import annotations

import pytest
from typer.main import get_command

from artimon.cli.program import _program_for


def commands(*arguments: str) -> set[str]:
    return set(get_command(_program_for(arguments)).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["agent", "collector", "shard", "spark", "compactor", "api", "smtp", "alerts"])
def test_a_process_loads_its_own_module_of_commands(name: str) -> None:
    loaded = commands(name, "--help")
    assert name in loaded
    assert "status" not in loaded


def test_every_other_command_is_found_among_all() -> None:
    assert {"status", "query", "agent", "alerts"} <= commands("status")
    assert commands("no-such-command") == commands() == commands("--help") == commands("status")
