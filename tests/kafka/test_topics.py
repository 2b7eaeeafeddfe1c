"""Required configuration of topics, reports of differences, and processes that refuse a wrong topic."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Sequence
from dataclasses import replace

import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from artimon.model.ack_state import Position
from artimon.model.clock import ManualClock
from artimon.model.topic_spec import Difference, ExistingTopic, TopicSpec, differences, missing_topic, platform_topics
from artimon.runtime.topic_check import (
    UNFIT_EXIT,
    TopicCheck,
    TopicsUnfitError,
    TopicsUnknownError,
    check_required_topics,
    check_topics,
    describe_topics,
    open_admin,
    required_topics,
)
from artimon.stack.topics import TopicError, make_topics, migrate_samples
from pipeline.collector.kafka_writer import KafkaMessage, KafkaWriter
from tests.waiting import eventually

SAMPLES = platform_topics(replication=3)[0]
GOOD = ExistingTopic("artimon.samples", 8, dict.fromkeys(range(8), (1, 2, 3)), dict(SAMPLES.config))


def changed(**more: str) -> ExistingTopic:
    return replace(GOOD, config={**GOOD.config, **{name.replace("_", "."): value for name, value in more.items()}})


def test_a_topic_as_it_must_be_has_no_differences() -> None:
    assert differences(SAMPLES, GOOD, "b:1") == []
    assert differences(SAMPLES, changed(max_message_bytes="9000000", min_insync_replicas="3"), "b:1") == []


@pytest.mark.parametrize(
    ("found", "words", "command", "vital"),
    [
        (changed(message_timestamp_type="CreateTime"), "append time decides", "--add-config message.timestamp", True),
        (changed(max_message_bytes="1000"), "it must be 1048576", "--add-config max.message.bytes=[1048576]", True),
        (changed(cleanup_policy="compact"), "compaction of samples would lose them", "cleanup.policy=[delete]", True),
        (changed(retention_ms="1"), "retention.ms is 1, it must be -1", "retention.ms=[-1]", False),
        (changed(min_insync_replicas="1"), "min.insync.replicas is 1, it must be 2", "min.insync.replicas=[2]", False),
        (changed(min_insync_replicas="4"), "nothing can be written", "min.insync.replicas=2", True),
        (
            replace(GOOD, replicas=dict.fromkeys(range(8), (1,)), config={**GOOD.config, "min.insync.replicas": "1"}),
            "a lost disk may lose data",
            '"replicas": [1, "BROKER", "BROKER"]',
            False,
        ),
        (
            replace(GOOD, partitions=16),
            "it has 16 partitions, 8 are configured",
            "artimon topics grow --partitions 8",
            False,
        ),
    ],
)
def test_each_difference_names_what_mends_it(found: ExistingTopic, words: str, command: str, vital: bool) -> None:
    told = differences(SAMPLES, found, "b:1")
    assert any(words in one.text and command in one.command and one.vital == vital for one in told), told


@pytest.fixture
def prefix(kafka: str) -> str:
    """Topics of one's own, as the platform makes them."""
    made = f"t{uuid.uuid4().hex[:12]}"
    make_topics(kafka, platform_topics(made, 3))
    return made


def alter(kafka: str, topic: str, **config: str) -> None:
    admin = open_admin(kafka)
    plain = {name.replace("_", "."): value for name, value in config.items()}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=plain)])

    def told() -> bool:
        real = describe_topics(admin, [topic])[topic].config
        return all(real.get(name) == value for name, value in plain.items())

    eventually(told, f"{topic} is altered")
    admin.close()


def artimon(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "artimon.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.stack
def test_the_commands_make_check_and_name_what_is_wrong(kafka: str) -> None:
    name = f"t{uuid.uuid4().hex[:12]}"
    place = ("--kafka", kafka, "--prefix", name)
    done = artimon("topics", "check", *place, "--json")
    assert (done.returncode, [one["text"] for one in json.loads(done.stdout)]) == (1, ["it does not exist"] * 5)
    done = artimon("topics", "create", *place, "--partitions", "3")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 5), done.stderr
    assert artimon("topics", "create", *place).stdout == "all topics exist\n"
    done = artimon("topics", "check", *place)
    assert (done.returncode, done.stderr) == (0, "all topics are set correctly\n")
    alter(kafka, f"{name}.samples", message_timestamp_type="CreateTime")
    done = artimon("topics", "check", *place)
    assert done.returncode == 1
    assert "must be changed: " in done.stdout
    assert f"kafka-configs.sh --bootstrap-server {kafka} --alter --entity-type topics" in done.stdout


@pytest.mark.stack
def test_kafka_that_is_away_is_told_from_topics_that_are_wrong() -> None:
    done = artimon("topics", "check", "--kafka", "127.0.0.1:1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Kafka at 127.0.0.1:1 does not answer" in done.stderr


@pytest.mark.stack
@pytest.mark.parametrize("process", ["collector", "shard"])
def test_a_process_ends_with_a_message_and_a_code(kafka: str, zookeeper: str, prefix: str, process: str) -> None:
    program = f"""
import threading
from artimon.cli import process_wiring
from pipeline.collector.collector_process import CollectorConfig, run_collector
from varstore.shard_process import ShardConfig, run_shard
stop = threading.Event()
with process_wiring.check_topics_or_exit(stop):
    if {process!r} == "collector":
        run_collector(CollectorConfig({prefix!r}, {zookeeper!r}, {kafka!r}, topic_prefix={prefix!r}), stop)
    else:
        zookeeper = {zookeeper!r} + "/{prefix}"
        run_shard(ShardConfig("0", ["0"], zookeeper, {kafka!r}, topic_prefix={prefix!r}, capacity=1000), stop)
"""
    alter(kafka, f"{prefix}.samples", message_timestamp_type="CreateTime")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == UNFIT_EXIT, done.stderr
    assert "append time decides what is late" in done.stderr
    assert "--add-config message.timestamp.type=[LogAppendTime]" in done.stderr


@pytest.mark.stack
def test_a_check_waits_for_topics_and_is_satisfied(kafka: str) -> None:
    name = f"t{uuid.uuid4().hex[:12]}"
    check, stop = TopicCheck(kafka, required_topics(name, ("samples",)), ManualClock()), threading.Event()
    thread = threading.Thread(target=check.run, args=(stop,))
    thread.start()
    eventually(lambda: "it does not exist" in check.problem, "it says what it waits for")
    make_topics(kafka, platform_topics(name, 2))
    thread.join(60)
    assert not thread.is_alive()
    assert check.problem == ""
    check.raise_unfit()


def test_a_check_asks_again_while_kafka_is_away() -> None:
    answers = iter([[], [missing_topic("t")], [Difference("t", "wrong", "mend it", True), missing_topic("u")]])

    def ask(_bootstrap: str, _topics: Sequence[TopicSpec]) -> list[Difference]:
        answer: list[Difference] = next(answers)
        if not answer:
            raise TopicsUnknownError("away")
        return answer

    check = TopicCheck("b:1", (), ManualClock(), ask)
    check.run(threading.Event())
    with pytest.raises(TopicsUnfitError, match="topic t: wrong; fix: mend it"):
        check.raise_unfit()


@pytest.mark.stack
def test_a_topic_grows_into_its_next_generation(kafka: str, prefix: str) -> None:
    name = f"{prefix}.samples"
    alter(kafka, name, segment_bytes="2000000")
    assert migrate_samples(kafka, prefix, 5) == (name, f"{name}.2")
    admin = open_admin(kafka)
    found = describe_topics(admin, [name, f"{name}.2"])
    admin.close()
    assert (found[f"{name}.2"].partitions, found[f"{name}.2"].config["segment.bytes"]) == (5, "2000000")
    assert found[name].config["max.message.bytes"] == "0"
    assert migrate_samples(kafka, prefix, 5) == (name, f"{name}.2"), "a repeat makes nothing more"
    assert check_topics(kafka, platform_topics(prefix, 0)) == [], "the newest generation is checked"
    check_required_topics(kafka, required_topics(prefix, ("samples",)))
    with pytest.raises(TopicError, match="use 1 to 1024"):
        migrate_samples(kafka, prefix, 0)
    with pytest.raises(TopicError, match="does not exist: create it with"):
        migrate_samples(kafka, f"{prefix}none", 5)


@pytest.mark.stack
def test_a_collector_moves_over_and_writes_nothing_where_it_was_not_counted(kafka: str, prefix: str) -> None:
    name = f"{prefix}.samples"
    broker = KafkaWriter(kafka)
    before = broker.describe_topic(name)
    assert isinstance(broker.write([KafkaMessage(name, 0, b"x", None, before.topic_id)])[0], Position)
    migrate_samples(kafka, prefix, 5)

    def moved() -> bool:
        """Batches counted in the old topic are refused by its leaders, or by the broker once it knows the new one."""
        (result,) = broker.write([KafkaMessage(name, 0, b"x", None, before.topic_id)])
        assert isinstance(result, str)
        return broker.describe_topic(name).topic_id != before.topic_id

    eventually(moved, "the new topic is known")
    after = broker.describe_topic(name)
    assert (after.name, after.partitions) == (f"{name}.2", 5)
    (stands,) = broker.write([KafkaMessage(name, 4, b"x", None, after.topic_id)])
    assert isinstance(stands, Position)
    assert (stands.topic_id, stands.partition, stands.offset) == (after.topic_id, 4, 0)
    assert [one.name for one in broker.generations(name)] == [name, f"{name}.2"]
    eventually(lambda: len(broker.log_sizes(name).partitions) == 8, "what the old topic still holds counts")
    assert min(broker.log_sizes(name).partitions) < 0
    broker.close()


@pytest.mark.stack
def test_a_broker_that_left_does_not_hide_the_sizes_of_the_others(kafka: str, prefix: str) -> None:
    name = f"{prefix}.samples"
    broker = KafkaWriter(kafka)
    known = broker.describe_topic(name)
    broker._topics[name] = replace(known, nodes=(*known.nodes, 99))
    assert len(broker.log_sizes(name).partitions) == 3
    broker.close()
