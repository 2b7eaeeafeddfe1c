"""Memo left with a process for its next poller: start times that the process itself does not know.

16 bytes per series, little-endian: fingerprint u64, birth i64. Only for series that began later than the process.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bookkeeper.rpc.poll_service import MAX_MEMO
from sources.state.series_memory import PlacedColumns, SourceSeries
from sources.state.source_reading import Reading

MEMO_DTYPE = np.dtype([("fingerprint", "<u8"), ("birth_ms", "<i8")])
MemoRows = npt.NDArray[np.void]


def encode_memo(late: MemoRows) -> bytes:
    """Encode the start times, only the newest if there are too many. The next poller assumes for the others that they
    began with the process."""
    room = MAX_MEMO // MEMO_DTYPE.itemsize
    return (late if len(late) <= room else np.sort(late, order="birth_ms")[-room:]).tobytes()


def decode_memo(data: bytes) -> MemoRows:
    """Decode a memo; invalid bytes yield an empty array."""
    return np.frombuffer(data, MEMO_DTYPE) if len(data) % MEMO_DTYPE.itemsize == 0 else np.zeros(0, MEMO_DTYPE)


def late_series_of(series: SourceSeries) -> MemoRows:
    """Return the live series of a source whose birth is not that of its process."""
    state = series.rows.state
    late = state["live"] & (state["birth_ms"] != series.process_ms)
    found = np.zeros(np.count_nonzero(late), MEMO_DTYPE)
    if len(found):
        found["fingerprint"], found["birth_ms"] = state["fingerprint"][late], state["birth_ms"][late]
    return found


def apply_memo(series: SourceSeries, late: MemoRows, reading: Reading, placed: PlacedColumns) -> None:
    """Continue after another agent's poller of the same process. All series but `late` began with the process. The last
    values are unknown, so that a counter reset since then goes unnoticed."""
    state, row = series.rows.state, placed.row
    state["live"][row] = True
    state["birth_ms"][row] = reading.birth_ms
    state["cell"][row] = reading.cells[placed.at]
    rows = series.rows.by_fingerprint
    for print_, birth_ms in late.tolist():
        if print_ in rows:
            state["birth_ms"][rows[print_]] = birth_ms
    series.uuid, series.process_ms = reading.uuid, reading.birth_ms
