"""One whole stack for the end-to-end tests, with the test's ledger between source and log."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from artimon.model.clock import SYSTEM_CLOCK
from artimon.stack.own import Agent
from artimon.stack.part import Context
from artimon.stack.process import Command
from artimon.stack.stack import Stack
from varstore.client import VarstoreClient

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
OPTIONS = {"poll": "2s", "level": "hdfs", "raw_interval": "5s"}


class LedgerAgent(Agent):
    """The agent with tests/e2e/ledger_agent.py as its program."""

    def command(self, context: Context) -> Command:
        health = ["--health", str(context.health(self.name)), "--ledger", str(context.data / "ledger.jsonl")]
        argv = [sys.executable, "-m", "tests.e2e.ledger_agent", *self.arguments(context), *health]
        return Command(argv, {**self.environment(context), "PYTHONPATH": str(ROOT)})


@pytest.fixture(scope="session")
def whole_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Everything, from ZooKeeper to two shards, polling every 2 s."""
    stack = Stack(tmp_path_factory.mktemp("whole"), base_port=24000, options=OPTIONS)
    stack.parts = [LedgerAgent() if part.name == "agent" else part for part in stack.parts]
    with stack:
        yield stack


@pytest.fixture
def store(whole_stack: Stack) -> Iterator[VarstoreClient]:
    """The memory store of the whole stack."""
    with VarstoreClient(whole_stack.zookeeper) as client:
        yield client


def eventually(check: Callable[[], T], seconds: float = 60, pause: float = 0.25) -> T:
    """The first true answer of `check`; fails with the last one when it does not come in time."""
    deadline = SYSTEM_CLOCK.monotonic() + seconds
    while True:
        answer = check()
        if answer or SYSTEM_CLOCK.monotonic() > deadline:
            assert answer, f"{check} gave {answer!r} for {seconds} s"
            return answer
        threading.Event().wait(pause)
