"""Loads of the pipeline benchmarks: digests and values are compared with the load, polls have the product's phases, and
the lag of a batch is counted once."""

from __future__ import annotations

import time
from io import BytesIO
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pyarrow.parquet as pq
import pytest

from alerts.rules.rule_file import parse_rules
from artimon.model.batch import BatchId
from artimon.model.batch_codec import encode_samples
from artimon.model.feed_codec import FeedEntry, FeedRange
from artimon.model.grid import DEFAULT_LEVELS
from artimon.model.labels import canonical
from artimon.model.ranges import LaneId, LaneRanges
from artimon.model.sample_columns import decode_columns
from artimon.model.values import ValueType
from artimon.rawtable.table_state import RawState
from benchmarks.lag import MINUTE_MS, Poller, Waiting, next_minute
from benchmarks.loads import values
from benchmarks.loads.readers import load_board, rule_file, variable
from benchmarks.loads.samples import NAME, SERIES_A_SOURCE, TYPES, Expected, Source, number_of, text_of
from benchmarks.loads.world import WrongCounts
from pipeline.compaction.row_digest import digest_of
from pipeline.spark import raw_file as rows
from query_dsl import parse
from sources.base.schedule import FIRST_PHASE, LAST_PHASE
from varstore.shard.shard import Shard

NOW = 1_795_000_000_000


def test_the_digest_of_the_load_equals_that_of_its_files() -> None:
    generator = np.random.default_rng(3)
    expected, parts = Expected(), []
    for number in (4, 2):
        source = Source(number, generator, NOW - 60_000)
        assert number_of(source.name) == number
        polled = source.poll(NOW)
        batch = encode_samples(BatchId("a", 1, 0, number), source.name, source.endpoint, NOW, NOW, "default", polled)
        expected.add(number, polled, len(batch.data))
        parts.append(rows.SourceBatch(number, NOW, decode_columns(batch.header, batch.data)))
    data, count, _ = rows.encode_file(parts)
    (read,) = pq.read_table(BytesIO(data)).combine_chunks().to_batches()
    assert count == expected.samples == 2 * SERIES_A_SOURCE
    assert digest_of(read) == expected.digest


def state(**seen: int) -> RawState:
    lanes = LaneRanges()
    for agent, until in seen.items():
        lanes.add_range(LaneId(agent, 9, 1), 0, until)
    return RawState(lanes={0: lanes})


def test_the_lag_of_a_batch_ends_when_it_is_first_committed() -> None:
    waiting = Waiting()
    for poll_ms in (100, 200, 300):
        waiting.add("a", 1, poll_ms)
    waiting.show(state(a=2), 1000)
    waiting.show(state(a=2, other=5), 5000)
    assert waiting.lags == [(100, 900), (200, 800)]
    waiting.show(state(a=3), 6000)
    assert waiting.lags[2:] == [(300, 5700)]
    assert waiting.batches == 3


def test_texts_of_the_load_are_canonical() -> None:
    assert text_of(7, 12) == canonical("bench.load.v12", {"host": "host-0007"})


def loaded(polls: int) -> tuple[Shard, Expected]:
    """Return a shard that was fed polls of a source a minute apart, and the expected values."""
    source, expected, shard = Source(20, np.random.default_rng(3), NOW - 10**7), Expected(), Shard("0", capacity=2_000)
    for number in range(polls):
        at = NOW + number * MINUTE_MS + 180
        polled = source.poll(at)
        expected.add(20, polled, 0)
        entry = FeedEntry(number, at + 500, BatchId("a", 1, 0, number), source.name, at, len(polled), True, 0)
        shard.feed(FeedRange("topic", 0, number, number + 1, (entry,), polled))
    for block in values._blocks(20):
        shard.announce(block)
    return shard, expected


def test_values_in_shards_are_compared_at_every_level() -> None:
    shard, expected = loaded(130)
    polls, compared = expected.kept[20], []
    for level in DEFAULT_LEVELS:
        grid = values._grid(level, [at for at, _ in polls])
        assert grid is not None
        compared.append(values._compare(shard, 20, polls, grid))  # type: ignore[arg-type]
    assert compared == [6 * SERIES_A_SOURCE * n for n in (60, 25, 8, 1)]


@pytest.mark.parametrize("series", [0, 7], ids=["double", "integer"])
def test_a_wrong_value_in_a_shard_is_found(series: int) -> None:
    shard, expected = loaded(10)
    polls = expected.kept[20]
    polls[4][1][series] += 1
    grid = values._grid(DEFAULT_LEVELS[0], [at for at, _ in polls])
    assert grid is not None
    with pytest.raises(WrongCounts, match=rf"of bench.load.v{series}\{{"):
        values._compare(shard, 20, polls, grid)  # type: ignore[arg-type]


def test_polls_come_at_the_phases_of_the_product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls come within the first ten seconds of each minute of the wall clock."""
    monkeypatch.setattr("benchmarks.lag.Agent", lambda _config: None)
    sources = [Source(number, np.random.default_rng(1), NOW) for number in range(40)]
    poller = Poller(0, sources, tmp_path, "", Waiting())
    assert poller.phases == sorted(poller.phases)
    assert 60 * FIRST_PHASE <= poller.phases[0] < 3
    assert 7 < poller.phases[-1] <= 60 * LAST_PHASE < 10


def test_the_first_poll_waits_for_a_minute_of_the_clock() -> None:
    ahead = next_minute() - time.monotonic()
    assert 0.9 < ahead <= 61
    assert abs((time.time() + ahead + 30) % 60 - 30) < 1


def test_readers_ask_for_counters_of_the_load() -> None:
    """Boards have 20 panels and no text in common; rules are valid; later refreshes ask for the newest points."""
    numbers = [int(variable(n).removeprefix(NAME)) for n in range(SERIES_A_SOURCE * 4 // 5)]
    assert numbers == [i for i in range(SERIES_A_SOURCE) if TYPES[i] == ValueType.INTEGER]
    boards = [[parse_qs(urlsplit(path).query) for path in load_board(n, 40, NOW, None)] for n in range(3)]
    texts = [one["q"][0] for board in boards for one in board]
    assert len(texts) == len(set(texts)) == 3 * 20
    for text in texts:
        parse(text)
    later = load_board(0, 40, NOW + 10_000, NOW)
    assert sum("newest=" in path for path in later) >= 15
    assert len(parse_rules(rule_file(8, 40), "bench.yaml").rules) == 8
