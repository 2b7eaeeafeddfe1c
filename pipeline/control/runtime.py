"""What the control plane may do to an agent, behind one small seam; the parts of the agent register what they can."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pipeline.control.commands import CommandError, Mode
from pipeline.control.document import Change, ConfigError, Document

log = logging.getLogger(__name__)

Apply = Callable[[Any], None]
"""Use this value of a setting from now on; None: what the command line said. Raises ValueError, OSError."""


class Flows(Protocol):
    """The flows of the agent, run by pipeline/flows/."""

    def admit(self, flows: Sequence[Mapping[str, Any]]) -> None:
        """Check that flows which were pushed name nothing outside but what this host allows. Raises an error whose text
        says what to do; changes nothing and loads no code."""
        ...

    def check(self, flows: Sequence[Mapping[str, Any]]) -> None:
        """Whether all of them can be used. Raises an error whose text says what to do; changes nothing."""
        ...

    def change(self, flows: Sequence[Mapping[str, Any]], change: Change) -> None:
        """Run exactly these from now on: those that run already just so are left alone, whatever `change` says of them.
        What a stopped channel holds stays on the disk. Raises an error; the caller then asks for the former ones."""
        ...

    def set_mode(self, mode: Mode) -> None: ...

    def waiting(self) -> int:
        """Parcels that the channels hold."""
        ...

    def roll(self, flow: str) -> int:
        """Close and begin anew the files of one flow ("": of all); how many."""
        ...

    def fault(self) -> str:
        """Which flow cannot run and why, "" if all do."""
        ...

    def report(self) -> list[dict[str, Any]]:
        """One row a flow: name, state, waiting, oldest_ms, problem."""
        ...


class Runtime:
    """Everything an agent lets its control plane do. Called by the plane's thread alone, once the agent has started."""

    def __init__(self, set_mode: Callable[[Mode], None], waiting: Callable[[], int], fault: Callable[[], str]) -> None:
        self._set_mode, self._waiting, self._fault = set_mode, waiting, fault
        self._appliers: dict[str, Apply] = {}
        self._rollers: list[Callable[[], str]] = []
        self._releaser: Callable[[Mapping[str, str]], str] | None = None
        self.flows: Flows | None = None

    # --- what parts of the agent register

    def on_setting(self, name: str, apply: Apply) -> None:
        """`apply` uses a new value of the setting while the agent runs."""
        self._appliers[name] = apply

    def on_roll(self, roll: Callable[[], str]) -> None:
        """`roll` closes a file and begins another; says which."""
        self._rollers.append(roll)

    def on_release(self, release: Callable[[Mapping[str, str]], str]) -> None:
        """`release` frees a lane from its cluster (pipeline/sites/); says what it did. Raises CommandError."""
        self._releaser = release

    # --- configuration

    def admit(self, document: Document) -> None:
        """Check what a pushed document names. Raises ConfigError; changes nothing."""
        if self.flows is not None:
            try:
                self.flows.admit(list(document.flows.values()))
            except RuntimeError as error:
                raise ConfigError(str(error)) from None

    def check(self, document: Document) -> None:
        """Whether this agent can run the document. Raises ConfigError; changes nothing."""
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
            except Exception as error:  # whatever a third party's component raises refuses its configuration only
                raise ConfigError(str(error) or repr(error)) from error

    def apply(self, change: Change, document: Document) -> None:
        """Do what differs. Raises what the parts raise; the caller then applies the way back."""
        for name, (_, value) in change.settings.items():
            applier = self._appliers.get(name)
            if applier is not None:
                applier(value)
        if self.flows is not None and (change.added or change.removed or change.changed):
            self.flows.change(list(document.flows.values()), change)

    def fault(self) -> str:
        """What is wrong with what runs, "" if nothing."""
        return self._fault() or (self.flows.fault() if self.flows is not None else "")

    # --- commands

    def set_mode(self, mode: Mode) -> None:
        self._set_mode(mode)
        if self.flows is not None:
            self.flows.set_mode(mode)

    def waiting(self) -> int:
        """Items of the log and parcels of the channels that are not where they belong yet."""
        return self._waiting() + (self.flows.waiting() if self.flows is not None else 0)

    def roll(self, arguments: Mapping[str, str]) -> str:
        """Close open files and begin others. Raises OSError."""
        flow = arguments.get("flow", "")
        done = [] if flow else [roll() for roll in self._rollers]
        if self.flows is not None:
            done.append(f"{self.flows.roll(flow)} files of flows")
        return "; ".join(done) or "nothing to roll"

    def release(self, arguments: Mapping[str, str]) -> str:
        """Raises CommandError."""
        if self._releaser is None:
            raise CommandError("this agent's lanes are bound to no cluster")
        return self._releaser(arguments)

    def report(self) -> list[dict[str, Any]]:
        """The flows, one row each."""
        return self.flows.report() if self.flows is not None else []
