"""Memo of a poller, left with a process for the poller that comes next: births that the process itself does not know.

16 bytes a series, little-endian: fingerprint u64, birth i64. Only of series that did not begin with the process.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bookkeeper.rpc.turns import MAX_MEMO
from sources.state.reading import Reading
from sources.state.series_memory import Placed, SourceSeries

LATE = np.dtype([("fingerprint", "<u8"), ("birth_ms", "<i8")])
Late = npt.NDArray[np.void]


def encode(late: Late) -> bytes:
    """The newest of them, if all are too many: of what is left out the next poller believes that it began with the
    process."""
    room = MAX_MEMO // LATE.itemsize
    return (late if len(late) <= room else np.sort(late, order="birth_ms")[-room:]).tobytes()


def decode(data: bytes) -> Late:
    """Nothing, if these are no such bytes."""
    return np.frombuffer(data, LATE) if len(data) % LATE.itemsize == 0 else np.zeros(0, LATE)


def late_of(series: SourceSeries) -> Late:
    """The live series of a source that did not begin with its process."""
    state = series.rows.state
    late = state["live"] & (state["birth_ms"] != series.process_ms)
    found = np.zeros(np.count_nonzero(late), LATE)
    if len(found):
        found["fingerprint"], found["birth_ms"] = state["fingerprint"][late], state["birth_ms"][late]
    return found


def inherit(series: SourceSeries, late: Late, reading: Reading, placed: Placed) -> None:
    """Go on where another agent's poller of the same process stopped. All series but `late` began with the process; the
    last number of none is known, so that a counter that fell since then is not noticed."""
    state, row = series.rows.state, placed.row
    state["live"][row] = True
    state["birth_ms"][row] = reading.birth_ms
    state["cell"][row] = reading.cells[placed.at]
    rows = series.rows.by_fingerprint
    for print_, birth_ms in late.tolist():
        if print_ in rows:
            state["birth_ms"][rows[print_]] = birth_ms
    series.uuid, series.process_ms = reading.uuid, reading.birth_ms
