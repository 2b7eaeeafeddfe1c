"""A rolling upgrade of every role under load, in the documented order and against it: the version before and this one
run together in each state in between, nothing is lost and nothing is counted twice."""

from __future__ import annotations

import json
import signal
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from artimon.model.clock import SYSTEM_CLOCK
from artimon.stack.artimon_parts import AgentPart, ArtimonPart
from artimon.stack.child_process import ProcessCommand
from artimon.stack.stack import Stack
from artimon.stack.stack_part import StackContext
from tests.e2e.exactness import acks_flow, application, assert_exact, let_it_poll
from tests.e2e.whole import OPTIONS, ROOT
from tests.upgrade.older_version import MissingVersionError, RollingPart, pack_version, unpack_version
from tests.waiting import eventually
from varstore.cluster.varstore_client import VarstoreClient

BEFORE = "86a75a83"
"""The version before: a tag or commit of this repository."""
DOCUMENTED = ("api", "alerts", "shard-0", "shard-1", "spark", "compactor", "collector-0", "agent")
"""docs/upgrade.md: readers before writers."""
HEALTHY_S = 240.0

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the version before."""
    folder = tmp_path_factory.mktemp("before")
    try:
        pack_version(BEFORE, folder / "tree.tar")
    except MissingVersionError as problem:
        pytest.fail(str(problem))
    unpack_version(folder / "tree.tar", folder)
    return folder


class LedgerAgent(AgentPart):
    """The agent with a ledger of what its log accepted."""

    def command(self, context: StackContext) -> ProcessCommand:
        ledger = ["-m", "tests.e2e.ledger_agent", "--ledger", str(context.data / "ledger.jsonl")]
        argv = [sys.executable, *ledger, *self.arguments(context), "--health", str(context.health(self.name))]
        return ProcessCommand(argv, {**self.environment(context), "PYTHONPATH": str(ROOT)})


def rolling_part(part: ArtimonPart, before: Path) -> RollingPart:
    """Return a part of the version before; the agent has a ledger."""
    return RollingPart(LedgerAgent() if isinstance(part, AgentPart) else part, before)


def answers_wholly(stack: Stack) -> bool:
    """The API answers over the newest minutes, from both shards."""
    query = "fetch(%27e2e.integer%27).range(%275m%27).count(by=[])"
    with urllib.request.urlopen(f"{stack.addresses()['ARTIMON_API']}/api/query?q={query}", timeout=20) as answer:
        found = json.load(answer)
    return bool(found.get("series")) and not found.get("partial")


def settled(condition: Callable[[], bool]) -> Callable[[], bool]:
    """A condition that is false while a server does not answer."""

    def checked() -> bool:
        try:
            return condition()
        except OSError:
            return False

    return checked


@pytest.fixture
def rolling(before: Path, tmp_path: Path) -> Iterator[Stack]:
    """Everything, of the version before; two shards with two replicas."""
    stack = Stack(tmp_path / "stack", base_port=28_500, options={**OPTIONS, "replicas": "2"})
    stack.parts = [rolling_part(part, before) if isinstance(part, ArtimonPart) else part for part in stack.parts]
    with stack:
        yield stack


@pytest.mark.parametrize("order", [DOCUMENTED, DOCUMENTED[::-1]], ids=["documented", "reversed"])
def test_nothing_lost_nothing_twice(rolling: Stack, before: Path, tmp_path: Path, order: tuple[str, ...]) -> None:
    parts = {part.name: part for part in rolling.parts if isinstance(part, RollingPart)}
    assert set(parts) - {"mail"} == set(order)
    began = SYSTEM_CLOCK.now_ms()
    files = [tmp_path / "before.json", tmp_path / "now.json"]
    with (
        application(rolling, "application.py", str(files[0]), "1", root=before, context="before") as older,
        application(rolling, "application.py", str(files[1]), "2", context="now") as newer,
        VarstoreClient(rolling.zookeeper) as store,
    ):
        eventually(settled(lambda: answers_wholly(rolling)), "an answer of the version before", HEALTHY_S, 0.5)
        for name in order:
            parts[name].upgraded = True
            rolling.restart(name)
            rolling.wait_healthy(HEALTHY_S)
            let_it_poll(rolling)
            eventually(lambda: acks_flow(rolling), f"acks after the upgrade of {name}", HEALTHY_S, 0.5)
            eventually(settled(lambda: answers_wholly(rolling)), f"an answer with {name} upgraded", HEALTHY_S, 0.5)
        for process in (older, newer):
            process.send_signal(signal.SIGUSR1)
        eventually(lambda: all(file.exists() for file in files))
        let_it_poll(rolling)
        for process in (older, newer):
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        assert_exact(rolling, store, began)
