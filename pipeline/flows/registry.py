"""Registry of components: built-in ones, and those of other packages by entry points."""

from __future__ import annotations

import pkgutil
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from pydantic import BaseModel

from artimon.runtime.text import did_you_mean
from artimon.runtime.version import missing_requirement
from pipeline.flows.context import Context
from pipeline.flows.spi import Encoding, FlowError


class ComponentKind(StrEnum):
    """Kind of component; entry points are in the group `artimon.flows.<part>`."""

    SOURCE = "sources"
    CHANNEL = "channels"
    SINK = "sinks"
    INTERCEPTOR = "interceptors"
    GROUP = "groups"
    ENCODING = "encodings"


class Outside(StrEnum):
    """Kind of thing outside the flow's own folder that an option names. docs/security.md has the rules."""

    HOST = "host"
    """A program, address, port or limit on paths: only the host's own files may set it."""
    READ = "read"
    """A path that is read: pushed configuration may write `@FOLDER/...` instead."""
    WRITE = "write"
    """A folder that is written: as READ, and the folder must allow it."""


ADDRESS: Mapping[str, Outside] = {"host": Outside.HOST, "port": Outside.HOST}
"""Outside options of a source that listens."""


class UnknownComponentError(FlowError):
    """No component has this name. The message suggests similar names."""


class BrokenComponentError(FlowError):
    """An entry point that cannot be loaded or does not name a Component."""


@dataclass(frozen=True, slots=True)
class Component:
    """Declaration of a component. `name`: its `type` in configurations; `options`: validated before anything is built,
    unknown ones refused; `build(options, context)`: makes it, without I/O except for checks that must fail early."""

    name: str
    options: type[BaseModel]
    build: Callable[[Any, Context], Any]
    terminal: bool = True
    """Of a sink: True if a delivered event batch is stored for good, False if it went to another agent."""
    durable: bool = True
    """Of a channel: True if accepted event batches survive the process."""
    branches: bool = True
    """Of a channel: True if several sinks can read it, each at its own pace."""
    outside: Mapping[str, Outside] | None = None
    """Options that name something outside the flow. None: not declared, so only the host's own files may use the
    component; {}: it touches only the flow's folder and memory."""


_OURS = frozenset(("artimon", "bookkeeper", "pipeline", "sources"))


class Registry:
    """Components by part and name. Entry points are loaded on first use."""

    def __init__(self, entries: Callable[[str], Iterable[Any]] | None = None) -> None:
        """`entries(group)`: the entry points of a group; default: those of the installed packages."""
        self._entries = entries or (lambda group: entry_points(group=group))
        self._components: dict[ComponentKind, dict[str, Component]] = {part: {} for part in ComponentKind}
        self._lock = threading.Lock()
        self._unread: dict[ComponentKind, ModuleType] = {}
        self._missing: dict[ComponentKind, dict[str, str]] = {part: {} for part in ComponentKind}
        """Module that could not be imported -> reason."""

    def add_package(self, part: ComponentKind, package: ModuleType) -> None:
        """Register the components of a package. It is imported at the first use of the part: an agent without flows
        needs none of its libraries. Modules whose libraries are not installed are left out."""
        self._unread[part] = package

    def _known(self, part: ComponentKind) -> dict[str, Component]:
        with self._lock:  # flows start in several threads
            package = self._unread.pop(part, None)
            if package is not None:
                self.add(part, *declared_in(package, self._missing[part]))
        return self._components[part]

    def add(self, part: ComponentKind, *components: Component) -> None:
        """Register components. Raises FlowError for a name that is taken."""
        for component in components:
            if component.name in self._components[part]:
                raise FlowError(f"two {part} are called {component.name}")
            self._components[part][component.name] = component

    def names(self, part: ComponentKind) -> list[str]:
        """Return every name that `find` knows, sorted."""
        return sorted({*self._known(part), *(entry.name for entry in self._entries(f"artimon.flows.{part}"))})

    def built_in(self, part: ComponentKind, name: str) -> Component | None:
        """Return a component added to this registry. Never loads an entry point."""
        return self._known(part).get(name)

    def encoding(self, name: str, context: Context) -> Encoding:
        """Build an encoding with its default options. Raises as `find`."""
        component = self.find(ComponentKind.ENCODING, name)
        made: Encoding = component.build(component.options(), context)
        return made

    def find(self, part: ComponentKind, name: str) -> Component:
        """Return a component, added ones before entry points. Raises UnknownComponentError, BrokenComponentError."""
        if own := self._known(part).get(name):
            return own
        for entry in self._entries(f"artimon.flows.{part}"):
            if entry.name == name:
                return _load(entry, part)
        hint = did_you_mean(name, self.names(part))
        if missing := self._missing[part]:
            hint += f"; not loaded: {', '.join(sorted(missing))}, because {', '.join(sorted(set(missing.values())))}"
        raise UnknownComponentError(f"no {part.value[:-1]} is called {name!r}{hint}")


def declared_in(module: ModuleType, missing: dict[str, str]) -> list[Component]:
    """Return the components that a module or the modules of a package declare, so that a new one is one file. Adds to
    `missing` each module that needs a library which is not installed, with the reason."""
    found = [one for one in vars(module).values() if isinstance(one, Component)]
    for part in pkgutil.iter_modules(getattr(module, "__path__", ())):
        try:
            found += declared_in(import_module(f"{module.__name__}.{part.name}"), missing)
        except ModuleNotFoundError as error:
            library = (error.name or "").partition(".")[0]
            if library in _OURS:
                raise
            missing[part.name] = f"{library} is not installed"
            if wanted := missing_requirement(error):
                missing[part.name] += f" (pip install '{wanted}')"
    return found


def _load(entry: Any, part: ComponentKind) -> Component:
    try:
        found = entry.load()
    except Exception as error:
        raise BrokenComponentError(
            f"{part.value[:-1]} {entry.name} ({entry.value}) cannot be loaded: {error}"
        ) from error
    if not isinstance(found, Component):
        raise BrokenComponentError(f"{part.value[:-1]} {entry.name} ({entry.value}) is not a pipeline.flows Component")
    return found
