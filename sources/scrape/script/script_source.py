"""One script as a source: run periodically, its output is parsed as drop-in lines or as a Prometheus page. A run
collects the output within limits and leaves no process behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from artimon.runtime.settings import child_environment
from sources.base.source_errors import PollError
from sources.delivery.poll_context import PollContext, PollLimits
from sources.dropin.file_source import DropinFile, FileRead
from sources.dropin.folder_files import FileLimits
from sources.dropin.series_owners import SeriesOwners
from sources.scrape.prometheus.exposition_reader import Exposition, ExpositionReader
from sources.scrape.prometheus.exposition_source import ExpositionSource
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


_MAX_STDERR_BYTES = 300
"""Bytes of standard error that are shown in an error, from its end."""
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")


class _Output(asyncio.SubprocessProtocol):
    """Output of a script. `ended` is done once the script has exited and no process holds its pipes, or the output is
    too large."""

    def __init__(self, limit: int) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.written, self._complaint = bytearray(), b""
        self._limit, self._running = limit, {"process", 1, 2}

    @property
    def last_error(self) -> str:
        """End of standard error on one line."""
        return " ".join(self._complaint.decode("utf-8", "replace").split())

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._complaint = (self._complaint + data)[-_MAX_STDERR_BYTES:]
            return
        self.written += data
        if len(self.written) > self._limit and not self.ended.done():
            text = f"more than {self._limit} bytes: raise `max_bytes:` of the script, or print less"
            self.ended.set_exception(PollError("output too large", text))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        self._close_part(fd)

    def process_exited(self) -> None:
        self._close_part("process")

    def _close_part(self, part: int | str) -> None:
        self._running.discard(part)
        if not self._running and not self.ended.done():
            self.ended.set_result(None)


async def run_script(script: ScriptTarget) -> bytes:
    """Run a script and return its standard output. Raises PollError if it does not start, writes too much, or exits
    with a code other than 0. The caller sets the timeout. On failure or cancellation its process group is killed."""
    start = asyncio.ensure_future(_start(script))
    try:
        # a cancelled subprocess_exec would wait until all holders of the pipes are gone: let the start finish instead
        transport, output = await asyncio.shield(start)
    except asyncio.CancelledError:
        start.add_done_callback(_give_up)
        raise
    except (OSError, ValueError) as error:
        raise PollError("not started", f"{script.command[0]}: {error}") from error
    over = False
    try:
        await output.ended
        over = True
    finally:
        _end(transport, over)
    code = transport.get_returncode()
    if code:
        how = f"ended by signal {-code}" if code < 0 else f"ended with {code}"
        raise PollError("exit code", f"{how}{': ' + output.last_error if output.last_error else ''}")
    return bytes(output.written)


async def _start(script: ScriptTarget) -> tuple[asyncio.SubprocessTransport, _Output]:
    inherited = {name: value for name, value in child_environment({}).items() if name in _INHERITED}
    return await asyncio.get_running_loop().subprocess_exec(
        lambda: _Output(script.max_bytes),
        *script.command,
        stdin=asyncio.subprocess.DEVNULL,
        env={**inherited, **script.environment},
        cwd="/",
        start_new_session=True,
    )


def _end(transport: asyncio.SubprocessTransport, over: bool) -> None:
    if not over:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(transport.get_pid(), signal.SIGKILL)
    transport.close()  # also closes the pipes, even if other processes hold them


def _give_up(start: asyncio.Task[tuple[asyncio.SubprocessTransport, _Output]]) -> None:
    if not start.cancelled() and start.exception() is None:
        _end(start.result()[0], over=False)
