"""Agent, collector that answers at once, and operator: everything but ZooKeeper in this process."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from artimon.model.clock import SYSTEM_CLOCK
from bookkeeper.rpc.framed_server import FramedServer
from pipeline.control import rollout as decide
from pipeline.control.admission import COMMAND_KIND, CONFIG_KIND, signed_command, signed_version
from pipeline.control.agent_commands import Command, CommandAnswer
from pipeline.control.control_tree import ControlTree
from pipeline.control.signatures import SigningKeys
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from pipeline.link.idl import collector_idl
from tests.pipeline.helpers import started


class Store:
    """Accepts every batch while `open`; offsets count up."""

    def __init__(self) -> None:
        self.lock, self.open, self.messages = threading.Lock(), True, 0

    def send(self, messages: list[bytes]) -> list[Any]:
        answer = collector_idl().Answer
        with self.lock:
            if not self.open:
                return [answer(False, "", "", -1, -1, "kafka: it is away") for _ in messages]
            first, self.messages = self.messages, self.messages + len(messages)
            return [answer(True, "c", "t", 0, first + n, "", 1) for n in range(len(messages))]


@contextmanager
def serving(
    operator: KazooClient, name: str, group: str, store: Store | None = None, **options: Any
) -> Iterator[Store]:
    """Serve a collector of a group."""
    store = store or Store()
    server = FramedServer(collector_idl().Collector, store, **options)
    port = server.start()
    path = f"/artimon/collectors/{name}"
    data = json.dumps({"host": "127.0.0.1", "port": port, "group": group}).encode()
    operator.create(path, data, ephemeral=True, makepath=True)
    try:
        yield store
    finally:
        if operator.exists(path):
            operator.delete(path)
        server.stop()


KEYS = SigningKeys({"tests": b"the-secret-of-the-operators-of-these-tests"})


class Operator:
    """Operator at a terminal; `keys` as of `running`, None for unsigned pushes."""

    def __init__(self, zookeeper: str, keys: SigningKeys | None = KEYS) -> None:
        self.keys = keys
        self.client = KazooClient(zookeeper, timeout=4.0, connection_retry={"max_tries": -1, "max_delay": 0.5})
        self.client.start(60)
        self.tree = ControlTree(self.client)

    def close(self) -> None:
        self.client.stop()
        self.client.close()

    def push(self, scope: str, **metrics: Any) -> decide.VersionId:
        return self.push_document(scope, {"metrics": metrics})

    def push_document(self, scope: str, document: dict[str, Any]) -> decide.VersionId:
        now_ms, keys = SYSTEM_CLOCK.now_ms(), self.keys
        sign = None if keys is None else (lambda version: keys.sign(CONFIG_KIND, signed_version(version)))
        return self.tree.push(scope, document, now_ms=now_ms, by="test", sign=sign)

    def give(self, agent: str, name: str, patience_ms: int = 60_000, id: str = "", **arguments: str) -> str:
        now = SYSTEM_CLOCK.now_ms()
        command = Command(id or uuid.uuid4().hex, name, arguments, now, now + patience_ms)
        if self.keys is not None:
            command = replace(command, signature=self.keys.sign(COMMAND_KIND, signed_command(agent, command)))
        self.tree.send_command(agent, command)
        return command.id

    def answer(self, agent: str, id: str) -> CommandAnswer | None:
        answer = self.tree.read_answer(agent, id)
        return answer if answer is not None and answer.is_final else None

    def report(self, agent: str) -> dict[str, Any]:
        return self.tree.agents().get(agent, {})


def new_name() -> str:
    return f"a{uuid.uuid4().hex[:10]}"


def key_file(folder: Path) -> Path:
    """Key file of KEYS in the form that agents read."""
    file = folder / "config.keys"
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{id} {secret.decode()}\n" for id, secret in KEYS.secrets.items()))
    file.chmod(0o600)
    return file


@contextmanager
def running(name: str, folder: Path, zookeeper: str, **options: Any) -> Iterator[Agent]:
    options.setdefault("keys", key_file(folder))
    agent = Agent(AgentConfig(name, folder, zookeeper, options.pop("level", "kafka"), **options))
    agent.plane._every_s = 0.5
    agent.controls.on_setting("poll", lambda _: None)
    with started(agent):
        yield agent
