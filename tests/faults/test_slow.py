"""Slow is not dead: stopped collectors and brokers (SIGSTOP), and a disk that is full. Ledger = store afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from artimon.model.batch_codec import decode_samples, verify
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.protocols import SinkRefusedError
from artimon.stack.stack import Stack
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from tests.faults.mounts import small_disk
from tests.faults.network import Remote
from tests.pipeline.helpers import MINUTE, polled
from tests.pipeline.kafka_helpers import collector, deduplicated, own_topics
from tests.waiting import eventually

pytestmark = pytest.mark.stack

COLLECTOR = """
import sys, threading
from pipeline.collector.collector_process import CollectorConfig, run_collector
run_collector(CollectorConfig(sys.argv[4], sys.argv[1], sys.argv[2], topic_prefix=sys.argv[3]), threading.Event())
"""
STORM = 4.0
"""Bytes sent, at most, for one byte accepted, however long the silence."""


@contextmanager
def collecting(zookeeper: str, kafka: str, prefix: str, count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start the collectors, each as a process."""
    ids = [f"{prefix}-{number}" for number in range(count)]
    command = [sys.executable, "-c", COLLECTOR, zookeeper, kafka, prefix]
    processes = [subprocess.Popen([*command, id]) for id in ids]
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """It stands still, and nobody is told."""
    subprocess.run(["kill", "-STOP", str(pid)], check=True)
    try:
        yield
    finally:
        subprocess.run(["kill", "-CONT", str(pid)], check=False)


def numbers(kafka: str, prefix: str) -> list[int]:
    stored = deduplicated(kafka, f"{prefix}.samples").values()
    return sorted(int(decode_samples(verify(data), data).time_ms[0]) - MINUTE for data in stored)


def is_proven(agent: Remote, kafka: str, prefix: str, seconds: float) -> None:
    agent.be_quiet()
    eventually(lambda: bool(agent.figures()) and agent.figures()["pending_batches"] == 0, "all are acked", seconds)
    assert numbers(kafka, prefix) == sorted(agent.accepted())
    figures = agent.figures()
    assert figures["carried_bytes"] <= STORM * figures["accepted_bytes"]


def flows(agent: Remote, more: int = 20, seconds: float = 40.0) -> None:
    """Wait until this many further batches are acked."""
    eventually(lambda: "acked_batches" in agent.figures(), "the agent speaks", seconds)
    before = agent.figures()["acked_batches"]
    eventually(lambda: agent.figures()["acked_batches"] >= before + more, "data flows", seconds)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [12.0, 90.0])
def test_of_two_collectors_one_is_stopped(tmp_path: Path, zookeeper: str, kafka: str, seconds: float) -> None:
    """The other takes over within seconds, long before the stopped one is given up."""
    prefix = own_topics(kafka)
    with collecting(zookeeper, kafka, prefix, 2) as processes, Remote(tmp_path, prefix, zookeeper) as agent:
        eventually(lambda: agent.figures().get("collectors", 0) == 2, "both are known")
        flows(agent)
        for process in processes:  # whichever it uses
            began = SYSTEM_CLOCK.monotonic()
            with stopped(process.pid):
                flows(agent, 40, 30.0)
                left = began + seconds / 2 - SYSTEM_CLOCK.monotonic()
                SYSTEM_CLOCK.wait(threading.Event(), max(0.0, left))
                flows(agent, 5, 30.0)
        is_proven(agent, kafka, prefix, 60)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [18.0, 150.0])
def test_the_only_collector_is_stopped(tmp_path: Path, zookeeper: str, kafka: str, seconds: float) -> None:
    """Past the deadline of a call: the agent keeps all of it, and sends it once more, not again and again."""
    prefix = own_topics(kafka)
    with collecting(zookeeper, kafka, prefix, 1) as processes, Remote(tmp_path, prefix, zookeeper) as agent:
        flows(agent)
        with stopped(processes[0].pid):
            SYSTEM_CLOCK.wait(threading.Event(), seconds)
            figures = agent.figures()
            assert figures["pending_batches"] > seconds
            assert figures["calls_unanswered"].get("late", 0) <= 6 * (1 + seconds / 15), "each lane waits its time"
        is_proven(agent, kafka, prefix, 60)


@pytest.mark.parametrize("seconds", [12.0, pytest.param(90.0, marks=pytest.mark.slow)])
def test_the_broker_is_stopped(tmp_path: Path, zookeeper: str, kafka: str, kafka_stack: Stack, seconds: float) -> None:
    """Collectors answer `kafka` or nothing; batches wait in the log and arrive in order once it goes on."""
    prefix = own_topics(kafka)
    with collecting(zookeeper, kafka, prefix, 1), Remote(tmp_path, prefix, zookeeper) as agent:
        flows(agent)
        with stopped(kafka_stack.pid("kafka")):
            SYSTEM_CLOCK.wait(threading.Event(), seconds)
            assert agent.figures()["pending_batches"] > seconds
        is_proven(agent, kafka, prefix, 90)


def test_a_full_disk_refuses_and_keeps_what_it_has(tmp_path: Path, zookeeper: str, kafka: str) -> None:
    """A real small disk: what was accepted before it was full arrives, and once there is room it accepts again."""
    prefix, accepted, number = own_topics(kafka), [], 0
    with small_disk(tmp_path / "small", 3) as disk:
        agent = Agent(AgentConfig(prefix, disk, zookeeper, "kafka", segment_bytes=256 * 1024, topic_prefix=prefix))
        agent.start()
        list(agent.sink.replay())
        try:

            def fill() -> None:
                nonlocal number
                while number < 5_000:
                    number += 1
                    agent.wal_sink.accept_now([polled(f"source-{number % 7}", 200, MINUTE + number)])
                    accepted.append(number)

            with pytest.raises(SinkRefusedError):
                fill()
            assert agent.figures()["pending_batches"] == len(accepted)
            with collector(zookeeper, kafka, prefix):
                eventually(lambda: agent.figures()["pending_batches"] == 0, "what was accepted arrives")

                def takes_again() -> bool:
                    nonlocal number
                    number += 1
                    try:
                        agent.wal_sink.accept_now([polled("source-1", 200, MINUTE + number)])
                    except SinkRefusedError:
                        return False
                    accepted.append(number)
                    return True

                eventually(takes_again, "there is room again")
                eventually(lambda: agent.figures()["pending_batches"] == 0, "the new ones arrive")
        finally:
            agent.stop()
        assert numbers(kafka, prefix) == accepted


def test_sigkill_is_like_any_other_end(tmp_path: Path, zookeeper: str, kafka: str) -> None:
    """An agent killed while its collector is stopped: the next one sends what it finds, under the same identities."""
    prefix = own_topics(kafka)
    with collecting(zookeeper, kafka, prefix, 1) as processes:
        with Remote(tmp_path, prefix, zookeeper) as agent:
            flows(agent)
            with stopped(processes[0].pid):
                before = len(agent.accepted())
                eventually(lambda: len(agent.accepted()) > before + 20, "it accepts")
                agent.process.send_signal(signal.SIGKILL)
                agent.process.wait()
        accepted = set(agent.accepted())
        (tmp_path / "figures").unlink()
        (tmp_path / "quiet").touch()
        with Remote(tmp_path, prefix, zookeeper) as agent:
            eventually(lambda: agent.figures().get("recovering") is False, "it has read its log")
            eventually(lambda: agent.figures()["pending_batches"] == 0, "all are acked")
        stored = numbers(kafka, prefix)
        assert accepted <= set(stored)
        assert len(stored) == len(set(stored)) <= len(accepted) + 1
