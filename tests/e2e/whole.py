"""One whole stack for every test that needs one, with the test's ledger between source and log."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType

import pytest

from artimon.stack.artimon_parts import AgentPart
from artimon.stack.child_process import ProcessCommand
from artimon.stack.stack import Stack
from artimon.stack.stack_part import StackContext

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = {"poll": "2s", "level": "hdfs", "raw_interval": "5s"}
RECEIVERS = {
    "grpc": "otlp+grpc://{}",
    "graphite": "graphite+tcp://{}?sender=collectd",
    "statsd": "statsd+udp://{}?sender=e2e",
}


class LedgerAgent(AgentPart):
    """The agent with tests/e2e/ledger_agent.py as its program, and a receiver of each kind."""

    def __init__(self) -> None:
        super().__init__()
        more = {f"{self.name}.{name}": 8740 + at for at, name in enumerate(RECEIVERS)}
        self.ports = MappingProxyType({**self.ports, **more})

    def command(self, context: StackContext) -> ProcessCommand:
        health = ["--health", str(context.health(self.name)), "--ledger", str(context.data / "ledger.jsonl")]
        places = {name: context.address(f"{self.name}.{name}") for name in RECEIVERS}
        receive = [word for name, form in RECEIVERS.items() for word in ("--receive", form.format(places[name]))]
        argv = [sys.executable, "-m", "tests.e2e.ledger_agent", *self.arguments(context), *receive, *health]
        return ProcessCommand(argv, {**self.environment(context), "PYTHONPATH": str(ROOT)})


@pytest.fixture(scope="session")
def whole_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Everything, from ZooKeeper to two shards, polling every 2 s."""
    stack = Stack(tmp_path_factory.mktemp("whole"), base_port=24000, options=OPTIONS)
    stack.parts = [LedgerAgent() if part.name == "agent" else part for part in stack.parts]
    with stack:
        yield stack
