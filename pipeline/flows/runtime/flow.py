"""One flow: source, interceptors, channel, sinks, and the runners between them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from artimon.model.batch import BatchId
from artimon.model.clock import Clock
from pipeline.delivery.delivery_mode import DeliveryMode
from pipeline.flows.channels.branch_ledger import BranchPolicy
from pipeline.flows.config.flow_config import FlowConfig, SinkConfig
from pipeline.flows.context import BRANCHES, DIRECT_SINK, Context
from pipeline.flows.event import EventBatch
from pipeline.flows.lifecycle import LifecycleState, ManagedPart, start_all, stop_all
from pipeline.flows.runtime.flow_entry import FlowEntry
from pipeline.flows.runtime.flow_runners import RestartBackoff, Runner, SinkRunner, SourceRunner
from pipeline.flows.runtime.sink_quarantine import SinkQuarantine
from pipeline.flows.sources.byte_server import check_exposure
from pipeline.flows.spi import Figures, FlowError, Sink
from pipeline.wal.file_system import LOCAL_FILE_SYSTEM, ensure_folder

log = logging.getLogger(__name__)


class Flow:
    """One flow. Its parts are built anew at each start, so that no state of a failure survives.

    Locks: `_turn` serialises start, stop and tick."""

    def __init__(self, config: FlowConfig, context: Context) -> None:
        """`context`: that of the flow; `start` makes its folder."""
        self.config = config
        self._context = replace(context, flow=config.name, folder=context.folder / config.name)
        self._clock: Clock = context.clock
        self._transition_lock = threading.RLock()
        self.state, self.problem = LifecycleState.IDLE, ""
        self.restarts = RestartBackoff()
        self._start_requested = False
        self._members: list[ManagedPart] = []
        self._runners: list[Runner] = []
        self._sink_runners: list[SinkRunner] = []
        self._sinks: dict[str, Any] = {}
        self._source: Any = None
        self._channel: Any = None
        self._entry: FlowEntry | None = None
        self._alarms: list[str] = []
        self._warnings: list[str] = []
        self._paused = self._closed = False
        """Requested modes, which also apply to the parts of the next start."""

    @property
    def name(self) -> str:
        return self.config.name

    def start(self) -> None:
        """Start everything, the source last. On failure the state is ERROR with the reason in `problem`, and `tick`
        retries."""
        with self._transition_lock:
            self._start_requested = True
            self._start()

    def stop(self, deadline_s: float | None = None) -> list[str]:
        """Stop everything, the source first, each part within its share; return the problems."""
        with self._transition_lock:
            self._start_requested = False
            return self._stop(deadline_s)

    def request_start(self) -> None:
        """Let the next `tick` start it, on a thread of its own."""
        self._start_requested = True

    def tick(self) -> None:
        """Called often by the supervisor, returns at once: restarts dead runners, starts the flow if it should run,
        collects alarms."""
        if not self._transition_lock.acquire(timeout=0.05):
            return  # it is starting or stopping
        try:
            if not self._start_requested:
                return
            if self.state in (LifecycleState.IDLE, LifecycleState.ERROR) and self.restarts.is_due(
                self._clock.monotonic()
            ):
                self.state = LifecycleState.STARTING
                threading.Thread(target=self._start_wanted, name=f"start {self.name}", daemon=True).start()
                return
            self._alarms = [alarm for runner in self._runners if (alarm := runner.restart_if_dead())]
        finally:
            self._transition_lock.release()

    def put(self, event_batches: Sequence[EventBatch]) -> None:
        """Put event batches as the flow's source would. Raises ChannelFull, ChannelFailed, EventError."""
        if self._entry is None:
            raise FlowError(f"flow {self.name} is {self.state}")
        self._entry.put(event_batches)

    def pause(self) -> None:
        """Stop delivering to the sinks; the channel keeps new event batches."""
        self._paused = True
        for runner in self._sink_runners:
            runner.pause()

    def stop_accepting(self) -> None:
        """Accept nothing more; the channel's content still goes to the sinks."""
        self._closed = True
        if self._entry is not None:
            self._entry.is_open = False

    def resume(self) -> None:
        """Undo `pause` and `stop_accepting`."""
        self._paused = self._closed = False
        if self._entry is not None:
            self._entry.is_open = True
        for runner in self._sink_runners:
            runner.resume()

    def roll(self) -> int:
        """Make sinks close their open files and begin new ones; return the number of sinks with files. Raises their
        errors."""
        rolling = [sink for sink in self._sinks.values() if hasattr(sink, "roll")]
        for sink in rolling:
            sink.roll()
        return len(rolling)

    @property
    def fault(self) -> str:
        """Reason for which the flow should run and does not, "" if it does."""
        return self.problem if self.state is LifecycleState.ERROR else ""

    @property
    def waiting(self) -> int:
        """Event batches in the channel."""
        return int(getattr(self._channel, "waiting", 0))

    @property
    def oldest_ms(self) -> int:
        """Arrival of the oldest event batch in the channel, epoch ms; 0 if there is none, or the channel does not
        know."""
        return int(getattr(self._channel, "oldest_ms", 0))

    def figures(self) -> Figures:
        """Counts of every part; `problems` collects those of all."""
        parts: Figures = {}
        if self._channel is not None and self._entry is not None and self._source is not None:
            runners = {runner.name: runner.figures() for runner in self._runners}
            sinks = {name: sink.figures() for name, sink in self._sinks.items()}
            parts = {
                "in": self._entry.figures(),
                "source": self._source.figures(),
                "channel": self._channel.figures(),
                "sinks": sinks,
                "runners": runners,
                "waiting": self.waiting,
                "oldest_ms": self.oldest_ms,
            }
        return {
            "state": self.state.value,
            "delivery": self.config.options.delivery.value,
            "starts_failed": self.restarts.deaths,
            **parts,
            "problems": self._problems(parts),
            "warnings": self._warnings,
        }

    def done(self, id: BatchId) -> bool:
        """True if every required sink has the event batch of this identity."""
        return self._channel is not None and bool(self._channel.done(id))

    def _problems(self, parts: Figures) -> list[str]:
        found = [self.problem] if self.problem else []
        found += self._alarms
        found += [f"{runner.name}: {runner.problem}" for runner in self._sink_runners if runner.failures_in_a_row > 2]
        for part in (parts.get("source", {}), parts.get("channel", {}), *parts.get("sinks", {}).values()):
            found += part.get("problems", [])
        return [f"flow {self.name}: {text}" for text in dict.fromkeys(found)]

    def _start_wanted(self) -> None:
        with self._transition_lock:
            if self._start_requested and self.state is LifecycleState.STARTING:
                self._start()

    def _start(self) -> None:
        self.state = LifecycleState.STARTING
        try:
            ensure_folder(LOCAL_FILE_SYSTEM, self._context.folder)
            self._build()
            problem = start_all(self._members, self.config.options.start_s)
        except FlowError as error:
            problem = str(error)
        except Exception as error:  # third-party components may raise any exception
            log.exception("flow %s", self.name)
            problem = f"{type(error).__name__}: {error}"
        self.problem = problem
        if problem:
            self.restarts.record_death(self._clock.monotonic())
            self.state = LifecycleState.ERROR
            log.error("flow %s: %s", self.name, problem)
        else:
            self.state = LifecycleState.RUNNING

    def _stop(self, deadline_s: float | None) -> list[str]:
        self.state = LifecycleState.STOPPING
        if self._entry is not None:
            self._entry.is_open = False
        share = self.config.options.stop_s
        if deadline_s is not None:
            share = min(share, deadline_s / max(1, len(self._members)))
        problems = stop_all(self._members, share)
        self.state = LifecycleState.ERROR if problems else LifecycleState.STOPPED
        self.problem = "; ".join(problems)
        return problems

    # -- building

    def _build(self) -> None:
        options = self.config.options
        self._warnings = check_exposure(self.config.source.options, self._context)
        self._runners, self._sink_runners, self._alarms = [], [], []
        self._sinks = self._build_sinks()
        self._channel = self._build_channel()
        self._entry = FlowEntry(self._build_interceptors(), self._channel.put, options.put_s, self._clock)
        for name, sink in self._sinks.items():
            self._sink_runners.append(self._sink_runner(name, sink))
        source_member = self._build_source(self._entry)
        self._runners[:0] = self._sink_runners
        if self._paused:
            self.pause()
        self._entry.is_open = not self._closed
        self._members = [
            ManagedPart("channel", self._channel.start, self._channel.stop),
            *(ManagedPart(name, sink.start, sink.stop) for name, sink in self._sinks.items()),
            *(ManagedPart(runner.name, runner.start, runner.stop) for runner in self._sink_runners),
            ManagedPart("rest", lambda: None, self._drain),
            source_member,
        ]

    def _drain(self, deadline_s: float) -> None:
        """Wait until the sinks have emptied a channel that is not durable, at most `deadline_s`."""
        if self.config.channel.component.durable:
            return
        ends, never = self._clock.monotonic() + deadline_s, threading.Event()
        while self.waiting and not self._paused and self._clock.monotonic() < ends:
            self._clock.wait(never, 0.02)

    def _build_sinks(self) -> dict[str, Sink]:
        """Return the sinks by branch; a group that chooses is one branch."""
        group = self.config.group
        sinks = {one.name: self._build_sink(one) for one in self.config.sinks}
        if group is None or self.config.fans_out:
            return sinks
        joined = group.component.build(group.options, self._context.named("group"))(sinks)
        return {group.component.name: joined}

    def _build_sink(self, one: SinkConfig) -> Any:
        runner_progress = self._progress_callback(one.name)
        context = replace(self._context.named(one.name), progress=runner_progress)
        return one.component.component.build(one.component.options, context)

    def _progress_callback(self, name: str) -> Callable[[], None]:
        def went_on() -> None:
            for runner in self._sink_runners:
                if runner.name == f"sink {name}" or self.config.group is not None:
                    runner.stall_detector.advanced(self._clock.monotonic())

        return went_on

    def _build_channel(self) -> Any:
        chosen = self.config.channel
        shared = dict(self._context.shared)
        if self.config.fans_out:
            shared[BRANCHES] = {
                one.name: BranchPolicy(one.branch.required, one.branch.behind_bytes) for one in self.config.sinks
            }
        if self.config.options.delivery is DeliveryMode.DISK_FAILOVER:
            (shared[DIRECT_SINK],) = self._sinks.values()
        return chosen.component.build(chosen.options, replace(self._context.named("channel"), shared=shared))

    def _build_interceptors(self) -> list[tuple[str, Any]]:
        return [
            (one.component.name, one.component.build(one.options, self._context.named(one.component.name)))
            for one in self.config.interceptors
        ]

    def _sink_runner(self, name: str, sink: Sink) -> SinkRunner:
        options = self.config.options
        reader = self._channel.reader(name) if self.config.fans_out else self._channel
        rejected = SinkQuarantine(self._context.folder / "rejected")
        return SinkRunner(f"sink {name}", reader, sink, options.batch, rejected, options.stall_s, self._clock)

    def _build_source(self, front: FlowEntry) -> ManagedPart:
        options, chosen = self.config.options, self.config.source
        runner: SourceRunner | None = None

        def wake() -> None:
            if runner is not None:
                runner.wake()

        shared = {**self._context.shared, "done": self.done}
        context = replace(self._context.named("source"), wake=wake, shared=shared)
        source = self._source = chosen.component.build(chosen.options, context)
        if not hasattr(source, "poll"):
            return ManagedPart("source", lambda: source.start(front.put), source.stop)
        runner = SourceRunner("source", source, front.put, options.idle_s, options.stall_s, self._clock)
        self._runners.append(runner)
        return ManagedPart("source", runner.start, runner.stop)
