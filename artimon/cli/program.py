"""Command `artimon`.

Data goes to standard output, messages to standard error; exit codes: 0 success, 1 failure, 2 wrong usage."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import typer

from artimon.cli.common import Panel, print_error

app = typer.Typer(
    name="artimon",
    help="Typed, labelled variables: collected, stored exactly once, queried by equivalence classes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
)


def _command_modules() -> list[ModuleType]:
    """Import the modules of commands, sorted by panel, then by name."""
    package = f"{__package__}.commands"
    names = sorted(one.name for one in iter_modules(import_module(package).__path__))
    found = [import_module(f"{package}.{name}") for name in names]
    return sorted(found, key=lambda module: list(Panel).index(module.PANEL))


for module in _command_modules():
    for command in (*module.app.registered_commands, *module.app.registered_groups):
        command.rich_help_panel = module.PANEL
    app.add_typer(module.app)


class _ExitHandler:
    """Ends the process with `code` after all other exit handlers, without the interpreter's finalization: Arrow threads
    that release a Python file during it abort the process (SIGABRT after a complete answer)."""

    code = 1

    def __call__(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # the reader has closed it
                stream.flush()
        os._exit(self.code)


def main(arguments: Sequence[str] | None = None, job: object = None) -> None:
    """Entry point. Errors of our own types print one line; any other is a defect and keeps its traceback.

    `arguments`: by default those of the process; `job`: see artimon.cli.commands.machine.up."""
    logging.getLogger("kazoo").addHandler(logging.NullHandler())  # the command's own message is enough
    leave = _ExitHandler()
    atexit.register(leave)  # the handler registered first is called last
    try:
        _run(arguments, job)
        leave.code = 0
    except SystemExit as end:
        leave.code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        raise


def _run(arguments: Sequence[str] | None, job: object) -> None:
    from artimon.runtime.settings import SettingsError
    from artimon.stack.stack_errors import JavaMissingError, StackError

    try:
        app(arguments, obj=job)
    except (JavaMissingError, SettingsError) as problem:
        print_error(f"artimon: {problem}")
        sys.exit(2)
    except StackError as problem:
        print_error(f"artimon: {problem}")
        sys.exit(1)
