"""Variables of the process and the interpreter, against what the system says; also in a forked child."""

from __future__ import annotations

import gc
import os
import platform
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bookkeeper import Bookkeeper
from bookkeeper.integrations import runtime
from bookkeeper.testing import changes, snapshot
from tests.bookkeeper.polling import application, end, hear

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def book() -> Bookkeeper:
    return Bookkeeper(online=False, strict=True)


@pytest.fixture
def installed(book: Bookkeeper) -> Iterator[runtime.RuntimeVariables]:
    made = runtime.install(book, pauses=True)
    yield made
    made.remove()


@linux
def test_the_system_says_the_same(book: Bookkeeper, installed: runtime.RuntimeVariables) -> None:
    process, found = psutil.Process(), snapshot(book)
    assert found.value("process.started.seconds") == pytest.approx(process.create_time(), abs=2)
    assert found.value("process.memory.resident.bytes") == pytest.approx(process.memory_info().rss, rel=0.3)
    assert found.value("process.memory.virtual.bytes") == pytest.approx(process.memory_info().vms, rel=0.3)
    assert found.value("process.fds.limit") == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert found.value("python.version") == platform.python_version()
    user, system = (found.value("process.cpu.seconds", {"mode": mode}) for mode in ("user", "system"))
    assert user == pytest.approx(process.cpu_times().user, abs=0.5)
    assert system == pytest.approx(process.cpu_times().system, abs=0.5)


COUNTING = """
import threading
from bookkeeper import Bookkeeper
from bookkeeper.integrations import runtime
from bookkeeper.testing import snapshot

book = Bookkeeper(online=False, strict=True)
runtime.install(book)

def added():
    stop = threading.Event()
    before = snapshot(book)
    threads = [threading.Thread(target=stop.wait) for _ in range(3)]
    for thread in threads: thread.start()
    files = [open("/dev/null") for _ in range(5)]
    after = snapshot(book)
    stop.set()
    for thread in threads: thread.join()
    names = "python.threads", "process.threads", "process.fds.open"
    return [after.total(name) - before.total(name) for name in names]

# a thread of the start, or the kernel's part of one that was joined, may end meanwhile
found = [added() for _ in range(5)]
assert [3, 3, 5] in found, found
print("done", flush=True)
"""


@linux
def test_descriptors_and_threads_are_counted(tmp_path: Path) -> None:
    """In a process of its own: threads that other tests left may open and close something meanwhile."""
    process = application(COUNTING, tmp_path, ARTIMON_DISABLED="1")
    assert hear(process) == "done"
    end(process)


def test_collections_are_counted_with_their_time(book: Bookkeeper, installed: runtime.RuntimeVariables) -> None:
    gc.disable()
    try:
        with changes(book) as seen:
            gc.collect()
    finally:
        gc.enable()
    last = {"generation": "2"}
    assert seen.added("python.gc.collections", last) == 1
    assert 0 < seen.added("python.gc.seconds", last) < 10
    kinds = {one.name: one.kind for one in book.collect() if one.name.startswith(("python.gc", "process.cpu"))}
    assert set(kinds.values()) == {"counter"}


def test_nothing_is_read_after_removal(book: Bookkeeper) -> None:
    made = runtime.install(book, pauses=True)
    made.remove()
    assert len(snapshot(book)) == 0
    assert made._on_gc not in gc.callbacks


FORKING = """
import bookkeeper, gc, os
from bookkeeper import testing
from bookkeeper.integrations import runtime
runtime.install()
gc.disable()
for _ in range(20): gc.collect()
last = {"generation": "2"}
assert testing.snapshot().value("python.gc.collections", last) >= 20
pid = os.fork()
if pid == 0:
    gc.collect()
    found = testing.snapshot()
    assert found.value("python.gc.collections", last) == 1, found.value("python.gc.collections", last)
    assert found.value("process.started.seconds") > 0
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert testing.snapshot().value("python.gc.collections", last) >= 20
print("done", flush=True)
"""


@linux
def test_a_forked_child_counts_from_its_birth(tmp_path: Path) -> None:
    """The interpreter's own counts go on in a child; added up over processes they would count the parent's twice."""
    process = application(FORKING, tmp_path, ARTIMON_DISABLED="1")
    assert hear(process) == "done"
    end(process)
    assert os.getpid()
