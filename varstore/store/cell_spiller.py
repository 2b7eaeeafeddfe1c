"""Thread that moves the packed cells of the coarser levels from memory to files."""

from __future__ import annotations

import logging
import threading

from artimon.model.clock import SYSTEM_CLOCK, Clock
from varstore.cells.cell_file import CellFile
from varstore.cells.locks import FairLock
from varstore.cells.packed_block import MovedColumns, PackedBlock
from varstore.store.bucket_store import BucketStore

log = logging.getLogger(__name__)

INTERVAL_S = 1.0
RETRY_S = 60.0
"""Pause after an error of the disk."""
RELEASE_S = 30.0
"""Interval in which pages that queries read leave the memory of the process."""
BATCH_BLOCKS = 64
"""Packed segments, of up to 2.6 MB, that are synchronized together."""
PENDING_BYTES = 1 << 30
"""Bytes of cells of a loaded snapshot that may wait in memory for the disk."""
_POLL_S = 0.05


class CellSpiller:
    """Writes packed segments of the levels above the finest one, which queries read most, and drops their copies in
    memory.

    Takes the lock of the cells only to list the segments. If the disk is full or broken, or hangs, cells stay in
    memory. `move` is for one thread at a time."""

    def __init__(self, store: BucketStore, cells: FairLock, file: CellFile, clock: Clock = SYSTEM_CLOCK) -> None:
        self._store, self._cells, self._clock, self.file = store, cells, clock, file
        self.problem = ""
        """Reason why cells stay in memory; empty if they do not."""
        self._loaded = 0
        """Bytes of cells that snapshots have loaded; `_written` of them were on disk after the last call of `move`."""
        self._written = 0
        self._progress_s = clock.monotonic()
        """Time of the last segments written, and of the begin of `move`."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cells", daemon=True)

    def start(self) -> None:
        """Move cells every second, in a thread of its own."""
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Stop; a disk that hangs is waited for at most `timeout_s`."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def throttle(self, nbytes: int) -> None:
        """Count bytes of cells that a snapshot loads, and wait while more than PENDING_BYTES wait for the disk. Returns
        at once if the disk is full, broken or hangs: then they stay in memory. Call without the lock of the cells."""
        self._loaded += nbytes
        while self._loaded - self._written > PENDING_BYTES and self._is_writing():
            self._clock.wait(self._stop, _POLL_S)

    def _is_writing(self) -> bool:
        alive = self._thread.is_alive() and not self._stop.is_set() and not self.problem
        return alive and self._clock.monotonic() < self._progress_s + RETRY_S

    def _run(self) -> None:
        released = self._clock.monotonic()
        while not self._stop.is_set():
            self.move()
            if self._clock.monotonic() >= released + RELEASE_S:
                self.file.release()
                released = self._clock.monotonic()
            self._clock.wait(self._stop, RETRY_S if self.problem else INTERVAL_S)

    def move(self) -> int:
        """Move all packed segments that are in memory; return their number. After an error the rest stays there."""
        moved, loaded = 0, self._loaded
        self._progress_s = self._clock.monotonic()
        with self._cells:
            rings = [ring for ring in self._store.rings if ring.is_follower]
            blocks = [(ring.step_ms, block) for ring in rings for block in ring.unwritten()]
        try:
            while moved < len(blocks) and not self._stop.is_set():
                moved += self._move(blocks[moved : moved + BATCH_BLOCKS])
            self._written = loaded
            self._report("")
        except OSError as error:
            self.file.abandon()
            self._report(f"buckets stay in memory, as they cannot be written to {self.file.folder}: {error}")
        return moved

    def _move(self, blocks: list[tuple[int, PackedBlock]]) -> int:
        """Write segments, given with the step of their level, and place them in the file once they are on disk."""
        written: list[tuple[PackedBlock, MovedColumns]] = []
        for step_ms, block in blocks:
            written.append((block, block.write(self.file, step_ms)))
        self.file.sync()
        self._progress_s = self._clock.monotonic()
        for block, columns in written:
            block.place(columns)
        return len(written)

    def _report(self, problem: str) -> None:
        if problem != self.problem:
            log.warning(problem or "buckets are written to disk again")
        self.problem = problem
