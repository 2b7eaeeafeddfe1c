"""Folder of drop-in files: read once a period, each file is a source `file/<host>/<name without suffix>`."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from artimon.model.clock import Clock
from artimon.model.protocols import SinkRefusedError
from artimon.model.values import Kind
from sources.base.schedule import Pace, next_tick, sleep_until
from sources.base.source_errors import MAX_NAMED, FileRefusedError, RejectCounts
from sources.delivery.file_thread import FileSystemHangsError, FileThread
from sources.delivery.reading_delivery import ReadingDelivery
from sources.delivery.source_owners import FixedOwner, SourceOwners
from sources.dropin.file_source import DropinFile
from sources.dropin.folder_files import FileLimits, list_folder, stem_of
from sources.dropin.series_owners import META, SeriesOwners
from sources.state.series_memory import SourceSeries
from sources.state.source_reading import SourceVariable

log = logging.getLogger(__name__)


class DropinFolder:
    """Polls one folder. Event loop only; files are read in a separate thread."""

    def __init__(
        self,
        folder: Path,
        delivery: ReadingDelivery,
        owners: SourceOwners,
        labels: Mapping[str, str],
        limits: FileLimits | None = None,
    ) -> None:
        """`labels`: placement of this host."""
        self.folder, self._delivery, self._owners = folder, delivery, owners
        self._labels, self._limits = dict(labels), limits or FileLimits()
        self._files: dict[str, DropinFile] = {}
        self._reported: dict[str, int] = {}
        self._owner = FixedOwner()
        self._series_owners = SeriesOwners()
        self._files_thread = FileThread(folder, "dropin")

    async def resume(self) -> None:
        """Follow the files of the last run, so that deleted ones end. End sources of a former name of this host."""
        for series in self._sources():
            self._series_owners.add(series)
            await asyncio.sleep(0)
        for series in self._delivery.store:
            name = series.meta.get(META)
            if not isinstance(name, str) or not series.live:
                continue
            if series.name == self._source(name):
                await self._open(name)
                continue
            try:
                await self._delivery.end(series)
            except SinkRefusedError:
                continue

    async def run(self, clock: Clock, pace: Pace) -> None:
        """Poll until cancelled. A failed poll is logged and does not stop the loop."""
        await self.resume()
        tick = next_tick(clock.now_ms(), *pace())
        while True:
            await sleep_until(tick, clock, lambda: 2 * pace()[1])
            try:
                await self.poll()
                self._delivery.figures.set_problem("dropin", "")
            except Exception as error:
                log.exception("drop-in files of %s", self.folder)
                self._delivery.figures.note_internal_error("dropin", self.folder, error)
            tick = next_tick(clock.now_ms(), *pace())

    def close(self) -> None:
        """Stop reading files."""
        self._files_thread.close()

    def variables(self, now_ms: int) -> Iterator[SourceVariable]:
        """Yield the agent's own variables about each file."""
        for name, file in self._files.items():
            labels = {**self._labels, "file": name}
            if file.mtime_ms is not None:
                age = max(0, now_ms - file.mtime_ms)
                yield SourceVariable(
                    "artimon.dropin.age.ms", labels, age, Kind.GAUGE, "ms", "Time since the file was written"
                )
            yield SourceVariable(
                "artimon.dropin.lines.accepted", labels, file.accepted, Kind.COUNTER, "", "Lines that became samples"
            )
            yield SourceVariable(
                "artimon.dropin.lines.refused", labels, file.refused, Kind.COUNTER, "", "Lines that were not taken"
            )

    # --- one poll

    async def poll(self) -> int:
        """Poll every file once; return the number of samples accepted."""
        known, figures = frozenset(self._files), self._delivery.figures
        try:
            listing = await self._files_thread(lambda: list_folder(self.folder, known, self._limits.files))
        except (FileRefusedError, FileSystemHangsError) as error:
            figures.set_problem("dropin folder", str(error))
            return 0
        figures.set_problem("dropin folder", listing.problem)
        samples = 0
        for name in listing.names:
            samples += await self._poll_file(name)
        for name in sorted(set(self._files) | set(self._reported)):
            if name not in listing.names and listing.whole:
                await self._handle_missing(name)
        self._series_owners.trim(self._sources())
        return samples

    def _sources(self) -> list[SourceSeries]:
        """Return the sources of drop-in files of this run and earlier ones."""
        return [series for series in self._delivery.store if META in series.meta]

    async def _poll_file(self, name: str) -> int:
        try:
            file = await self._open(name)
            return await file.take(await self._files_thread(file.read_if_changed), partial(self._report, name))
        except FileNotFoundError:
            await self._handle_missing(name)
        except FileRefusedError as error:
            if name in self._files:
                self._files[name].read_again()
            self._report(name, RejectCounts(error.reason, error.text))
        except (SinkRefusedError, FileSystemHangsError) as error:
            log.warning("%s: %s", name, error)
        except Exception as error:  # an error in one file must not stop the others
            log.exception("%s", name)
            self._delivery.figures.poll_errors["internal"] += 1
            self._report(name, RejectCounts("internal", f"{self.folder / name}: {type(error).__name__}: {error}"))
        return 0

    async def _open(self, name: str) -> DropinFile:
        """Return the file of that name. Raises FileRefusedError if the name is invalid or a process owns its source."""
        if name in self._files:
            return self._files[name]
        source = self._source(name)
        if not await self._owners.claim(source, self._owner, sure=True):
            raise FileRefusedError(
                "same source twice", f"{self.folder / name}: a process already owns {source}: rename it"
            )
        series = self._delivery.store.get(source)
        if series.meta != {META: name}:
            series.meta, series.changed = {META: name}, True
        automatic = {**self._labels, "context": stem_of(name)}
        self._files[name] = file = DropinFile(
            self.folder / name, series, automatic, self._limits, self._series_owners, self._delivery, self._files_thread
        )
        return file

    def _source(self, name: str) -> str:
        return f"file/{self._labels['host']}/{stem_of(name)}"

    async def _handle_missing(self, name: str) -> None:
        """Count a poll without the file; after GONE_POLLS of them its series end and the file is forgotten."""
        self._report(name, RejectCounts())
        file = self._files.get(name)
        if file is None:
            return
        try:
            await file.mark_missing()
        except SinkRefusedError:
            return
        if not file.series.live:
            self._owners.release(file.series.name, self._owner)
            self._delivery.forget(file.series)
            del self._files[name]

    # --- problems

    def _report(self, name: str, refused: RejectCounts) -> None:
        """Replace the reported problems of a file; empty `refused` clears them."""
        figures, path = self._delivery.figures, self.folder / name
        texts = [f"{path}:{line}: {text}" if line else text for line, text in refused.named]
        total = refused.counts.total()
        if total > sum(line > 0 for line, _ in refused.named) and len(texts) == MAX_NAMED:
            texts.append(f"{path}: {total:,} lines refused in all")
        for i in range(max(len(texts), self._reported.pop(name, 0))):
            figures.set_problem(f"dropin {name} {i}", texts[i] if i < len(texts) else "")
        figures.set_refused(f"dropin {name}", Counter(refused.counts))
        if texts:
            self._reported[name] = len(texts)
