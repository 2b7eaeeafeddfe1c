"""Memory of a source: state of its series between polls, and the batches of one poll.

A poll is prepared without a change of the state, given to the sink, and committed once the sink has it on disk. After a
failure the next poll is compared with the last accepted one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from artimon.model.batch import MAX_BLOCK_SERIES, MAX_SAMPLES, PollResult, Samples, SeriesBlock, SeriesInfo
from artimon.model.fingerprint import fingerprint
from artimon.model.values import ValueType, can_convert, double_to_cell
from sources.base.schedule import announce_day
from sources.state.past_processes import FinalSnapshots, is_final, make_past_process
from sources.state.schema_binding import BoundColumn, BoundSchema
from sources.state.series_rows import SeriesDescription, SeriesRows
from sources.state.source_reading import NO_PROCESS, Reading
from sources.state.start_times import Ints, KnownSeries, PolledSeries, apply_created, comparison_cells, start_times

FORGET_MS = 4 * 86_400_000
"""Age of an ended series in ms at which a full source may reuse its row; no bucket is kept for longer."""


PORT = "port"
"""Key in the meta of a source that belongs to a polled process."""
HOST_KEY = "host_key"
"""Key in the meta of such a source; the value is "" for a process registered by context."""


@dataclass(frozen=True, slots=True)
class PlacedColumns:
    """Columns of a schema that have a row in the source: column `at[i]` has row `row[i]`."""

    schema_id: bytes
    at: npt.NDArray[np.int64]
    row: npt.NDArray[np.int64]
    type: npt.NDArray[np.uint8]
    kind: npt.NDArray[np.uint8]
    is_complete: bool
    """True if every column of the schema has a row: `at` is 0, 1, 2 …"""
    refused: Counter[str]
    problems: tuple[str, ...]

    def seen(self, reading: Reading) -> PolledSeries:
        """Return the content of the placed columns."""
        return PolledSeries(reading.cells if self.is_complete else reading.cells[self.at], self.type, self.kind)


@dataclass(frozen=True, slots=True)
class SelectedSamples:
    """Samples with the end markers of the rows `ended`, and the state of the newest sample of each `row`."""

    samples: Samples
    row: Ints
    cell: Ints
    birth_ms: Ints
    sampled_ms: Ints | int
    """Time of the newest sample of each row, or one time for all rows."""
    ended: Ints
    ended_ms: Ints | None = None
    """Times of the ends that the sender gives; None: now."""


def only(samples: Samples, ended: Ints) -> SelectedSamples:
    """Return samples that change the state of the rows `ended` alone."""
    none = np.zeros(0, np.int64)
    return SelectedSamples(samples, none, none, none, none, ended)


@dataclass(frozen=True, slots=True)
class PreparedPoll:
    """Batches of a poll for the log, and the state to commit once they are accepted."""

    polled: tuple[PollResult, ...]
    taken: SelectedSamples
    uuid: bytes
    process_ms: int
    time_ms: int
    announced: tuple[tuple[int, int], ...]
    """(block, version)."""
    uid: int | None = None
    final: bytes = b""
    """Process of the final snapshot, b"" for a poll."""

    @property
    def samples(self) -> int:
        """Number of samples without end markers."""
        return len(self.taken.samples) - len(self.taken.ended)


class SourceSeries:
    """State of one source. `lock` is held from prepare to commit: the polls of a source are accepted in order."""

    def __init__(self, name: str, max_series: int = 100_000) -> None:
        self.name, self.max_series = name, max_series
        self.rows = SeriesRows()
        self.uuid = NO_PROCESS
        self.uid: int | None = None
        """User id of the process, None if unknown."""
        self.process_ms = 0
        self.finals = FinalSnapshots()
        self.last_poll_ms = 0
        self.whole_ms = 0
        """Newest time in a drop-in file at its last complete read."""
        self.sync = False
        """True if its state must survive a power loss: else the samples of a file would count again."""
        self.meta: dict[str, Any] = {}
        """Last known place of the source: context, ip, port, labels, file or target; kept with the state."""
        self.lock = asyncio.Lock()
        self.changed = False
        """True if descriptions or meta changed since the state was last written."""
        self._versions: dict[int, int] = {}
        self._days: dict[int, int] = {}
        self._dirty: set[int] = set()
        self._orphans: dict[int, tuple[int, int, int, int]] = {}
        """Fingerprint -> (cell, birth, type, time) from the log, of series whose text is not known yet."""

    # --- schema -> rows

    def place(self, bound: BoundSchema, now_ms: int) -> PlacedColumns:
        """Find or add a row for every column; columns without a row are refused and counted."""
        refused = Counter(bound.refused)
        problems = [f"{self.name}: {reason}: {text}" for reason, text in bound.examples.items()]
        kept: list[tuple[int, BoundColumn]] = []
        for column, row, reason in self.place_columns(bound.columns, now_ms, now_ms):
            if reason:
                refused[reason] += 1
                if refused[reason] == 1:
                    problems.append(f"{self.name}: {reason}: {column.text}")
                continue
            kept.append((row, column))
        return _place_columns(bound, kept, refused, problems)

    def place_columns(
        self, columns: Iterable[BoundColumn], now_ms: int, last_ms: int
    ) -> Iterator[tuple[BoundColumn, int, str]]:
        """Yield each column with its row, found or added, or with -1 and the reason of the refusal. `last_ms` becomes
        the time of the newest sample of an added row."""
        spare: list[int] | None = None
        for column in columns:
            row = self.rows.by_fingerprint.get(column.fingerprint)
            if row is None and self.rows.size >= self.max_series and spare is None:
                spare = self.rows.stale(now_ms - FORGET_MS)
            reason = self._add(column, now_ms, last_ms, spare) if row is None else self._update_row(row, column)
            yield column, -1 if reason else self.rows.by_fingerprint[column.fingerprint], reason

    def _add(self, column: BoundColumn, now_ms: int, last_ms: int, spare: list[int] | None) -> str:
        """Add a row for a new series; return the reason of a refusal or ""."""
        description = SeriesDescription(column.text, column.kind, column.help, column.unit, now_ms)
        if spare is None:
            row = self.rows.add(column.fingerprint, column.type, description, last_ms)
        elif spare:
            row = spare.pop()
            self.rows.replace(row, column.fingerprint, column.type, description, last_ms)
        else:
            return "too many series"
        self._apply_orphan(row, column.fingerprint)
        self._touch(row)
        return ""

    def _update_row(self, row: int, column: BoundColumn) -> str:
        """Update the type and description of a known series; return the reason of a refusal or ""."""
        known = self.rows.descriptions[row]
        if known.text != column.text:
            return "fingerprint clash"
        old = ValueType(int(self.rows.state["type"][row]))
        if not can_convert(old, column.type):
            return "type change"
        if old != column.type:
            state = self.rows.state
            state["type"][row] = column.type
            state["cell"][row] = double_to_cell(float(int(state["cell"][row])))
            self._touch(row)
        if (known.kind, known.help, known.unit) != (column.kind, column.help, column.unit):
            known.kind, known.help, known.unit = column.kind, column.help, column.unit
            self._touch(row)
        return ""

    def _touch(self, row: int) -> None:
        self._dirty.add(row // MAX_BLOCK_SERIES)
        self.changed = True

    # --- poll -> batches

    def prepare(self, reading: Reading, placed: PlacedColumns) -> PreparedPoll:
        """Return the batches of one poll: a sample for every placed column, an ENDED row for every missing series."""
        time_ms = self._after_last(reading.time_ms)
        row, seen, state = placed.row, placed.seen(reading), self.rows.state
        live = state["live"][row]
        if reading.resumes:
            live = live | (state["birth_ms"][row] >= reading.birth_ms)
        known = KnownSeries(state["cell"][row], state["birth_ms"][row], live)
        same = self.uuid == reading.uuid
        born = start_times(known, seen, reading.birth_ms, self.last_poll_ms if same else None, reading.appeared_ms)
        if reading.created_ms is not None:
            born = apply_created(born, known, reading.created_ms[placed.at], state["last_ms"][row], time_ms)
        born = np.minimum(born, time_ms)
        gone = state["live"].copy()
        gone[row] = False
        ended = np.flatnonzero(gone)
        samples = self.samples(reading, placed, time_ms, born).join(self.rows.ends(ended, time_ms))
        taken = SelectedSamples(samples, row, comparison_cells(known, seen), born, time_ms, ended)
        return replace(self.make_prepared(taken, reading.uuid, reading.birth_ms, time_ms), uid=reading.uid)

    def samples(self, reading: Reading, placed: PlacedColumns, time_ms: int, born: Ints) -> Samples:
        """Return a sample for every placed column."""
        prints = self.rows.state["fingerprint"][placed.row]
        times = np.full(len(prints), time_ms, np.int64)
        return Samples(prints, times, born, placed.type, placed.seen(reading).cell, reading.strings)

    def prepare_end(self, now_ms: int) -> PreparedPoll:
        """Return batches that end every live series."""
        time_ms = self._after_last(now_ms)
        ended = np.flatnonzero(self.rows.state["live"])
        return self.make_prepared(only(self.rows.ends(ended, time_ms), ended), self.uuid, self.process_ms, time_ms)

    def prepare_selected(self, taken: SelectedSamples, now_ms: int) -> PreparedPoll:
        """Return the batches of samples with individual times and start times, which have no end markers yet. Series in
        `ended` end at their times, or now, or at their last sample if that is later."""
        time_ms, ended = self._after_last(now_ms), taken.ended
        at_ms = time_ms if taken.ended_ms is None else taken.ended_ms
        ends = self.rows.ends(ended, np.maximum(at_ms, self.rows.state["last_ms"][ended]))
        return self.make_prepared(replace(taken, samples=taken.samples.join(ends)), NO_PROCESS, 0, time_ms)

    def make_prepared(self, taken: SelectedSamples, uuid: bytes, process_ms: int, time_ms: int) -> PreparedPoll:
        """Return the batches of the samples, with the announcements that are due."""
        blocks = self._announcements(time_ms)
        polled = [
            PollResult(self.name, uuid, process_ms, time_ms, part, blocks=blocks if i == 0 else ())
            for i, part in enumerate(_split_batches(taken.samples))
        ]
        announced = tuple((block.block, block.version) for block in blocks)
        return PreparedPoll(tuple(polled), taken, uuid, process_ms, time_ms, announced)

    def commit(self, prepared: PreparedPoll) -> None:
        """Update the state with a poll that the sink has accepted."""
        self._keep_predecessor(prepared.uuid)
        if prepared.final:
            self.take_final(prepared.final, prepared.time_ms)
        state, taken = self.rows.state, prepared.taken
        row = taken.row
        state["cell"][row] = taken.cell
        state["birth_ms"][row] = taken.birth_ms
        state["last_ms"][row] = taken.sampled_ms
        state["live"][row] = True
        state["live"][taken.ended] = False
        self.uuid, self.process_ms, self.last_poll_ms = prepared.uuid, prepared.process_ms, prepared.time_ms
        self.uid = prepared.uid if prepared.uid is not None else self.uid
        for block, version in prepared.announced:
            self._versions[block] = version
            self._days[block] = announce_day(version, f"{block}/{self.name}")
            self._dirty.discard(block)

    def _keep_predecessor(self, uuid: bytes) -> None:
        """If `uuid` is a new process, keep the state of its predecessor that a final snapshot of it needs."""
        if self.uuid not in (uuid, NO_PROCESS) and self.process_ms:
            self.finals.add_past(
                make_past_process(self.uuid, self.uid, self.process_ms, self.last_poll_ms, self.rows.state)
            )
            self.uid, self.changed = None, True

    def take_final(self, uuid: bytes, time_ms: int) -> None:
        """Remember, also on disk, that the log has the final snapshot of a process."""
        self.finals.mark_taken(uuid, time_ms)
        self.changed = True

    @property
    def live(self) -> int:
        """Number of series with a value that have not ended."""
        return int(self.rows.state["live"].sum())

    def _after_last(self, time_ms: int) -> int:
        """Return a time after the last poll if the clock was set back by less than 1 s, so that times do not repeat."""
        back = self.last_poll_ms - time_ms
        return self.last_poll_ms + 1 if 0 <= back < 1_000 else time_ms

    # --- announcements

    def _announcements(self, now_ms: int) -> tuple[SeriesBlock, ...]:
        due = [
            block
            for block in range(-(-self.rows.size // MAX_BLOCK_SERIES))
            if block in self._dirty or self._days.get(block) != announce_day(now_ms, f"{block}/{self.name}")
        ]
        return tuple(self._block(block, now_ms) for block in due)

    def _block(self, block: int, now_ms: int) -> SeriesBlock:
        start = block * MAX_BLOCK_SERIES
        types = self.rows.state["type"][start : start + MAX_BLOCK_SERIES].tolist()
        described = self.rows.descriptions[start : start + MAX_BLOCK_SERIES]
        infos = tuple(
            SeriesInfo(d.text, ValueType(t), d.kind, d.help, d.unit, d.first_seen_ms)
            for d, t in zip(described, types, strict=True)
        )
        return SeriesBlock(self.name, block, max(now_ms, self._versions.get(block, 0) + 1), infos)

    # --- the log at start

    def replay(self, polled: PollResult) -> None:
        """Update the state with a poll from the log; samples of an older poll change nothing.

        The log may hold samples and announcements apart: a batch without samples does not identify the process."""
        for block in polled.blocks:
            self._add_announced(block)
        samples, poll_ms = polled.samples, polled.poll_ms
        if len(samples) and is_final(polled):
            self.take_final(polled.endpoint, poll_ms)
            poll_ms = int(samples.time_ms.min())
            if not self.follows(polled.endpoint, polled.birth_ms, poll_ms):
                return
        if poll_ms < self.last_poll_ms or not len(samples):
            return
        self._keep_predecessor(polled.endpoint)
        columns = (samples.fingerprint, samples.cell, samples.birth_ms, samples.type, samples.time_ms)
        for print_, cell, birth_ms, type_, time_ms in zip(*(c.tolist() for c in columns), strict=True):
            self._orphans[print_] = (cell, birth_ms, type_, time_ms)
            row = self.rows.by_fingerprint.get(print_)
            if row is not None:
                self._apply_orphan(row, print_)
        self.uuid, self.process_ms, self.last_poll_ms = polled.endpoint, polled.birth_ms, poll_ms

    def follows(self, uuid: bytes, birth_ms: int, time_ms: int) -> bool:
        """Return True if samples of this process at `time_ms` are newer than the state, and the process is not older
        than the one that the state is from."""
        if uuid == self.uuid:
            return time_ms >= self.last_poll_ms
        return birth_ms >= self.process_ms and time_ms > self.last_poll_ms

    def _add_announced(self, block: SeriesBlock) -> None:
        """Add the rows of an announcement that follow the known ones; continue its version."""
        self._versions[block.block] = max(block.version, self._versions.get(block.block, 0))
        for row, info in enumerate(block.series, block.block * MAX_BLOCK_SERIES):
            if row == self.rows.size:
                description = SeriesDescription(info.text, info.kind, info.help, info.unit, info.first_seen_ms)
                print_ = fingerprint(info.text)
                self.rows.add(print_, info.type, description)
                self._apply_orphan(row, print_)
                self.changed = True

    def _apply_orphan(self, row: int, print_: int) -> None:
        """Apply the state from the log of a series whose row was unknown until now."""
        found = self._orphans.pop(print_, None)
        if found is None:
            return
        cell, birth_ms, type_, time_ms = found
        state = self.rows.state
        known = ValueType(int(state["type"][row]))
        live = type_ != ValueType.ENDED
        state["live"][row], state["birth_ms"][row] = live, birth_ms
        if live or not state["last_ms"][row]:  # the time of an end marker is not that of the last value
            state["last_ms"][row] = time_ms
        if live and type_ == known:
            state["cell"][row] = cell
        elif live and can_convert(ValueType(type_), known):
            state["cell"][row] = double_to_cell(float(cell))
        elif live and can_convert(known, ValueType(type_)):
            state["type"][row], state["cell"][row] = type_, cell


def _place_columns(
    bound: BoundSchema, kept: Sequence[tuple[int, BoundColumn]], refused: Counter[str], problems: Sequence[str]
) -> PlacedColumns:
    at = np.array([column.at for _, column in kept], np.int64)
    return PlacedColumns(
        bound.schema.id,
        at,
        np.array([row for row, _ in kept], np.int64),
        np.array([column.type for _, column in kept], np.uint8),
        np.array([column.kind for _, column in kept], np.uint8),
        len(kept) == len(bound.schema),
        refused,
        tuple(problems),
    )


def _split_batches(samples: Samples) -> list[Samples]:
    """Split into parts of at most MAX_SAMPLES; at least one part, which may be empty."""
    return [samples.slice(i, i + MAX_SAMPLES) for i in range(0, max(1, len(samples)), MAX_SAMPLES)]
