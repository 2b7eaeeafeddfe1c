"""Several agents and real processes on one real ZooKeeper: exactly one agent polls each endpoint at any time."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import pytest

from bookkeeper import Bookkeeper
from bookkeeper.rpc.framed_server import FramedServer
from bookkeeper.rpc.poll_service import PollHandler, ProcessIdentity, idl
from sources.state.state_files import VALUES
from tests.sources.helpers import HOST, registry
from tests.waiting import eventually

pytestmark = pytest.mark.stack
REPOSITORY = Path(__file__).parents[2]
CONTEXTS, INSTANCES = 20, 2
PERIOD_S = 0.5
SETTINGS = {
    "period_ms": round(PERIOD_S * 1000),
    "deadline_s": 1.0,
    "reconcile_s": 1.0,
    "session_s": 2.0,
    "takeover_s": 0.5,
    "goodbye_s": 0.5,
}


class Poll(NamedTuple):
    """Poll that received values."""

    at: float
    agent: str


class Watched(PollHandler):
    """Handler of an endpoint that records which agent received its values, and when."""

    def __init__(self, book: Bookkeeper, identity: ProcessIdentity) -> None:
        super().__init__(book, identity)
        self.polls: list[Poll] = []

    def getColumns(self, known_schema_id: bytes | None, poller: Any = None) -> Any:
        answer = super().getColumns(known_schema_id, poller)
        if answer.values:
            self.polls.append(Poll(monotonic(), poller.name))
        return answer

    def since(self, at: float) -> list[str]:
        """Return the agents that polled after that time, in order."""
        return [poll.agent for poll in self.polls if poll.at > at]


class Process:
    """An endpoint with a real server and a znode, in this process. `parent`: path and name of the znode up to the
    address."""

    def __init__(self, client: Any, context: str, instance: str, parent: str) -> None:
        self.book = Bookkeeper(online=False)
        self.book.add_to_integer_var("orders", {}, 5)
        self.uuid = uuid.uuid4().bytes
        self.service = Watched(self.book, ProcessIdentity(self.uuid, 1_000, context, instance))
        self.server = FramedServer(idl().Bookkeeper, self.service, on_reply=self.service.on_reply)
        self.node = f"{parent}:{self.server.start()}:{uuid.UUID(bytes=self.uuid)}"
        client.create(self.node, b"{}", ephemeral=True, makepath=True)


def on_hosts(context: str) -> str:
    """A host without an agent for each context."""
    return f"/artimon/hosts/far-{context}/{context}:127.0.0.1"


def by_context(context: str) -> str:
    """As libraries of the version before register."""
    return f"/artimon/contexts/{context}/127.0.0.1"


@pytest.fixture(params=[on_hosts, pytest.param(by_context, marks=pytest.mark.slow)])
def fleet(tree: str, request: pytest.FixtureRequest) -> Iterator[list[Process]]:
    """Endpoints of 20 contexts, two each."""
    with registry(tree) as client:
        made = [
            Process(client, f"c{i}", str(j), request.param(f"c{i}")) for i in range(CONTEXTS) for j in range(INSTANCES)
        ]
        yield made
        for process in made:
            process.server.stop(0.1)


class Agent:
    """Agent in its own process; its accepted samples are read from its output."""

    def __init__(self, name: str, tree: str, folder: Path) -> None:
        command = [sys.executable, "-m", "tests.sources.agent", name, tree, str(folder / name), json.dumps(SETTINGS)]
        self.name = name
        self.births: dict[int, set[int]] = {}
        self.ended: set[str] = set()
        self._process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            source, print_, _, birth_ms, value = json.loads(line)
            if value is None:
                self.ended.add(source)
            elif not source.startswith("agent/"):
                self.births.setdefault(print_, set()).add(birth_ms)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> None:
        """End the agent in order, in any state."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(60)


@pytest.fixture
def start(tree: str, tmp_path: Path) -> Iterator[Any]:
    """Start an agent with a name; it ends with the test."""
    with contextlib.ExitStack() as stack:

        def begin(name: str) -> Agent:
            agent = Agent(name, tree, tmp_path)
            stack.callback(agent.end)
            return agent

        yield begin


def all_polled(fleet: list[Process], since: float, times: int, by: str = "") -> bool:
    """Return True if every endpoint was polled that often after that time, by the named agent if one is given."""
    polls = [process.service.since(since) for process in fleet]
    return all(len(one) >= times and (not by or set(one) == {by}) for one in polls)


def pollers(fleet: list[Process], since: float) -> list[set[str]]:
    return [set(process.service.since(since)) for process in fleet]


def shared_out(fleet: list[Process]) -> None:
    """Return True if both agents poll, each endpoint has one poller, and both of a context have the same."""

    def settled() -> bool:
        since = monotonic()
        eventually(lambda: all_polled(fleet, since, 3), "three polls of every endpoint")
        found = pollers(fleet, since)
        return all(len(one) == 1 for one in found) and len(set().union(*found)) == 2

    eventually(settled, "the endpoints to be shared out")
    since = monotonic()
    eventually(lambda: all_polled(fleet, since, 4), "four more polls")
    found = pollers(fleet, since)
    assert {len(one) for one in found} == {1}
    assert found[0::INSTANCES] == found[1::INSTANCES]
    shares = Counter(next(iter(one)) for one in found)
    assert min(shares.values()) >= 4, shares


def never_mixed(fleet: list[Process], changes: int) -> None:
    """Nobody was polled by two agents in turn: each change of agent was one of those that had to be, and the one at the
    start, when the first agent was alone."""
    for process in fleet:
        runs = [name for name, _ in itertools.groupby(poll.agent for poll in process.service.polls)]
        assert len(runs) <= 1 + 1 + changes, runs


def born_once(*agents: Agent) -> None:
    """Check that all agents found the same start time of a series."""
    for print_ in set().union(*(agent.births for agent in agents)):
        assert len(set().union(*(agent.births.get(print_, set()) for agent in agents))) == 1


def test_an_agent_that_is_killed_is_followed_by_the_other(fleet: list[Process], start: Any) -> None:
    """No endpoint is polled twice or left out; a series that appeared late has one start time for both."""
    first, second = start("one"), start("two")
    shared_out(fleet)
    for process in fleet:
        process.book.add_to_integer_var("late", {}, 7)
    since = monotonic()
    eventually(lambda: all_polled(fleet, since, 4), "polls of what came late")
    first.signal(signal.SIGKILL)
    killed = monotonic()
    eventually(lambda: all_polled(fleet, killed + 0.1, 1), "everybody to be polled again")
    since = monotonic()
    eventually(lambda: all_polled(fleet, since, 3, second.name), "three polls by the other")
    never_mixed(fleet, 1)
    born_once(first, second)


def test_an_agent_that_was_killed_goes_on_where_it_was(
    fleet: list[Process], start: Any, tree: str, tmp_path: Path
) -> None:
    """Its earlier session is not over; only the processes that left meanwhile have ended."""
    killed = start("one")
    since = monotonic()
    eventually(lambda: all_polled(fleet, since, 2), "two polls of every endpoint")
    # the sink of this agent keeps no log from which a source could be read whose state is not yet written
    states = (tmp_path / "one").rglob
    eventually(lambda: len(list(states(f"*{VALUES}"))) >= len(fleet), "the states of all endpoints on disk")
    killed.signal(signal.SIGKILL)
    killed.end()
    gone = fleet[0]
    gone.server.stop(0.1)
    with registry(tree) as client:
        client.delete(gone.node)
    again = start("one")
    since = monotonic()
    eventually(lambda: again.ended, "the end of what left")
    eventually(lambda: all_polled(fleet[1:], since, 3), "three polls of the others")
    assert {source for source in again.ended if not source.startswith("agent/")} == {f"c0/{HOST}/0"}
    born_once(killed, again)


@pytest.mark.slow
def test_an_agent_that_was_cut_off_never_polls_beside_the_one_that_took_over(fleet: list[Process], start: Any) -> None:
    """Stopped for longer than its session lasts, it wakes up and believes that nothing has happened."""
    first, second = start("one"), start("two")
    shared_out(fleet)
    first.signal(signal.SIGSTOP)
    since = monotonic()
    eventually(lambda: all_polled(fleet, since + 0.1, 2), "the other to take over")
    since = monotonic()
    eventually(lambda: all_polled(fleet, since, 2, second.name), "all to be polled by the other")
    first.signal(signal.SIGCONT)
    shared_out(fleet)
    never_mixed(fleet, 2)


@pytest.mark.slow
def test_an_agent_that_leaves_hands_over_and_gets_its_own_back(fleet: list[Process], start: Any) -> None:
    """No endpoint waits for a session timeout, and start times do not change."""
    first, second = start("one"), start("two")
    shared_out(fleet)
    first.end()
    since = monotonic()
    eventually(lambda: all_polled(fleet, since, 3, second.name), "all to be polled by the other")
    for process in fleet:
        process.book.add_to_integer_var("late", {}, 7)
    since = monotonic()
    eventually(lambda: all_polled(fleet, since, 4), "polls of what came late")
    again = start("one")
    shared_out(fleet)
    never_mixed(fleet, 2)
    born_once(first, second, again)
