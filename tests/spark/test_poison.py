"""Messages that kill the worker decoding them, on real servers: the raw query writes a dead letter with the reason, the
buckets query skips and counts them, and everything else is stored and fed exactly once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from pyspark.sql import SparkSession

from artimon.model.batch_codec import parse_header
from artimon.model.hash_routing import partition_of
from pipeline.spark.dead_letters import DeadLetterRecord, DeadLetters, LetterState
from pipeline.spark.decoder_trial import DecoderProcess, TrialDecoder, TrialError, digest
from pipeline.spark.feed_task import FeedPlan, FeedResult
from pipeline.spark.spark_settings import SparkConfig
from pipeline.spark.suspects import SUSPECTS_FILE, Suspects, is_worker_death, run_with_trial
from tests.security.attacks import bomb
from tests.spark.driving import buckets_query, raw_query
from tests.spark.helpers import PARTITIONS, Row, Sender, now_ms, table_rows
from tests.spark.recorder import RecordingShard
from tests.spark.test_buckets import is_exact
from tests.waiting import eventually

DEADLY = Path(__file__).parent / "deadly"


@pytest.fixture
def deadly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Child processes die of batches of a source `deadly/…`."""
    monkeypatch.setenv("PYTHONPATH", str(DEADLY))


@pytest.fixture
def shard(client: KazooClient) -> Iterator[RecordingShard]:
    made = RecordingShard("0", ["0"])
    made.start(client)
    yield made
    made.stop(client)


def send_poison(sender: Sender, source: str) -> bytes:
    """Send a batch that is not in the ledger."""
    before = sender.ledger.copy()
    rows: list[Row] = [(n, now_ms(), 0, n) for n in range(3)]
    data = sender.send(source, rows)
    sender.ledger = before
    return data


@pytest.mark.stack
@pytest.mark.timeout(900)
def test_deadly_messages_are_isolated_and_the_rest_is_processed(
    config: SparkConfig,
    session: SparkSession,
    client: KazooClient,
    shard: RecordingShard,
    deadly: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(session.sparkContext.environment, "PYTHONPATH", str(DEADLY))
    sender = Sender(config.kafka, config.samples_topic)
    for n in range(20):
        sender.numbers(f"s{n}/h/0", 5, n, copies=1 + n % 2)
        if n in (3, 17):
            poison = send_poison(sender, f"deadly/h/{n}")
        if n == 9:
            stranger = parse_header(bomb("bomb/h/0")).id
            lane = partition_of(stranger.agent, stranger.epoch, stranger.lane, PARTITIONS)
            sender.send_bytes(bomb("bomb/h/0"), lane)
    suspects = Suspects(config.data / SUSPECTS_FILE)
    with (
        buckets_query(config, session, client, suspects) as feeding,
        raw_query(config, session, suspects=suspects) as query,
    ):
        eventually(lambda: query.figures()["batches"] == 20, "the raw query continues", 400)
        eventually(lambda: is_exact(sender, [shard]), "every row in the shard", 400)
        eventually(lambda: feeding.figures()["refused"] == 3, "three refused messages", 60)
        figures = query.figures()
        assert (figures["dead_letters"], figures["duplicates"]) == (3, 10)
        sender.numbers("later/h/0", 3)
        eventually(lambda: query.figures()["batches"] == 21, "a later batch", 60)
        eventually(lambda: is_exact(sender, [shard]), "a later batch in the shard", 60)
    assert table_rows(config) == sender.ledger
    assert shard.dead == 3
    letters = [letter for letter, _ in _letters(config)]
    assert len(letters) == 3
    killers = [one for one in letters if "kills" in one.reason]
    assert [one.state for one in killers] == [LetterState.WAITING] * 2
    assert all("SIGKILL" in one.objection for one in killers)
    (refused,) = [one for one in letters if one not in killers]
    assert "8000000 rows" in refused.reason
    assert digest(poison) in Suspects(config.data / SUSPECTS_FILE).digests()
    sender.close()


def _letters(config: SparkConfig) -> Iterator[tuple[DeadLetterRecord, bytes | None]]:
    yield from DeadLetters(config.kafka, config.hdfs, config.topic_prefix).read(threading.Event())


def test_a_trial_refuses_only_messages_that_kill_a_fresh_process(deadly: None) -> None:
    sender = _Bytes()
    with TrialDecoder(careful=True) as guard:
        for source, kills in (("good/h/0", False), ("deadly/h/0", True), ("good/h/1", False)):
            reason = guard._process.rejection_reason(sender.batch(source))
            assert ("SIGKILL" in reason) == kills


def test_a_trial_that_kills_good_messages_refuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lack of memory and a program that does not start are not caused by a message."""
    monkeypatch.setattr("pipeline.spark.decoder_trial._START", "import sys; sys.stdout.buffer.write(bytes(2))")
    trial = DecoderProcess()
    with pytest.raises(TrialError, match="a good message dies as well"):
        trial.rejection_reason(_Bytes().batch("good/h/0"))
    monkeypatch.setattr("pipeline.spark.decoder_trial._START", "raise SystemExit(3)")
    with pytest.raises(TrialError, match=r"does not start \(exit code 3"):
        trial.rejection_reason(b"")
    monkeypatch.setattr("pipeline.spark.decoder_trial._START", "import time; time.sleep(60)")
    monkeypatch.setattr("pipeline.spark.decoder_trial.START_TIMEOUT_S", 2.0)
    with pytest.raises(TrialError, match=r"does not start \(no answer within 2 s"):
        trial.rejection_reason(b"")


def test_a_message_that_cannot_be_stored_is_refused_with_its_reason() -> None:
    trial = DecoderProcess()
    assert "8000000 rows declared" in trial.rejection_reason(bomb("bomb/h/0"))
    assert "not a batch" in trial.rejection_reason(b"x" * 1000)
    assert trial.rejection_reason(_Bytes().batch("good/h/0")) == ""
    trial.end()


def test_suspects_survive_a_restart_of_the_driver(tmp_path: Path) -> None:
    path = tmp_path / "suspects.json"
    suspects = Suspects(path)
    suspects.add([digest(b"a")])
    suspects.add(f"{n}" for n in range(1_200))
    assert len(Suspects(path).digests()) == 1_000
    assert "1199" in Suspects(path).digests()
    path.write_text("no JSON")
    assert not Suspects(path).digests()


def test_after_a_worker_death_every_message_is_tried_even_after_a_restart(tmp_path: Path) -> None:
    suspects, plan = Suspects(tmp_path / SUSPECTS_FILE), FeedPlan("t", ())
    careful: list[bool] = []

    def run(plan: FeedPlan) -> list[FeedResult]:
        careful.append(plan.try_all)
        if len(careful) == 1:
            raise RuntimeError("Python worker exited unexpectedly (crashed)")
        if len(careful) == 2:
            raise OSError("the query was stopped")
        return [FeedResult(0, 0, 1, poison=[digest(b"a")])]

    with pytest.raises(OSError, match="stopped"):
        run_with_trial(run, plan, suspects)
    for _ in range(2):
        run_with_trial(run, plan, suspects)
    assert careful == [False, True, True, False]
    assert suspects.digests() == {digest(b"a")}


def test_worker_deaths_are_distinguished_from_other_failures() -> None:
    assert is_worker_death(RuntimeError("SparkException: Python worker exited unexpectedly (crashed)"))
    assert is_worker_death(RuntimeError("ExecutorLostFailure (executor 1 exited caused by one of the running tasks)"))
    assert not is_worker_death(OSError("hdfs://x is not there"))


class _Bytes:
    """Batches that are not sent."""

    def batch(self, source: str) -> bytes:
        from artimon.model.batch import BatchId, Samples
        from artimon.model.batch_codec import encode_samples

        rows = Samples.of([(1, now_ms(), 0, 1)])
        return encode_samples(BatchId("a", 1, 0, 0), source, bytes(16), 0, now_ms(), "default", rows).data
