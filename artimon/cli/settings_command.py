"""Commands whose options are generated from settings classes (artimon/runtime/process_options.py)."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from artimon.cli.common import as_usage_error, locate_settings, option_validator
from artimon.runtime.process_options import BoundOption, bound_options, nested_settings
from artimon.runtime.settings import Settings

S = TypeVar("S")


class OptionValues:
    """Values of the command line of a process, by parameter name."""

    def __init__(self, values: Mapping[str, Any], data: Path | None) -> None:
        """`data`: data folder of the stack whose servers are the defaults; None: the default folder."""
        self._values, self._data = values, data

    @cached_property
    def defaults(self) -> Settings:
        """Default addresses of the servers."""
        return locate_settings(self._data)

    def make(self, cls: type[S], **more: Any) -> S:
        """Create an instance of a settings class. Precedence: `more`, the command line, server addresses, the field's
        default. Exits with 2 for an invalid value."""
        chosen: dict[str, Any] = {
            name: self.make(inner) for name, inner in nested_settings(cast(Any, cls)) if name not in more
        }
        for bound in bound_options(cast(Any, cls)):
            value = self._value(bound)
            if value is not None and bound.field.name not in more:
                chosen[bound.field.name] = value
        return cls(**chosen, **more)

    def _value(self, bound: BoundOption) -> Any:
        """Return the value of an option, None for the field's own default."""
        option, written = bound.option, self._values[bound.name]
        if written is None or written == [] or option.of_stack:
            written = option.default_of(self.defaults) if option.default_of else None
        if written is None:
            return None
        if option.read and (isinstance(written, option.kind or str) or option.multiple):
            return as_usage_error(option.read, written)
        if option.unit != 1:
            return written * option.unit
        return tuple(written) if isinstance(written, list) else written


class _SettingsParameters:
    """Options of a command that imports its settings classes when they are first needed, so that the list of all
    commands, and every other command, starts without them."""

    callback: Any

    @cached_property
    def _all_params(self) -> TyperCommand:
        made = typer.Typer(add_completion=False)
        made.command()(_with_options(*self.callback.declared))
        return cast(TyperCommand, typer.main.get_command(made))

    @property
    def params(self) -> list[Any]:
        return self._all_params.params

    @params.setter
    def params(self, given: list[Any]) -> None:
        """Ignore the parameters of the placeholder, which has none."""


class SettingsCommand(_SettingsParameters, TyperCommand):
    """Command whose options come from settings classes."""

    def invoke(self, ctx: Any) -> Any:
        return ctx.invoke(self._all_params.callback, **ctx.params)


class SettingsGroup(_SettingsParameters, TyperGroup):
    """Command whose options come from settings classes, and which has commands below it, without these options."""

    def invoke(self, ctx: Any) -> Any:
        if not ctx._protected_args:
            return ctx.invoke(self._all_params.callback, **ctx.params)
        given = [name for name in ctx.params if ctx.get_parameter_source(name).name == "COMMANDLINE"]
        if given:
            raise typer.BadParameter(
                f"--{given[0].replace('_', '-')} goes with `{ctx.command_path}` alone: write it last"
            )
        ctx.params.clear()  # the placeholder has none
        return super().invoke(ctx)


def settings_command(app: typer.Typer, *classes: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a command that gets `OptionValues` and its own options. `classes`: "module:Class" of settings."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        app.command(cls=SettingsCommand)(_placeholder(function, classes))
        return function

    return register


def settings_group(app: typer.Typer, *classes: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make the function the command of `app` itself, beside the commands below it. As `settings_command`."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        app.callback(cls=SettingsGroup, invoke_without_command=True)(_placeholder(function, classes))
        return function

    return register


def _placeholder(function: Callable[..., None], classes: tuple[str, ...]) -> Callable[[], None]:
    def placeholder() -> None:
        """Placeholder: the class of the command builds the command itself."""

    placeholder.__name__, placeholder.__doc__ = function.__name__, function.__doc__
    placeholder.declared = (function, classes)  # type: ignore[attr-defined]
    return placeholder


def _with_options(function: Callable[..., None], names: Sequence[str]) -> Callable[..., None]:
    """Return a function with a parameter for each option of the classes and each of the function's own."""
    found = list(_all_options(resolve_name(name) for name in names))
    options = {bound.name: bound for bound in reversed(found)}
    folder = next((name for name, bound in options.items() if bound.option.of_stack), "")
    _, *own = inspect.signature(function, eval_str=True).parameters.values()

    def run(**values: Any) -> None:
        given = OptionValues({name: values[name] for name in options}, values.get(folder))
        function(given, **{one.name: values[one.name] for one in own})

    parameters = [_parameter(options[name]) for name in dict.fromkeys(bound.name for bound in found)]
    own = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
    run.__signature__ = inspect.Signature([*parameters, *own])  # type: ignore[attr-defined]
    run.__doc__ = function.__doc__
    return run


def _all_options(classes: Iterable[type]) -> Iterator[BoundOption]:
    for cls in classes:
        yield from bound_options(cls)
        yield from _all_options(inner for _, inner in nested_settings(cls))


def _parameter(bound: BoundOption) -> inspect.Parameter:
    option = bound.option
    declared = typer.Option(
        *([option.flag] if option.flag else []),
        help=option.help,
        min=option.min,
        max=option.max,
        callback=option_validator(option.read, option.check),
    )
    default, kind = _default(bound), _kind(bound)
    hint = Annotated[kind | None if default is None else kind, declared]  # type: ignore[valid-type]
    return inspect.Parameter(bound.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _default(bound: BoundOption) -> Any:
    """Return the default as a user writes it; None: computed, or none to show; empty: the option is required."""
    option, default = bound.option, bound.default
    if option.default is not None or option.default_of:
        return option.default
    if default is MISSING:
        return inspect.Parameter.empty
    if default is None or option.multiple or isinstance(default, tuple | list):
        return None
    if option.read:
        return option.show(default)
    return default if option.unit == 1 else _kind(bound)(default / option.unit)


def _kind(bound: BoundOption) -> Any:
    """Return the type of the parameter."""
    if bound.option.read or bound.option.kind:
        kind = bound.option.kind or str
        return list[kind] if bound.option.multiple else kind  # type: ignore[valid-type]
    hint = bound.hint
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(one for one in get_args(hint) if one is not types.NoneType)
    origin = get_origin(hint)
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return list[get_args(hint)[0]]  # type: ignore[misc]
    return hint
