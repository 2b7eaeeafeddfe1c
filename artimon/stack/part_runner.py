"""State machine of one part, driven by the supervisor's thread. A step never blocks."""

from __future__ import annotations

import shutil
import signal
import time
from concurrent.futures import Executor, Future
from enum import StrEnum

from artimon.stack.child_process import ChildProcess, OrphanReaper, ProcessCommand, rotate_log
from artimon.stack.stack_part import StackContext, StackPart
from artimon.stack.stack_state import PartState

BACKOFF_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
BACKOFF_RESET_S = 60.0  # time healthy after which the back-off starts again from its first value
CHECK_STARTING_S = 0.1
CHECK_HEALTHY_S = 2.0
HOUSEKEEPING_S = 5.0
MEMORY_STRIKES = 3


class Phase(StrEnum):
    """State of a part. Only these five have a process: preparing, starting, healthy, failing, stopping."""

    STOPPED = "stopped"
    WAITING = "waiting"
    PREPARING = "preparing"
    STARTING = "starting"
    HEALTHY = "healthy"
    FAILING = "failing"
    BACKOFF = "backoff"
    STOPPING = "stopping"


RUNNING = frozenset({Phase.PREPARING, Phase.STARTING, Phase.HEALTHY, Phase.FAILING, Phase.STOPPING})


class PartRunner:
    """Runs one part. Owned by the supervisor's thread: others may only read `phase`, `problem`, `restarts`.

    Invariant: `child` is not None exactly in the phases of RUNNING."""

    def __init__(self, part: StackPart, context: StackContext, guard: OrphanReaper, executor: Executor) -> None:
        self.part, self._context, self._reaper, self._executor = part, context, guard, executor
        self.phase = Phase.STOPPED
        self.problem = ""
        self.restarts = 0
        self.was_healthy = False  # at least once since the start of the stack
        self.child: ChildProcess | None = None
        self._commands: list[ProcessCommand] = []
        self._check: Future[str] | None = None
        self._failures = 0
        self._strikes = 0
        self._entered = 0.0
        self._check_due = 0.0
        self._healthy_since = 0.0
        self._last_healthy = 0.0

    def step(self, now: float, *, wanted: bool, may_start: bool, may_stop: bool) -> None:
        """Take one step at `now` (monotonic seconds) towards running or stopped."""
        if self.child is not None and self.child.exit_code() is not None:
            self._on_exit(now, self.child.exit_code() or 0)
        if not wanted:
            self._advance_stop(now, may_stop)
        elif self.phase in (Phase.STOPPED, Phase.WAITING):
            if may_start:
                self._start(now)
            else:
                self._enter(Phase.WAITING, now)
        elif self.phase is Phase.BACKOFF:
            if now - self._entered >= self._backoff_s():
                self._start(now)
        elif self.phase in (Phase.STARTING, Phase.HEALTHY, Phase.FAILING):
            self._poll_health(now)
        elif self.phase is Phase.STOPPING and now - self._entered > self.part.stop_s:
            self._destroy()
            self._enter(Phase.STOPPED, now)

    def judge_memory(self, rss: int, now: float) -> None:
        """Restart the part if it exceeded its limit MEMORY_STRIKES times in a row; `rss` in bytes."""
        self._strikes = self._strikes + 1 if rss > self.part.memory_mb * 1024 * 1024 else 0
        if self._strikes >= MEMORY_STRIKES:
            self._strikes = 0
            used = rss // (1024 * 1024)
            self._fail(now, f"used {used} MiB of memory, its limit is {self.part.memory_mb} MiB")

    def housekeeping(self) -> None:
        """Rotate the part's log."""
        rotate_log(self._context.log(self.part.name))

    def request_restart(self, now: float) -> None:
        """Stop the process in an orderly way; later steps start it again. Ends a back-off at once."""
        if self.child is not None and self.phase is not Phase.STOPPING:
            self.child.terminate()
            self._enter(Phase.STOPPING, now)
        elif self.phase is Phase.BACKOFF:
            self._start(now)

    def destroy(self) -> None:
        """Kill the process at once, when the supervisor ends."""
        self._destroy()
        self.phase = Phase.STOPPED

    def state(self) -> PartState:
        """Return the part's state for stack.json."""
        child = self.child
        return PartState(
            name=self.part.name,
            state=self.phase.value,
            pid=child.pid if child else 0,
            started=child.started if child else 0.0,
            restarts=self.restarts,
            problem=self.problem,
            ports={name: self._context.ports[name] for name in self.part.ports},
            memory_mb=self.part.memory_mb,
        )

    def _enter(self, phase: Phase, now: float) -> None:
        if phase is not self.phase:
            self.phase, self._entered = phase, now

    def _backoff_s(self) -> float:
        return BACKOFF_S[min(max(self._failures - 1, 0), len(BACKOFF_S) - 1)]

    def _start(self, now: float) -> None:
        temporary = self._context.temporary(self.part.name)
        shutil.rmtree(temporary, ignore_errors=True)  # native libraries left by a killed JVM
        temporary.mkdir(parents=True, exist_ok=True)
        try:
            self._commands = self.part.prepare(self._context)
            self._spawn_next(now)
        except Exception as problem:  # a configuration error is a failed start and must not end the supervisor
            self._fail(now, f"could not be started: {problem}")

    def _spawn_next(self, now: float) -> None:
        preparing = bool(self._commands)
        command = self._commands.pop(0) if preparing else self.part.command(self._context)
        name = self.part.name
        placed = ProcessCommand([*self._context.host(name).enter, *command.argv], command.env)
        self.child = ChildProcess(placed, self._context.log(name), self._context.folder(name))
        self._reaper.watch(self.child.pid)
        self._check, self._check_due, self._last_healthy = None, now, now
        self._enter(Phase.PREPARING if preparing else Phase.STARTING, now)

    def _on_exit(self, now: float, code: int) -> None:
        """Handle the end of the process: kill its descendants, then run the next command, back off or stay stopped."""
        phase = self.phase
        self._destroy()
        if phase is Phase.PREPARING and code == 0:
            try:
                self._spawn_next(now)
            except Exception as problem:
                self._fail(now, f"could not be started: {problem}")
        elif phase is Phase.STOPPING:
            self._enter(Phase.STOPPED, now)
            self.problem = ""
        else:
            self._back_off(now, f"ended with {_describe(code)}")

    def _advance_stop(self, now: float, may_stop: bool) -> None:
        if self.child is None:
            self._enter(Phase.STOPPED, now)
        elif self.phase is not Phase.STOPPING:
            if may_stop:
                self.child.terminate()
                self._enter(Phase.STOPPING, now)
        elif now - self._entered > self.part.stop_s:
            self._destroy()
            self._enter(Phase.STOPPED, now)

    def _poll_health(self, now: float) -> None:
        if self._check is not None and self._check.done():
            self._apply_check(now, _check_problem(self._check))
            self._check = None
        elif self._check is None and now >= self._check_due:
            self._check = self._executor.submit(self.part.check, self._context)

    def _apply_check(self, now: float, problem: str) -> None:
        if not problem:
            if self.phase is not Phase.HEALTHY:
                self._healthy_since = now
            self._enter(Phase.HEALTHY, now)
            self.problem, self.was_healthy, self._last_healthy = "", True, now
            if now - self._healthy_since > BACKOFF_RESET_S:
                self._failures = 0
            self._check_due = now + CHECK_HEALTHY_S
            return
        self.problem = problem
        self._check_due = now + CHECK_STARTING_S
        if self.phase is Phase.HEALTHY:
            self._enter(Phase.FAILING, now)
        limit = self.part.start_s if self.phase is Phase.STARTING else self.part.hung_s
        if now - self._last_healthy > limit:
            self._fail(now, f"not healthy for {limit:.0f} s: {problem}")

    def _fail(self, now: float, problem: str) -> None:
        self._destroy()
        self._back_off(now, problem)

    def _back_off(self, now: float, problem: str) -> None:
        self.problem = problem
        self.restarts += 1
        self._failures += 1
        self._enter(Phase.BACKOFF, now)

    def _destroy(self) -> None:
        if self.child is not None:
            self.child.destroy()
            self._reaper.forget(self.child.pid)
            self.child, self._check = None, None


def _check_problem(check: Future[str]) -> str:
    problem = check.exception()
    if problem is None:
        return check.result()
    return f"{type(problem).__name__}: {problem}"


def _describe(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def now_s() -> float:
    """Return monotonic seconds, the supervisor's clock."""
    return time.monotonic()
