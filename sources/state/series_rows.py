"""Series of one source as columns: one row per series, in the order of first appearance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from artimon.model.batch import Samples
from artimon.model.values import Kind, ValueType
from sources.state.start_times import Ints

STATE_DTYPE = np.dtype(
    [
        ("fingerprint", np.uint64),
        ("cell", np.int64),
        ("birth_ms", np.int64),
        ("last_ms", np.int64),
        ("type", np.uint8),
        ("live", np.bool_),
    ]
)
"""cell: last number, in the present type of the series; live: has a value and has not ended."""


@dataclass(slots=True)
class SeriesDescription:
    """Part of a row that only announcements need."""

    text: str
    kind: Kind
    help: str
    unit: str
    first_seen_ms: int


class SeriesRows:
    """Row -> state and description; fingerprint -> row. The block of a row is row // MAX_BLOCK."""

    def __init__(self) -> None:
        self._state: npt.NDArray[np.void] = np.zeros(64, STATE_DTYPE)
        self.descriptions: list[SeriesDescription] = []
        self.by_fingerprint: dict[int, int] = {}

    @property
    def size(self) -> int:
        return len(self.descriptions)

    @property
    def state(self) -> npt.NDArray[np.void]:
        """View of the rows in use; valid until the next `add`."""
        return self._state[: self.size]

    def add(self, fingerprint: int, type_: ValueType, description: SeriesDescription, last_ms: int = 0) -> int:
        """Append a row of a series without a value and return its index. Access to a single field costs as much as the
        rest, so the row is written whole."""
        row = self.size
        if row == len(self._state):
            self._state = np.concatenate([self._state, np.zeros(row, STATE_DTYPE)])
        self.descriptions.append(description)
        self._state[row] = (fingerprint, 0, 0, last_ms, type_, False)
        self.by_fingerprint[fingerprint] = row
        return row

    def replace(
        self, row: int, fingerprint: int, type_: ValueType, description: SeriesDescription, last_ms: int = 0
    ) -> None:
        """Assign `row` to a series without a value and drop its previous content."""
        old = int(self._state["fingerprint"][row])
        if self.by_fingerprint.get(old) == row:
            del self.by_fingerprint[old]
        self._state[row] = (fingerprint, 0, 0, last_ms, type_, False)
        self.descriptions[row] = description
        self.by_fingerprint[fingerprint] = row

    def stale(self, before_ms: int) -> list[int]:
        """Return rows of ended series last seen before `before_ms`; without a sample, the first sight counts."""
        state = self.state
        rows: list[int] = np.flatnonzero(~state["live"] & (state["last_ms"] < before_ms)).tolist()
        return [row for row in rows if state["last_ms"][row] or self.descriptions[row].first_seen_ms < before_ms]

    def ends(self, row: Ints, time_ms: Ints | int) -> Samples:
        """Return the end markers of rows."""
        state, n = self.state, len(row)
        types, times = np.full(n, ValueType.ENDED, np.uint8), np.full(n, time_ms, np.int64)
        return Samples(state["fingerprint"][row], times, state["birth_ms"][row], types, np.zeros(n, np.int64))
