"""The agent's side of the control plane: one thread that reads ZooKeeper, decides, acts and reports.

`rollout` and `agent_commands` decide; a decision is on the disk before it is carried out. Without ZooKeeper the agent
continues with the last known state, also after a restart.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from kazoo.client import KazooClient

from artimon.model.clock import Clock
from artimon.runtime.zookeeper_client import Watch
from artimon.runtime.zookeeper_watcher import ZOOKEEPER_ERRORS, ZooKeeperWatcher
from pipeline.control import agent_commands as commands
from pipeline.control import rollout as decide
from pipeline.control.access import OPEN_ACCESS_WARNING, is_open
from pipeline.control.admission import Admission, Trust, is_admissible
from pipeline.control.agent_commands import AgentMode, Command, CommandAnswer, CommandError, CommandJournal
from pipeline.control.agent_controls import AgentControls
from pipeline.control.config_document import EMPTY_DOCUMENT, ConfigDocument, ConfigError, difference, full_change
from pipeline.control.control_state import ControlState, ControlStateFile
from pipeline.control.control_tree import ANSWER_RETENTION_MS, ControlPlaneError, ControlTree, commands_scope
from pipeline.control.group_directory import GroupDirectory
from pipeline.control.local_config import LocalConfig
from pipeline.control.rollout import Configuration, Layer, RolloutAction, RolloutState, RolloutStep
from pipeline.link.config_changes import ConfigChanges

log = logging.getLogger(__name__)

_BUSY_INTERVAL_S = 0.25
REPORT_INTERVAL_S = 60.0
READ_INTERVAL_S = 300.0
"""Interval in seconds at which ZooKeeper is read without an event."""
ACCESS_CHECK_INTERVAL_S = 900.0
"""Interval in seconds between checks of ZooKeeper's access lists, which operators change by hand."""
NO_TRUST = Trust()
"""Trust of an agent without keys and without a ZooKeeper user: only numbers are accepted."""
_MAX_FLOWS_REPORTED = 64
_UNREACHABLE = "ZooKeeper is not reachable: going on with the last known configuration"


def remembered_document(folder: Path) -> ConfigDocument:
    """Return the document with which a `ControlPlane` on this folder will begin; EMPTY if that is unknown."""
    try:
        state = decide.without_refused(ControlStateFile(folder).load().state, is_admissible)
        return decide.after_restart(state, 0.0).running.document()
    except ConfigError:
        return EMPTY_DOCUMENT


class ConfigNotices(Protocol):
    """Changes of the configuration that a collector sends (pipeline/control/collector_notices.py)."""

    @property
    def tells_config(self) -> bool: ...

    @property
    def needs_changes(self) -> bool: ...

    def config_read(self, changes: ConfigChanges) -> None: ...


class ControlPlane(ZooKeeperWatcher):
    """Follows configuration and commands for one agent. Call `begin` before the agent starts, then `start` and `stop`.
    `publish(report)` puts the report into the agent's znode.

    Threads: once started, only the thread of the watcher decides, writes the saved state and calls `runtime`."""

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
        notices: ConfigNotices | None = None,
    ) -> None:
        """`groups`: groups whose configuration the agent takes, later ones over earlier ones. `local`: a file below all
        of them. `trust`: the accepted authors of documents and commands. `notices`: changes that a collector tells;
        without them ZooKeeper is watched."""
        super().__init__(client, "control plane")
        self._agent, self._clock = agent, clock
        self.groups = tuple(groups)
        self._scopes = ("file", *(f"group/{name}" for name in groups), f"agent/{agent}")
        self._tree, self.runtime, self._publish = ControlTree(client), runtime, publish
        self._admission = Admission(trust, client, runtime.admit)
        self._rejected: dict[str, str] = {}
        """Reason for the rejection of a version, by scope."""
        self._refusals: dict[str, CommandAnswer] = {}
        self._notices = notices
        self._local = LocalConfig(local) if local is not None else None
        self._file = ControlStateFile(folder)
        memory = self._file.load()
        self._state: RolloutState = decide.after_restart(memory.state, clock.monotonic())
        self._journal: CommandJournal = memory.journal
        self._changes, self._is_first_read = memory.changes, True
        """Changes of the configuration that were read, in this run or the last one."""
        self.directory = GroupDirectory(client, memory.groups)
        self.directory.on_change = self.read_soon
        self._read_due = 0.0
        """Monotonic time at which ZooKeeper is read again."""
        self._seen: dict[str, Layer] = {}
        """Layers of the last read of ZooKeeper."""
        self._active: ConfigDocument = EMPTY_DOCUMENT
        self._commands: list[Command] = []
        self._answered: dict[str, str] = {}
        self._reported_at, self._reported_key = -REPORT_INTERVAL_S, ""
        self._access_due, self._is_access_open = self._first_access_check(), False
        self.own_problem = ""
        """Problem of this agent's own configuration or disk; `problem` is about ZooKeeper."""

    def begin(self) -> None:
        """Apply the last known configuration and mode, without ZooKeeper, before the agent polls anything."""
        refused = ""
        self._drop_inadmissible()
        self._state = decide.with_layers(self._state, self._read_file())
        try:
            self._save()  # stores the attempt of a trial before that may end this process too
            if self._local is not None and self._state.running == decide.NO_CONFIGURATION:
                self._advance()
        except ControlPlaneError as error:
            refused = f"control plane: {error}"
        self._activate(self._state.running)
        self.own_problem = self.own_problem or refused
        self.runtime.set_mode(self._journal.mode)

    @property
    def mode(self) -> AgentMode:
        return self._journal.mode

    def figures(self) -> dict[str, Any]:
        """Return the state of the configuration, for health and for the agent's znode."""
        state = self._state
        wanted = decide.desired(state, self._scopes)
        refused = state.refused is not None and state.refused.key == wanted.key
        kept_out = "; ".join(self._rejected.values())
        return {
            "wanted": str(wanted),
            "running": str(state.running),
            "good": str(state.last_good),
            "trial": state.trial is not None,
            "refused": state.reason if refused else kept_out,
            "kept_out": list(self._rejected.values()),
            "stale": state.stale,
        }

    def problems(self) -> list[str]:
        """Return the problems to show to operators."""
        found = self.figures()
        local = self._local.problem if self._local is not None else ""
        told = [self.problem, self.own_problem, self._file.damaged, local, found["stale"]]
        told += [f"configuration {text}" for text in found["kept_out"]]
        if found["refused"] and not found["kept_out"]:
            told.append(f"configuration {found['wanted']} is refused ({found['refused']}): {found['running']} runs")
        if self.mode is not AgentMode.RUNNING:
            told.append(f"the agent is {self.mode.value} by command, until `resume`")
        return [text for text in told if text]

    def warnings(self) -> list[str]:
        """Return a warning if every client may change the nodes in ZooKeeper. The agent stays healthy."""
        return [f"ZooKeeper has no access lists: {OPEN_ACCESS_WARNING}"] if self._is_access_open else []

    # --- the thread

    def _refresh(self) -> None:
        self._read_sources()
        self._save()
        self._advance()
        self._run_commands()
        self._write_answers()
        self._report()

    def _on_state(self, _state: str) -> None:
        self.read_soon()

    def _on_event(self, _event: Any) -> None:
        self.read_soon()

    def read_soon(self) -> None:
        """Read configuration and commands again, as from any thread."""
        self._read_due = 0.0
        self.wake()

    def _pause_s(self) -> float:
        busy = self._state.trial is not None or self._journal.drain is not None
        return _BUSY_INTERVAL_S if busy else super()._pause_s()

    def _read_sources(self) -> None:
        """Read the present state of ZooKeeper and of the local file."""
        found = {} if self._local is None else self._read_file()
        now = self._clock.monotonic()
        if not self._client.connected:
            self.problem = _UNREACHABLE
        elif now >= self._read_due:
            self._read_due = now + READ_INTERVAL_S
            try:
                self._read_tree()
                self.problem = ""
            except ZOOKEEPER_ERRORS as error:
                self.problem, self._read_due = f"ZooKeeper: {type(error).__name__} {error}", 0.0
        self._state = decide.with_layers(self._state, {**found, **self._seen})

    def _read_tree(self) -> None:
        """Read configuration and commands; watch them only if no collector sends their changes."""
        told = self._notices
        watch = None if told is not None and told.tells_config else self._on_event
        if watch is None:  # a server that lags behind that of the collector would answer with the old version
            self._tree.sync()
        changes = self._tree.changes() if told is not None and (watch is not None or told.needs_changes) else None
        if changes is None or not self._is_unchanged(changes):
            self._seen = self._layers(watch)
            given, bad = self._tree.read_commands(self._agent, watch)
            self._tree.delete_commands(self._agent, bad)
            self._commands = self._admit_commands(given)
        self._is_first_read = False
        if told is not None and changes is not None:
            told.config_read(changes)
            self._changes = changes
        self.directory.refresh(self._on_event)
        self._check_access()

    def _is_unchanged(self, changes: ConfigChanges) -> bool:
        """Return True if this is the first read after a start, and nothing has changed since the last run: then only
        the node of the changes is read. Without a collector everything is read again soon, and watched."""
        before, since_ms = self._changes, self._clock.now_ms() - ANSWER_RETENTION_MS
        if not self._is_first_read or before is None:
            return False
        if any(answer.time_ms > since_ms for answer in self._journal.answers.values()):
            return False  # an answer may have to be written
        scopes = (*self._scopes[1:], commands_scope(self._agent))
        return not changes.since(before.lineage, before.number, scopes)

    def _first_access_check(self) -> float:
        """Return the monotonic time of the first check of the access lists: at once, but after a restart within the
        usual interval. It takes up to 21 reads, and a restart shall cost the ensemble little."""
        return 0.0 if self._changes is None else self._clock.monotonic() + random.uniform(0, ACCESS_CHECK_INTERVAL_S)

    def _check_access(self) -> None:
        now = self._clock.monotonic()
        if now < self._access_due:
            return
        found = is_open(self._client)
        if found is None:
            self._read_due = 0.0  # its first process has not created it yet: look again soon
        else:
            self._is_access_open, self._access_due = found, now + ACCESS_CHECK_INTERVAL_S

    def _layers(self, watch: Watch | None) -> dict[str, Layer]:
        found, kept_out = {}, {}
        for scope in self._scopes[1:]:
            version = None
            try:
                version = self._tree.current_version(scope, watch)
                if version is not None:
                    found[scope] = self._admission.admit_layer(version, self._state.known.get(scope))
            except ConfigError as error:
                name = str(version.stamp) if version is not None else scope
                kept_out[scope] = f"{name} is kept out: {error}"
        for scope in kept_out.keys() - self._rejected.keys():
            log.error("configuration %s", kept_out[scope])
        self._rejected = kept_out
        return found

    def _admit_commands(self, given: Sequence[Command]) -> list[Command]:
        """Return the commands that the agent obeys. Others are answered but not remembered, so that a flood of them
        does not displace remembered answers."""
        admitted, refused = [], {}
        for command in given:
            try:
                if command.id not in self._journal.answers:
                    self._admission.check_command(self._agent, command)
                admitted.append(command)
            except CommandError as problem:
                old = self._refusals.get(command.id)
                refused[command.id] = old or CommandAnswer("refused", str(problem), self._clock.now_ms())
                if old is None:
                    log.error("command %s %s: %s", command.name, command.id, problem)
                    self._tree.write_answer(self._agent, command.id, refused[command.id])
                elif self._clock.now_ms() - old.time_ms > ANSWER_RETENTION_MS:
                    self._tree.delete_commands(self._agent, [command.id])
        self._refusals = refused
        return admitted

    def _drop_inadmissible(self) -> None:
        """Drop remembered layers that have no proof, or that the host's file no longer allows."""

        def keep(layer: Layer) -> bool:
            if problem := self._admission.refusal_of_remembered(layer):
                self._rejected[layer.stamp.scope] = f"{layer.stamp} is kept out: {problem}"
            return not problem

        self._state = decide.without_refused(self._state, keep)

    def _read_file(self) -> dict[str, Layer]:
        if self._local is None:
            return {}
        layer = self._local.read()
        return {} if layer is None else {"file": layer}

    # --- configuration

    def _advance(self) -> None:
        """Do one step towards the wanted configuration."""
        fault = self.runtime.fault() if self._state.trial is not None else ""
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
        change = difference(self._active, document)
        log.info("configuration %s: %s", step.target, change)
        try:
            self.runtime.apply(change, document)
        except Exception as error:
            log.exception("configuration %s cannot be applied", step.target)
            self._go_back(f"it could not be applied: {error}", document)
        else:
            self._active, self.own_problem = document, ""

    def _go_back(self, reason: str, after: ConfigDocument | None = None) -> None:
        """Return to the last configuration that worked."""
        log.warning("configuration %s -> %s: %s", self._state.running, self._state.last_good, reason)
        self._save(decide.after_rollback(self._state, reason))
        self._activate(self._state.last_good, after)

    def _activate(self, configuration: Configuration, after: ConfigDocument | None = None) -> None:
        """Run a configuration that was tried before. `after`: document of a failed attempt, which may be partly
        applied; then every setting of both is set again."""
        try:
            document = configuration.document()
            change = difference(self._active, document)
            if after is not None:
                change = full_change((self._active, after, document), document)
            self.runtime.apply(change, document)
        except Exception as error:  # nothing older to go back to: report it, and let the rest of the agent work
            log.exception("configuration %s", configuration)
            self.own_problem = f"configuration {configuration} cannot be applied ({error}): restart the agent"
        else:
            self._active, self.own_problem = document, ""

    # --- commands

    def _run_commands(self) -> None:
        now_ms = self._clock.now_ms()
        while (command := commands.next_command(self._journal, self._commands)) is not None:
            answer = commands.refusal_of(command, now_ms)
            if answer is None:
                answer = self._run_command(command)
            if answer is not None:
                log.info("command %s %s: %s %s", command.name, command.id, answer.state, answer.text)
                self._save(book=commands.with_answer(self._journal, command.id, answer))
        if self._journal.drain is not None:
            self._save(book=commands.after_drain_check(self._journal, self.runtime.waiting(), now_ms))

    def _run_command(self, command: Command) -> CommandAnswer | None:
        """Run a command; returns None for one that continues."""
        now_ms = self._clock.now_ms()
        self._save(book=commands.after_begin(self._journal, command, now_ms))
        try:
            if command.name in commands.MODES:
                self.runtime.set_mode(self._journal.mode)
                return (
                    None if self._journal.drain == command else CommandAnswer("done", self._journal.mode.value, now_ms)
                )
            act = self.runtime.roll_files if command.name == "roll" else self.runtime.release
            return CommandAnswer("done", act(command.arguments), now_ms)
        except Exception as error:
            log.exception("command %s (id %s) failed", command.name, command.id)
            return CommandAnswer("failed", str(error) or repr(error), now_ms)

    def _write_answers(self) -> None:
        """Write answers to ZooKeeper, and delete commands that were answered long ago."""
        if not self._client.connected:
            return
        now_ms = self._clock.now_ms()
        for command in self._commands:
            answer = self._journal.answers.get(command.id)
            if answer is None:
                continue
            if self._answered.get(command.id) != answer.state:
                self._tree.write_answer(self._agent, command.id, answer)
                self._answered[command.id] = answer.state
            if answer.is_final and now_ms - max(answer.time_ms, command.issued_ms) > ANSWER_RETENTION_MS:
                self._tree.delete_commands(self._agent, [command.id])
        heard = {command.id for command in self._commands}
        self._answered = {id: state for id, state in self._answered.items() if id in heard}

    # --- telling

    def _report(self) -> None:
        """Publish the report if it is due or has changed, once ZooKeeper can be reached."""
        if self.problem == _UNREACHABLE:
            return
        now = self._clock.monotonic()
        flows = self.runtime.report()[:_MAX_FLOWS_REPORTED]
        told = {"mode": self.mode.value, "config": self.figures(), "groups": list(self.groups), "flows": flows}
        key = json.dumps([told["mode"], told["config"], self.problems(), self.warnings()])
        if now - self._reported_at >= REPORT_INTERVAL_S or key != self._reported_key:
            self._publish(told)
            self._reported_at, self._reported_key = now, key

    def _save(self, state: RolloutState | None = None, book: CommandJournal | None = None) -> None:
        """Make these the state once they are on the disk. Raises ControlPlaneError; then the former state holds, and
        nothing is done that follows from the new one."""
        fresh = ControlState(state or self._state, book or self._journal, self.directory.known(), self._changes)
        try:
            self._file.save(fresh)
        except OSError as error:
            raise ControlPlaneError(f"the state cannot be saved ({error}): nothing is changed until it can") from error
        self._state, self._journal = fresh.state, fresh.journal
