"""What the benchmarks of the pipeline compare with: the digest of the load is that of the rows in files, and the lag of
a batch is counted once, when the table shows it."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pyarrow.parquet as pq

from artimon.model.batch import BatchId
from artimon.model.codec import decode_columns, encode_samples
from artimon.model.ranges import LaneId, LaneRanges
from benchmarks.lag import Waiting
from benchmarks.loads.samples import SERIES_A_SOURCE, Expected, Source, number_of
from pipeline.compaction.digest import digest
from pipeline.spark import rows
from pipeline.spark.state import RawState

NOW = 1_795_000_000_000


def test_digest_of_the_load_is_that_of_its_files() -> None:
    generator = np.random.default_rng(3)
    expected, parts = Expected(), []
    for number in (4, 2):
        source = Source(number, generator, NOW - 60_000)
        assert number_of(source.name) == number
        polled = source.poll(NOW)
        batch = encode_samples(BatchId("a", 1, 0, number), source.name, source.endpoint, NOW, NOW, "default", polled)
        expected.add(number, polled, len(batch.data))
        parts.append(rows.Part(number, NOW, decode_columns(batch.header, batch.data)))
    data, count, _ = rows.to_file(parts)
    (read,) = pq.read_table(BytesIO(data)).combine_chunks().to_batches()
    assert count == expected.samples == 2 * SERIES_A_SOURCE
    assert digest(read) == expected.digest


def state(**seen: int) -> RawState:
    lanes = LaneRanges()
    for agent, until in seen.items():
        lanes.add_range(LaneId(agent, 9, 1), 0, until)
    return RawState(lanes={0: lanes})


def test_a_batch_is_as_old_as_when_it_is_first_shown() -> None:
    waiting = Waiting()
    for poll_ms in (100, 200, 300):
        waiting.add("a", 1, poll_ms)
    waiting.show(state(a=2), 1000)
    waiting.show(state(a=2, other=5), 5000)
    assert waiting.lags_ms == [900, 800]
    waiting.show(state(a=3), 6000)
    assert waiting.lags_ms == [900, 800, 5700]
    assert waiting.batches == 3
