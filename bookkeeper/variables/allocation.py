"""Allocation of the cell that takes a write: the given one, its substitute, or the overflow series of its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from bookkeeper.runtime.application_log import warn
from bookkeeper.variables.cell import COUNTER, DOUBLE, INTEGER, TYPE_NAMES, UNKNOWN, AnyCell, Double, Integer
from bookkeeper.variables.cell_lookup import CellLookup
from bookkeeper.variables.cell_table import OVERFLOW, OVERFLOW_LABELS, OVERFLOWED, busiest_label
from bookkeeper.variables.validation import VariableRefused

MAX_NAMES = 10_000


class Allocation(CellLookup):
    """Adds cells to the table and removes them. All methods but `warn` run under the lock."""

    def __init__(self) -> None:
        super().__init__()
        self.is_strict = False
        self._full_names: dict[
            str, list[dict[str, str]] | None
        ] = {}  # full names -> label sets; None once `warn` logged it

    def _allocate(self, cell: AnyCell) -> AnyCell:
        """Return the cell that takes a write through `cell`. VariableRefused if the write is not allowed."""
        if cell.refused is not None:
            raise cell.refused
        current = self.table.get(cell.name, cell.key)
        if current is cell:
            return cell
        if current is None and not self.table.make_room(cell.name):
            return self._overflow(cell)
        if current is None or (current.value is None and current.type != cell.type and current.writable):
            current = self._install(cell, current)
        if current.type == cell.type and current.writable:
            return current
        if current.type == INTEGER and cell.type == DOUBLE and current.writable:
            return self._widen(cast(Integer, current), cast(Double, cell))
        raise VariableRefused(
            "type",
            f"{cell.name} {cell.labels} is {current.described}, not {TYPE_NAMES[cell.type]}: "
            "use one type for a variable, or another name",
        )

    def _install(self, cell: AnyCell, old: AnyCell | None = None) -> AnyCell:
        """Put `cell` into the table and return it, or the cell that a signal handler put there first."""
        placed = self.table.add(cell) if old is None else self.table.replace(old, cell)
        self.table.route(placed, placed.labels)
        return placed

    def _overflow(self, cell: AnyCell) -> AnyCell:
        """Overflow series of a full name. INTEGER and DOUBLE writes share one series."""
        self.note_overflow(cell.name, lambda: [one.labels for one in self.table.cells_of(cell.name)])
        current = self.table.get(cell.name, OVERFLOW)
        if current is None:
            if not self.table.may_overflow():
                raise VariableRefused(
                    "limit", f"{cell.name}: the limit of {self.table.limit} variables is reached: use fewer names"
                )
            return self._install(self._make_cell(cell.type, cell.name, OVERFLOW_LABELS))
        if current.type == cell.type or (current.type == DOUBLE and cell.type == INTEGER):
            return current
        return self._allocate(self._make_cell(cell.type, cell.name, OVERFLOW_LABELS))

    def note_overflow(self, name: str, labels: Callable[[], list[dict[str, str]]]) -> None:
        """Counts a write to the overflow series of `name`; refuses it in strict mode. The first one keeps the name's
        label sets for `warn`."""
        if self.is_strict:
            raise VariableRefused("limit", f"{name}: no room for another series: use fewer label values")
        self.count(OVERFLOWED, {"variable": name})
        if name not in self._full_names and len(self._full_names) < MAX_NAMES:
            self._full_names[name] = labels()

    def count(self, name: str, labels: dict[str, str]) -> None:
        """Adds 1 to a variable of bookkeeper itself."""
        with self.lock:
            try:
                cell = self._allocate(self._find(INTEGER, name, labels))
            except VariableRefused:  # the program uses the name for something else
                return
            if cell.value is None:
                cell.kind, cell.value = COUNTER, 0
                self.version += 1
            cell.value += 1

    def warn(self) -> None:
        """Logs each full name once, outside the lock."""
        for name, labels in list(self._full_names.items()):
            if labels is not None:
                self._full_names[name] = None
                label, values = busiest_label(labels)
                what = f"label {label!r} has {values} values" if label else "too many names in this process"
                warn(f'{name}: no room for more series, their writes go to overflow="true": {what}')

    def _widen(self, integer: Integer, double: Double) -> Double:
        """Change INTEGER to DOUBLE, the only allowed type change. No add is lost: later ones find None and lock."""
        kind, value = integer.kind, integer.value
        integer.kind = UNKNOWN
        integer.value = None
        self.table.unroute(integer)
        so_far = float(cast(int, value))
        if double.value is None:
            double.kind, double.value = kind, 0.0
        placed = self._install(double, integer)
        placed.value = so_far if placed.value is None else placed.value + so_far
        self.version += 1
        return cast(Double, placed)

    def remove(self, cell: AnyCell) -> None:
        """Ends the variable of a cell if it exists and has the cell's type."""
        with self.lock:
            current = self.table.get(cell.name, cell.key)
            if current is not None and current.type == cell.type and current.writable:
                self.end((current,))
