"""All flows of an agent, and the thread that supervises them."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from artimon.model.clock import SYSTEM_CLOCK, Clock
from pipeline.flows.config.flow_config import FlowConfig
from pipeline.flows.config.flow_file import check_flows, read_flows
from pipeline.flows.config.host_file import EMPTY_HOST_FILE, HostFile, read_host_file
from pipeline.flows.context import Context
from pipeline.flows.registry import Registry
from pipeline.flows.runtime.builtin_components import builtin_registry
from pipeline.flows.runtime.flow import Flow
from pipeline.flows.spi import Figures, FlowError

log = logging.getLogger(__name__)

_TICK_INTERVAL_S = 0.25


class Flows:
    """Starts, supervises, changes and stops flows. A failed flow does not affect others.

    Locks: `_turn` serialises start, stop, change and mode; `_lock` guards the dict of flows."""

    def __init__(
        self, configs: Sequence[FlowConfig], context: Context, registry: Registry, host: HostFile = EMPTY_HOST_FILE
    ) -> None:
        """`context`: its folder is the parent of the flows' folders. `registry`: components that pushed flows may name.
        `host`: what pushed flows may use outside of their folder."""
        self._context, self._registry, self._host = context, registry, host
        self._from_file = {config.name: config for config in configs if not config.options.off}
        """Flows of a file, kept by `change` unless it brings one of the same name."""
        self._change_lock, self._lock = threading.Lock(), threading.Lock()
        self._flows: dict[str, Flow] = {}
        self._pushed_texts: dict[str, str] = {}
        """Configuration text of each flow from `change`."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._mode = "running"
        self.supervisor_restarts = 0

    def start(self) -> None:
        """Start every flow of the file in the background; `figures` shows their state."""
        with self._change_lock:
            for config in self._from_file.values():
                self._add(config).request_start()
            self._start_supervisor()

    def share_object(self, name: str, value: Any) -> None:
        """Give an object of the process to all flows, before they start."""
        self._context.shared[name] = value

    def stop(self, deadline_s: float = 10.0) -> list[str]:
        """Stop all flows in parallel, within the deadline; return the problems."""
        with self._change_lock:
            self._stop.set()
            return self._stop_these(list(self._all().values()), deadline_s)

    def flow(self, name: str) -> Flow:
        """Return a flow. Raises FlowError for an unknown name."""
        try:
            return self._all()[name]
        except KeyError:
            raise FlowError(f"no flow is called {name!r}: there are {', '.join(self._all()) or 'none'}") from None

    def figures(self) -> Figures:
        """Figures of every flow by name, and the problems of all."""
        self._restart_supervisor()
        flows = {name: flow.figures() for name, flow in self._all().items()}
        problems = [text for one in flows.values() for text in one["problems"]]
        return {
            "flows": flows,
            "flow_events": {name: one["in"]["events"] for name, one in flows.items() if "in" in one},
            "flow_refused": {name: one["in"]["refused"] for name, one in flows.items() if "in" in one},
            "flow_delivered": {name: _sum_over_runners(one, "delivered") for name, one in flows.items()},
            "flow_rejected": {name: _sum_over_runners(one, "rejected") for name, one in flows.items()},
            "flow_oldest_ms": {name: self._oldest_age_ms(flow) for name, flow in self._all().items()},
            "flow_waiting": {name: one.get("waiting", 0) for name, one in flows.items()},
            "flow_deaths": {name: _sum_over_runners(one, "deaths") for name, one in flows.items()},
            "flow_alarms": {name: _sum_over_runners(one, "alarms") for name, one in flows.items()},
            "supervisor_restarts": self.supervisor_restarts,
            "problems": [*problems, *self._orphaned_folders()],
            "warnings": [text for one in flows.values() for text in one["warnings"]],
        }

    # -- interface for the control plane

    def admit(self, flows: Sequence[Mapping[str, Any]]) -> None:
        """Check flows from outside this host: outside their folder they may use only what the host's file allows. Loads
        no code. Raises NotAllowedError."""
        for flow in flows:
            self._host.admit(flow, self._registry)

    def check(self, flows: Sequence[Mapping[str, Any]]) -> None:
        """Validate flows with the options of their components; changes nothing. Raises ConfigFileError."""
        self._parse(flows)

    def change(self, flows: Sequence[Mapping[str, Any]], change: object = None) -> None:
        """Run exactly these flows from now on; unchanged ones keep running. The content of a stopped channel stays on
        the disk. Raises ConfigFileError before any change, FlowError if a new flow did not start."""
        del change
        configs = self._parse(flows)
        texts = {flow["name"]: json.dumps(flow, sort_keys=True) for flow in flows}
        wanted = {**self._from_file, **{config.name: config for config in configs if not config.options.off}}
        with self._change_lock:
            same = {
                name
                for name, flow in self._all().items()
                if name in wanted
                and (self._pushed_texts.get(name, "") == texts.get(name) or flow.config == wanted[name])
            }
            gone = [flow for name, flow in self._all().items() if name not in same]
            self._stop_these(gone, 30.0)
            with self._lock:
                for flow in gone:
                    self._flows.pop(flow.name, None)
            started = [self._add(config) for name, config in wanted.items() if name not in same]
            for flow in started:
                flow.start()
                self._apply_mode(flow)
            self._pushed_texts = texts
            self._start_supervisor()
        if failed := [f"{flow.name}: {flow.fault}" for flow in started if flow.fault]:
            raise FlowError("; ".join(failed))

    def set_mode(self, mode: Any) -> None:
        """Set the mode: running, paused (accepts, delivers nothing) or draining (accepts nothing, delivers)."""
        with self._change_lock:
            self._mode = str(getattr(mode, "value", mode))
            for flow in self._all().values():
                self._apply_mode(flow)

    def waiting(self) -> int:
        """Number of event batches in the channels."""
        return sum(flow.waiting for flow in self._all().values())

    def roll(self, flow: str = "") -> int:
        """Close the files of one flow ("": of all) and begin new ones; return the number of sinks that did."""
        chosen = [self.flow(flow)] if flow else list(self._all().values())
        return sum(one.roll() for one in chosen)

    def fault(self) -> str:
        """Names of the flows that cannot run, with reasons; "" if all do."""
        broken = [f"flow {flow.name}: {flow.fault}" for flow in self._all().values() if flow.fault]
        return "; ".join(broken)

    def report(self) -> list[dict[str, Any]]:
        """One row a flow: name, state, waiting, oldest_ms, problem."""
        return [
            {
                "name": name,
                "state": flow.state.value,
                "waiting": flow.waiting,
                "oldest_ms": self._oldest_age_ms(flow),
                "problem": "; ".join(flow.figures()["problems"]),
            }
            for name, flow in self._all().items()
        ]

    # --

    def _oldest_age_ms(self, flow: Flow) -> int:
        """Return the age of the oldest event batch in a channel, in ms."""
        since = flow.oldest_ms
        return max(0, self._context.clock.now_ms() - since) if since else 0

    def _parse(self, flows: Sequence[Mapping[str, Any]]) -> list[FlowConfig]:
        resolved = [self._host.resolve(flow, self._registry) for flow in flows]
        return check_flows(resolved, self._registry, "configuration")

    def _all(self) -> dict[str, Flow]:
        with self._lock:
            return dict(self._flows)

    def _add(self, config: FlowConfig) -> Flow:
        flow = Flow(config, self._context)
        self._apply_mode(flow)
        with self._lock:
            self._flows[config.name] = flow
        return flow

    def _apply_mode(self, flow: Flow) -> None:
        flow.resume()
        if self._mode == "paused":
            flow.pause()
        elif self._mode == "draining":
            flow.stop_accepting()

    def _stop_these(self, flows: Sequence[Flow], deadline_s: float) -> list[str]:
        """Stop flows in parallel, so that a hanging one takes no time from the others."""
        problems: list[str] = []

        def stop(flow: Flow) -> None:
            problems.extend(f"flow {flow.name}: {text}" for text in flow.stop(deadline_s))

        threads = [threading.Thread(target=stop, args=(f,), name=f"stop {f.name}", daemon=True) for f in flows]
        for thread in threads:
            thread.start()
        ends = self._context.clock.monotonic() + deadline_s
        for thread, flow in zip(threads, flows, strict=True):
            thread.join(max(0.0, ends - self._context.clock.monotonic()))
            if thread.is_alive():
                problems.append(f"flow {flow.name} did not stop within {deadline_s:g} s: left behind")
        return problems

    def _start_supervisor(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._run, name="flows", daemon=True)
            self._thread.start()

    def _restart_supervisor(self) -> None:
        """Restart the supervisor if its thread died. `figures` calls this, in an agent once a second."""
        thread = self._thread
        if thread is not None and not thread.is_alive() and not self._stop.is_set():
            self.supervisor_restarts += 1
            self._start_supervisor()

    def _run(self) -> None:
        while not self._stop.is_set():
            for flow in self._all().values():
                try:
                    flow.tick()
                except Exception:
                    log.exception("flow %s: check failed", flow.name)
            self._context.clock.wait(self._stop, _TICK_INTERVAL_S)

    def _orphaned_folders(self) -> list[str]:
        """Return problems for folders that hold segments but belong to no flow."""
        names = self._all().keys()
        try:
            folders = [f for f in self._context.folder.iterdir() if f.is_dir() and f.name not in names]
        except OSError:
            return []
        held = [f for f in folders if any((f / "log").glob("*.wal")) or (f / "sql" / "channel.db").exists()]
        return [f"the folder {folder} belongs to no flow of the configuration and may hold events" for folder in held]


def _sum_over_runners(figures: Figures, name: str) -> int:
    """Return the sum of a count over all runners of a flow."""
    return sum(runner.get(name, 0) for runner in figures.get("runners", {}).values())


def open_flows(
    file: Path | None, agent: str, data: Path, zookeeper: str, clock: Clock = SYSTEM_CLOCK, allow: Path | None = None
) -> Flows:
    """Return the flows of an agent, those of `file` among them; starts nothing. `allow`: the host's file of parts and
    folders. Raises ConfigFileError."""
    registry = builtin_registry()
    host = read_host_file(allow, registry)
    configs = read_flows(file, registry) if file else []
    context = Context(agent, "", "", data / "flows", registry, clock, shared={"zookeeper": zookeeper})
    return Flows(configs, context, registry, host)
