"""Where the buckets query and the shards stand: its lag, and who is behind since when."""

from __future__ import annotations

from typing import Any

from pipeline.spark.feeding import FeedResult, ShardOutcome
from pipeline.spark.progress import Progress
from pipeline.spark.shards import Shard

ONE = Shard("0", "127.0.0.1", 1, "a", frozenset())
TWO = Shard("1", "127.0.0.1", 2, "b", frozenset())


def standing(start: int = 0) -> Progress:
    """One partition, two shards, the query at `start`."""
    progress = Progress(1)
    for shard in (ONE, TWO):
        progress.say(shard, {0: start})
    progress.begin({0: (0, 1_000)})
    return progress


def fed(progress: Progress, until: int, *shards: Shard) -> None:
    progress.moved(FeedResult(0, 0, until, 0, {shard.id: ShardOutcome(next=until) for shard in shards}))


def test_a_quiet_log_is_no_lag_when_it_speaks_again() -> None:
    progress = standing(5)
    progress.log_end({0: 5}, 0)
    assert progress.figures(3_600_000)["lag_ms"] == 0
    progress.log_end({0: 6}, 3_600_000)
    assert progress.figures(3_601_000)["lag_ms"] == 1_000


def test_the_lag_is_that_of_the_first_end_not_reached() -> None:
    progress = standing()
    for now, end in ((1_000, 3), (6_000, 7), (11_000, 9)):
        progress.log_end({0: end}, now)
    assert (progress.figures(12_000)["lag_ms"], progress.figures(12_000)["behind"]) == (11_000, 9)
    fed(progress, 3, ONE, TWO)
    assert progress.figures(12_000)["lag_ms"] == 6_000
    fed(progress, 9, ONE, TWO)
    assert (progress.figures(12_000)["lag_ms"], progress.figures(12_000)["behind"]) == (0, 0)


def test_a_shard_is_behind_since_it_was_first_seen_so() -> None:
    progress = standing()
    fed(progress, 4, ONE)
    assert progress.figures(1_000)["lagging_ms"] == {"1": 0}
    assert progress.figures(9_000)["lagging_ms"] == {"1": 8_000}
    progress.say(TWO, {0: 4})
    assert progress.figures(10_000)["lagging_ms"] == {}
    fed(progress, 6, ONE)
    assert progress.figures(11_000)["lagging_ms"] == {"1": 0}


def test_runs_are_counted_with_their_time() -> None:
    progress = standing()
    progress.ran(0.25)
    progress.ran(0.5)
    found: dict[str, Any] = progress.figures(0)
    assert (found["runs"], found["runs_ms"], found["run_ms"]) == (2, 750, 500)
