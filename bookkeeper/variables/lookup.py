"""Finding the cell of a variable by its name and labels."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from bookkeeper.variables.canonical import Key, key_of, shown
from bookkeeper.variables.cell import (
    BOOLEAN,
    COUNTER,
    DOUBLE,
    DOUBLE_CELL,
    INTEGER,
    INTEGER_CELL,
    STRING,
    UNKNOWN,
    AnyCell,
    Boolean,
    Double,
    Integer,
    LockedDouble,
    LockedInteger,
    String,
)
from bookkeeper.variables.cell_table import Table
from bookkeeper.variables.expiry import Expiry
from bookkeeper.variables.validation import VariableRefused, checked

CELLS: dict[int, type[AnyCell]] = {INTEGER: INTEGER_CELL, DOUBLE: DOUBLE_CELL, BOOLEAN: Boolean, STRING: String}
SLOW_CELLS: dict[int, type[AnyCell]] = {**CELLS, INTEGER: LockedInteger, DOUBLE: LockedDouble}


Place = tuple[str, Key]


class Lookup:
    """The cells of a process, and what tells about them. `variable_registry.Variables` writes to them.

    Locks: `lock` guards the table, the descriptions, `version`, and the steps of a cell from and to None. No I/O, no
    logging and no code of the application runs under it. Re-entrant, for signal handlers and `__del__`: what they may
    interrupt is written so that a check and the store that belongs to it have no call between them."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.version = 0  # changes whenever a variable comes, goes, or changes its type, kind or description
        self.table = Table()
        self.integers, self.doubles, _, _ = self.table.routes
        self.expiry = Expiry()
        self.descriptions: dict[str, tuple[str, str, int]] = {}
        self.before_reads: tuple[Callable[[bool], None], ...] = ()
        """What brings values up to date before they are read; see `prepare`."""
        self.ended: set[Place] = set()  # counters that ended since the last poll of who collects
        self.skipped: set[Place] = set()  # those that were left out of that poll

    def integer(self, name: str, labels: Mapping[str, str] | None = None) -> Integer:
        """The cell of an INTEGER variable, which begins to exist when it is first written."""
        return cast(Integer, self._find(INTEGER, name, labels))

    def double(self, name: str, labels: Mapping[str, str] | None = None) -> Double:
        """The cell of a DOUBLE variable, which begins to exist when it is first written."""
        return cast(Double, self._find(DOUBLE, name, labels))

    def boolean(self, name: str, labels: Mapping[str, str] | None = None) -> Boolean:
        """The cell of a BOOLEAN variable, which begins to exist when it is first written."""
        return cast(Boolean, self._find(BOOLEAN, name, labels))

    def string(self, name: str, labels: Mapping[str, str] | None = None) -> String:
        """The cell of a STRING variable, which begins to exist when it is first written."""
        return cast(String, self._find(STRING, name, labels))

    def existing(self, type_: int, name: str, labels: Mapping[str, str] | None) -> AnyCell | None:
        """The cell of a variable that exists and has that type, else None."""
        try:
            cell = self.table.get(name, key_of(labels or {}))
        except Exception:  # whatever the application gave instead of texts
            return None
        return cell if cell is not None and cell.type == type_ else None

    def _find(self, type_: int, name: str, labels: Mapping[str, str] | None) -> AnyCell:
        given = {} if labels is None else labels
        try:
            cell = self.table.routes[type_][name][tuple(given.values())]
            if cell.labels == given:
                return cast(AnyCell, cell)
        except Exception:
            pass
        return self._find_slowly(type_, name, given)

    def _find_slowly(self, type_: int, name: str, given: Mapping[str, str]) -> AnyCell:
        try:
            name, given = checked(name, given)
        except VariableRefused as error:
            return CELLS[type_](cast(Any, self), shown(name), {}, (), error)
        cell = self._made(type_, name, given)
        with self.lock:
            current = self.table.get(name, cell.key)
            if current is not None and current.type == type_:
                cell = current
            elif current is not None and current.value is not None:
                return cell  # becomes the variable's cell if the first write may change the type
            elif current is None and not self.table.has_room(name):
                return cell  # when it is written: its own if there is room by then, else the overflow series
            else:
                cell = self.table.add(cell) if current is None else self.table.replace(current, cell)
                self.table.idle(name)
            if cell.type == type_:
                self.table.route(cell, given)
        return cell

    def _made(self, type_: int, name: str, labels: Mapping[str, str]) -> AnyCell:
        classes = SLOW_CELLS if self.expiry.watches(name) else CELLS
        own = {label: value for label, value in labels.items() if value}
        return classes[type_](cast(Any, self), name, own, key_of(own), None)

    # For snapshots.

    def listed(self, skip: set[Place] | None = None) -> tuple[int, list[AnyCell], dict[str, tuple[str, str, int]]]:
        """The version, the cells that have a value, and all descriptions, taken at one moment.

        `skip`: given by who collects, for one poll. Counters that ended since the last poll are added to it and left
        out even if they have begun anew meanwhile: the collector has to see the end, or it would take the new counts
        for the old. Not twice in a row, so that a counter that ends all the time is seen at all."""
        with self.lock:
            version, cells = self.version, [cell for cell in self.table.all() if cell.value is not None]
            if skip is not None:
                skip |= self.ended - self.skipped
                self.ended, self.skipped = set(), set()
                if skip:
                    self.skipped = {(cell.name, cell.key) for cell in cells} & skip
                    cells = [cell for cell in cells if (cell.name, cell.key) not in skip]
                    self.version += bool(self.skipped)  # the next poll has them
            return version, cells, dict(self.descriptions)

    def prepare(self, *, ends: bool) -> None:
        """Before values are read. `ends`: who reads them is the one that collects, so what expired ends now."""
        for update in self.before_reads:
            update(ends)
        if ends and self.expiry.in_use:
            with self.lock:
                for cell, kind in self.expiry.due(self.table):
                    self._ended(cell, kind)

    def end(self, cells: Iterable[AnyCell]) -> None:
        """Takes variables out, under the lock; a write through their cells brings them back."""
        for cell in cells:
            kind = cell.kind
            cell.kind = UNKNOWN
            cell.value = None
            self._ended(cell, kind)

    def _ended(self, cell: AnyCell, kind: int) -> None:
        if kind == COUNTER and len(self.ended) < self.table.limit:
            self.ended.add((cell.name, cell.key))
        self.table.drop(cell)
        self.version += 1
