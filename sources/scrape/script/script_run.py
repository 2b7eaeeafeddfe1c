"""One run of a script: collects its output within limits and leaves no process behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal

from artimon.runtime.settings import child_environment
from sources.base.source_errors import PollError
from sources.targets.script_target import ScriptTarget

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
