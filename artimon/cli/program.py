"""Command `artimon`.

Data goes to standard output, messages to standard error; exit codes: 0 success, 1 failure, 2 wrong usage."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

import typer

from artimon.cli.common import Panel, print_error

PROCESSES = ("agent_command", "processes", "alert_engine")
"""Modules with the commands of processes: these load no other commands."""


def _module(name: str) -> ModuleType:
    return import_module(f"{__package__}.commands.{name}")


def _command_names(app: typer.Typer) -> set[str]:
    named = [(one.name, one.callback) for one in app.registered_commands]
    return {name or callback.__name__ for name, callback in named if callback} | {
        one.name for one in app.registered_groups if one.name
    }


def _program_of(modules: Iterable[ModuleType]) -> typer.Typer:
    """Return a program with the commands of these modules, sorted by panel."""
    program = typer.Typer(
        name="artimon",
        help="Typed, labelled variables: collected, stored exactly once, queried by equivalence classes.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=True,
    )
    for module in sorted(modules, key=lambda module: list(Panel).index(module.PANEL)):
        for command in (*module.app.registered_commands, *module.app.registered_groups):
            command.rich_help_panel = module.PANEL
        program.add_typer(module.app)
    return program


@cache
def _whole_program() -> typer.Typer:
    """Return the program with all commands."""
    return _program_of(map(_module, _module_names()))


def _module_names() -> list[str]:
    return sorted(one.name for one in iter_modules(import_module(f"{__package__}.commands").__path__))


def _program_for(arguments: Sequence[str]) -> typer.Typer:
    """Return a program that has the command of these arguments."""
    for name in PROCESSES if arguments else ():
        if name in _module_names() and arguments[0] in _command_names(_module(name).app):
            return _program_of([_module(name)])
    return _whole_program()


def __getattr__(name: str) -> typer.Typer:
    """Make the attribute `app`, the program with all commands, when it is first used."""
    if name != "app":
        raise AttributeError(name)
    return _whole_program()


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
    from artimon.runtime.version import MissingLibraryError, requirements_named
    from artimon.stack.stack_errors import JavaMissingError, StackError

    try:
        given = sys.argv[1:] if arguments is None else arguments
        with requirements_named():
            _program_for(given)(given, obj=job)
    except (JavaMissingError, MissingLibraryError, SettingsError) as problem:
        print_error(f"artimon: {problem}")
        sys.exit(2)
    except StackError as problem:
        print_error(f"artimon: {problem}")
        sys.exit(1)
