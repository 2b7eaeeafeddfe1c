"""One whole stack for every test that needs one, with the test's ledger between source and log."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from artimon.stack.artimon_parts import AgentPart
from artimon.stack.child_process import ProcessCommand
from artimon.stack.stack import Stack
from artimon.stack.stack_part import StackContext

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = {"poll": "2s", "level": "hdfs", "raw_interval": "5s"}


class LedgerAgent(AgentPart):
    """The agent with tests/e2e/ledger_agent.py as its program."""

    def command(self, context: StackContext) -> ProcessCommand:
        health = ["--health", str(context.health(self.name)), "--ledger", str(context.data / "ledger.jsonl")]
        argv = [sys.executable, "-m", "tests.e2e.ledger_agent", *self.arguments(context), *health]
        return ProcessCommand(argv, {**self.environment(context), "PYTHONPATH": str(ROOT)})


@pytest.fixture(scope="session")
def whole_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Everything, from ZooKeeper to two shards, polling every 2 s."""
    stack = Stack(tmp_path_factory.mktemp("whole"), base_port=24000, options=OPTIONS)
    stack.parts = [LedgerAgent() if part.name == "agent" else part for part in stack.parts]
    with stack:
        yield stack
