"""Event batches that sinks refuse for good: bounded, and no longer counted once an operator has removed them."""

from __future__ import annotations

from pathlib import Path

import pytest

from artimon.model.batch import BatchId
from pipeline.flows.event import EventBatch
from pipeline.flows.runtime.sink_quarantine import SinkQuarantine
from tests.pipeline.flows.parts import event
from tests.pipeline.helpers import FastFiles


def named(sequence: int) -> EventBatch:
    return EventBatch((event(sequence),), BatchId("a", 1, 0, sequence))


def test_an_emptied_folder_accepts_event_batches_again(tmp_path: Path) -> None:
    """Two sinks of a flow share the folder and its limit."""
    SinkQuarantine(tmp_path / "one", FastFiles()).add(named(0), "bad")
    size = sum(path.stat().st_size for path in (tmp_path / "one").iterdir())
    one, other = (SinkQuarantine(tmp_path / "rejected", FastFiles(), most_bytes=2 * size) for _ in range(2))
    assert one.count == 0
    one.add(named(1), "bad")
    other.add(named(2), "bad")
    with pytest.raises(OSError, match="inspect and empty it"):
        one.add(named(3), "bad")
    assert one.count == other.count == 2
    for path in (tmp_path / "rejected").iterdir():
        path.unlink()
    one.add(named(3), "bad")
    assert one.count == other.count == 1


def test_a_rejected_event_batch_is_kept_once(tmp_path: Path) -> None:
    rejected = SinkQuarantine(tmp_path / "rejected", FastFiles())
    for _ in range(2):
        rejected.add(named(1), "bad")
    assert rejected.count == 1
