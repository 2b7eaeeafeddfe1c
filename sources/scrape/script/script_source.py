"""One script as a source: run periodically, its output is parsed as drop-in lines or as a Prometheus page."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sources.delivery.poll_context import PollContext, PollLimits
from sources.dropin.file_source import DropinFile, FileRead
from sources.dropin.folder_files import FileLimits
from sources.dropin.series_owners import SeriesOwners
from sources.scrape.prometheus.exposition_reader import Exposition, ExpositionReader
from sources.scrape.prometheus.exposition_source import ExpositionSource
from sources.scrape.script.script_run import run_script
from sources.scrape.server.target_source import TargetSource
from sources.state.series_memory import SourceSeries
from sources.targets.script_target import ScriptTarget


class _ScriptMixin:
    """Mixin of a TargetSource that runs a script."""

    eager = False
    shared: PollContext
    _script: ScriptTarget

    @property
    def period_ms(self) -> int:
        return self._script.period_ms or self.shared.config.period_ms

    @property
    def deadline_s(self) -> float:
        return self._script.deadline_s

    async def fetch(self, ip: str) -> bytes:  # noqa: ARG002
        return await run_script(self._script)


class ExpositionScript(_ScriptMixin, ExpositionSource):
    """Source of a script that prints a Prometheus page."""

    def __init__(self, script: ScriptTarget, shared: PollContext, pool: PollLimits) -> None:
        super().__init__(script, shared, pool, ExpositionReader(), None)
        self._script = script

    def read(self, raw: bytes) -> Exposition:
        return self._reader.read(raw, raw.rstrip().endswith(b"# EOF"), ended=True)


class LineScript(_ScriptMixin, TargetSource[FileRead]):
    """Source of a script that prints lines of drop-in files with their own times: each sample counts once."""

    def __init__(self, script: ScriptTarget, shared: PollContext, pool: PollLimits, owners: SeriesOwners) -> None:
        super().__init__(script, shared, pool)
        self._script, self._owners = script, owners
        self._file: DropinFile | None = None
        self._run = 0

    def read(self, raw: bytes) -> FileRead:
        self._run += 1
        return self._lines().parse_output(raw, self._run, self.shared.clock.now_ms())

    async def deliver(self, content: FileRead, series: SourceSeries, time_ms: int) -> int:  # noqa: ARG002
        return await self._lines().take(content, self.report)

    def _lines(self) -> DropinFile:
        series = self.known_series()
        if self._file is None or self._file.series is not series:
            limits, delivery = FileLimits(file_bytes=self._script.max_bytes), self.shared.delivery
            path = Path(self._script.command[0])
            self._file = DropinFile(path, series, self.labels, limits, self._owners, delivery, asyncio.to_thread)
        return self._file
