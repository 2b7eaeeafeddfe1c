"""The control plane's nodes in ZooKeeper: paths and operations. docs/control.md has the whole tree.

The design has no master: agents read their own nodes, CLI commands write them, and both need ZooKeeper only. Every
call has a deadline.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from artimon.model.znode import parse_json_object
from artimon.runtime.zookeeper_client import Watch, child_names, read_children
from pipeline.control.agent_commands import MAX_WAITING, Command, CommandAnswer, CommandError, validate_id
from pipeline.control.config_document import ConfigError, canonical, parse_document
from pipeline.control.rollout import VersionId
from pipeline.link.config_changes import CHANGES_PATH, ConfigChanges

AGENTS, CONFIG, COMMANDS, GROUPS = "/artimon/agents", "/artimon/config", "/artimon/commands", "/artimon/groups"
CALL_S = 5.0
MAX_VERSIONS = 50
_CHANGE_ATTEMPTS = 20
"""Attempts to note a change; each fails only if another one was noted meanwhile."""
ANSWER_RETENTION_MS = 3_600_000
"""Retention in ms of answered commands, so that their senders can read the answers."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_NUMBER = re.compile(r"[0-9]{10,18}")


class ControlPlaneError(RuntimeError):
    """The control plane cannot do what was asked; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class ConfigVersion:
    """One version of a scope, as it was pushed. `source`: the version that a rollback copied."""

    stamp: VersionId
    document: Mapping[str, Any]
    made_ms: int
    by: str
    note: str
    source: int | None = None
    signature: Mapping[str, str] | None = None


def validate_name(name: str, what: str = "name") -> str:
    """Return the name if it is valid in a path, else raise ControlPlaneError."""
    if not _NAME.fullmatch(name):
        raise ControlPlaneError(f"{what} {name!r}: use letters, digits, . _ and -, at most 200 of them")
    return name


def scope_of(agent: str = "", group: str = "") -> str:
    """Return the scope of an agent or of a group of agents. Raises ControlPlaneError."""
    return f"agent/{validate_name(agent, 'agent')}" if agent else f"group/{validate_name(group, 'group')}"


def config_path(scope: str) -> str:
    """Return the parent path of the versions of a scope."""
    kind, _, name = scope.partition("/")
    return f"{CONFIG}/{kind}s/{name}"


class ControlTree:
    """Operations on a client that its owner starts and stops. Raises ControlPlaneError, and `watcher.LOST` when
    ZooKeeper does not answer in time."""

    def __init__(self, client: KazooClient) -> None:
        self.client = client

    def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Any]:
        """Return data and stat. Raises NoNodeError."""
        found: tuple[bytes, Any] = self.client.get_async(path, watch=watch).get(timeout=CALL_S)
        return found

    def sync(self) -> None:
        """Let the server of this client catch up with the leader, and so with what a collector has told."""
        self.client.sync_async(CONFIG).get(timeout=CALL_S)

    def _watch_creation(self, path: str, watch: Watch) -> bool:
        """Set a watch on the creation of a node and return True; False if the node exists."""
        return self.client.exists_async(path, watch=watch).get(timeout=CALL_S) is None

    # --- configuration

    def current_version(self, scope: str, watch: Watch | None = None) -> ConfigVersion | None:
        """Return the current version of a scope, None if it has none. Raises ConfigError if it cannot be read."""
        if watch is not None and self._watch_creation(config_path(scope), watch):
            return None
        try:
            pointer, _ = self.get(config_path(scope), watch)
        except NoNodeError:
            return None
        lineage, number = _pointer(pointer, scope)
        if not number:
            return None
        try:
            data, _ = self.get(f"{config_path(scope)}/{number:010d}")
        except NoNodeError:  # pruned meanwhile: a newer one exists, and the watch has fired
            return None
        return _version(VersionId(scope, lineage, number), data)

    def push(
        self,
        scope: str,
        document: Mapping[str, Any],
        *,
        now_ms: int,
        by: str,
        note: str = "",
        source: int | None = None,
        expected: int | None = None,
        sign: Callable[[ConfigVersion], Mapping[str, str]] | None = None,
    ) -> VersionId:
        """Add a version of a scope and update the pointer to it in one transaction. `expected`: the newest version must
        be this one (else ControlPlaneError, as when another push is faster). Raises ConfigError before anything is
        written."""
        parse_document(document)
        canonical(document)
        path = config_path(scope)
        self._ensure(path)
        data, stat = self.get(path)
        lineage, newest = _pointer(data, scope)
        if expected is not None and newest != expected:
            raise ControlPlaneError(f"{scope} is at version {newest}, not {expected}: check the changes and push again")
        stamp = VersionId(scope, lineage, max(newest, *self._numbers(path), 0) + 1)
        content = {"document": document, "made_ms": now_ms, "by": by, "note": note, "source": source}
        if sign is not None:
            content["signature"] = sign(ConfigVersion(stamp, document, now_ms, by, note, source))
        step = self.client.transaction()
        step.create(f"{path}/{stamp.number:010d}", json.dumps(content).encode())
        step.set_data(path, json.dumps({"lineage": lineage, "number": stamp.number}).encode(), version=stat.version)
        results = step.commit_async().get(timeout=CALL_S)
        if any(isinstance(result, Exception) for result in results):
            raise ControlPlaneError(f"another version of {scope} was pushed at the same time: check it and push again")
        self._prune(path, stamp.number)
        self._note_change(scope)
        return stamp

    def history(self, scope: str) -> list[ConfigVersion]:
        """Return the retained versions of a scope, newest first."""
        try:
            pointer, _ = self.get(config_path(scope))
        except NoNodeError:
            return []
        lineage, _ = _pointer(pointer, scope)
        found = []
        for number in sorted(self._numbers(config_path(scope)), reverse=True):
            try:
                data, _ = self.get(f"{config_path(scope)}/{number:010d}")
            except NoNodeError:
                continue
            found.append(_version(VersionId(scope, lineage, number), data))
        return found

    def version(self, scope: str, number: int) -> ConfigVersion:
        """Return one version. Raises ControlPlaneError if it is not retained."""
        for one in self.history(scope):
            if one.stamp.number == number:
                return one
        raise ControlPlaneError(f"{scope} has no version {number}: see `artimon config history`")

    def scopes(self) -> list[str]:
        """Return all scopes with a configuration."""
        kinds = ("group", "agent")
        return [f"{kind}/{n}" for kind in kinds for n in child_names(self.client, f"{CONFIG}/{kind}s", None, CALL_S)]

    def _prune(self, path: str, newest: int) -> None:
        for number in self._numbers(path):
            if number <= newest - MAX_VERSIONS:
                try:
                    self.client.delete_async(f"{path}/{number:010d}").get(timeout=CALL_S)
                except NoNodeError:
                    pass

    def _numbers(self, path: str) -> list[int]:
        """Return the numbers of the existing versions. Nodes with other names are skipped."""
        return [int(name) for name in child_names(self.client, path, None, CALL_S) if _NUMBER.fullmatch(name)]

    def _ensure(self, path: str) -> None:
        data = json.dumps({"lineage": uuid.uuid4().hex[:12], "number": 0}).encode()
        try:
            self.client.create_async(path, data, makepath=True).get(timeout=CALL_S)
        except NodeExistsError:
            pass

    # --- commands

    def send_command(self, agent: str, command: Command) -> None:
        """Send a command to an agent; idempotent by id. Raises ControlPlaneError if too many wait."""
        folder = f"{COMMANDS}/{validate_name(agent, 'agent')}"
        if len(child_names(self.client, folder, None, CALL_S)) >= MAX_WAITING:
            raise ControlPlaneError(
                f"{MAX_WAITING} commands to {agent} wait in ZooKeeper: is it alive? See `artimon agents`"
            )
        try:
            path = f"{folder}/{validate_id(command.id)}"
            self.client.create_async(path, command.to_json(), makepath=True).get(timeout=CALL_S)
        except NodeExistsError:
            pass
        self._note_change(commands_scope(agent))

    def read_commands(self, agent: str, watch: Watch | None = None) -> tuple[list[Command], list[str]]:
        """Return the commands to an agent, in the order of sending, and the ids of malformed ones."""
        folder, found, bad = f"{COMMANDS}/{agent}", [], []
        if watch is not None and self._watch_creation(folder, watch):
            return [], []
        for id, data, stat in islice(read_children(self.client, folder, watch, CALL_S), MAX_WAITING):
            try:
                found.append(Command.parse(id, data, stat.czxid))
            except CommandError:
                bad.append(id)
        return sorted(found, key=lambda command: command.order), bad

    def read_answer(self, agent: str, id: str, watch: Watch | None = None) -> CommandAnswer | None:
        """Return the agent's answer to a command, None if there is none yet."""
        path = f"{COMMANDS}/{agent}/{id}/answer"
        try:
            data, _ = self.get(path, watch)
        except NoNodeError:
            if watch is None or self._watch_creation(path, watch):
                return None
            return self.read_answer(agent, id, watch)
        return CommandAnswer.parse(data)

    def write_answer(self, agent: str, id: str, answer: CommandAnswer) -> None:
        """Write the agent's answer to a command; does nothing if the command was deleted."""
        path, data = f"{COMMANDS}/{agent}/{id}/answer", answer.to_json()
        try:
            self.client.create_async(path, data).get(timeout=CALL_S)
        except NodeExistsError:
            self.client.set_async(path, data).get(timeout=CALL_S)
        except NoNodeError:
            pass

    def delete_commands(self, agent: str, ids: Iterable[str]) -> None:
        """Delete commands and their answers."""
        for id in ids:
            for path in (f"{COMMANDS}/{agent}/{id}/answer", f"{COMMANDS}/{agent}/{id}"):
                try:
                    self.client.delete_async(path).get(timeout=CALL_S)
                except NoNodeError:
                    continue

    # --- changes

    def changes(self) -> ConfigChanges:
        """Return the last changes of all scopes; none while the node does not exist or cannot be read."""
        try:
            return ConfigChanges.from_json(self.get(CHANGES_PATH)[0])
        except (NoNodeError, ValueError):
            return ConfigChanges()

    def _note_change(self, scope: str) -> None:
        """Note a change for the collectors. Agents that miss it read their configuration every few minutes."""
        for _ in range(_CHANGE_ATTEMPTS):
            with suppress(NoNodeError, NodeExistsError, BadVersionError):
                if self.client.exists_async(CHANGES_PATH).get(timeout=CALL_S) is None:
                    first = ConfigChanges(uuid.uuid4().hex[:12]).with_change(scope).to_json()
                    self.client.create_async(CHANGES_PATH, first, makepath=True).get(timeout=CALL_S)
                    return
                data, stat = self.get(CHANGES_PATH)
                known = _changes_of(data)
                self.client.set_async(CHANGES_PATH, known.with_change(scope).to_json(), version=stat.version).get(
                    timeout=CALL_S
                )
                return

    # --- agents

    def agents(self) -> dict[str, dict[str, Any]]:
        """Return the reports of all live agents."""
        return self.reports(AGENTS)

    def live_reports(self, agents: Iterable[str], timeout_s: float) -> dict[str, dict[str, Any]]:
        """Return the reports of those of some agents that are live, read at once. Raises KazooException,
        KazooTimeoutError."""
        asked = {name: self.client.get_async(f"{AGENTS}/{name}") for name in agents if _NAME.fullmatch(name)}
        end_s, found = monotonic() + timeout_s, dict[str, dict[str, Any]]()
        for name, answer in asked.items():
            try:
                found[name] = _parse_report(answer.get(timeout=max(0.001, end_s - monotonic()))[0])
            except NoNodeError:
                continue
        return found

    def reports(self, path: str, watch: Watch | None = None) -> dict[str, dict[str, Any]]:
        """Return the JSON of every node below `path`, by name; {"problem"} where it cannot be read."""
        found: dict[str, dict[str, Any]] = {}
        for name, data, _ in read_children(self.client, path, watch, CALL_S):
            found[name] = _parse_report(data)
        return found


def _parse_report(data: bytes) -> dict[str, Any]:
    """Return the JSON of a node; {"problem"} if it cannot be read."""
    try:
        return parse_json_object(data)
    except ValueError as error:
        return {"problem": f"its node cannot be read: {error}"}


def commands_scope(agent: str) -> str:
    """Return the name under which commands to an agent count as changes."""
    return f"commands/{agent}"


def _changes_of(data: bytes) -> ConfigChanges:
    """Decode the changes; a damaged node begins a new lineage, so that all agents read their configuration."""
    try:
        return ConfigChanges.from_json(data)
    except ValueError:
        return ConfigChanges(uuid.uuid4().hex[:12])


def _pointer(data: bytes, scope: str) -> tuple[str, int]:
    try:
        found = parse_json_object(data)
        return str(found["lineage"]), int(found["number"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{config_path(scope)} in ZooKeeper cannot be read: {error!r}") from None


def _version(stamp: VersionId, data: bytes) -> ConfigVersion:
    try:
        found = parse_json_object(data)
        document, source = found["document"], found["source"]
        if not isinstance(document, dict):
            raise TypeError("its document is not a table")
        number = None if source is None else int(source)
        told = int(found["made_ms"]), str(found["by"]), str(found["note"])
        return ConfigVersion(stamp, document, *told, number, found.get("signature"))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{stamp} in ZooKeeper cannot be read: {error!r}") from None
