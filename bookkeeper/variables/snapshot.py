"""Snapshot of the variables for a poll: their list, cached until it changes, and their values, packed at once."""

from __future__ import annotations

import copy
import hashlib
import json
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from bookkeeper.variables.canonical import canonical_unchecked
from bookkeeper.variables.cell import BOOLEAN, DOUBLE, INTEGER, PACK_FORMATS, STRING, TYPE_NAMES, AnyCell
from bookkeeper.variables.cell_lookup import SeriesId
from bookkeeper.variables.variable_registry import VariableRegistry

MAX_ATTEMPTS = 5
KIND_NAMES = ("unknown", "counter", "gauge")
Result = TypeVar("Result")


class VarType(IntEnum):
    """Types of variables, with the numbers of bookkeeper.thrift."""

    INTEGER = INTEGER
    DOUBLE = DOUBLE
    BOOLEAN = BOOLEAN
    STRING = STRING


@dataclass(frozen=True)
class VariableEntry:
    """One variable at one moment. `kind`: counter, gauge, unknown or histogram. `family`: the name described by `help`
    and `unit`; for `NAME.bucket`, `NAME.sum` and `NAME.count` of a histogram it is NAME."""

    name: str
    labels: Mapping[str, str]
    type: VarType
    value: int | float | bool | str
    kind: str
    help: str
    unit: str
    family: str


class StaleLayoutError(Exception):
    """Raised if a variable of the layout ended or became a DOUBLE during a read; read again."""


@dataclass(frozen=True)
class VariableLayout:
    """Variables at one `version`, sorted by type (INTEGER, DOUBLE, BOOLEAN, STRING), then by name and labels.

    `types` and `kinds` have one byte for each cell. `schema_id` is a digest of everything else and its order."""

    version: int
    cells: list[AnyCell]
    types: bytes
    kinds: bytes
    help: dict[str, str]
    units: dict[str, str]
    schema_id: bytes
    groups: tuple[list[AnyCell], ...]
    packers: tuple[struct.Struct, ...]


class SnapshotReader:
    """Reads cells without blocking their writers: each value is one that its variable had during the poll.

    `ends`: True if the reader is the collector; then its reads end expired series (expiry.py).
    Locks: `_lock` guards the cached layout; the variables' own lock may be taken under it, never the reverse.
    Re-entrant, as a finalizer may read variables."""

    def __init__(self, variables: VariableRegistry, *, ends: bool = True) -> None:
        self._variables, self._ends = variables, ends
        self._lock = threading.RLock()
        self._layout: VariableLayout | None = None

    def columns(self) -> tuple[VariableLayout, bytes, list[str]]:
        """Layout, packed values of 8 bytes for each variable, and the strings that STRING values index."""
        return self._read_consistent(lambda layout: (layout, *pack(layout)))

    def rows(self) -> tuple[VariableLayout, list[Any]]:
        """Layout, and the value of each variable."""
        return self._read_consistent(lambda layout: (layout, present_rows(layout)))

    def entries(self) -> list[VariableEntry]:
        """Variables sorted by name and labels."""
        layout, values = self.rows()
        found = [_entry(layout, *one) for one in zip(layout.cells, values)]  # noqa: B905 - since Python 3.10
        return sorted(found, key=lambda entry: (entry.name, sorted(entry.labels.items())))

    def _read_consistent(self, read: Callable[[VariableLayout], Result]) -> Result:
        """Apply `read` to the layout, and retry if one of its variables ended meanwhile."""
        self._variables.update_before_read(ends=self._ends)
        skip: set[SeriesId] | None = set() if self._ends else None
        for _ in range(MAX_ATTEMPTS):
            try:
                return read(self.layout(skip))
            except StaleLayoutError:
                continue
        with self._variables.lock:  # a program that removes variables constantly is blocked for one read
            version, cells, told = self._variables.list_cells(skip)
            # Copies, as even now a signal handler or a finalizer may remove some.
            fixed = [copy.copy(cell) for cell in cells]
            return read(make_layout(version, [cell for cell in fixed if cell.value is not None], told))

    def layout(self, skip: set[SeriesId] | None = None) -> VariableLayout:
        """Current layout; for `skip` see Variables.listed."""
        with self._lock:
            if self._layout is None or self._layout.version != self._variables.version:
                self._layout = make_layout(*self._variables.list_cells(skip))
            return self._layout


def make_layout(version: int, cells: list[AnyCell], descriptions: dict[str, tuple[str, str, int]]) -> VariableLayout:
    """Make the layout of `cells`, all of which have a value."""
    cells = sorted(cells, key=lambda cell: (cell.type, cell.name, cell.key))
    groups = tuple([cell for cell in cells if cell.type == type_] for type_ in range(len(TYPE_NAMES)))
    types, kinds = bytes(cell.type for cell in cells), bytes(cell.kind for cell in cells)
    told = {cell.name: descriptions[cell.family] for cell in cells if cell.family in descriptions}
    help = {name: one[0] for name, one in told.items() if one[0]}
    units = {name: one[1] for name, one in told.items() if one[1]}
    packers = tuple(struct.Struct(f"<{len(groups[i])}{one}") for i, one in enumerate(PACK_FORMATS))
    schema_id = schema_digest(cells, types, kinds, help, units)
    return VariableLayout(version, cells, types, kinds, help, units, schema_id, groups, packers)


def schema_digest(
    cells: list[AnyCell], types: bytes, kinds: bytes, help: dict[str, str], units: dict[str, str]
) -> bytes:
    """Digest of names, labels, types, kinds, help, units and the order of variables, in 16 bytes."""
    state = hashlib.blake2b(digest_size=16)
    state.update(struct.pack("<Q", len(cells)) + types + kinds)
    # The text of a variable has no newline: names have none, and in values it is escaped.
    state.update("\n".join(canonical_unchecked(cell.name, cell.labels) for cell in cells).encode("utf-8"))
    state.update(json.dumps([help, units], sort_keys=True).encode("ascii"))
    return state.digest()


def _entry(layout: VariableLayout, cell: AnyCell, value: Any) -> VariableEntry:
    kind = KIND_NAMES[cell.kind] if cell.writable else "histogram"
    help, unit = layout.help.get(cell.name, ""), layout.units.get(cell.name, "")
    return VariableEntry(cell.name, dict(cell.labels), VarType(cell.type), value, kind, help, unit, cell.family)


def present_rows(layout: VariableLayout) -> list[Any]:
    """Values in the layout's order. Raises StaleLayoutError if a variable has ended."""
    values = [cell.value for cell in layout.cells]
    if None in values:
        raise StaleLayoutError
    return values


def pack(layout: VariableLayout) -> tuple[bytes, list[str]]:
    """Packed values in the layout's order, and the strings they index. Raises StaleLayoutError if a variable has
    ended."""
    texts = [cell.value for cell in layout.groups[STRING]]
    index = {text: i for i, text in enumerate(dict.fromkeys(text for text in texts if text is not None))}
    try:
        values = [[cell.value for cell in group] for group in layout.groups]
        values[STRING] = [index[text] for text in texts]
        parts = [layout.packers[i].pack(*group) for i, group in enumerate(values)]
    except (struct.error, KeyError):  # a value was None
        raise StaleLayoutError from None
    return b"".join(parts), list(index)
