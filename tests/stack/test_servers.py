"""The real servers under `artimon up`: up, used, one killed, all gone at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest
from hdfs_native import Client
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kazoo.client import KazooClient

from artimon.stack.stack import Stack
from artimon.stack.stack_state import read_state
from artimon.stack.topics import TOPICS, make_topics
from tests.stack.fakes import gone
from tests.waiting import eventually

pytestmark = pytest.mark.stack
BASE_PORT = 25_000


def artimon(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "artimon.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_zookeeper_keeps_its_nodes_through_a_kill(zookeeper_stack: Stack) -> None:
    path = f"/test-{uuid.uuid4()}"
    client = KazooClient(zookeeper_stack.zookeeper)
    client.start(timeout=60)
    client.create(path, b"kept")
    client.stop()
    assert zookeeper_stack.kill("zookeeper")
    zookeeper_stack.wait_healthy(60)
    client = KazooClient(zookeeper_stack.zookeeper)
    client.start(timeout=60)
    assert client.get(path)[0] == b"kept"
    client.stop()


def test_kafka_keeps_what_it_was_given_through_a_kill(kafka_stack: Stack) -> None:
    producer = KafkaProducer(bootstrap_servers=kafka_stack.kafka, acks="all")
    offset = producer.send("artimon.events", b"kept", partition=2).get(20).offset
    producer.close()
    assert kafka_stack.kill("kafka")
    kafka_stack.wait_healthy(60)
    assert make_topics(kafka_stack.kafka) == []  # all are there
    consumer = KafkaConsumer(bootstrap_servers=kafka_stack.kafka)
    place = TopicPartition("artimon.events", 2)
    consumer.assign([place])
    consumer.seek(place, offset)
    found: list[bytes] = []

    def read() -> bool:
        found.extend(record.value for records in consumer.poll(500).values() for record in records)
        return bool(found)

    eventually(read, "the message")
    assert found == [b"kept"]
    assert all(len(consumer.partitions_for_topic(topic.name) or ()) == topic.partitions for topic in TOPICS)
    consumer.close()


def test_hdfs_keeps_its_files_through_a_kill_of_both_servers(hdfs_stack: Stack) -> None:
    path = f"/test-{uuid.uuid4()}"
    with Client(hdfs_stack.hdfs).create(path) as file:
        file.write(b"kept" * 1000)
    hdfs_stack.kill("namenode")
    hdfs_stack.kill("datanode")
    hdfs_stack.wait_healthy(90)
    with Client(hdfs_stack.hdfs).read(path) as file:
        assert file.read() == b"kept" * 1000


def test_up_status_env_down(tmp_path: Path) -> None:
    data = ("--data", tmp_path / "data")
    up = artimon("up", *data, "--parts", "zookeeper", "--base-port", str(BASE_PORT), "--detach")
    assert up.returncode == 0, up.stderr
    try:
        status = artimon("status", "--json", *data)
        assert status.returncode == 0, status.stdout
        report = json.loads(status.stdout)
        env = artimon("env", *data).stdout
        assert f"export ARTIMON_ZOOKEEPER={report['addresses']['ARTIMON_ZOOKEEPER']}" in env
        again = artimon("up", *data, "--parts", "zookeeper")
        assert again.returncode == 1
        assert "already runs" in again.stderr
        doctor = json.loads(artimon("doctor", "--json", *data).stdout)
        marks = {check["name"]: check["mark"] for check in doctor["checks"]}
        assert marks["part zookeeper"] == marks["zookeeper"] == "good"
        assert "zookeeper" in artimon("logs", "nothing", *data).stderr
    finally:
        down = artimon("down", *data)
    assert down.returncode == 0, down.stderr
    assert all(gone(part["pid"]) for part in report["parts"])
    assert artimon("status", *data).returncode == 1


def test_nothing_outlives_up_that_was_killed_and_the_next_one_starts(tmp_path: Path) -> None:
    data = ("--data", tmp_path, "--parts", "zookeeper", "--base-port", str(BASE_PORT))
    for number in (signal.SIGKILL, signal.SIGINT):
        command = [sys.executable, "-m", "artimon.cli", "up", *map(str, data)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            pid = process.pid

            def healthy(supervisor: int = pid) -> bool:
                state = read_state(tmp_path)
                return state is not None and state.pid == supervisor and state.parts[0].state == "healthy"

            eventually(healthy, "health")
            state = read_state(tmp_path)
            assert state is not None
            os.kill(process.pid, number)
            code = process.wait(timeout=60)
        eventually(lambda left=state: gone(left.parts[0].pid) and gone(left.guard_pid), "the end of all")  # type: ignore[misc]
        assert code == (0 if number == signal.SIGINT else -signal.SIGKILL)


def test_a_taken_port_is_passed_over(tmp_path: Path, zookeeper_stack: Stack) -> None:
    taken = zookeeper_stack.context.port("zookeeper.client")
    with Stack(tmp_path, ["zookeeper"], base_port=taken) as stack:
        assert stack.context.port("zookeeper.client") > taken
        assert psutil.pid_exists(stack.pid("zookeeper"))
