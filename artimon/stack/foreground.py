"""`artimon up` and `artimon down`: run a stack in this process, stop one that runs in another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from artimon.runtime.settings import Settings, child_environment
from artimon.stack.child_process import same_process
from artimon.stack.part_runner import Phase, now_s
from artimon.stack.stack import START_TIMEOUT_S, Stack
from artimon.stack.stack_errors import NotHealthyError, StackError, UnusableFolderError
from artimon.stack.stack_metrics import StackMetrics
from artimon.stack.stack_state import DataLock, kill_stale, read_state

STOP_TIMEOUT_S = 90.0
_WAIT_MESSAGE_S = 30.0
_POLL_S = 0.1
Say = Callable[[str], None]


class _StopRequested(BaseException):
    """Raised in the main thread by the first signal that asks the stack to stop."""


class Interrupts:
    """Turns the first SIGINT, SIGTERM or SIGHUP into an orderly stop and ignores later ones."""

    def __init__(self) -> None:
        self.stop_requested = threading.Event()

    def install(self) -> None:
        """Install the handlers. Call it in the main thread."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if not self.stop_requested.is_set():
            self.stop_requested.set()
            raise _StopRequested


def run_stack(
    stack: Stack,
    say: Say,
    job: Callable[[Stack, threading.Event], int] | None = None,
    show: Callable[[str], object] | None = None,
) -> int:
    """Start `stack`, wait until it is healthy, run `job` (default: wait) until it ends or a signal comes, then stop.
    `show` gets the address of the first steps once they can be opened.

    Returns the job's exit code, 0 after a signal without a job, 130 if a signal interrupted the job."""
    interrupts = Interrupts()
    interrupts.install()
    began, code, variables = now_s(), 0, StackMetrics(stack)
    try:
        say(f"starting {', '.join(part.name for part in stack.parts)} on {stack.data}")
        stack.start()
        _wait_healthy(stack, say)
        variables.start()
        _announce(stack, say, now_s() - began, show)
        if job is None:
            interrupts.stop_requested.wait()
        else:
            code = job(stack, interrupts.stop_requested)
            sys.stdout.flush()  # the job's output comes before the messages of the stop, in a file too
    except _StopRequested:
        code = 0 if job is None else 130
    finally:
        interrupts.stop_requested.set()
        variables.stop()
        _stop(stack, say)
    return code


def _wait_healthy(stack: Stack, say: Say) -> None:
    """Wait as `Stack.wait_healthy` does; says every _STILL_S seconds which parts are missing."""
    deadline = now_s() + START_TIMEOUT_S
    while True:
        left = deadline - now_s()
        try:
            return stack.wait_healthy(min(_WAIT_MESSAGE_S, left))
        except NotHealthyError as problem:
            if left <= _WAIT_MESSAGE_S or not problem.parts.keys() <= {part.name for part in stack.parts}:
                raise NotHealthyError(START_TIMEOUT_S, problem.parts) from None
            begun = [name for name, detail in problem.parts.items() if detail != Phase.WAITING]
            more = len(problem.parts) - len(begun)
            say(f"still waiting for {', '.join(begun)}" + (f"; {more} parts start after these" if more else ""))


def _stop(stack: Stack, say: Say) -> None:
    if not stack.started:  # the start failed and has cleaned up
        return
    say("stopping")
    began = now_s()
    stack.stop()
    say(f"stopped in {now_s() - began:.1f} s")


def browser_opener(settings: Settings) -> Callable[[str], object] | None:
    """Return a function that opens an address in a browser; None in CI, and where no person would see it."""
    is_seen = sys.stdin.isatty() and sys.stdout.isatty() and settings.display
    return webbrowser.open if is_seen and not settings.ci else None


def _announce(stack: Stack, say: Say, took_s: float, show: Callable[[str], object] | None) -> None:
    addresses = stack.addresses()
    width = max(map(len, addresses))
    login = "the API has a login" if "ARTIMON_TOKEN_FILE" in addresses else "without authentication"
    say(f"up in {took_s:.1f} s; for this machine only, {login}: not for production")
    for name, value in addresses.items():
        say(f"  {name:<{width}}  {value}")
    if page := addresses.get("ARTIMON_API"):
        say(f"the page: {page}/start (first samples within a minute, rates after two)")
        if show is not None:
            show(f"{page}/start")
    say("`artimon status` shows the state; Ctrl-C stops the stack")


def start_detached(arguments: list[str], data: Path, say: Say) -> None:
    """Run `artimon up` with `arguments` in the background; returns when the stack is healthy. Raises StackError."""
    log = data / "logs" / "up.log"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        out = log.open("ab")
    except OSError as problem:
        raise UnusableFolderError(data, problem) from None
    with out:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "artimon.cli", "up", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=child_environment({}),
            start_new_session=True,
        )
    deadline, pause = now_s() + START_TIMEOUT_S, threading.Event()
    while now_s() < deadline:
        state = read_state(data)
        if state is not None and state.pid == process.pid and all(part.state == "healthy" for part in state.parts):
            say(f"up, supervisor is process {process.pid}; its messages are in {log}")
            return
        if process.poll() is not None:
            raise StackError(f"the stack ended with exit code {process.returncode}: see {log}")
        pause.wait(_POLL_S)
    raise NotHealthyError(START_TIMEOUT_S, {"stack": f"still starting; see {log}"})


def stop_running(data: Path, say: Say) -> bool:
    """Stop the stack on `data` and wait for its end; False if none ran. Kills processes left by a crashed one.

    Raises StackError if it does not end within DOWN_S seconds."""
    state = read_state(data)
    if state is None:
        return False
    if not state.alive():
        lock = DataLock(data)
        left = kill_stale(data)
        lock.release()
        if left:
            say(f"killed processes left by a crashed stack: {', '.join(left)}")
        return bool(left)
    os.kill(state.pid, signal.SIGTERM)
    deadline, pause = now_s() + STOP_TIMEOUT_S, threading.Event()
    while same_process(state.pid, state.started):
        if now_s() > deadline:
            raise StackError(
                f"process {state.pid} did not stop in {STOP_TIMEOUT_S:.0f} s: see `artimon logs`, or kill it"
            )
        pause.wait(_POLL_S)
    return True
