"""The host's own file of parts and folders: the only way for pushed configuration to reach outside a flow's folder.

Pushed configuration writes `{ part = "NAME" }` for a component that this file defines, and `@FOLDER/...` for a path
below a folder that it allows. Everything else that names a program, a path or an address is refused, and so is every
component that does not declare what its options name.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationInfo

from artimon.runtime.config_file import read_config
from artimon.runtime.config_model import Conversion, Section
from artimon.runtime.text import did_you_mean
from pipeline.flows.config.flow_config import BranchOptions
from pipeline.flows.config.flow_file import find_component
from pipeline.flows.registry import Component, ComponentKind, Outside, Registry
from pipeline.flows.spi import FlowError

_KINDS = {
    "source": ComponentKind.SOURCE,
    "channel": ComponentKind.CHANNEL,
    "sink": ComponentKind.SINK,
    "interceptor": ComponentKind.INTERCEPTOR,
}
_BRANCH = frozenset(BranchOptions.model_fields)
_REMEDY = "define it in the agent's own file (artimon agent --allow FILE, docs/security.md)"


class NotAllowedError(FlowError):
    """Pushed configuration names something that only the host may name."""


@dataclass(frozen=True, slots=True)
class AllowedFolder:
    """A folder that pushed parts may use below. `path`: absolute, or an hdfs:// URI; `write`: whether sinks may write
    there."""

    path: str
    write: bool = False

    def below(self, rest: str) -> str:
        """Return the place of `rest` in the folder. Raises NotAllowedError for anything that leads out by its text."""
        steps = rest.split("/")
        if rest and (any(step in ("", ".", "..") for step in steps) or not rest.isprintable() or "\\" in rest):
            raise NotAllowedError(f"{rest!r}: write a path below the folder, without empty steps, . and ..")
        return f"{self.path}/{rest}" if rest else self.path


@dataclass(frozen=True, slots=True)
class HostFile:
    """Parts by (kind, name) as tables with `type`, folders by name."""

    parts: Mapping[tuple[ComponentKind, str], Mapping[str, Any]] = field(default_factory=dict)
    folders: Mapping[str, AllowedFolder] = field(default_factory=dict)

    def admit(self, flow: Mapping[str, Any], registry: Registry) -> None:
        """Check a pushed flow. Loads no code. Raises NotAllowedError for the first thing that only the host may
        name."""
        for where, part, table in _components(flow):
            try:
                self._admit_component(part, table, registry)
            except NotAllowedError as problem:
                raise NotAllowedError(f"flow {flow.get('name')}: {where}: {problem}") from None

    def resolve(self, flow: Mapping[str, Any], registry: Registry) -> dict[str, Any]:
        """Return the flow with parts and folders put in place of their names. Raises NotAllowedError for unknown
        names."""
        found: dict[str, Any] = dict(flow)
        for key in ("source", "channel", "sink"):
            if isinstance(flow.get(key), Mapping):
                found[key] = self._resolve_component(_KINDS[key], flow[key], registry)
        if isinstance(flow.get("interceptor"), list):
            found["interceptor"] = [
                self._resolve_component(ComponentKind.INTERCEPTOR, one, registry) for one in flow["interceptor"]
            ]
        group = flow.get("group")
        if isinstance(group, Mapping) and isinstance(group.get("sinks"), list):
            found["group"] = {
                **group,
                "sinks": [self._resolve_component(ComponentKind.SINK, one, registry) for one in group["sinks"]],
            }
        return found

    # --

    def _admit_component(self, part: ComponentKind, table: Mapping[str, Any], registry: Registry) -> None:
        if "part" in table:
            self._part(part, table)
            return
        name = table.get("type")
        component = registry.built_in(part, name) if isinstance(name, str) else None
        if component is None and name is not None and name in registry.names(part):
            raise NotAllowedError(f"{name} is a plug-in: {_REMEDY}")
        if component is None:
            return  # missing or unknown type: reported by the reader of flows
        if component.outside is None:
            raise NotAllowedError(f"{name} does not declare what it touches: {_REMEDY}")
        for option, outside in component.outside.items():
            if option in table:
                self._admit_option(name, option, outside, table[option])
            elif outside is Outside.HOST and component.options.model_fields[option].is_required():
                raise NotAllowedError(f"{name} needs {option}, which pushed configuration must not name: {_REMEDY}")
        if (
            isinstance(encoding := table.get("encoding"), str)
            and registry.built_in(ComponentKind.ENCODING, encoding) is None
        ):
            raise NotAllowedError(f"encoding {encoding} does not come with the platform: {_REMEDY}")

    def _admit_option(self, name: object, option: str, outside: Outside, value: Any) -> None:
        texts = value if isinstance(value, list) else [value]
        if outside is Outside.HOST or not all(isinstance(one, str) and one.startswith("@") for one in texts):
            word = "" if outside is Outside.HOST else " but as @FOLDER/..."
            raise NotAllowedError(f"{name}.{option} must not be named by pushed configuration{word}: {_REMEDY}")
        for one in texts:
            self._resolve_folder(one, outside)

    def _part(self, part: ComponentKind, table: Mapping[str, Any]) -> Mapping[str, Any]:
        name = table["part"]
        if rest := sorted(table.keys() - {"part"} - (_BRANCH if part is ComponentKind.SINK else frozenset())):
            raise NotAllowedError(f"part {name!r} has its options from the host's file: leave out {', '.join(rest)}")
        known = self.parts.get((part, str(name)))
        if known is None:
            names = [one for kind, one in self.parts if kind is part]
            raise NotAllowedError(
                f"no {part.value[:-1]} is called {name!r} on this host{did_you_mean(str(name), names)}: {_REMEDY}"
            )
        return known

    def _resolve_folder(self, text: str, outside: Outside) -> tuple[str, str]:
        """Return the place that `@FOLDER/rest` stands for, and the folder's path. Raises NotAllowedError."""
        name, _, rest = text[1:].partition("/")
        folder = self.folders.get(name)
        if folder is None:
            raise NotAllowedError(
                f"{text!r}: no folder {name!r} is allowed on this host{did_you_mean(name, self.folders)}: {_REMEDY}"
            )
        if outside is Outside.WRITE and not folder.write:
            raise NotAllowedError(f"{text!r}: folder {name!r} is read-only on this host")
        return folder.below(rest), folder.path

    def _resolve_component(self, part: ComponentKind, table: Any, registry: Registry) -> Any:
        if not isinstance(table, Mapping):
            return table
        if "part" in table:
            return {**{key: value for key, value in table.items() if key != "part"}, **self._part(part, table)}
        component = registry.built_in(part, str(table.get("type")))
        return self._resolve_places(table, component) if component is not None else table

    def _resolve_places(self, table: Mapping[str, Any], component: Component) -> Mapping[str, Any]:
        found = dict(table)
        for option, outside in (component.outside or {}).items():
            value = table.get(option)
            texts: list[Any] = value if isinstance(value, list) else [value]
            if outside is Outside.HOST or not all(isinstance(one, str) and one.startswith("@") for one in texts):
                continue
            places = [self._resolve_folder(one, outside) for one in texts]
            paths = [_uri(place) if option == "uri" else place for place, _ in places]
            found[option] = paths if isinstance(value, list) else paths[0]
            found["below"] = sorted({folder for _, folder in places})
        return found


class UnknownHost(HostFile):
    """Stand-in for the unknown file of a host: every part and folder exists. For checks before a push."""

    def resolve(self, flow: Mapping[str, Any], registry: Registry) -> dict[str, Any]:
        """Return the flow with harmless components in place of parts."""
        named = isinstance(flow.get("channel"), Mapping) and "part" in flow["channel"]
        rest = {key: value for key, value in flow.items() if key != "channel" or not named}
        return super().resolve(rest, registry)

    def _part(self, part: ComponentKind, table: Mapping[str, Any]) -> Mapping[str, Any]:
        del table
        return {
            "type": {
                ComponentKind.SOURCE: "api",
                ComponentKind.SINK: "null",
                ComponentKind.INTERCEPTOR: "timestamp",
            }.get(part, "file")
        }

    def _resolve_folder(self, text: str, outside: Outside) -> tuple[str, str]:
        del outside
        name, _, rest = text[1:].partition("/")
        return AllowedFolder(f"/{name}").below(rest), f"/{name}"


EMPTY_HOST_FILE = HostFile()


def read_host_file(path: Path | None, registry: Registry) -> HostFile:
    """Return the host's file; without one nothing is allowed. Raises ConfigFileError, also for a file that others than
    its owner may write."""
    if path is None:
        return EMPTY_HOST_FILE
    file = read_config(path, form="toml")
    about = path.stat()
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise file.error("is writable by others than its owner: chmod 644")
    if about.st_uid not in (0, os.getuid()):
        raise file.error("belongs to another user: give it to root or to the user of the agent")
    found = file.validate(_HostDocument, registry=registry)
    parts = {(kind, name): table for name, (kind, table) in found.part.items()}
    return HostFile(parts, found.folder)


def _part(table: Any, info: ValidationInfo) -> tuple[ComponentKind, Mapping[str, Any]]:
    """Return kind and table of a part, with its options validated, so that mistakes show at the agent's start."""
    kind = _KINDS.get(str(table.get("kind"))) if isinstance(table, Mapping) else None
    if kind is None:
        raise ValueError(f"write kind = one of {', '.join(_KINDS)}")
    component = find_component(kind, table, (info.context or {})["registry"])
    options = {key: value for key, value in table.items() if key not in ("kind", "type")}
    component.options.model_validate(options, context={"known_keys": ("kind", "type")})
    return kind, {"type": component.name, **options}


class _FolderSection(Section):
    path: str
    write: bool = False

    def build(self) -> AllowedFolder:
        if self.path.startswith("hdfs://"):
            return AllowedFolder(self.path.rstrip("/"), self.write)
        if not os.path.isabs(self.path) or os.path.normpath(self.path) == "/":
            raise ValueError("write an absolute path that is not /, or hdfs://HOST:PORT/folder")
        return AllowedFolder(os.path.realpath(self.path), self.write)


def _folder(given: Any, info: ValidationInfo) -> AllowedFolder:
    """Return a folder; a plain string means read-only."""
    del info
    return _FolderSection.model_validate({"path": given} if isinstance(given, str) else given).build()


class _HostDocument(Section):
    part: dict[str, Annotated[tuple[ComponentKind, Mapping[str, Any]], Conversion(_part)]] = Field(
        default_factory=dict, description="write tables [part.NAME]"
    )
    folder: dict[str, Annotated[AllowedFolder, Conversion(_folder)]] = Field(
        default_factory=dict, description="write [folder] or tables [folder.NAME]"
    )


def _uri(place: str) -> str:
    return place if place.startswith("hdfs://") else f"file://{place}"


def _components(flow: Mapping[str, Any]) -> Iterator[tuple[str, ComponentKind, Mapping[str, Any]]]:
    """Yield every component of a flow as (where, kind, table). Non-tables are left to the reader of flows."""
    listed = [(key, _KINDS[key], flow.get(key)) for key in ("source", "channel", "sink")]
    interceptors, group = flow.get("interceptor"), flow.get("group")
    if isinstance(interceptors, list):
        listed += [(f"interceptor[{at}]", ComponentKind.INTERCEPTOR, one) for at, one in enumerate(interceptors)]
    if isinstance(group, Mapping):
        sinks = group.get("sinks")
        listed.append(("group", ComponentKind.GROUP, {key: value for key, value in group.items() if key != "sinks"}))
        listed += [
            (f"group.sinks[{at}]", ComponentKind.SINK, one)
            for at, one in enumerate(sinks if isinstance(sinks, list) else ())
        ]
    for where, part, table in listed:
        if isinstance(table, Mapping):
            yield where, part, table
