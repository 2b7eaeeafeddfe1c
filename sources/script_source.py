"""One script as a source: run at a period, its output taken as drop-in lines or as a Prometheus page."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from artimon.settings import child_environment
from sources.dropin_file import DropinFile, Look
from sources.dropin_files import FileLimits
from sources.dropin_owners import SeriesOwners
from sources.dropin_read import Columns
from sources.dropin_take import take
from sources.errors import PollError
from sources.faults import EXAMPLE, Faults
from sources.follower import Shared
from sources.prometheus_page import Page, PageReader
from sources.prometheus_source import PageSource
from sources.script import Script
from sources.series import SourceSeries
from sources.target_source import Pool, TargetSource

_COMPLAINT = 300
"""Bytes of what a script wrote to standard error that are shown."""
_INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR")


class _Output(asyncio.SubprocessProtocol):
    """What a script writes. `ended` is done once it has exited and nobody holds its output any more, or has written too
    much."""

    def __init__(self, limit: int) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.written, self._complaint = bytearray(), b""
        self._limit, self._running = limit, {"process", 1, 2}

    @property
    def complaint(self) -> str:
        """The end of what it wrote to standard error, on one line."""
        return " ".join(self._complaint.decode("utf-8", "replace").split())

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._complaint = (self._complaint + data)[-_COMPLAINT:]
            return
        self.written += data
        if len(self.written) > self._limit and not self.ended.done():
            text = f"more than {self._limit} bytes: raise its `max_bytes:`, or write less"
            self.ended.set_exception(PollError("output too large", text))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002
        self._over(fd)

    def process_exited(self) -> None:
        self._over("process")

    def _over(self, part: int | str) -> None:
        self._running.discard(part)
        if not self._running and not self.ended.done():
            self.ended.set_result(None)


async def run_script(script: Script) -> bytes:
    """What it wrote to standard output. PollError: not started, wrote too much, or ended with another code than 0; the
    caller has the deadline. If it is not over by itself its whole process group is killed."""
    start = asyncio.ensure_future(_start(script))
    try:
        # a start that is called off halfway would wait until nobody holds the pipes any more: it is let come to its end
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
        raise PollError("exit code", f"{how}{': ' + output.complaint if output.complaint else ''}")
    return bytes(output.written)


async def _start(script: Script) -> tuple[asyncio.SubprocessTransport, _Output]:
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
    transport.close()  # and its pipes, whoever else holds them


def _give_up(start: asyncio.Task[tuple[asyncio.SubprocessTransport, _Output]]) -> None:
    if not start.cancelled() and start.exception() is None:
        _end(start.result()[0], over=False)


class _Running:
    """What every source is that runs a script: a part of a TargetSource."""

    eager = False
    shared: Shared
    _script: Script

    @property
    def period_ms(self) -> int:
        return self._script.period_ms or self.shared.config.period_ms

    @property
    def deadline_s(self) -> float:
        return self._script.deadline_s

    async def fetch(self, ip: str) -> bytes:  # noqa: ARG002
        return await run_script(self._script)


class PageScript(_Running, PageSource):
    """A script that writes a Prometheus page."""

    def __init__(self, script: Script, shared: Shared, pool: Pool) -> None:
        super().__init__(script, shared, pool, PageReader(), None)
        self._script = script

    def read(self, raw: bytes) -> Page:
        return self._reader.read(raw, raw.rstrip().endswith(b"# EOF"), ended=True)


class LineScript(_Running, TargetSource[Look]):
    """A script that writes the lines of drop-in files, with times of their own: each counts once."""

    def __init__(self, script: Script, shared: Shared, pool: Pool, owners: SeriesOwners) -> None:
        super().__init__(script, shared, pool)
        self._script, self._owners = script, owners
        self._file: DropinFile | None = None
        self._run = 0

    def read(self, raw: bytes) -> Look:
        self._run += 1
        return self._lines().heard(raw, self._run, self.shared.clock.now_ms())

    async def deliver(self, content: Look, series: SourceSeries, time_ms: int) -> int:  # noqa: ARG002
        columns = content.columns
        if columns is None:
            return 0

        def tell(told: Columns) -> None:
            self.tell(_faults(told))

        return await take(self._lines(), content, columns, self.shared.delivery, self._owners, asyncio.to_thread, tell)

    def _lines(self) -> DropinFile:
        series = self.known_series()
        if self._file is None or self._file.series is not series:
            series.sync = True
            self._owners.learn(series)
            rules = self.shared.delivery.rules.for_source(series.name)
            limits = FileLimits(file_bytes=self._script.max_bytes)
            path = Path(self._script.command[0])
            self._file = DropinFile(path, series, self.labels, limits, self._owners, rules)
        return self._file


def _faults(columns: Columns) -> Faults:
    """What was refused of the lines of a script, as of any other answer."""
    faults = Faults()
    for one in columns.refused.named:
        faults.examples.setdefault(one.reason, f"line {one.line}: {one.text}"[:EXAMPLE])
    faults.counts.update(columns.refused.counts)
    return faults
