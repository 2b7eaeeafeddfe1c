"""Merge of any number of sorted runs in bounded memory. Also returns freed memory to the system, which the C library
would keep in small pieces."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from artimon.rawtable.schema import FILE_SCHEMA
from pipeline.compaction.row_order import Key, SortKeys, sort_rows
from pipeline.compaction.sorted_runs import Run, check_order, spill

WINDOW_BYTES = 64 * 1024 * 1024
WINDOW_ROWS = 750_000
MAX_FAN_IN = 96
MAX_RUN_BYTES = 128 * 1024 * 1024
MIN_BATCH_ROWS, MAX_BATCH_ROWS = 1_024, 65_536
KEPT_BYTES = 256 * 1024 * 1024
"""Freed memory that an import keeps."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Parameters of glibc's mallopt."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """Bounds on the memory of a merge."""

    window_rows: int = WINDOW_ROWS
    """Rows that are sorted at once; about as many wait in the batches of the runs."""
    window_bytes: int = WINDOW_BYTES
    fan_in: int = MAX_FAN_IN
    """Runs that are open at once."""
    max_weight: int = MAX_RUN_BYTES
    """Limit of the bytes of all open runs, except for the batches in memory."""
    gives_back: bool = True
    """Return freed memory to the system after each window. Touching it again costs as much as the merge."""


DEFAULT_LIMITS = MergeLimits()


class _RunCursor:
    """Current batch of a run. Invariant: rows before `_at` were taken."""

    def __init__(self, run: Run, batch_rows: int) -> None:
        self._run, self._batches = run, run.batches(batch_rows)
        self._batch: Any = None
        self._keys, self._at = SortKeys.of(_no_rows()), 0

    def fill(self) -> bool:
        """Have at least one row; return False at the end of the run. Raises RunError if rows are not in order."""
        while self._at >= len(self._keys):
            before = self.last() if len(self._keys) else None
            self._batch = next(self._batches, None)
            if self._batch is None:
                return False
            self._keys, self._at = SortKeys.of(self._batch), 0
            check_order(self._keys, before, self._run.name)
        return True

    def last(self) -> Key:
        return self._keys.at(len(self._keys) - 1)

    def take(self, bound: Key) -> Any:
        """Take the rows up to and including `bound`; None if there are none."""
        start, self._at = self._at, self._keys.first_after(bound, self._at)
        return self._batch.slice(start, self._at - start) if self._at > start else None


def merge(runs: Sequence[Run], limits: MergeLimits = DEFAULT_LIMITS) -> Iterator[Any]:
    """Yield tables whose rows are in order, within and across tables. At most `limits.fan_in` runs.

    Rows up to the smallest last key of all heads can be emitted: every row not read yet comes after them."""
    batch_rows = max(MIN_BATCH_ROWS, min(MAX_BATCH_ROWS, limits.window_rows // max(1, len(runs))))
    heads = [head for run in runs if (head := _RunCursor(run, batch_rows)).fill()]
    pieces: list[Any] = []
    rows = held = 0
    while heads:
        bound = min(head.last() for head in heads)
        taken = [piece for head in heads if (piece := head.take(bound)) is not None]
        pieces += taken
        rows += sum(len(piece) for piece in taken)
        held += sum(piece.nbytes for piece in taken)
        heads = [head for head in heads if head.fill()]
        if rows >= limits.window_rows or held >= limits.window_bytes:
            yield _sorted(pieces)
            rows = held = 0
            if limits.gives_back:
                give_back()
    if pieces:
        yield _sorted(pieces)


def merge_all(
    runs: Sequence[Run], folder: Path, limits: MergeLimits = DEFAULT_LIMITS, schema: pa.Schema = FILE_SCHEMA
) -> Iterator[Any]:
    """Merge any number of runs of `schema`. While there are too many to open at once, groups of them are merged into
    one run each in `folder`."""
    level = 0
    current = list(runs)
    while len(groups := _group_runs(current, limits)) > 1:
        level += 1
        current = [
            spill(folder / f"{level}-{n}.arrow", merge(group, limits), MAX_BATCH_ROWS, schema)
            if len(group) > 1
            else group[0]
            for n, group in enumerate(groups)
        ]
    yield from merge(current, limits)


def _group_runs(runs: list[Run], limits: MergeLimits) -> list[list[Run]]:
    groups: list[list[Run]] = [[]]
    weight = 0
    for run in runs:
        full = len(groups[-1]) >= limits.fan_in or weight + run.weight > limits.max_weight
        if full and len(groups[-1]) >= 2:  # smaller groups would never reduce the number of runs
            groups.append([])
            weight = 0
        groups[-1].append(run)
        weight += run.weight
    return groups


def _sorted(pieces: list[Any]) -> Any:
    """Return all rows of `pieces` in order; empties the list."""
    # orders the rows of one series by time as far as possible: less is left to sort
    pieces.sort(key=lambda piece: piece.column("time")[0].value)
    whole = pa.Table.from_batches(pieces).combine_chunks()
    pieces.clear()  # so that rows are not held three times
    return sort_rows(whole)


def be_frugal() -> None:
    """Configure the allocator of this process; call before it has many threads."""
    if (libc := _libc()) is not None:
        libc.mallopt(_MMAP_THRESHOLD, 64 * 1024)  # larger blocks are returned as soon as they are freed
        libc.mallopt(_ARENA_MAX, 2)  # every call with a deadline runs in a thread, each with its own heap


def keep_freed() -> None:
    """Configure the allocator of this process to keep freed memory: each new page costs microseconds, and each step of
    an import takes and frees megabytes. Call before it has many threads."""
    if (libc := _libc()) is not None:
        libc.mallopt(_MMAP_THRESHOLD, 32 * 1024 * 1024)
        libc.mallopt(_TRIM_THRESHOLD, KEPT_BYTES)


def give_back() -> None:
    """Release free memory now. Takes milliseconds: not for inner loops."""
    if (libc := _libc()) is not None:
        libc.malloc_trim(0)


@lru_cache(maxsize=1)
def _libc() -> Any:
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim"):
        return libc
    log.debug("this C library has no mallopt")
    return None


@lru_cache(maxsize=1)
def _no_rows() -> pa.RecordBatch:
    """Return an empty batch. No constant, because Arrow imports pandas with its first array
    (artimon/runtime/arrow_setup.py)."""
    empty = [pa.array([], pa.int32()), pa.array([], pa.int64()), pa.array([], pa.timestamp("us", tz="UTC"))]
    return pa.record_batch(empty, names=["source", "series", "time"])
