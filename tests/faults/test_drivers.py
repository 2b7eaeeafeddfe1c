"""Drivers of the raw query under load: without their checkpoint, two at once, asleep, and never told what became of a
commit."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from artimon.model.clock import SYSTEM_CLOCK
from tests.faults.conftest import Scale
from tests.faults.namenode_proxy import NameNodeProxy
from tests.faults.world import SECOND, World
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.stack, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def proxy() -> Iterator[NameNodeProxy]:
    made = NameNodeProxy()
    yield made
    made.close()


@pytest.fixture(scope="module")
def proxied(folder: Path, load_options: dict[str, str], proxy: NameNodeProxy) -> Iterator[World]:
    made = World(folder, load_options, proxy=proxy.port)
    made.on_ports = lambda ports: proxy.aim(ports["namenode.rpc"])
    with made:
        yield made


@contextmanager
def under_load(proxied: World) -> Iterator[None]:
    """The load produces, the table grows; afterwards it holds exactly what was accepted."""
    proxied.produce()
    proxied.wait_appends(2)
    yield
    proxied.wait_appends(2)
    print(f"# {proxied.prove()}", flush=True)


def test_checkpoint_deleted_under_load(proxied: World) -> None:
    checkpoints = proxied.stack.data / "spark" / "checkpoints"
    with under_load(proxied):
        for _ in range(3):
            folders = list(checkpoints.iterdir())
            assert folders
            for one in folders:
                shutil.rmtree(one, ignore_errors=True)
            proxied.wait_appends(2)


def test_two_drivers_at_once(proxied: World, scale: Scale) -> None:
    with under_load(proxied), second_driver(proxied):
        before = proxied.append()
        SYSTEM_CLOCK.wait(threading.Event(), scale.both_s)
        eventually(lambda: max(proxied.append(), proxied.append(SECOND)) > before + 2, "the table grows", 300)


def test_a_driver_that_slept_while_another_appended(proxied: World) -> None:
    with under_load(proxied):
        done = proxied.order("spark", "written", "stop")
        eventually(done.exists, "the driver stopped before its commit")
        asleep = proxied.stack.pid("spark")
        signal_session(asleep, signal.SIGSTOP)
        try:
            with second_driver(proxied):
                head = proxied.append()
                eventually(lambda: proxied.append(SECOND) >= head + 2, "the other appends", 300)
        finally:
            signal_session(asleep, signal.SIGCONT)
        assert proxied.stack.pid("spark") == asleep


@pytest.mark.parametrize("requests", [False, True], ids=["answer", "request"])
def test_a_commit_whose_answer_or_request_is_lost(proxied: World, proxy: NameNodeProxy, requests: bool) -> None:
    with under_load(proxied):
        for _ in range(3):
            lose_one(proxy, requests)
            proxied.wait_appends(2)


def lose_one(proxy: NameNodeProxy, request: bool) -> None:
    """The next commit; returns when it has happened."""
    before = proxy.lost_answers + proxy.lost_requests
    proxy.lose(1, request)
    eventually(lambda: proxy.lost_answers + proxy.lost_requests > before, "a commit is lost")


@contextmanager
def second_driver(proxied: World) -> Iterator[None]:
    """Another Spark application on the same table."""
    proxied.stack.start_part(SECOND)
    try:
        proxied.stack.wait_healthy(240, [SECOND])
        yield
    finally:
        proxied.stack.stop_part(SECOND)


def signal_session(leader: int, number: int) -> None:
    """A signal to a process and to everything that it started."""
    for pid in psutil.pids():
        try:
            if os.getsid(pid) == leader:
                os.kill(pid, number)
        except OSError:
            continue
