"""The command `artimon`. Data goes to standard output, messages to standard error; exit codes 0 good, 1 bad, 2 misuse.

Commands import what they need when they run, so that each process loads its own part only."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
from collections.abc import Sequence
from types import ModuleType

import typer

from artimon.commands import (
    agents,
    config,
    deadletter,
    direct,
    history,
    kafka_topics,
    processes,
    query,
    questions,
    shards,
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
PANELS: dict[str, tuple[ModuleType, ...]] = {
    "On this machine": (stack,),
    "Ask": (query, questions, history),
    "Look after": (agents, config, shards, wal, deadletter, direct, sites, kafka_topics),
    "Run one process": (processes,),
}
"""Under which headings `--help` lists the commands."""
for panel, groups in PANELS.items():
    for group in groups:
        for command in (*group.app.registered_commands, *group.app.registered_groups):
            command.rich_help_panel = panel
        app.add_typer(group.app)


class _Leave:
    """Ends the process with `code` once every other handler of exit has run, without taking the interpreter apart:
    threads of Arrow that let go of a Python file just then would abort it (SIGABRT after a complete answer)."""

    code = 1

    def __call__(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # whoever read it is gone
                stream.flush()
        os._exit(self.code)


def main(arguments: Sequence[str] | None = None, job: object = None) -> None:
    """Entry point. Errors of ours are one line; any other is a defect and keeps its traceback.

    `arguments`: default, those of the process; `job`: see artimon.commands.stack.up."""
    logging.getLogger("kazoo").addHandler(logging.NullHandler())  # a command's own message says what matters
    leave = _Leave()
    atexit.register(leave)  # the first to be registered is the last to be called
    try:
        _run(arguments, job)
        leave.code = 0
    except SystemExit as end:
        leave.code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        raise


def _run(arguments: Sequence[str] | None, job: object) -> None:
    from artimon.settings import SettingsError
    from artimon.stack.errors import JavaMissing, StackError

    try:
        app(arguments, obj=job)
    except (JavaMissing, SettingsError) as problem:
        say(f"artimon: {problem}")
        sys.exit(2)
    except StackError as problem:
        say(f"artimon: {problem}")
        sys.exit(1)


if __name__ == "__main__":
    main()
