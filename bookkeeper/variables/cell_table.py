"""Table of the cells of a process by name and labels, the cache of look-ups, and the limits on series.

A label with unbounded values (user ids, addresses) must not exhaust the memory of the application or of the platform.
So beyond a limit the writes of a name go to one overflow series with the single label `overflow="true"`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bookkeeper.runtime.series_limits import SERIES, SERIES_PER_NAME
from bookkeeper.variables.canonical import Key
from bookkeeper.variables.cell import TYPE_NAMES, AnyCell

Route = dict[str, dict[tuple[str, ...], Any]]

OVERFLOW_NAMES = 1_000
"""Maximum number of variables above the limit of the process: overflow series of names first written after it."""
REFUSED, OVERFLOWED, CALLBACK_ERRORS = "bookkeeper.refused", "bookkeeper.overflow", "bookkeeper.callback.errors"
INTERNAL_NAMES = frozenset((REFUSED, OVERFLOWED, CALLBACK_ERRORS))
"""Variables of bookkeeper itself. They have few labels and are not limited."""
OVERFLOW_LABELS = {"overflow": "true"}
OVERFLOW: Key = ("overflow", "true")
ROUTES_PER_CELL = 8


class CellTable:
    """Cells by name, then key. All methods run under the lock of Variables; only `routes` is read without it.

    `routes`: for each type a cache name -> label values -> cell. A reader compares the labels, because two label sets
    may have the same values. A signal handler or a finalizer may re-enter this table in the middle of a method: so
    dicts are copied in one step before iteration, and cells are inserted by `setdefault`, which keeps a cell that was
    inserted meanwhile."""

    def __init__(self, limit: int = SERIES, per_name: int = SERIES_PER_NAME) -> None:
        self.limit, self.per_name = limit, per_name
        self.count = 0
        self.routes: tuple[Route, ...] = tuple({} for _ in TYPE_NAMES)
        self._families: dict[str, dict[Key, AnyCell]] = {}
        self._valueless_changes = 0  # incremented whenever there may be one more cell without a value
        self._swept_at: dict[str, int] = {}  # `_idle` at the last sweep of a name's valueless cells; "" for all names

    def get(self, name: str, key: Key) -> AnyCell | None:
        """Cell of that name and labels; None without one."""
        family = self._families.get(name)
        return None if family is None else family.get(key)

    def cells_of(self, name: str) -> list[AnyCell]:
        """All cells of a name."""
        return list(self._families.get(name, {}).values())

    def all_cells(self) -> list[AnyCell]:
        """All cells of the process."""
        return [cell for family in list(self._families.values()) for cell in list(family.values())]

    def add(self, cell: AnyCell) -> AnyCell:
        """Add `cell` unless the name and labels have a cell already; return the one in the table."""
        if len(self._families) > self.limit + OVERFLOW_NAMES:
            self._forget_empty_names()
        while True:
            family = self._families.setdefault(cell.name, {})
            known = len(family)
            placed = family.setdefault(cell.key, cell)
            self.count += len(family) - known
            if self._families.get(cell.name) is family:  # no signal handler removed the name meanwhile
                return placed

    def replace(self, old: AnyCell, cell: AnyCell) -> AnyCell:
        """Replace `old` by `cell` if `old` is in the table and has no value; return the one in the table."""
        family = self._families.get(cell.name, {})
        if family.get(cell.key) is not old:
            return self.add(cell)
        if old.value is None:  # no call between this and the store
            family[cell.key] = cell
            return cell
        return old

    def drop(self, cell: AnyCell) -> None:
        """Remove the cell, unless it has got a value meanwhile. A write through it adds it again."""
        if self.get(cell.name, cell.key) is cell:
            del self._families[cell.name][cell.key]
            self.count -= 1
        self.unroute(cell)
        if cell.value is not None:
            self.add(cell)

    def _forget_empty_names(self) -> None:
        for name, family in list(self._families.items()):
            if not family:
                del self._families[name]

    def note_valueless_cell(self, name: str = "") -> None:
        """Note that a cell, of that name if known, has no value: a sweep may find room again."""
        self._valueless_changes += name not in INTERNAL_NAMES

    # Limits.

    def has_room(self, name: str) -> bool:
        """True if one more cell of that name may be added."""
        return name in INTERNAL_NAMES or (self.count < self.limit and not self._name_is_full(name))

    def make_room(self, name: str) -> bool:
        """Like `has_room`, but first drop cells without a value if room is needed and there may be any."""
        if name in INTERNAL_NAMES:
            return True
        if self._name_is_full(name):
            self._sweep(name, self.cells_of(name))
        return self.make_space(1) and not self._name_is_full(name)

    def make_space(self, fresh: int) -> bool:
        """True if `fresh` more cells fit into the limit of the process; drops cells without a value if needed."""
        if self.count + fresh > self.limit:
            self._sweep("", self.all_cells())
        return self.count + fresh <= self.limit

    def may_overflow(self, fresh: int = 1) -> bool:
        """True if `fresh` more cells may be added for an overflow series."""
        return self.count + fresh <= self.limit + OVERFLOW_NAMES

    def _name_is_full(self, name: str) -> bool:
        family = self._families.get(name)
        return family is not None and len(family) - (OVERFLOW in family) >= self.per_name

    def _sweep(self, what: str, cells: list[AnyCell]) -> None:
        if self._swept_at.get(what) == self._valueless_changes:
            return
        self._swept_at[what] = self._valueless_changes
        for cell in cells:
            if cell.value is None:
                self.drop(cell)

    # Cache of look-ups.

    def route(self, cell: AnyCell, given: Mapping[str, str]) -> None:
        """Cache the cell for look-ups with these labels in this order."""
        if not cell.writable:  # the fast path would write to it
            return
        values = tuple(given.values())
        if len(values) == len(cell.labels) and len(cell.routes) < ROUTES_PER_CELL and values not in cell.routes:
            self.routes[cell.type].setdefault(cell.name, {})[values] = cell
            cell.routes += (values,)

    def unroute(self, cell: AnyCell) -> None:
        """Remove the cell from the cache."""
        by_values = self.routes[cell.type].get(cell.name, {})
        for values in cell.routes:
            if by_values.get(values) is cell:
                by_values.pop(values, None)
        if not by_values:
            self.routes[cell.type].pop(cell.name, None)
        cell.routes = ()


def busiest_label(series: list[dict[str, str]]) -> tuple[str, int]:
    """Label with the most values, and their number: probably the one that should not be a label."""
    values: dict[str, set[str]] = {}
    for labels in series:
        for label, value in labels.items():
            values.setdefault(label, set()).add(value)
    label = max(values, key=lambda label: len(values[label]), default="")
    return label, len(values.get(label, ()))
