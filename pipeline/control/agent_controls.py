"""Interface between the control plane and the agent; components of the agent register the functions that they offer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pipeline.control.agent_commands import AgentMode, CommandError
from pipeline.control.config_document import ConfigChange, ConfigDocument, ConfigError

log = logging.getLogger(__name__)

SettingApplier = Callable[[Any], None]
"""Applies a value of a setting; None: the value of the command line. Raises ValueError, OSError."""


class FlowControls(Protocol):
    """Flows of the agent; pipeline/flows/runtime/flows.py runs them and describes the methods. `admit`, `check` and
    `change` raise an error whose text gives the remedy."""

    def admit(self, flows: Sequence[Mapping[str, Any]]) -> None: ...

    def check(self, flows: Sequence[Mapping[str, Any]]) -> None: ...

    def change(self, flows: Sequence[Mapping[str, Any]], change: ConfigChange) -> None: ...

    def set_mode(self, mode: AgentMode) -> None: ...

    def waiting(self) -> int: ...

    def roll(self, flow: str) -> int: ...

    def fault(self) -> str: ...

    def report(self) -> list[dict[str, Any]]: ...


class AgentControls:
    """Operations of the control plane on an agent. Called by the plane's thread alone, once the agent has started."""

    def __init__(
        self, set_mode: Callable[[AgentMode], None], waiting: Callable[[], int], fault: Callable[[], str]
    ) -> None:
        self._set_mode, self._waiting, self._fault = set_mode, waiting, fault
        self._appliers: dict[str, SettingApplier] = {}
        self._rollers: list[Callable[[], str]] = []
        self._releaser: Callable[[Mapping[str, str]], str] | None = None
        self.flows: FlowControls | None = None

    # --- registration by components of the agent

    def on_setting(self, name: str, apply: SettingApplier) -> None:
        """Register `apply`, which uses a new value of the setting while the agent runs."""
        self._appliers[name] = apply

    def on_roll(self, roll: Callable[[], str]) -> None:
        """Register `roll`, which closes a file, begins another and returns a description."""
        self._rollers.append(roll)

    def on_release(self, release: Callable[[Mapping[str, str]], str]) -> None:
        """Register `release`, which frees a lane from its cluster (pipeline/sites/). It may raise CommandError."""
        self._releaser = release

    # --- configuration

    def admit(self, document: ConfigDocument) -> None:
        """Check the names in a pushed document. Raises ConfigError; changes nothing."""
        if self.flows is not None:
            try:
                self.flows.admit(list(document.flows.values()))
            except RuntimeError as error:
                raise ConfigError(str(error)) from None

    def check(self, document: ConfigDocument) -> None:
        """Check that this agent can run the document. Raises ConfigError; changes nothing."""
        for name in document.metrics:
            if name not in self._appliers:
                raise ConfigError(f"metrics.{name}: this agent cannot change it: take it out of its configuration")
        if document.flows and self.flows is None:
            raise ConfigError("this agent runs no flows: start it with --flows")
        if self.flows is not None:
            try:
                self.flows.check(list(document.flows.values()))
            except ConfigError:
                raise
            except Exception as error:  # an error of a third party's component refuses its configuration only
                raise ConfigError(str(error) or repr(error)) from error

    def apply(self, change: ConfigChange, document: ConfigDocument) -> None:
        """Apply the differences. Passes on errors of the components; the caller then applies the reverse change."""
        for name, (_, value) in change.settings.items():
            applier = self._appliers.get(name)
            if applier is not None:
                applier(value)
        if self.flows is not None and (change.added or change.removed or change.changed):
            self.flows.change(list(document.flows.values()), change)

    def fault(self) -> str:
        """Return the fault of the running configuration, "" if none."""
        return self._fault() or (self.flows.fault() if self.flows is not None else "")

    # --- commands

    def set_mode(self, mode: AgentMode) -> None:
        self._set_mode(mode)
        if self.flows is not None:
            self.flows.set_mode(mode)

    def waiting(self) -> int:
        """Return the number of items of the log and event batches of the channels that are not delivered yet."""
        return self._waiting() + (self.flows.waiting() if self.flows is not None else 0)

    def roll_files(self, arguments: Mapping[str, str]) -> str:
        """Close open files and begin others. Raises OSError."""
        flow = arguments.get("flow", "")
        done = [] if flow else [roll() for roll in self._rollers]
        if self.flows is not None:
            done.append(f"{self.flows.roll(flow)} files of flows")
        return "; ".join(done) or "nothing to roll"

    def release(self, arguments: Mapping[str, str]) -> str:
        """Release a lane, see `on_release`. Raises CommandError."""
        if self._releaser is None:
            raise CommandError("this agent's lanes are not bound to a cluster")
        return self._releaser(arguments)

    def report(self) -> list[dict[str, Any]]:
        """Return the flows, one row each."""
        return self.flows.report() if self.flows is not None else []
