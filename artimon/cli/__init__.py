"""The command line `artimon`: the roof of the platform, which may import every other package.

Reading order: `program` (entry point, list of commands), `common` (options and messages that commands share),
`settings_command` (options made from the settings class of a process), `clusters` (commands that speak to several
clusters), `asking` (the answer to `artimon query`), then `commands`: each module there is a group of commands and
registers itself by standing there. Commands import what they need when they run, so that each process loads its own
part only.
"""

from __future__ import annotations

from artimon.cli.program import app, main

__all__ = ["app", "main"]
