"""A poll's view of the variables: the list of them, cached until it changes, and their values packed in one go."""

from __future__ import annotations

import hashlib
import json
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bookkeeper.cells import BOOLEAN, DOUBLE, INTEGER, STRING
from bookkeeper.labels import canonical_unchecked
from bookkeeper.variables import AnyCell, Variables

ATTEMPTS = 5


@dataclass(frozen=True)
class Layout:
    """The variables at one `version`, by type (INTEGER, DOUBLE, BOOLEAN, STRING), then by name and labels.

    `types` and `kinds` have one byte for each cell. `schema_id` is a digest of all the rest and its order."""

    version: int
    cells: list[AnyCell]
    types: bytes
    kinds: bytes
    help: dict[str, str]
    units: dict[str, str]
    schema_id: bytes
    groups: tuple[list[AnyCell], ...]
    packers: tuple[struct.Struct, ...]


class Snapshots:
    """Reads cells without stopping their writers: each value is one that its variable had during the poll.

    Locks: `_lock` guards the cached layout; the variables' own lock may be taken under it, never the reverse."""

    def __init__(self, variables: Variables) -> None:
        self._variables = variables
        self._lock = threading.Lock()
        self._layout: Layout | None = None

    def columns(self) -> tuple[Layout, bytes, list[str]]:
        """The layout, one cell of 8 bytes for each variable, and the strings that STRING cells index."""
        for _ in range(ATTEMPTS):
            packed = self._try()
            if packed is not None:
                return packed
        with self._variables.lock:  # a program that removes variables all the time has to wait once
            packed = self._try()
        if packed is None:
            raise RuntimeError("a variable lost its value under the lock")
        return packed

    def rows(self) -> Iterator[tuple[AnyCell, int, Any]]:
        """(cell, kind, value) of each variable; a variable that goes meanwhile is left out."""
        layout = self.layout()
        for i, cell in enumerate(layout.cells):
            value = cell.value
            if value is not None:
                yield cell, layout.kinds[i], value

    def layout(self) -> Layout:
        """The layout of this moment."""
        with self._lock:
            if self._layout is None or self._layout.version != self._variables.version:
                self._layout = make_layout(*self._variables.listed())
            return self._layout

    def _try(self) -> tuple[Layout, bytes, list[str]] | None:
        layout = self.layout()
        try:
            return layout, *pack(layout)
        except (struct.error, KeyError):  # a value became None: the variable went, or became a DOUBLE
            return None


def make_layout(version: int, cells: list[AnyCell], descriptions: dict[str, tuple[str, str, int]]) -> Layout:
    """The layout of `cells`, all of which have a value."""
    cells = sorted(cells, key=lambda cell: (cell.type, cell.key))
    groups = tuple([cell for cell in cells if cell.type == type_] for type_ in (INTEGER, DOUBLE, BOOLEAN, STRING))
    types, kinds = bytes(cell.type for cell in cells), bytes(cell.kind for cell in cells)
    told = {cell.name: descriptions[cell.name] for cell in cells if cell.name in descriptions}
    help = {name: one[0] for name, one in told.items() if one[0]}
    units = {name: one[1] for name, one in told.items() if one[1]}
    packers = tuple(struct.Struct(f"<{len(group)}{'d' if i == DOUBLE else 'q'}") for i, group in enumerate(groups))
    schema_id = digest(cells, types, kinds, help, units)
    return Layout(version, cells, types, kinds, help, units, schema_id, groups, packers)


def digest(cells: list[AnyCell], types: bytes, kinds: bytes, help: dict[str, str], units: dict[str, str]) -> bytes:
    """16 bytes that differ whenever names, labels, types, kinds, help, units or the order of variables differ."""
    state = hashlib.blake2b(digest_size=16)
    state.update(struct.pack("<Q", len(cells)) + types + kinds)
    # The text of a variable has no newline: names have none, and in values it is escaped.
    state.update("\n".join(canonical_unchecked(cell.name, cell.labels) for cell in cells).encode("utf-8"))
    state.update(json.dumps([help, units], sort_keys=True).encode("ascii"))
    return state.digest()


def pack(layout: Layout) -> tuple[bytes, list[str]]:
    """The values in the layout's order, and the strings they index. struct.error or KeyError if one has gone."""
    integers, doubles, booleans, strings = layout.groups
    packers = layout.packers
    texts = [cell.value for cell in strings]
    index = {text: i for i, text in enumerate(dict.fromkeys(text for text in texts if text is not None))}
    values = b"".join(
        (
            packers[INTEGER].pack(*[cell.value for cell in integers]),
            packers[DOUBLE].pack(*[cell.value for cell in doubles]),
            packers[BOOLEAN].pack(*[cell.value for cell in booleans]),
            packers[STRING].pack(*[index[text] for text in texts]),
        )
    )
    return values, list(index)
