"""The buckets query without Spark: the same bookkeeping and the same tasks over a log that is a list."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from artimon.model.batch import BatchId, Samples
from artimon.model.batch_codec import encode_samples
from artimon.model.hash_routing import partition_of
from artimon.model.select import Buckets, SelectRequest
from artimon.rawtable.table_state import Epochs, Span
from bookkeeper.rpc.framed_server import FramedServer
from pipeline.control.shard_directory import ShardInfo as Live
from pipeline.spark.buckets_query import BucketsRun
from pipeline.spark.feed_task import FeedPlan, FeedResult, feed_records
from pipeline.spark.raw_task import KafkaRecord
from pipeline.spark.topic_client import TopicInfo
from tests.varstore.worlds import Row, TestBatch, range_of
from varstore.cluster.cluster_directory import ShardAddress
from varstore.shard.shard import Shard
from varstore.shard.shard_service import ShardService, idl

PARTITIONS = 3
TOPIC_ID = "topic-one"
NOW = 1_800_000_000_000
MiB = 1 << 20


class Log:
    """A topic of samples, one lane per agent, and the batches that any number of readers must find in it."""

    def __init__(self, partitions: int = PARTITIONS) -> None:
        self.records: dict[int, list[KafkaRecord]] = {p: [] for p in range(partitions)}
        self.batches: dict[int, list[TestBatch]] = {p: [] for p in range(partitions)}
        self.starts = dict.fromkeys(range(partitions), 0)
        self.leaders: dict[int, Epochs] = dict.fromkeys(range(partitions), ((0, 0),))
        self._sequence: dict[str, int] = {}

    def send(self, agent: str, source: str, rows: Sequence[Row], append_ms: int = NOW, copies: int = 1) -> bytes:
        """Send one batch, `copies` times."""
        sequence = self._sequence[agent] = self._sequence.get(agent, -1) + 1
        id_ = BatchId(agent, 7, 0, sequence)
        batch = TestBatch(id_, source, append_ms, rows)
        data = encode_samples(id_, source, bytes(16), 0, append_ms, "default", Samples.of(rows)).data
        partition = partition_of(agent, 7, 0, len(self.records))
        for _ in range(copies):
            self.append(partition, data, batch, append_ms)
        return data

    def append(self, partition: int, data: bytes, batch: TestBatch, append_ms: int = NOW) -> None:
        """Append a record, as a broker does."""
        self.records[partition].append(KafkaRecord(len(self.records[partition]), append_ms, data))
        self.batches[partition].append(batch)

    def cut(self, partition: int, offset: int) -> list[KafkaRecord]:
        """Truncate the partition under a new leader and return the records that are lost."""
        self.leaders[partition] = (*self.leaders[partition], (len(self.leaders[partition]), offset))
        gone = self.records[partition][offset:]
        del self.records[partition][offset:]
        del self.batches[partition][offset:]
        return gone

    def ends(self) -> dict[int, int]:
        return {p: len(records) for p, records in self.records.items()}

    # as pipeline.spark.topic_client.TopicClient

    def epochs(self, _info: TopicInfo, _known: Mapping[int, Epochs]) -> dict[int, Epochs]:
        return dict(self.leaders)

    def log_bounds(self, _partitions: int) -> dict[int, Span]:
        return {p: (self.starts[p], end) for p, end in self.ends().items()}

    def read(self, start: Mapping[int, int], end: Mapping[int, int]) -> list[tuple[int, KafkaRecord]]:
        wanted = {p: slice(max(at, self.starts[p]), end[p]) for p, at in sorted(start.items())}
        return [(p, record) for p, those in wanted.items() for record in self.records[p][those]]


class FedShard:
    """A real shard that listens on a real port."""

    def __init__(self, id_: str, vshards: int, capacity: int = 2_000) -> None:
        self.id, self.shard = id_, Shard(id_, capacity=capacity, owned=frozenset())
        if vshards:
            self.shard.adopt(vshards)
        self.server = FramedServer(idl().Shard, ShardService(self.shard), max_frame=64 * MiB)
        self.port = self.server.start()
        self.incarnation = f"{random.getrandbits(64):x}"

    def live(self) -> Live:
        """Return its registration."""
        return Live(self.id, "127.0.0.1", self.port, self.incarnation, self.shard.vshards)

    def place(self) -> ShardAddress:
        return ShardAddress(self.id, "127.0.0.1", self.port, self.incarnation, self.shard.vshards, self.shard.vshards)

    def close(self) -> None:
        self.server.stop(0.2)


class Shards:
    """Stand-in for `pipeline.control.shard_directory.ShardDirectory`, of shards in this process."""

    def __init__(self, shards: dict[str, FedShard]) -> None:
        self.shards = shards

    def live_shards(self) -> dict[str, Live]:
        return {id_: shard.live() for id_, shard in self.shards.items()}


class Feed(BucketsRun):
    """One run of the query, driven by hand."""

    def __init__(self, log: Log, directory: Any, topic_id: str = TOPIC_ID) -> None:
        self.log = log
        stand_in: Any = log
        nothing: Any = None
        partitions = len(log.records)
        self.info = TopicInfo("c", "t", topic_id, partitions, dict.fromkeys(range(partitions), 0))
        super().__init__(nothing, nothing, directory, stand_in, self.info)
        self.ask_all()
        self.at = dict(self.start_offsets())

    def micro_batch(self) -> None:
        """Feed everything that the log has beyond the position of the query."""
        start, end = dict(self.at), self.log.ends()
        self.feed_next(lambda plan: list(feed_records(plan, self.log.read(start, end))))
        self.at = end

    def read_again(self, plan: FeedPlan, start: Mapping[int, int], end: Mapping[int, int]) -> list[FeedResult]:
        return list(feed_records(plan, self.log.read(start, end)))

    def settle(self) -> None:
        """Feed until no shard lags."""
        self.check_shards()
        self.micro_batch()
        for _ in range(50):
            if not self.help_laggards() and not self.progress.changed() and not self.progress.cohorts():
                return
        raise AssertionError(f"the feed does not settle: {self.progress.figures(0)}")


def reference(log: Log, capacity: int = 2_000) -> Shard:
    """Return one shard that was fed everything."""
    shard = Shard("reference", capacity=capacity)
    for partition, batches in log.batches.items():
        shard.feed(range_of(batches, 0, len(batches), partition))
    return shard


def table(parts: Sequence[Buckets], request: SelectRequest) -> dict[int, dict[str, list[int]]]:
    """Return every series with all of its cells that have a meaning; a series in two parts is an error."""
    found: dict[int, dict[str, list[int]]] = {}
    for part in parts:
        counts = part.statistics["count"] > 0
        for row, series in enumerate(part.series):
            assert series.fingerprint not in found, f"{series} stands in two answers"
            held = counts[row]
            cells = {name: part.statistics[name][row][held].tolist() for name in request.statistics}
            cells["lives"] = [tuple(life)[1:] for life in part.births.tolist() if life[0] == row]
            cells["at"] = held.nonzero()[0].tolist()
            found[series.fingerprint] = cells
    return found
