"""Command line `artimon`: the top layer of the platform, which may import every other package.

Reading order: `program` (entry point, list of commands), `common` (shared options and messages), `settings_command`
(options generated from the settings class of a process), `clusters` (commands for several clusters), `query_output`
(output of `artimon query`), then `commands`: each module there is a group of commands and is found by its presence.
Commands import their modules when they run, so that each process loads only its own part.
"""

from __future__ import annotations

from artimon.cli.program import app, main

__all__ = ["app", "main"]
