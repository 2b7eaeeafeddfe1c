"""The agent's side of the control plane: one thread that reads ZooKeeper, decides, acts and reports.

Decisions are those of decide.py and commands.py; a decision is on the disk before it is carried out. Without ZooKeeper
everything goes on with the last known state, also after a restart of the agent.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from artimon.model.clock import Clock
from artimon.runtime.watcher import ZOOKEEPER_ERRORS, ZooKeeperWatcher
from pipeline.control import commands, decide
from pipeline.control.access import OPEN_ACCESS_WARNING, is_open
from pipeline.control.admission import Admission, Trust, is_admissible
from pipeline.control.commands import AgentMode, Command, CommandAnswer, CommandError, CommandJournal
from pipeline.control.decide import Configuration, Layer, RolloutAction, RolloutState, RolloutStep
from pipeline.control.directory import GroupDirectory
from pipeline.control.document import EMPTY_DOCUMENT, ConfigDocument, ConfigError, difference, full_change
from pipeline.control.local import LocalConfig
from pipeline.control.memory import ControlState, ControlStateFile
from pipeline.control.runtime import AgentControls
from pipeline.control.tree import ANSWER_RETENTION_MS, ControlPlaneError, ControlTree

log = logging.getLogger(__name__)

_BUSY_INTERVAL_S = 0.25
REPORT_INTERVAL_S = 10.0
ACCESS_CHECK_INTERVAL_S = 60.0
"""Interval in seconds between checks of ZooKeeper's access lists, which operators change by hand."""
NO_TRUST = Trust()
"""Trust of an agent without keys and without a ZooKeeper user: only numbers are accepted."""
_MAX_FLOWS_REPORTED = 64


def remembered_document(folder: Path) -> ConfigDocument:
    """Return the document with which a `ControlPlane` on this folder will begin; EMPTY if that is unknown."""
    try:
        state = decide.without_refused(ControlStateFile(folder).load().state, is_admissible)
        return decide.after_restart(state, 0.0).running.document()
    except ConfigError:
        return EMPTY_DOCUMENT


class ControlPlane(ZooKeeperWatcher):
    """`begin` before the agent starts, `start`, `stop`. `publish(report)` puts the report into the agent's znode.

    Threads: the watcher's, once started, is the only one that decides, writes the memory and calls `runtime`."""

    def __init__(
        self,
        client: KazooClient,
        agent: str,
        groups: Sequence[str],
        folder: Path,
        runtime: AgentControls,
        clock: Clock,
        publish: Callable[[dict[str, Any]], None] = lambda _: None,
        local: Path | None = None,
        trust: Trust = NO_TRUST,
    ) -> None:
        """`groups`: groups whose configuration the agent takes, later ones over earlier ones. `local`: a file below all
        of them. `trust`: the accepted authors of documents and commands."""
        super().__init__(client, "control plane")
        self._agent, self._clock = agent, clock
        self.groups = tuple(groups)
        self._scopes = ("file", *(f"group/{name}" for name in groups), f"agent/{agent}")
        self._tree, self.runtime, self._publish = ControlTree(client), runtime, publish
        self._admission = Admission(trust, client, runtime.admit)
        self._kept_out: dict[str, str] = {}
        """Reason for the rejection of a version, by scope."""
        self._refused_commands: dict[str, CommandAnswer] = {}
        self._local = LocalConfig(local) if local is not None else None
        self._file = ControlStateFile(folder)
        memory = self._file.load()
        self._state: RolloutState = decide.after_restart(memory.state, clock.monotonic())
        self._book: CommandJournal = memory.book
        self.directory = GroupDirectory(client, memory.groups)
        self.directory.on_change = self.wake
        self._live: ConfigDocument = EMPTY_DOCUMENT
        self._heard: list[Command] = []
        self._replied: dict[str, str] = {}
        self._reported, self._told = -REPORT_INTERVAL_S, ""
        self._access_due, self._open = 0.0, False
        self.trouble = ""
        """Problem of this agent's own configuration or disk; `problem` is about ZooKeeper."""

    def begin(self) -> None:
        """Apply the last known configuration and mode, without ZooKeeper, before the agent polls anything."""
        refused = ""
        self._forget_what_must_not_run()
        self._state = decide.with_layers(self._state, self._read_file())
        try:
            self._save()  # stores the attempt of a trial before that may end this process too
            if self._local is not None and self._state.running == decide.NO_CONFIGURATION:
                self._turn()
        except ControlPlaneError as error:
            refused = f"control plane: {error}"
        self._enter(self._state.running)
        self.trouble = self.trouble or refused
        self.runtime.set_mode(self._book.mode)

    @property
    def mode(self) -> AgentMode:
        return self._book.mode

    def figures(self) -> dict[str, Any]:
        """Return the state of the configuration, for health and for the agent's znode."""
        state = self._state
        wanted = decide.desired(state, self._scopes)
        refused = state.refused is not None and state.refused.key == wanted.key
        kept_out = "; ".join(self._kept_out.values())
        return {
            "wanted": str(wanted),
            "running": str(state.running),
            "good": str(state.good),
            "trial": state.trying is not None,
            "refused": state.reason if refused else kept_out,
            "kept_out": list(self._kept_out.values()),
            "stale": state.stale,
        }

    def problems(self) -> list[str]:
        """Return the problems to show to operators."""
        found = self.figures()
        local = self._local.problem if self._local is not None else ""
        told = [self.problem, self.trouble, self._file.damaged, local, found["stale"]]
        told += [f"configuration {text}" for text in found["kept_out"]]
        if found["refused"] and not found["kept_out"]:
            told.append(f"configuration {found['wanted']} is refused ({found['refused']}): {found['running']} runs")
        if self.mode is not AgentMode.RUNNING:
            told.append(f"the agent is {self.mode.value} by command, until `resume`")
        return [text for text in told if text]

    def warnings(self) -> list[str]:
        """Return warnings about open access that is not a fault of this agent."""
        return [f"ZooKeeper has no access lists: {OPEN_ACCESS_WARNING}"] if self._open else []

    # --- the thread

    def _look(self) -> None:
        self._hear()
        self._save()
        self._turn()
        self._obey()
        self._reply()
        self._report()

    def _pause_s(self) -> float:
        busy = self._state.trying is not None or self._book.drain is not None
        return _BUSY_INTERVAL_S if busy else super()._pause_s()

    def _hear(self) -> None:
        """Read the present state of ZooKeeper and of the local file."""
        found = {} if self._local is None else self._read_file()
        if self._client.connected:
            try:
                found.update(self._layers())
                given, bad = self._tree.commands(self._agent, self._on_event)
                self._tree.forget(self._agent, bad)
                self._heard = self._admitted(given)
                self.directory.refresh(self._on_event)
                self._look_at_access()
                self.problem = ""
            except ZOOKEEPER_ERRORS as error:
                self.problem = f"ZooKeeper: {type(error).__name__} {error}"
        else:
            self.problem = "ZooKeeper is not reachable: going on with the last known configuration"
        self._state = decide.with_layers(self._state, found)

    def _look_at_access(self) -> None:
        if (now := self._clock.monotonic()) >= self._access_due:
            self._open, self._access_due = is_open(self._client), now + ACCESS_CHECK_INTERVAL_S

    def _layers(self) -> dict[str, Layer]:
        found, kept_out = {}, {}
        for scope in self._scopes[1:]:
            version = None
            try:
                version = self._tree.newest(scope, self._on_event)
                if version is not None:
                    found[scope] = self._admission.layer(version, self._state.known.get(scope))
            except ConfigError as error:
                name = str(version.stamp) if version is not None else scope
                kept_out[scope] = f"{name} is kept out: {error}"
        for scope in kept_out.keys() - self._kept_out.keys():
            log.error("configuration %s", kept_out[scope])
        self._kept_out = kept_out
        return found

    def _admitted(self, given: Sequence[Command]) -> list[Command]:
        """Return the commands that the agent obeys. Others are answered but not remembered, so that a flood of them
        does not displace remembered answers."""
        admitted, refused = [], {}
        for command in given:
            try:
                if command.id not in self._book.answers:
                    self._admission.command(self._agent, command)
                admitted.append(command)
            except CommandError as problem:
                old = self._refused_commands.get(command.id)
                refused[command.id] = old or CommandAnswer("refused", str(problem), self._clock.now_ms())
                if old is None:
                    log.error("command %s %s: %s", command.name, command.id, problem)
                    self._tree.reply(self._agent, command.id, refused[command.id])
                elif self._clock.now_ms() - old.time_ms > ANSWER_RETENTION_MS:
                    self._tree.forget(self._agent, [command.id])
        self._refused_commands = refused
        return admitted

    def _forget_what_must_not_run(self) -> None:
        """Drop remembered layers that have no proof, or that the host's file no longer allows."""

        def keep(layer: Layer) -> bool:
            if problem := self._admission.keep(layer):
                self._kept_out[layer.stamp.scope] = f"{layer.stamp} is kept out: {problem}"
            return not problem

        self._state = decide.without_refused(self._state, keep)

    def _read_file(self) -> dict[str, Layer]:
        if self._local is None:
            return {}
        layer = self._local.read()
        return {} if layer is None else {"file": layer}

    # --- configuration

    def _turn(self) -> None:
        """Do one step towards the wanted configuration."""
        fault = self.runtime.fault() if self._state.trying is not None else ""
        step = decide.next_step(self._state, self._scopes, self._clock.monotonic(), fault)
        if step.act is RolloutAction.TRY:
            self._try(step)
        elif step.act is RolloutAction.CONFIRM:
            self._save(decide.after_success(self._state))
            log.info("configuration %s is good", step.target)
        elif step.act is RolloutAction.GO_BACK:
            self._go_back(step.reason)

    def _try(self, step: RolloutStep) -> None:
        try:
            document = step.target.document()
            self.runtime.check(document)
        except ConfigError as error:
            log.error("configuration %s is refused: %s", step.target, error)
            self._save(decide.after_rejection(self._state, step.target, str(error)))
            return
        self._save(decide.after_begin(self._state, step.target, self._clock.monotonic()))
        change = difference(self._live, document)
        log.info("configuration %s: %s", step.target, change)
        try:
            self.runtime.apply(change, document)
        except Exception as error:
            log.exception("configuration %s cannot be applied", step.target)
            self._go_back(f"it could not be applied: {error}", document)
        else:
            self._live, self.trouble = document, ""

    def _go_back(self, reason: str, after: ConfigDocument | None = None) -> None:
        """Return to the last configuration that worked."""
        log.warning("configuration %s -> %s: %s", self._state.running, self._state.good, reason)
        self._save(decide.after_rollback(self._state, reason))
        self._enter(self._state.good, after)

    def _enter(self, configuration: Configuration, after: ConfigDocument | None = None) -> None:
        """Run a configuration that was tried before. `after`: document of a failed attempt, which may be partly
        applied; then every setting of both is set again."""
        try:
            document = configuration.document()
            change = difference(self._live, document)
            if after is not None:
                change = full_change((self._live, after, document), document)
            self.runtime.apply(change, document)
        except Exception as error:  # nothing older to go back to: report it, and let the rest of the agent work
            log.exception("configuration %s", configuration)
            self.trouble = f"configuration {configuration} cannot be applied ({error}): restart the agent"
        else:
            self._live, self.trouble = document, ""

    # --- commands

    def _obey(self) -> None:
        now_ms = self._clock.now_ms()
        while (command := commands.next_command(self._book, self._heard)) is not None:
            answer = commands.refusal_of(command, now_ms)
            if answer is None:
                answer = self._do(command)
            if answer is not None:
                log.info("command %s %s: %s %s", command.name, command.id, answer.state, answer.text)
                self._save(book=commands.with_answer(self._book, command.id, answer))
        if self._book.drain is not None:
            self._save(book=commands.after_drain_check(self._book, self.runtime.waiting(), now_ms))

    def _do(self, command: Command) -> CommandAnswer | None:
        """Run a command; returns None for one that continues."""
        now_ms = self._clock.now_ms()
        self._save(book=commands.after_begin(self._book, command, now_ms))
        try:
            if command.name in commands.MODES:
                self.runtime.set_mode(self._book.mode)
                return None if self._book.drain == command else CommandAnswer("done", self._book.mode.value, now_ms)
            act = self.runtime.roll if command.name == "roll" else self.runtime.release
            return CommandAnswer("done", act(command.arguments), now_ms)
        except Exception as error:
            log.exception("command %s %s", command.name, command.id)
            return CommandAnswer("failed", str(error) or repr(error), now_ms)

    def _reply(self) -> None:
        """Write answers to ZooKeeper, and delete commands that were answered long ago."""
        if not self._client.connected:
            return
        now_ms = self._clock.now_ms()
        for command in self._heard:
            answer = self._book.answers.get(command.id)
            if answer is None:
                continue
            if self._replied.get(command.id) != answer.state:
                self._tree.reply(self._agent, command.id, answer)
                self._replied[command.id] = answer.state
            if answer.final and now_ms - max(answer.time_ms, command.issued_ms) > ANSWER_RETENTION_MS:
                self._tree.forget(self._agent, [command.id])
        heard = {command.id for command in self._heard}
        self._replied = {id: state for id, state in self._replied.items() if id in heard}

    # --- telling

    def _report(self) -> None:
        now = self._clock.monotonic()
        flows = self.runtime.report()[:_MAX_FLOWS_REPORTED]
        told = {"mode": self.mode.value, "config": self.figures(), "groups": list(self.groups), "flows": flows}
        key = json.dumps([told["mode"], told["config"], self.problems()])
        if now - self._reported >= REPORT_INTERVAL_S or key != self._told:
            self._publish(told)
            self._reported, self._told = now, key

    def _save(self, state: RolloutState | None = None, book: CommandJournal | None = None) -> None:
        """Make these the state once they are on the disk. Raises PlaneError; then the former state holds, and nothing
        is done that follows from the new one."""
        fresh = ControlState(state or self._state, book or self._book, self.directory.known())
        try:
            self._file.save(fresh)
        except OSError as error:
            raise ControlPlaneError(f"the state cannot be saved ({error}): nothing is changed until it can") from error
        self._state, self._book = fresh.state, fresh.book
