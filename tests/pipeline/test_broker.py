"""pipeline.collector.kafka_writer against a real Kafka: offsets, topic ids, order, and timeouts without a broker."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Iterator

import pytest
from kafka.admin import KafkaAdminClient

from artimon.model.ack_state import Position
from artimon.stack.topics import TopicSpec, make_topics
from pipeline.collector.kafka_writer import KafkaMessage, KafkaWriteError, KafkaWriter
from tests.pipeline.kafka_helpers import APPEND_TIME, own_topics, read_topic
from tests.waiting import eventually

pytestmark = pytest.mark.stack


@pytest.fixture
def broker(kafka: str) -> Iterator[KafkaWriter]:
    made = KafkaWriter(kafka)
    yield made
    made.close()


def positions(results: list[Position | str]) -> list[Position]:
    assert all(isinstance(r, Position) for r in results), results
    return [r for r in results if isinstance(r, Position)]


def test_answers_hold_the_offsets_of_the_messages(kafka: str, broker: KafkaWriter) -> None:
    topic = f"{own_topics(kafka)}.samples"
    messages = [KafkaMessage(topic, n % 3, f"value-{n}".encode(), f"k{n}".encode()) for n in range(100)]
    got = positions(broker.write(messages) + broker.write(messages[:10]))
    stored = {(p, o): (k, v) for p, o, k, v in read_topic(kafka, topic)}
    assert len(stored) == 110
    for message, at in zip([*messages, *messages[:10]], got, strict=True):
        assert stored[(at.partition, at.offset)] == (message.key, message.value)
        assert at.partition == message.partition
        assert (at.topic_id, at.cluster) == (
            broker.describe_topic(topic).topic_id,
            broker.describe_topic(topic).cluster,
        )


def test_ids_are_printed_as_kafka_prints_them(kafka: str, broker: KafkaWriter) -> None:
    topic = f"{own_topics(kafka)}.samples"
    info = broker.describe_topic(topic)
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    try:
        described = admin.describe_topics([topic])[0]
        assert uuid.UUID(str(described["topic_id"])) == info.uuid
        assert admin.describe_cluster()["cluster_id"] == info.cluster
    finally:
        admin.close()
    assert len(info.topic_id) == 22
    assert sorted(info.leaders) == [0, 1, 2]


def test_many_messages_for_one_partition_stay_in_order(kafka: str, broker: KafkaWriter) -> None:
    """Several record batches for one partition, with several requests in flight, keep their order."""
    topic = f"{own_topics(kafka)}.samples"
    messages = [KafkaMessage(topic, 1, bytes([n]) * 400_000) for n in range(12)]
    got = positions(broker.write(messages))
    assert [at.offset for at in got] == list(range(12))
    assert [value[0] for _, _, _, value in read_topic(kafka, topic)] == list(range(12))


def test_a_leader_that_was_away_when_the_client_asked_for_metadata(kafka: str, broker: KafkaWriter) -> None:
    """The client asks every five minutes; the description that a failed write asks for is enough."""
    message = KafkaMessage(f"{own_topics(kafka)}.samples", 0, b"x")
    positions(broker.write([message]))
    manager = broker._connected_manager()
    node = broker.describe_topic(message.topic).leaders[0]

    async def forget() -> None:
        known = manager.cluster._brokers
        one = known.pop(node)
        known[node + 1] = type(one)(node + 1, one.host, one.port, one.rack)  # another node is known
        manager.close(node)

    manager.run(forget)
    assert broker.write([message]) == [f"kafka: UnknownBrokerIdError UnknownBrokerIdError: {node}"]
    positions(broker.write([message]))


def test_callers_share_one_broker(kafka: str, broker: KafkaWriter) -> None:
    topic = f"{own_topics(kafka)}.samples"
    results: list[list[Position]] = []

    def write(number: int) -> None:
        results.append(positions(broker.write([KafkaMessage(topic, number % 3, b"x" * 1000)] * 50)))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    offsets = {(at.partition, at.offset) for part in results for at in part}
    assert len(offsets) == 400


def test_a_recreated_topic_is_not_taken_for_the_old_one(kafka: str, broker: KafkaWriter) -> None:
    """The cached topic description is at most a minute old; the broker itself refuses a deleted topic id."""
    topic = f"{own_topics(kafka)}.samples"
    old = positions(broker.write([KafkaMessage(topic, 0, b"old")]))[0]
    admin = KafkaAdminClient(bootstrap_servers=kafka)
    admin.delete_topics([topic])
    eventually(lambda: topic not in admin.list_topics(), "the topic is deleted")
    admin.close()
    make_topics(kafka, (TopicSpec(topic, 3, APPEND_TIME),))
    results: list[Position | str] = []
    refused = 0

    def written() -> bool:
        nonlocal refused
        results[:] = broker.write([KafkaMessage(topic, 0, b"new")])
        refused += isinstance(results[0], str)
        return isinstance(results[0], Position)

    eventually(written, "the new topic takes it")
    assert refused >= 1
    assert positions(results)[0].topic_id != old.topic_id
    assert positions(results)[0].offset == 0


def test_an_unknown_topic_is_named_in_the_error(broker: KafkaWriter) -> None:
    with pytest.raises(KafkaWriteError, match=r"nowhere\.samples"):
        broker.describe_topic("nowhere.samples")


@pytest.mark.parametrize("kind", ["refused", "silent"])
def test_an_unreachable_kafka_is_an_error_within_the_timeout(kind: str) -> None:
    """A port that refuses connections, and one that accepts them and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if kind == "silent":
            listener.listen(8)
        broker = KafkaWriter(f"127.0.0.1:{listener.getsockname()[1]}")
        began = time.monotonic()
        results = broker.write([KafkaMessage("t.samples", 0, b"x")] * 3)
        assert time.monotonic() - began < 40
        assert all(isinstance(r, str) and r.startswith("kafka:") for r in results)
        broker.close()
