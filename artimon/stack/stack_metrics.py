"""Self metrics of the supervisor: health of each part of the stack, including servers that publish none themselves."""

from __future__ import annotations

import threading
from typing import Any

from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.runtime.self_metrics_endpoint import SelfMetricsEndpoint
from artimon.stack.part_runner import Phase
from artimon.stack.stack import Stack

PERIOD_S = 5.0
AGENT = "agent"


class StackMetrics:
    """Publishes variables from a thread while a stack runs; does nothing in a stack without an agent to poll them."""

    def __init__(self, stack: Stack, clock: Clock = SYSTEM_CLOCK) -> None:
        self._stack, self._clock = stack, clock
        self._ended = threading.Event()
        self._metrics: SelfMetricsEndpoint | None = None

    def start(self) -> None:
        """Start publishing; the stack must have been started."""
        if AGENT in self._stack.states():
            self._metrics = SelfMetricsEndpoint("stack", "stack", self._stack.zookeeper, self._ended, self._clock)
            threading.Thread(target=self._run, args=(self._metrics,), name="stack variables", daemon=True).start()

    def stop(self) -> None:
        """Deregister while the agent still runs, so that it polls once more; takes 0.1 s mostly, at most seconds."""
        if self._metrics is not None:
            self._metrics.close()

    def _run(self, own: SelfMetricsEndpoint) -> None:
        while not self._clock.wait(self._ended, PERIOD_S):
            own("ok", stack_figures(self._stack))


def stack_figures(stack: Stack) -> dict[str, Any]:
    """Return restarts, health (1 or 0) and resident bytes (with children), each by part."""
    states = stack.states()
    return {
        "restarts": {name: state.restarts for name, state in states.items()},
        "healthy": {name: int(state.state == Phase.HEALTHY) for name, state in states.items()},
        "resident": stack.resident(),
    }
