"""Sources of an agent and their state on disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from artimon.model.batch import PollResult
from sources.base.source_errors import SourceStateError
from sources.state import state_files
from sources.state.series_memory import SourceSeries

log = logging.getLogger(__name__)
WRITE_PAUSE_S = 0.25
"""Pause between writes of sources that are touched all the time, as those of senders are. It limits the age of a state
after a crash; batches that the log still has restore it."""
FORGET_FILES_MS = 8 * 86_400_000
"""Age in ms at which the state of an unpolled source is deleted: its announcements are gone by then, too."""


class SourceStateStore:
    """Name -> source. Used by the event loop only, except `load` before it starts; threads only get encoded bytes."""

    def __init__(self, folder: Path, max_series: int) -> None:
        self._folder, self._max_series = folder, max_series
        self._sources: dict[str, SourceSeries] = {}
        self._unwritten: set[str] = set()
        self._wake, self._writing = asyncio.Event(), asyncio.Lock()
        self.damaged = 0
        self.write_errors = 0

    def __iter__(self) -> Iterator[SourceSeries]:
        return iter(list(self._sources.values()))

    def get(self, name: str) -> SourceSeries:
        """Return the source of that name; create it if needed."""
        found = self._sources.get(name)
        if found is None:
            found = self._sources[name] = SourceSeries(name, self._max_series)
        return found

    def last_poll_ms(self, name: str) -> int:
        """Return the time of the last known poll of a source, 0 if unknown."""
        found = self._sources.get(name)
        return found.last_poll_ms if found is not None else 0

    def load(self, replay: Iterable[PollResult], now_ms: int) -> None:
        """Read every source from disk and update it from the log."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(self._folder.glob("*" + state_files.SERIES)):
            self._load_one(path, now_ms)
        for polled in replay:
            self.get(polled.source).replay(polled)

    def _load_one(self, path: Path, now_ms: int) -> None:
        try:
            series = state_files.read_state(path, self._max_series)
        except SourceStateError as error:
            self.damaged += 1
            log.warning("state of a source quarantined as %s.damaged: %s", path, error)
            path.replace(path.with_name(path.name + ".damaged"))
            return
        if series.last_poll_ms < now_ms - FORGET_FILES_MS and not series.live:
            path.with_suffix(state_files.VALUES).unlink(missing_ok=True)
            path.unlink()
            return
        self._sources[series.name] = series

    def touch(self, series: SourceSeries) -> None:
        """Schedule a write of the state of a source."""
        self._unwritten.add(series.name)
        self._wake.set()

    async def write_forever(self) -> None:
        """Write touched sources one after another in a thread, until cancelled; none twice without a pause."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            async with self._writing:
                await self._write_touched()
            await asyncio.sleep(WRITE_PAUSE_S)

    async def flush(self) -> None:
        """Write all touched sources. After a cancellation the source under way stays touched."""
        async with self._writing:
            while self._unwritten:
                await self._write_touched()

    async def _write_touched(self) -> None:
        """Write the sources that are touched now, each once; `_writing` is held."""
        for name in list(self._unwritten):
            await self._write_one(self._sources[name])

    async def _write_one(self, series: SourceSeries) -> None:
        self._unwritten.discard(series.name)
        try:
            await state_files.run_in_thread(self._write, *self._encoded(series))
        except asyncio.CancelledError:
            self._unwritten.add(series.name)  # the write may have failed
            series.changed = True
            raise
        except OSError as error:
            self.write_errors += 1
            series.changed = True
            log.warning("state of %s not written: %s", series.name, error)

    async def write_now(self, series: SourceSeries) -> bool:
        """Write the state of one source durably (fsync); return False if a write failed."""
        before, errors = series.sync, self.write_errors
        series.sync = True
        try:
            self.touch(series)
            await self.flush()
        finally:
            series.sync = before
        return self.write_errors == errors

    def _encoded(self, series: SourceSeries) -> tuple[str, bytes | None, bytes, bool]:
        described = state_files.encode_descriptions(series) if series.changed else None
        series.changed = False
        return state_files.key_of(series.name), described, state_files.encode_values(series), series.sync

    def _write(self, key: str, described: bytes | None, values: bytes, sync: bool) -> None:
        if described is not None:
            state_files.replace_file(self._folder / (key + state_files.SERIES), described, sync)
        state_files.replace_file(self._folder / (key + state_files.VALUES), values, sync)
