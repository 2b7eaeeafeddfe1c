"""The cells of a process, found by name and labels; the cache of look-ups; and how many there may be.

A label with endless values (user ids, addresses) must not eat the memory of the application or of the platform. So
beyond a limit a name's writes go to its one series with the single label `overflow="true"`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bookkeeper.runtime.limits import SERIES, SERIES_PER_NAME
from bookkeeper.variables.canonical import Key
from bookkeeper.variables.cell import AnyCell

Route = dict[str, dict[tuple[str, ...], Any]]

OVERFLOW_NAMES = 1_000
"""So many more variables than the process's limit: the overflow series of names that came after it."""
REFUSED, OVERFLOWED, CALLBACK_ERRORS = "bookkeeper.refused", "bookkeeper.overflow", "bookkeeper.callback.errors"
OWN = frozenset((REFUSED, OVERFLOWED, CALLBACK_ERRORS))
"""What bookkeeper says of itself is not limited: it has few labels."""
OVERFLOW_LABELS = {"overflow": "true"}
OVERFLOW: Key = ("overflow", "true")
ROUTES_PER_CELL = 8


class Table:
    """Cells by name, then key. Everything happens under the lock of Variables, but for the readers of `routes`.

    `routes`: for each type a cache name -> label values -> cell, read without the lock; a reader compares the labels,
    because two sets of labels may have the same values. A signal handler or a finalizer may come back to this table in
    the middle of a method: so dicts are copied in one step before they are walked, and cells are put in by
    `setdefault`, which does not displace what came in between."""

    def __init__(self, limit: int = SERIES, per_name: int = SERIES_PER_NAME) -> None:
        self.limit, self.per_name = limit, per_name
        self.count = 0
        self.routes: tuple[Route, Route, Route, Route] = ({}, {}, {}, {})
        self._families: dict[str, dict[Key, AnyCell]] = {}
        self._idle = 0  # changes whenever there may be one more cell without a value
        self._swept: dict[str, int] = {}  # `_idle` when the name's valueless cells were dropped last; "" for all

    def get(self, name: str, key: Key) -> AnyCell | None:
        """The cell of that name and labels."""
        family = self._families.get(name)
        return None if family is None else family.get(key)

    def of(self, name: str) -> list[AnyCell]:
        """All cells of a name."""
        return list(self._families.get(name, {}).values())

    def all(self) -> list[AnyCell]:
        """All cells of the process."""
        return [cell for family in list(self._families.values()) for cell in list(family.values())]

    def add(self, cell: AnyCell) -> AnyCell:
        """The cell of that name and labels: `cell` if there was none."""
        if len(self._families) > self.limit + OVERFLOW_NAMES:
            self._forget_empty_names()
        while True:
            family = self._families.setdefault(cell.name, {})
            known = len(family)
            placed = family.setdefault(cell.key, cell)
            self.count += len(family) - known
            if self._families.get(cell.name) is family:  # nobody came in between and forgot the name
                return placed

    def replace(self, old: AnyCell, cell: AnyCell) -> AnyCell:
        """The cell of that name and labels: `cell` if `old` is it and has no value."""
        family = self._families.get(cell.name, {})
        if family.get(cell.key) is not old:
            return self.add(cell)
        if old.value is None:  # no call between this and the store
            family[cell.key] = cell
            return cell
        return old

    def drop(self, cell: AnyCell) -> None:
        """The cell is not found any more, unless it has got a value meanwhile; a write to it brings it back."""
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

    def idle(self, name: str = "") -> None:
        """Some cell of the table, of that name if it is known, has no value and may not have one soon."""
        self._idle += name not in OWN

    # Room.

    def has_room(self, name: str) -> bool:
        """Whether one more cell of that name may be put in."""
        return name in OWN or (self.count < self.limit and not self._name_is_full(name))

    def make_room(self, name: str) -> bool:
        """As `has_room`, after dropping cells that have no value, if that is needed and there may be any."""
        if name in OWN:
            return True
        if self._name_is_full(name):
            self._sweep(name, self.of(name))
        return self.make_space(1) and not self._name_is_full(name)

    def make_space(self, fresh: int) -> bool:
        """Whether so many more cells may be put in as far as the process's limit goes."""
        if self.count + fresh > self.limit:
            self._sweep("", self.all())
        return self.count + fresh <= self.limit

    def may_overflow(self, fresh: int = 1) -> bool:
        """Whether so many more cells may be put in for an overflow series."""
        return self.count + fresh <= self.limit + OVERFLOW_NAMES

    def _name_is_full(self, name: str) -> bool:
        family = self._families.get(name)
        return family is not None and len(family) - (OVERFLOW in family) >= self.per_name

    def _sweep(self, what: str, cells: list[AnyCell]) -> None:
        if self._swept.get(what) == self._idle:
            return
        self._swept[what] = self._idle
        for cell in cells:
            if cell.value is None:
                self.drop(cell)

    # The cache of look-ups.

    def route(self, cell: AnyCell, given: Mapping[str, str]) -> None:
        """Look-ups with these labels in this order find the cell at once."""
        if not cell.writable:  # the short ways would write to it
            return
        values = tuple(given.values())
        if len(values) == len(cell.labels) and len(cell.routes) < ROUTES_PER_CELL and values not in cell.routes:
            self.routes[cell.type].setdefault(cell.name, {})[values] = cell
            cell.routes += (values,)

    def unroute(self, cell: AnyCell) -> None:
        """Look-ups do not find it in the cache any more."""
        by_values = self.routes[cell.type].get(cell.name, {})
        for values in cell.routes:
            if by_values.get(values) is cell:
                by_values.pop(values, None)
        if not by_values:
            self.routes[cell.type].pop(cell.name, None)
        cell.routes = ()


def busiest_label(series: list[dict[str, str]]) -> tuple[str, int]:
    """The label that has the most values, and how many: most likely the one that should not be a label."""
    values: dict[str, set[str]] = {}
    for labels in series:
        for label, value in labels.items():
            values.setdefault(label, set()).add(value)
    label = max(values, key=lambda label: len(values[label]), default="")
    return label, len(values.get(label, ()))
