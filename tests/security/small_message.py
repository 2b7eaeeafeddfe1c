"""Decoders and one message of 14 KiB that declares 8,000,000 rows, in a process of their own: python -m
tests.security.small_message MESSAGE FEED. Prints what each says and how much its memory grew, in JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from artimon.model.ack_state import Position
from artimon.model.batch import BatchError, BatchId, Samples
from artimon.model.batch_codec import encode_samples
from artimon.model.feed_codec import encode_range
from artimon.model.vshards import ALL_VSHARDS
from bookkeeper.rpc.framed_server import FramedClient, FramedServer
from pipeline.collector.collector import Collector
from pipeline.collector.collector_process import server_of
from pipeline.collector.kafka_writer import TopicDescription
from pipeline.control.shard_directory import ShardGroup
from pipeline.control.shard_directory import ShardInfo as Address
from pipeline.link.idl import collector_idl
from pipeline.spark.feed_task import FeedOutcome, FeedPlan, feed_records
from pipeline.spark.raw_task import KafkaRecord, PartitionReader, RawPlan
from tests.security.attacks import bomb
from tests.varstore.worlds import TOPIC, TestBatch, range_of
from varstore.shard.shard import Shard
from varstore.shard.shard_service import ShardService, idl

NOW = 1_800_000_000_000
GOOD = encode_samples(BatchId("a", 1, 0, 1), "good/h/0", bytes(16), 0, NOW, "", Samples.of([(1, NOW, 0, 5)])).data


class Kafka:
    """Keeps what a collector writes."""

    def __init__(self) -> None:
        self.written: list[Any] = []

    def describe_topic(self, name: str) -> TopicDescription:
        return TopicDescription("c", name, UUID(int=1), {0: 0}, 0.0)

    def write(self, messages: Sequence[Any]) -> list[Any]:
        self.written += messages
        return [Position("c", "t", 0, n) for n in range(len(messages))]


def collector(message: bytes, _: bytes) -> str:
    """Over TCP; the message beside it is written."""
    kafka = Kafka()
    place: Any = SimpleNamespace(id="c", host="127.0.0.1", port=0)
    server = server_of(Collector(kafka), place)
    server.start()
    client = FramedClient(collector_idl().Collector, "127.0.0.1", server.port)
    refused, taken = client.call("send", [message, GOOD], timeout=30.0)
    server.stop(1.0)
    assert taken.ok
    assert [one.value for one in kafka.written] == [GOOD]
    return str(refused.reason)


def raw(message: bytes, _: bytes) -> str:
    """The raw query's reader; its verdict."""
    held: list[Any] = []
    output: Any = SimpleNamespace(append=lambda keep, part: held.append(part))
    none: Any = None
    reader = PartitionReader(RawPlan("", {}, none), output, 0, 0)
    for offset, value in enumerate((message, GOOD)):
        reader.add(KafkaRecord(offset, NOW, value))
    assert [part.source for part in held] == ["good/h/0"]
    return reader.result.dead_letters[0][1]


def buckets(message: bytes, _: bytes) -> str:
    """The buckets query's feeder: an offset without an identity, and the message beside it."""
    sent: list[Any] = []

    def send(shard: Address, range_: Any) -> FeedOutcome:
        sent.append(range_)
        return FeedOutcome(range_.until)

    group = ShardGroup(Address("0", "127.0.0.1", 0, "i"), ALL_VSHARDS)
    calls: Any = SimpleNamespace(send=send, run_concurrently=lambda work: [one() for one in work])
    records = [(0, KafkaRecord(offset, NOW, value)) for offset, value in enumerate((message, GOOD))]
    (result,) = feed_records(FeedPlan("t", (group,)), records, calls)
    assert [entry.id is None for entry in sent[0].entries] == [True, False]
    return f"refused {result.refused}"


def shard(_: bytes, feed: bytes) -> str:
    """A shard over TCP, fed with columns that declare as much; then with a good range."""
    server = FramedServer(idl().Shard, ShardService(Shard(capacity=1_000)), "127.0.0.1", 0)
    server.start()
    client = FramedClient(idl().Shard, "127.0.0.1", server.port)
    batch = TestBatch(BatchId("agent", 1, 0, 0), "s0", NOW, [(1, NOW, NOW, 1)])
    good = encode_range(range_of([batch], 0, 1))
    try:
        client.call("feed", [good[0], feed, good[2]], timeout=30.0)
        answer = "taken"
    except Exception as error:
        answer = str(getattr(error, "message", error))
    assert client.call("feed", good, timeout=30.0).next_offset == 1
    server.stop(1.0)
    assert TOPIC
    return answer


def main(message: bytes, feed: bytes) -> None:
    found: dict[str, Any] = {}
    parts: list[Callable[[bytes, bytes], str]] = [collector, raw, buckets, shard]
    for part in parts:
        part(bomb("bomb/h/0", 100), feed[:100])  # all is loaded
        before = _peak(reset=True)
        try:
            answer = part(message, feed)
        except BatchError as error:
            answer = f"raised {error}"
        found[part.__name__] = [answer, _peak() - before]
    print(json.dumps(found))


def _peak(reset: bool = False) -> int:
    """Most resident bytes since the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


if __name__ == "__main__":
    main(*(Path(argument).read_bytes() for argument in sys.argv[1:]))
