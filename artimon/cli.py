"""The command `artimon`. Data goes to standard output, messages to standard error; exit codes 0 good, 1 bad, 2 misuse.

Commands import what they need when they run, so that each process loads its own part only."""

from __future__ import annotations

import sys

import typer

from artimon.commands import (
    agents,
    config,
    deadletter,
    direct,
    history,
    processes,
    questions,
    shards,
    simulate,
    sites,
    stack,
    wal,
)
from artimon.commands.common import say

app = typer.Typer(
    name="artimon",
    help="Typed, labelled variables: collected, stored exactly once, asked by equivalence classes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)
for group in (stack, processes, questions, history, deadletter, direct, shards, agents, config, simulate, sites, wal):
    app.add_typer(group.app)


def main() -> None:
    """Entry point. Errors of ours are one line; any other is a defect and keeps its traceback."""
    from artimon.settings import SettingsError
    from artimon.stack.errors import JavaMissing, StackError

    try:
        app()
    except (JavaMissing, SettingsError) as problem:
        say(f"artimon: {problem}")
        sys.exit(2)
    except StackError as problem:
        say(f"artimon: {problem}")
        sys.exit(1)


if __name__ == "__main__":
    main()
