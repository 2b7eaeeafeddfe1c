"""Samples of a final snapshot: times, start times, and the case that a successor was polled already. Pure."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sources.poll.final_files import FinalSnapshot
from sources.poll.start_time_memo import decode_memo
from sources.state.past_processes import alive_at_end, polled_ms
from sources.state.series_memory import PlacedColumns, PreparedPoll, SelectedSamples, SourceSeries, only
from sources.state.source_reading import Reading
from sources.state.start_times import Ints, KnownSeries, comparison_cells, start_times

MAX_RACE_MS = 60_000
"""Tolerance in ms: the agent may date the last poll later than the process dates its end."""


def prepare(series: SourceSeries, final: FinalSnapshot, placed: PlacedColumns, now_ms: int) -> PreparedPoll:
    """Return the batches of a final snapshot. After the last poll of its process they count as its next poll. After
    polls of a successor they are late: then the source only remembers that the snapshot was taken."""
    reading = final.reading
    time_ms = _time_of(series, reading)
    born = np.minimum(start_times_of(series, final, placed), time_ms)
    live = series.rows.state["live"].copy()
    follows = series.follows(reading.uuid, reading.birth_ms, time_ms)
    if follows:
        live[placed.row] = False
        ended, ended_ms = np.flatnonzero(live), time_ms
        ended_born = series.rows.state["birth_ms"][ended]
    else:
        over = ~live[placed.row]
        ended, ended_ms, ended_born = placed.row[over], time_ms + 1, born[over]
    ends = replace(series.rows.ends(ended, ended_ms), birth_ms=ended_born)
    samples = series.samples(reading, placed, time_ms, born).join(ends)
    made = _batches(series, reading, only(samples, ended), time_ms, now_ms)
    if not follows:
        return replace(made, uuid=series.uuid, process_ms=series.process_ms, time_ms=series.last_poll_ms, uid=None)
    cell = comparison_cells(_known(series, placed), placed.seen(reading))
    return replace(made, taken=SelectedSamples(samples, placed.row, cell, born, time_ms, ended), time_ms=time_ms)


def start_times_of(series: SourceSeries, final: FinalSnapshot, placed: PlacedColumns) -> Ints:
    """Return the birth of each placed column, from the state of the process at its last poll."""
    reading = final.reading
    if series.uuid == reading.uuid:
        before_ms = polled_ms(series.rows.state, series.last_poll_ms)
        return start_times(_known(series, placed), placed.seen(reading), reading.birth_ms, before_ms)
    born = np.full(len(placed.row), reading.birth_ms, np.int64)
    past = series.finals.past(reading.uuid)
    late = past.late if past is not None else dict(decode_memo(final.memo or b"").tolist())
    for at, row in enumerate(placed.row.tolist()):
        print_ = int(series.rows.state["fingerprint"][row])
        if past is not None and series.rows.descriptions[row].first_seen_ms > past.last_poll_ms:
            born[at] = past.last_poll_ms
        born[at] = late.get(print_, born[at])
    return born


def _time_of(series: SourceSeries, reading: Reading) -> int:
    back_ms = series.last_poll_ms - reading.time_ms
    if series.uuid == reading.uuid and series.live and 0 <= back_ms < MAX_RACE_MS:
        return series.last_poll_ms + 1
    return reading.time_ms


def _known(series: SourceSeries, placed: PlacedColumns) -> KnownSeries:
    state = series.rows.state
    row = placed.row
    return KnownSeries(state["cell"][row], state["birth_ms"][row], alive_at_end(state)[row])


def _batches(series: SourceSeries, reading: Reading, taken: SelectedSamples, time_ms: int, now_ms: int) -> PreparedPoll:
    """Return the batches. The last one is newer than its samples, which marks the snapshot as complete in the log."""
    poll_ms = max(now_ms, time_ms + 2, series.last_poll_ms + 1)
    made = series.make_prepared(taken, reading.uuid, reading.birth_ms, poll_ms)
    *before, last = made.polled
    polled = (*(replace(part, poll_ms=time_ms) for part in before), last)
    return replace(made, polled=polled, uid=reading.uid, final=reading.uuid)
