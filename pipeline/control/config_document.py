"""Configuration documents of an agent, and the differences between two of them. Pure: no I/O.

A document is a mapping with a table `metrics` (settings for polled variables) and a list `flow` (pipeline/flows/).
Documents are merged in layers; docs/control.md gives their order.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from artimon.runtime.text import did_you_mean
from pipeline.control.setting_parsers import NUMERIC_SETTINGS, PARSERS, SettingParser

MAX_BYTES = 512 * 1024
"""Most bytes of a document as JSON: a znode holds at most 1 MiB."""
MAX_FLOWS = 64
_TABLES = ("metrics", "flow")


class ConfigError(ValueError):
    """The document is invalid; the text gives the place and the correct form."""


@dataclass(frozen=True, slots=True)
class ConfigDocument:
    """One configuration, checked as far as this module can: `metrics` by name with typed values, `flows` by name as
    written (pipeline/flows/config/flow_file.py checks them)."""

    metrics: Mapping[str, Any]
    flows: Mapping[str, Mapping[str, Any]]


EMPTY_DOCUMENT = ConfigDocument({}, {})


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """Differences between two documents; only these are applied. Settings as (old, new), None where not set."""

    settings: Mapping[str, tuple[Any, Any]]
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.settings or self.added or self.removed or self.changed)

    def __str__(self) -> str:
        words = [f"{name}: {_shown(old)} -> {_shown(new)}" for name, (old, new) in sorted(self.settings.items())]
        for word, names in (("added", self.added), ("removed", self.removed), ("changed", self.changed)):
            words += [f"flow {name} {word}" for name in names]
        return "; ".join(words) or "no difference"


def _shown(value: Any) -> str:
    return "not set" if value is None else ", ".join(value) if isinstance(value, tuple) else str(value)


def read_text(text: str, name: str = "configuration") -> dict[str, Any]:
    """Return the mapping in a TOML or JSON text. Raises ConfigError."""
    try:
        found = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except ValueError as error:
        raise ConfigError(f"{name} is neither TOML nor JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{name}: write tables, such as [metrics]")
    return found


def canonical(found: Mapping[str, Any]) -> str:
    """Return the canonical JSON of a mapping: equal mappings give equal texts. Raises ConfigError if it is too long or
    holds values that JSON lacks (dates)."""
    try:
        text = json.dumps(found, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the configuration has a value other than text, number, list or table: {error}") from None
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise ConfigError(f"the configuration is longer than {MAX_BYTES // 1024} KiB: use fewer flows")
    return text


def parse_document(found: Mapping[str, Any]) -> ConfigDocument:
    """Check a mapping and return its document. Raises ConfigError for the first error."""
    for name in found:
        if name not in _TABLES:
            raise ConfigError(f"unknown table {name!r}{did_you_mean(name, _TABLES)}")
    metrics, flows = found.get("metrics", {}), found.get("flow", [])
    if not isinstance(metrics, Mapping):
        raise ConfigError("metrics: write a table, [metrics]")
    return ConfigDocument(_metrics(metrics), _flows(flows))


def _metrics(written: Mapping[str, Any]) -> dict[str, Any]:
    values = {}
    for name, value in written.items():
        reader = PARSERS.get(name)
        if reader is None:
            raise ConfigError(f"metrics.{name}: unknown setting{did_you_mean(name, PARSERS)}")
        values[name] = _parse_setting(reader, name, value)
    return values


def _parse_setting(reader: SettingParser, name: str, value: Any) -> Any:
    try:
        return reader(value)
    except ValueError as error:
        raise ConfigError(f"metrics.{name} = {value!r}: {error}") from None


def _flows(written: Any) -> dict[str, Mapping[str, Any]]:
    if not isinstance(written, Sequence) or isinstance(written, str):
        raise ConfigError("flow: write a list of tables, [[flow]]")
    if len(written) > MAX_FLOWS:
        raise ConfigError(f"{len(written)} flows: an agent runs at most {MAX_FLOWS}")
    flows: dict[str, Mapping[str, Any]] = {}
    for number, flow in enumerate(written, 1):
        name = flow.get("name") if isinstance(flow, Mapping) else None
        if not isinstance(name, str) or not name:
            raise ConfigError(f'flow number {number} has no name: write name = "..."')
        if name in flows:
            raise ConfigError(f"two flows are named {name!r}: give one another name")
        flows[name] = flow
    return flows


def merge_layers(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge mappings, later ones over earlier ones: setting by setting, and flow by flow (a flow replaces a former one
    of its name as a whole; `{name = "x", off = true}` removes it)."""
    metrics: dict[str, Any] = {}
    flows: dict[str, Any] = {}
    for layer in layers:
        metrics.update(layer.get("metrics", {}))
        for flow in layer.get("flow", []):
            flows[flow["name"]] = flow
    kept = [flow for flow in flows.values() if flow.get("off") is not True]
    return {**({"metrics": metrics} if metrics else {}), **({"flow": kept} if kept else {})}


def difference(old: ConfigDocument, new: ConfigDocument) -> ConfigChange:
    """Return the changes that turn `old` into `new`."""
    names = old.metrics.keys() | new.metrics.keys()
    pairs = {name: (old.metrics.get(name), new.metrics.get(name)) for name in sorted(names)}
    return ConfigChange(
        {name: (before, after) for name, (before, after) in pairs.items() if before != after},
        tuple(name for name in new.flows if name not in old.flows),
        tuple(name for name in old.flows if name not in new.flows),
        tuple(name for name in new.flows if name in old.flows and new.flows[name] != old.flows[name]),
    )


def full_change(documents: Iterable[ConfigDocument], new: ConfigDocument) -> ConfigChange:
    """Set all settings and flows of the documents to those of `new`, for use when the running state is unknown."""
    whole = list(documents)
    names = {name for one in whole for name in one.metrics}
    flows = tuple(sorted({name for one in whole for name in one.flows} - new.flows.keys()))
    return ConfigChange({name: (None, new.metrics.get(name)) for name in sorted(names)}, (), flows, tuple(new.flows))


def changes_only_numbers(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return True if two documents differ only in settings of `metrics` that are numbers. Any change of a flow is more
    than that, and so is any other entry of `old` that `new` leaves out."""
    return canonical(_without_numbers(old)) == canonical(_without_numbers(new))


def _without_numbers(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rest of a document, without empty tables."""
    metrics = {name: value for name, value in (document.get("metrics") or {}).items() if name not in NUMERIC_SETTINGS}
    return {name: value for name, value in {**document, "metrics": metrics}.items() if value}
