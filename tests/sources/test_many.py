"""10,000 endpoints and two agents, one of which is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.loads.endpoints import endpoints
from sources.base.endpoint_address import EndpointAddress
from tests.bookkeeper.polling import REPOSITORY
from tests.sources.helpers import registry
from tests.waiting import eventually

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(1_200)]
COUNT, HOSTS, ROUNDS = 10_000, 500, 40
SETTINGS = {"period_ms": 15_000, "reconcile_s": 5.0, "session_s": 8.0, "takeover_s": 1.0}


class Polling:
    """One agent; records the sources that it accepted since the last `forget`."""

    def __init__(self, name: str, tree: str, folder: Path) -> None:
        command = [sys.executable, "-m", "tests.sources.agent", name, tree, str(folder / name), json.dumps(SETTINGS)]
        self.sources: dict[str, int] = {}
        self.process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            source, _, time_ms, _, value = json.loads(line)
            if source.startswith("bench/") and value is not None:
                self.sources[source] = max(time_ms, self.sources.get(source, 0))

    def since(self, time_ms: int) -> set[str]:
        """Return the sources polled after that time."""
        return {source for source, at in self.sources.copy().items() if at > time_ms}

    def newest_ms(self) -> int:
        return max(list(self.sources.values()), default=0)


def announce(tree: str, found: Sequence[EndpointAddress]) -> None:
    with registry(tree) as client:
        hosts = {one: f"/artimon/hosts/{one.ip}" for one in found}
        for host in set(hosts.values()):
            client.ensure_path(host)
        nodes = [f"{hosts[one]}/bench:{one.address}:{one.uuid.hex()}" for one in found]
        for at in range(0, len(nodes), 500):
            for call in [client.create_async(node, b"{}") for node in nodes[at : at + 500]]:
                call.get(30)


@pytest.fixture
def agents(tree: str, tmp_path: Path) -> Iterator[Callable[[str], Polling]]:
    """Starts agents; ends those that are left."""
    started: list[Polling] = []

    def start(name: str) -> Polling:
        started.append(Polling(name, tree, tmp_path))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait(60)


def test_ten_thousand_endpoints_are_polled_by_one_agent_each(tree: str, agents: Callable[[str], Polling]) -> None:
    """No endpoint is polled twice or left out; the other agent polls all when one is killed."""
    with endpoints(COUNT, 3, ROUNDS, HOSTS, None) as found:
        announce(tree, found)
        first, second = agents("one"), agents("two")

        def shared_out() -> bool:
            since = max(first.newest_ms(), second.newest_ms()) - SETTINGS["period_ms"]
            mine, others = first.since(int(since)), second.since(int(since))
            return len(mine | others) == COUNT and not mine & others and min(len(mine), len(others)) > COUNT // 4

        eventually(shared_out, "every endpoint to be polled by one of the two", 600)
        first.process.send_signal(signal.SIGKILL)
        killed = second.newest_ms()
        eventually(lambda: len(second.since(killed)) == COUNT, "all to be polled by the other", 400)
