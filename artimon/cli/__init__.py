"""Command line `artimon`: the top layer of the platform, which may import every other package.

Reading order: `program` (entry point, list of commands), `common` (shared options and messages), `settings_command`
(options generated from the settings class of a process), `clusters` (commands for several clusters), `query_output`
(output of `artimon query`), then `commands`: each module there is a group of commands and is found by its presence.
Commands import their modules when they run, so that each process loads only its own part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from artimon.cli import program
from artimon.cli.program import main

if TYPE_CHECKING:
    import typer

__all__ = ["main"]


def __getattr__(name: str) -> typer.Typer:
    """Forward `app` to `program`, which makes it when it is first used."""
    if name != "app":
        raise AttributeError(name)
    return program.app
