"""Look-up of the cell of a variable by its name and labels."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from bookkeeper.variables.canonical import Key, key_of, short_repr
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
from bookkeeper.variables.cell_table import CellTable
from bookkeeper.variables.expiry import Expiry
from bookkeeper.variables.validation import VariableRefused, validate_key

CELLS: dict[int, type[AnyCell]] = {INTEGER: INTEGER_CELL, DOUBLE: DOUBLE_CELL, BOOLEAN: Boolean, STRING: String}
LOCKED_CELLS: dict[int, type[AnyCell]] = {**CELLS, INTEGER: LockedInteger, DOUBLE: LockedDouble}


SeriesId = tuple[str, Key]


class CellLookup:
    """Cells of a process and their descriptions. `variable_registry.Variables` writes to them.

    Locks: `lock` guards the table, the descriptions, `version`, and changes of a cell's value from and to None. No
    I/O, no logging and no code of the application runs under it. Re-entrant, for signal handlers and `__del__`: code
    that they may interrupt has no call between a check and its store."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.version = 0  # incremented when a variable is added, ends, or changes its type, kind or description
        self.table = CellTable()
        self.integers, self.doubles = self.table.routes[:2]
        self.expiry = Expiry()
        self.descriptions: dict[str, tuple[str, str, int]] = {}
        self.before_reads: tuple[Callable[[bool], None], ...] = ()
        """Functions that update values before they are read; see `prepare`."""
        self.ended: set[SeriesId] = set()  # counters that ended since the collector's last poll
        self.skipped: set[SeriesId] = set()  # counters left out of that poll

    def integer(self, name: str, labels: Mapping[str, str] | None = None) -> Integer:
        """Cell of an INTEGER variable; the first write creates the variable."""
        return cast(Integer, self._find(INTEGER, name, labels))

    def double(self, name: str, labels: Mapping[str, str] | None = None) -> Double:
        """Cell of a DOUBLE variable; the first write creates the variable."""
        return cast(Double, self._find(DOUBLE, name, labels))

    def boolean(self, name: str, labels: Mapping[str, str] | None = None) -> Boolean:
        """Cell of a BOOLEAN variable; the first write creates the variable."""
        return cast(Boolean, self._find(BOOLEAN, name, labels))

    def string(self, name: str, labels: Mapping[str, str] | None = None) -> String:
        """Cell of a STRING variable; the first write creates the variable."""
        return cast(String, self._find(STRING, name, labels))

    def find_existing(self, type_: int, name: str, labels: Mapping[str, str] | None) -> AnyCell | None:
        """Cell in the table if it has that type, else None."""
        try:
            cell = self.table.get(name, key_of(labels or {}))
        except Exception:  # the application passed something else than texts
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
            name, given = validate_key(name, given)
        except VariableRefused as error:
            return CELLS[type_](cast(Any, self), short_repr(name), {}, (), error)
        cell = self._make_cell(type_, name, given)
        with self.lock:
            current = self.table.get(name, cell.key)
            if current is not None and current.type == type_:
                cell = current
            elif current is not None and current.value is not None:
                return cell  # a write through it may change the type, and makes it the variable's cell
            elif current is None and not self.table.has_room(name):
                return cell  # the first write chooses: this cell if there is room by then, else the overflow series
            else:
                cell = self.table.add(cell) if current is None else self.table.replace(current, cell)
                self.table.note_valueless_cell(name)
            if cell.type == type_:
                self.table.route(cell, given)
        return cell

    def _make_cell(self, type_: int, name: str, labels: Mapping[str, str]) -> AnyCell:
        classes = LOCKED_CELLS if name in self.expiry.after_s else CELLS
        own = {label: value for label, value in labels.items() if value}
        return classes[type_](cast(Any, self), name, own, key_of(own), None)

    # For snapshots.

    def list_cells(
        self, skip: set[SeriesId] | None = None
    ) -> tuple[int, list[AnyCell], dict[str, tuple[str, str, int]]]:
        """Version, cells with a value, and all descriptions, at one moment.

        `skip`: counters to leave out of this poll. Counters that ended since the last poll are added to it, even if
        they have restarted: otherwise the collector would miss the end and add new counts to old ones. A counter is
        never skipped twice in a row."""
        with self.lock:
            version, cells = self.version, [cell for cell in self.table.all_cells() if cell.value is not None]
            if skip is not None:
                skip |= self.ended - self.skipped
                self.ended, self.skipped = set(), set()
                if skip:
                    self.skipped = {(cell.name, cell.key) for cell in cells} & skip
                    cells = [cell for cell in cells if (cell.name, cell.key) not in skip]
                    self.version += bool(self.skipped)  # the next poll has them
            return version, cells, dict(self.descriptions)

    def update_before_read(self, *, ends: bool) -> None:
        """Update values before a read. `ends`: True if the collector reads; then expired series end now."""
        for update in self.before_reads:
            update(ends)
        if ends and self.expiry.in_use:
            with self.lock:
                for cell, kind in self.expiry.take_expired(self.table):
                    self._ended(cell, kind)

    def end(self, cells: Iterable[AnyCell]) -> None:
        """End variables, under the lock. A write through their cells restarts them."""
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
