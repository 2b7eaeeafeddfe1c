"""Lines printed by a program that runs permanently or at intervals."""

from __future__ import annotations

import logging
import os
import selectors
import signal
import subprocess
import threading
from collections import Counter
from typing import IO

from pydantic import Field

from artimon.model.event import MAX_BODY_BYTES
from pipeline.flows.context import Context
from pipeline.flows.event import Event
from pipeline.flows.options import Options
from pipeline.flows.registry import Component, Outside
from pipeline.flows.sources.event_sender import EventSender, SourceStoppedError
from pipeline.flows.sources.line_splitter import split_lines
from pipeline.flows.spi import Figures, Put
from pipeline.link.timer import backoff_s

log = logging.getLogger(__name__)

_READ_BYTES = 64 * 1024
_ERRORS_BYTES = 4 * 1024
_MAX_LINES = 1_000
_CHECK_INTERVAL_S = 0.5


class ExecOptions(Options):
    """`command`: program and arguments, passed without a shell. `every_s` 0: the program runs permanently and is
    restarted when it ends, with a back-off of up to `restart_most_s`. Otherwise it runs at this interval; a run longer
    than `most_s` is killed. `errors`: lines of the standard error are events too, with the header `stream`."""

    command: list[str] = Field(min_length=1, max_length=1_000)
    every_s: float = Field(default=0.0, ge=0, le=86_400)
    most_s: float = Field(default=60.0, gt=0, le=86_400)
    restart_most_s: float = Field(default=60.0, gt=0, le=3_600)
    line_bytes: int = Field(default=MAX_BODY_BYTES, ge=1, le=MAX_BODY_BYTES)
    errors: bool = False
    folder: str = "/"
    headers: dict[str, str] = Field(default_factory=dict)


class ExecSource:
    """Event-driven. While the channel has no room the output is not read, and waits in its pipe. Each line comes once,
    except for lines in the pipe when the agent was killed: a program cannot be asked again.

    The program and its children are ended together (they have their own process group)."""

    def __init__(self, options: ExecOptions, context: Context) -> None:
        self._options, self._clock = options, context.clock
        self._sender = EventSender(context.clock)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._last_errors = b""
        self._stop_reading = threading.Event()
        """Set to stop reading, even if other processes hold the pipes open."""
        self.counts: Counter[str] = Counter()
        self.problem = ""

    def start(self, put: Put) -> None:
        self._sender.open(put)
        self._stop_reading.clear()
        self._thread = threading.Thread(target=self._run, name=f"exec {self._options.command[0]}", daemon=True)
        self._thread.start()

    def stop(self, deadline_s: float) -> None:
        self._sender.close()
        self._kill(signal.SIGTERM)
        if self._thread is not None:
            self._thread.join(deadline_s / 2)
            if self._thread.is_alive():
                self._kill(signal.SIGKILL)
                self._stop_reading.set()
                self._thread.join(deadline_s / 2)

    def figures(self) -> Figures:
        problems = [self.problem] if self.problem else []
        return {**self._sender.figures(), **self.counts, "problems": problems}

    def _run(self) -> None:
        failures = 0
        while not self._sender.is_stopping.is_set():
            began = self._clock.monotonic()
            good = self._run_once()
            took = self._clock.monotonic() - began
            if self._options.every_s:
                wait = max(0.0, self._options.every_s - took)
            else:
                failures = 0 if (good and took > 1) or took > self._options.restart_most_s else failures + 1
                wait = backoff_s(failures, 0.1, self._options.restart_most_s)
            if self._clock.wait(self._sender.is_stopping, wait):
                return

    def _run_once(self) -> bool:
        """Run the program to its end; True if it succeeded."""
        options = self._options
        try:
            process = subprocess.Popen(
                options.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=options.folder,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self._failed(f"{options.command[0]}: {getattr(error, 'strerror', None) or error}")
            return False
        with self._lock:
            self._process = process
        self.counts["runs"] += 1
        timer = threading.Timer(options.most_s, self._is_overdue) if options.every_s else None
        if timer is not None:
            timer.daemon = True
            timer.start()
        errors = threading.Thread(target=self._errors, args=(process.stderr,), name="exec errors", daemon=True)
        errors.start()
        try:
            self._read(process.stdout, {**options.headers, **({"stream": "output"} if options.errors else {})})
            if options.errors:
                errors.join()  # they are events: read until the pipe ends or the source stops
            code = process.wait()
        except SourceStoppedError:
            self._kill(signal.SIGKILL)
            code = process.wait()
        finally:
            if timer is not None:
                timer.cancel()
            errors.join(1.0)
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
            with self._lock:
                self._process = None
        if code and not self._sender.is_stopping.is_set():
            self._failed(f"{options.command[0]} ended with {code}{self._error_text()}")
        elif not code:
            self.problem = ""
        return code == 0

    def _read(self, pipe: IO[bytes] | None, headers: dict[str, str]) -> None:
        held = b""
        while pipe is not None:
            data = self._receive(pipe)
            held += data
            while held:
                used, lines = split_lines(held, self._options.line_bytes, not data, _MAX_LINES)
                held = held[used:]
                self._sender.put_with_retry(Event(headers, line) for line in lines)
                if not used:
                    break
            if not data:
                return

    def _receive(self, pipe: IO[bytes]) -> bytes:
        """Return the next output of the program, b"" at the end. Raises Stopped."""
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while not self._stop_reading.is_set():
                if selector.select(_CHECK_INTERVAL_S):
                    return os.read(pipe.fileno(), _READ_BYTES)
        raise SourceStoppedError

    def _errors(self, pipe: IO[bytes] | None) -> None:
        """Read the standard error: as events, or its last bytes for the message on a failure."""
        self._last_errors = b""
        try:
            if self._options.errors:
                self._read(pipe, {**self._options.headers, "stream": "error"})
                return
            while pipe is not None and (data := self._receive(pipe)):
                self._last_errors = (self._last_errors + data)[-_ERRORS_BYTES:]
        except (OSError, ValueError, SourceStoppedError):
            return

    def _error_text(self) -> str:
        lines = self._last_errors.decode(errors="replace").strip().splitlines()
        return f": {lines[-1][:200]}" if lines else ""

    def _is_overdue(self) -> None:
        self.counts["overdue"] += 1
        self._kill(signal.SIGKILL)

    def _kill(self, number: int) -> None:
        with self._lock:
            process = self._process
            if process is not None and process.returncode is None:
                try:  # not reaped yet, so the number is its own even if only children are left
                    os.killpg(process.pid, number)
                except (ProcessLookupError, PermissionError):
                    pass

    def _failed(self, problem: str) -> None:
        self.counts["failures"] += 1
        if problem != self.problem:
            log.warning("exec: %s", problem)
        self.problem = problem


EXEC = Component("exec", ExecOptions, ExecSource, outside={"command": Outside.HOST, "folder": Outside.HOST})
