"""Real gunicorn and Celery: every process is an endpoint, keeps its `instance`, and loses nothing at its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.bookkeeper.polling import REPOSITORY, Node, nodes, rows
from tests.programs import require
from tests.sockets import free_port
from tests.sources.helpers import registry
from tests.waiting import eventually

pytestmark = pytest.mark.stack
GUNICORN = "served"
CELERY = "tasks"
Values = dict[tuple[str, str], Any]


@contextmanager
def program(command: list[str], folder: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server and all that it starts, in a group of its own, which does not outlive the block."""
    variables = {**os.environ, "PYTHONPATH": str(REPOSITORY), "ARTIMON_RUN": str(folder / "run"), **environment}
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=variables, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


@pytest.fixture
def zk(tree: str) -> Iterator[KazooClient]:
    with registry(tree) as client:
        yield client


def get(port: int) -> int:
    """Return the process that answered; 0 if none did."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20) as answer:
            return int(answer.read())
    except OSError:
        return 0


def started(zk: KazooClient, context: str, count: int) -> list[Node]:
    """The nodes of so many processes, once they are there."""

    def found() -> list[Node]:
        there = nodes(zk, context)
        return there if len(there) == count else []

    return eventually(found, f"{count} processes of {context}")


def polled(found: list[Node]) -> dict[int, Values]:
    """Process id -> values."""
    return {node.data["pid"]: rows(node.port)[1] for node in found}


def instances(zk: KazooClient, context: str) -> list[str]:
    return sorted(node.data["instance"] for node in nodes(zk, context))


def total(values: list[Values], name: str, labels: str = "{}") -> int:
    return sum(one.get((name, labels), 0) for one in values)


class Ended:
    """Polls processes that leave until each has told its last values."""

    def __init__(self, zk: KazooClient, context: str) -> None:
        self._zk, self._context = zk, context
        self.values: dict[int, Values] = {}

    def await_end_of(self, leaving: list[Node]) -> None:
        """Each process withdraws its node, then serves one more poll; without ours it would wait 5 s."""
        left = {node.path: node for node in leaving}

        def step() -> bool:
            there = {node.path for node in nodes(self._zk, self._context)}
            for name in [name for name in left if name not in there]:
                node = left.pop(name)
                self.values[node.data["pid"]] = rows(node.port)[1]
            return not left

        eventually(step, "the last polls", pause=0.05)


def test_gunicorns_workers(zk: KazooClient, tree: str, tmp_path: Path) -> None:
    """Three workers are three endpoints before the first request. All requests are counted once, also those of a
    worker that is ended and of all at the end; who comes for an ended worker has its instance."""
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "-w", "3", "-b", f"127.0.0.1:{port}"]
    command += ["-c", f"{REPOSITORY}/tests/integrations/gunicorn_settings.py", "tests.integrations.served:application"]
    with program(command, tmp_path, ARTIMON_ZOOKEEPER=tree, ARTIMON_CONTEXT=GUNICORN) as master:
        first = started(zk, GUNICORN, 3)
        assert instances(zk, GUNICORN) == ["0", "1", "2"]
        assert len({node.port for node in first}) == len({node.uuid for node in first}) == 3
        answered = [pid for _ in range(60) if (pid := get(port))]
        values = polled(first)
        assert set(answered) <= set(values)
        for pid, mine in values.items():
            assert mine.get(("served.answers", "{}"), 0) == answered.count(pid)
        one, ended = first[1], Ended(zk, GUNICORN)
        os.kill(one.data["pid"], signal.SIGTERM)
        ended.await_end_of([one])
        assert ended.values[one.data["pid"]].get(("served.answers", "{}"), 0) == answered.count(one.data["pid"])
        pids = {node.data["pid"] for node in first}
        again = eventually(lambda: [node for node in nodes(zk, GUNICORN) if node.data["pid"] not in pids])
        assert again[0].data["instance"] == one.data["instance"]
        assert instances(zk, GUNICORN) == ["0", "1", "2"]
        answered += [pid for _ in range(60) if (pid := get(port))]
        leaving = nodes(zk, GUNICORN)
        master.terminate()
        ended.await_end_of(leaving)
        everything = list(ended.values.values())
        assert total(everything, "served.answers") == len(answered) == 120
        counted = [value for one in everything for (name, _), value in one.items() if name == "http.requests"]
        assert sum(counted) == 120
        assert master.wait(60) == 0
    assert nodes(zk, GUNICORN) == []


def uwsgi(port: int) -> tuple[list[str], dict[str, str]]:
    """The command of Debian's uWSGI, and its environment; its Python must be of our version."""
    found = require("uwsgi")
    root = found.path.parents[2]
    plugins, plugin = root / "usr/lib/uwsgi/plugins", f"python3{sys.version_info.minor}"
    if not (plugins / f"{plugin}_plugin.so").exists():
        pytest.skip(f"Debian's uWSGI here has no plugin for Python 3.{sys.version_info.minor}")
    home = {"PYTHONHOME": str(root / "usr")} if (root / f"usr/lib/python3.{sys.version_info.minor}").is_dir() else {}
    command = [
        str(found.path),
        "--plugins-dir",
        str(plugins),
        "--plugin",
        f"http,{plugin}",
        "--master",
        "--die-on-term",
    ]
    command += ["--http", f"127.0.0.1:{port}", "--processes", "3", "--enable-threads", "--worker-reload-mercy", "60"]
    return [*command, "--module", "tests.integrations.served"], {**found.environment, **home}


@pytest.mark.slow
def test_uwsgis_workers(zk: KazooClient, tree: str, tmp_path: Path) -> None:
    """As gunicorn's, though uWSGI forks a process that has loaded the application, and without a word to Python."""
    port = free_port()
    command, environment = uwsgi(port)
    environment["PYTHONPATH"] = f"{REPOSITORY}:{sysconfig.get_paths()['purelib']}"
    settings = {"ARTIMON_ZOOKEEPER": tree, "ARTIMON_CONTEXT": "uwsgi"}
    with program(command, tmp_path, **settings, **environment) as master:
        first = started(zk, "uwsgi", 3)
        assert instances(zk, "uwsgi") == ["0", "1", "2"]
        assert master.pid not in {node.data["pid"] for node in first}
        answered = [pid for _ in range(60) if (pid := get(port))]
        for pid, mine in polled(first).items():
            assert mine.get(("served.answers", "{}"), 0) == answered.count(pid)
        one, ended = first[1], Ended(zk, "uwsgi")
        os.kill(one.data["pid"], signal.SIGHUP)
        ended.await_end_of([one])
        pids = {node.data["pid"] for node in first}
        (again,) = eventually(lambda: [node for node in nodes(zk, "uwsgi") if node.data["pid"] not in pids])
        assert again.data["instance"] == one.data["instance"]
        answered += [pid for _ in range(60) if (pid := get(port))]
        leaving = started(zk, "uwsgi", 3)
        master.terminate()
        ended.await_end_of(leaving)
        assert total(list(ended.values.values()), "served.answers") == len(answered) == 120


def send(folder: Path, **counts: int) -> None:
    """Tasks into the broker, from a program of their own; moved there whole, or a worker may read half a message."""
    (folder / "sender" / "messages").mkdir(parents=True)
    script = "from tests.integrations import tasks\n"
    script += "".join(f"for _ in range({count}): tasks.{name}.delay()\n" for name, count in counts.items())
    script += "tasks.fine.apply_async(expires=-1)\n"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "ARTIMON_DISABLED": "1"}
    environment["TASKS_FOLDER"] = str(folder / "sender")
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=60)
    for message in (folder / "sender" / "messages").iterdir():
        message.rename(folder / "messages" / message.name)


def test_celerys_pool(zk: KazooClient, tree: str, tmp_path: Path) -> None:
    """Two processes of the pool are two endpoints before the first task. Every end of a task is counted with its
    state, and the last ones are handed over when the worker is told to end."""
    (tmp_path / "messages").mkdir()
    command = [sys.executable, "-m", "celery", "-A", "tests.integrations.tasks", "worker", "--pool", "prefork"]
    command += ["-c", "2", "--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR"]
    settings = {"ARTIMON_ZOOKEEPER": tree, "ARTIMON_CONTEXT": CELERY, "TASKS_FOLDER": str(tmp_path)}
    with program(command, tmp_path, **settings) as worker:
        pool = started(zk, CELERY, 2)
        assert instances(zk, CELERY) == ["0", "1"]
        send(tmp_path, fine=12, broken=3)

        def states() -> dict[str, int]:
            values = list(polled(pool).values())
            keys = {key for one in values for key in one if key[0] == "celery.tasks"}
            return {labels: total(values, "celery.tasks", labels) for _, labels in keys}

        expected = {
            '{"state": "SUCCESS", "task": "tests.fine"}': 12,
            '{"state": "FAILURE", "task": "tests.broken"}': 3,
        }
        eventually(lambda: states() == expected, "all tasks")
        mains = eventually(lambda: [node for node in nodes(zk, CELERY) if node.data["pid"] == worker.pid])
        late = '{"state": "REVOKED", "task": "tests.fine"}'
        assert rows(mains[0].port)[1]["celery.tasks", late] == 1, "it was too late, which the main process sees"
        ended = Ended(zk, CELERY)
        worker.terminate()
        ended.await_end_of([*pool, *mains])
        values = list(ended.values.values())
        for labels, count in expected.items():
            assert total(values, "celery.tasks", labels) == count
        assert total(values, "celery.task.seconds.count", '{"task": "tests.fine"}') == 12
        assert total(values, "celery.tasks.active") == 0
        assert worker.wait(60) == 0
