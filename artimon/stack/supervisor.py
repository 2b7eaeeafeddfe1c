"""Supervisor of the parts of one stack: starts them in order, checks and restarts them, stops them in reverse order."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from artimon.stack.child_process import OrphanReaper, session_rss
from artimon.stack.part_runner import HOUSEKEEPING_S, RUNNING, PartRunner, Phase, now_s
from artimon.stack.stack_errors import NotHealthyError, UnknownPartError
from artimon.stack.stack_part import StackContext, StackPart
from artimon.stack.stack_state import PartState

TICK_PERIOD_S = 0.1
IDLE_PERIOD_S = 0.25
STOP_TIMEOUT_S = 45.0
Listener = Callable[[list[PartState], int], None]


class Supervisor:
    """One thread that owns all processes (they die with it), and methods for other threads to request and wait.

    Lock: `_changed` guards `_wanted`, `_restarts`, `_ending` and the published `_states`; the runners belong to the
    thread alone, and it never holds the lock while it starts, kills or checks."""

    def __init__(self, parts: Sequence[StackPart], context: StackContext, listener: Listener) -> None:
        self._executor = ThreadPoolExecutor(max_workers=max(4, len(parts)), thread_name_prefix="artimon-check")
        self._context, self._listener = context, listener
        self._parts = {part.name: part for part in parts}
        self._changed = threading.Condition()
        self._wanted = dict.fromkeys(self._parts, True)
        self._restarts: set[str] = set()
        self._stopping = False
        self._states: dict[str, PartState] = {}
        self._rss: dict[str, int] = {}
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="artimon-supervisor", daemon=True)

    def start(self) -> None:
        """Start the thread. Returns at once; see `wait_healthy`."""
        self._thread.start()

    def stop(self) -> None:
        """Stop all parts in reverse order and end the thread; parts that do not stop in time are killed. Idempotent."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout=STOP_TIMEOUT_S + 30)
        self._executor.shutdown(wait=False, cancel_futures=True)

    def states(self) -> dict[str, PartState]:
        """Return the state of every part after the last step."""
        with self._changed:
            return dict(self._states)

    def resident(self) -> dict[str, int]:
        """Return resident bytes by part, descendants included, as last measured."""
        with self._changed:
            return dict(self._rss)

    def wait(self, condition: Callable[[Mapping[str, PartState]], bool], timeout_s: float) -> bool:
        """Wait until `condition` holds for the published states or the thread fails; False after the timeout."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._failure is not None or (bool(self._states) and condition(self._states)), timeout_s
            )

    def wait_healthy(self, timeout_s: float, names: Iterable[str] | None = None) -> None:
        """Wait until all of `names` (default: all parts that should run) are healthy. Raises NotHealthyError."""
        chosen = set(self._parts if names is None else map(self._check_name, names))

        def unhealthy(states: Mapping[str, PartState]) -> dict[str, str]:
            with self._changed:
                wanted = {name for name in chosen if self._wanted[name]}
            return {
                name: f"{states[name].state} {states[name].problem}".strip()
                for name in sorted(wanted)
                if name not in states or states[name].state != Phase.HEALTHY
            }

        if not self.wait(lambda states: not unhealthy(states), timeout_s) or self._failure:
            problems = unhealthy(self.states()) if self._failure is None else {"supervisor": repr(self._failure)}
            raise NotHealthyError(timeout_s, problems)

    def set_wanted(self, name: str, wanted: bool) -> None:
        """Set whether `name` should run or stay stopped. Returns at once."""
        with self._changed:
            self._wanted[self._check_name(name)] = wanted

    def restart(self, name: str) -> None:
        """Request an orderly stop and a new start of `name`. Returns at once."""
        with self._changed:
            self._restarts.add(self._check_name(name))

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        """Send a signal to the part's process; returns its process id, 0 if none runs."""
        state = self.states().get(self._check_name(name))
        if state is None or not state.pid:
            return 0
        try:
            os.kill(state.pid, number)
        except ProcessLookupError:
            return 0
        return state.pid

    def _check_name(self, name: str) -> str:
        if name not in self._parts:
            raise UnknownPartError(name, sorted(self._parts))
        return name

    def _run(self) -> None:
        guard = OrphanReaper()
        runners = {name: PartRunner(part, self._context, guard, self._executor) for name, part in self._parts.items()}
        try:
            self._loop(runners, guard)
        except BaseException as failure:
            with self._changed:
                self._failure = failure
                self._changed.notify_all()
            raise
        finally:
            for runner in runners.values():
                runner.destroy()
            self._publish(runners, guard)
            guard.close()

    def _loop(self, runners: dict[str, PartRunner], guard: OrphanReaper) -> None:
        housekeeping_due, deadline = now_s(), 0.0
        while True:
            now = now_s()
            with self._changed:
                ending, wanted = self._stopping, dict(self._wanted)
                restarts, self._restarts = self._restarts, set()
            for name in restarts:
                runners[name].request_restart(now)
            self._step_all(runners, now, {name: wanted[name] and not ending for name in runners})
            if now >= housekeeping_due:
                housekeeping_due = now + HOUSEKEEPING_S
                self._housekeep(runners, now)
                guard.ensure()
            self._publish(runners, guard)
            if ending:
                deadline = deadline or now + STOP_TIMEOUT_S
                if now > deadline or not any(runner.phase in RUNNING for runner in runners.values()):
                    return
            calm = all(runner.phase in (Phase.HEALTHY, Phase.STOPPED) for runner in runners.values())
            with self._changed:
                self._changed.wait(IDLE_PERIOD_S if calm else TICK_PERIOD_S)

    def _step_all(self, runners: dict[str, PartRunner], now: float, wanted: dict[str, bool]) -> None:
        for name, runner in runners.items():
            before = [runners[other] for other in runner.part.starts_after if other in runners]
            behind = [other for other in runners.values() if runner.part.layer < other.part.layer]
            runner.step(
                now,
                wanted=wanted[name],
                may_start=runner.was_healthy or all(other.was_healthy for other in before),
                may_stop=not self._stopping or all(other.child is None for other in behind),
            )

    def _housekeep(self, runners: dict[str, PartRunner], now: float) -> None:
        children = {name: runner.child.pid for name, runner in runners.items() if runner.child}
        rss = session_rss(children.values())
        for name, pid in children.items():
            runners[name].judge_memory(rss[pid], now)
            runners[name].housekeeping()
        with self._changed:
            self._rss = {name: rss[pid] for name, pid in children.items()}

    def _publish(self, runners: dict[str, PartRunner], guard: OrphanReaper) -> None:
        states = {name: runner.state() for name, runner in runners.items()}
        if states == self._states:  # written by this thread only
            return
        self._listener(list(states.values()), guard.pid)  # before the notification: waiters then read stack.json
        with self._changed:
            self._states = states
            self._changed.notify_all()
