"""Agent on a large log: accepts at once, then sends old batches before new ones."""

from __future__ import annotations

from pathlib import Path

from artimon.model.batch import BatchId
from pipeline.flows.runtime.agent_transport import Agent, AgentConfig
from scripts.proof.counts import accepted_counts
from tests.pipeline.helpers import MINUTE, polled
from tests.waiting import eventually

NOWHERE = "127.0.0.1:1"


def agent(data: Path, segment: int = 5_000, **wish: object) -> Agent:
    return Agent(AgentConfig("agent-1", data, NOWHERE, lanes=2, segment_bytes=segment, **wish))  # type: ignore[arg-type]


def fill(one: Agent, polls: int, first: int = 0) -> None:
    for number in range(first, first + polls):
        one.wal_sink.accept_now([polled("shop/host/0", 5, MINUTE - 30_000 + number)])


def waiting(one: Agent) -> list[BatchId]:
    return [item.id for _, lane in one._tracker.lanes() for item in sorted((*lane.backlog, *lane.refused))]


def test_old_before_new_and_everything_counted_once(tmp_path: Path) -> None:
    first = agent(tmp_path)
    fill(first, 40)
    first.stop()
    second = agent(tmp_path)
    assert second.figures()["recovering"]
    fill(second, 5, 40)  # accepted before anything old was read
    assert not waiting(second)
    second.start()
    eventually(lambda: not second.figures()["recovering"], "the old log has been read")
    numbers = [id.sequence for id in waiting(second)]
    assert numbers == list(range(45)), "in order, none missing, none twice"
    assert second.figures()["pending_batches"] == 45
    second.stop()
    assert accepted_counts(tmp_path / "accepted") == {(MINUTE, "shop/host/0"): 225}


def test_a_small_log_is_read_at_once(tmp_path: Path) -> None:
    first = agent(tmp_path)
    fill(first, 3)
    first.stop()
    second = agent(tmp_path)
    assert not second.figures()["recovering"]
    assert len(waiting(second)) == 3
    second.stop()


def test_an_agent_that_may_shed_accepts_new_batches(tmp_path: Path) -> None:
    """Shed batches are neither sent nor waited for, and are counted in the figures."""
    one = agent(tmp_path, 30_000, quota_bytes=150_000, shed="oldest")
    list(one.wal_sink.replay())  # the sources have read what they need: segments may be deleted
    fill(one, 400)
    figures = one.figures()
    assert figures["shed_batches"] > 0
    assert figures["refused"].get("quota", 0) == 0
    assert figures["pending_batches"] < 400
    oldest = min(id.sequence for id in waiting(one) if id.lane != 65535)
    assert oldest > 0
    one.stop()
