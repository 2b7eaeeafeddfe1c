"""The bookkeeper in Java: its own tests, and a real process of it that our source finds in ZooKeeper and collects."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from artimon.model.labels import parse_canonical
from artimon.stack.stack import Stack
from tests.bookkeeper.polling import Node, columns, nodes, rows
from tests.clients.conftest import Built
from tests.sources.helpers import HOST, KeepingSink, registry, running
from tests.waiting import eventually, until

PART = '{"part": "x"}'


def test_its_own_tests_pass(java: Built, tmp_path: Path) -> None:
    """JUnit: variables, threads, polls over sockets, bad bytes, settings, instance numbers."""
    command = [str(java.java), "-XX:TieredStopAtLevel=1", "-jar", str(java.junit), "execute", "--disable-banner"]
    command += ["-cp", f"{java.classes}:{java.libraries}", "--scan-classpath", str(java.classes), "--fail-if-no-tests"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 tests failed" in done.stdout


class Application:
    """A process of LineApplication."""

    def __init__(self, java: Built, zookeeper: str, context: str, run: Path) -> None:
        environment = {
            **os.environ,
            "ARTIMON_ZOOKEEPER": zookeeper,
            "ARTIMON_CONTEXT": context,
            "ARTIMON_RUN": str(run),
        }
        self.process = subprocess.Popen(
            java.command("artimon.LineApplication"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )

    def do(self, line: str) -> str:
        """Have one line carried out; what was answered."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(line + "\n")
        stdin.flush()
        return stdout.readline().strip()

    def leave(self) -> None:
        """End in order; returns once the process has ended."""
        self.process.communicate(timeout=30)
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=30)


@pytest.fixture
def zk(tree: str) -> Iterator[KazooClient]:
    with registry(tree) as client:
        yield client


@pytest.mark.stack
def test_our_source_collects_it_to_its_last_value(java: Built, tree: str, tmp_path: Path) -> None:
    """Found, polled by columns, named and typed as any other; what it counted last before it left in order is there."""

    async def run() -> None:
        sink, source = KeepingSink(), f"from.java/{HOST}/j0"
        app = Application(java, tree, "from.java", tmp_path / "run")
        assert app.do("add orders 5") == "5"
        assert app.do("set load 0.5") == "0.5"
        assert app.do("text state ünï") == "ünï"
        assert app.do("flag open true") == "true"
        async with running(tree, tmp_path / "data", sink) as artimon:
            await until(lambda: sink.last(source).get("orders") == 5, "the first poll")
            assert sink.last(source)["load"] == 0.5
            assert sink.last(source)["state"] == "ünï"
            assert sink.last(source)["open"] is True
            text = next(text for text, *_ in sink.samples(source) if text.startswith("orders"))
            labels = {"part": "x", "context": "from.java", "instance": "j0", "host": HOST}
            assert parse_canonical(text)[1] == labels
            assert app.do(f"add big {2**63 - 1}") == str(2**63 - 1)
            assert app.do("drop orders") == "dropped"
            await until(lambda: sink.last(source)["orders"] is None, "the end of a removed variable")
            assert app.do("add late 41") == "41"
            await asyncio.to_thread(app.leave)
            await until(lambda: sink.last(source).get("late", 0) is None, "the end of the process")
            found = {text.partition("{")[0]: value for text, _, _, value in sink.samples(source) if value is not None}
            assert found["late"] == 41, "the last poll came after the last add"
            assert found["big"] == 2**63 - 1
            assert artimon.figures()["refused"] == {}

    asyncio.run(run())


def owned(zk: KazooClient, context: str) -> list[Node]:
    """The endpoints whose nodes are of another session than ours, which is where the test puts one in the way."""
    found = []
    for one in nodes(zk, context):
        stat = zk.exists(one.path)
        if stat is not None and stat.ephemeralOwner != zk.client_id[0]:
            found.append(one)
    return found


@pytest.mark.stack
def test_its_node_is_like_any_other_and_comes_back(java: Built, zk: KazooClient, tree: str, tmp_path: Path) -> None:
    """Path, data and answers; deleted by hand, or with its session, it is there again. A second process has another
    instance, and one that replaces a killed one gets its name."""
    first = Application(java, tree, "again", tmp_path / "run")
    first.do("add n 7")
    (node,) = eventually(lambda: nodes(zk, "again"))
    assert node.data["instance"] == "j0"
    assert node.data["pid"] == first.process.pid
    who, values = rows(node.port)
    assert values == {("n", PART): 7} == columns(node.port)[1]
    assert who.birth_ms == node.data["birth_ms"]
    assert who.uuid.hex() == node.uuid.replace("-", "")
    path = node.path
    zk.delete(path)
    eventually(lambda: zk.exists(path))
    transaction = zk.transaction()
    transaction.delete(path)
    transaction.create(path, b"{}", ephemeral=True)
    transaction.commit()
    eventually(lambda: [one.path for one in owned(zk, "again")] == [path])
    second = Application(java, tree, "again", tmp_path / "run")
    second.do("add n 1")
    eventually(lambda: sorted(one.data["instance"] for one in nodes(zk, "again")) == ["j0", "j1"])
    first.kill()
    third = Application(java, tree, "again", tmp_path / "run")
    third.do("add n 1")
    mine = eventually(lambda: [one for one in nodes(zk, "again") if one.data.get("pid") == third.process.pid])
    assert mine[0].data["instance"] == "j0"
    for app in (second, third):
        app.kill()


@pytest.mark.stack
@pytest.mark.slow
def test_a_stopped_zookeeper_does_not_disturb_it(
    java: Built,
    zk: KazooClient,
    tree: str,
    zookeeper_stack: Stack,
    tmp_path: Path,
) -> None:
    app = Application(java, tree, "restart", tmp_path / "run")
    app.do("add n 7")
    (node,) = eventually(lambda: nodes(zk, "restart"))
    zookeeper_stack.stop_part("zookeeper")
    assert app.do("add n 1") == "8"
    assert rows(node.port)[1] == {("n", PART): 8}
    zookeeper_stack.start_part("zookeeper")
    zookeeper_stack.wait_healthy(60)
    eventually(lambda: zk.connected and [one.path for one in nodes(zk, "restart")] == [node.path])
    app.kill()
