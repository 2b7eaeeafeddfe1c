"""The shipped rule about gaps in Kafka: one mail for a gap, whatever it is made of and however long it is talked of."""

from __future__ import annotations

from pathlib import Path

import pytest

import alerts
from tests.alerts.worlds import World

RULES = Path(alerts.__file__).parent / "rules"
NAME = "artimon.raw.gaps"


@pytest.fixture
def shipped(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write((RULES / "kafka-gap.yaml").read_text())
    return made


def minute(shipped: World, **gaps: int) -> None:
    """Return the self metrics of Spark for one minute."""
    shipped.put({**dict.fromkeys(("lost", "cut", "topic"), 0), **gaps}, NAME, "kind")
    shipped.tick()


def test_a_gap_is_told_once_and_then_that_it_is_over(shipped: World) -> None:
    for _ in range(3):
        minute(shipped)
    assert shipped.letters() == []
    for _ in range(10):
        minute(shipped, topic=8)
    (note,) = shipped.notes()
    assert (note.kind, dict(note.labels)["kind"]) == ("firing", "topic")
    assert note.summary == "gap in Kafka (topic): 8 ranges; artimon status names them"
    assert shipped.told() == ["firing"]
    for _ in range(10):
        minute(shipped, topic=8)
    assert shipped.told() == ["resolved"]
    for _ in range(10):
        minute(shipped, topic=8)
    assert shipped.told() == []
    shipped.close()


def test_spark_that_is_gone_for_a_while_neither_resolves_nor_fires_again(shipped: World) -> None:
    for _ in range(2):
        minute(shipped)
    minute(shipped, lost=1)
    shipped.tick(minutes=3)
    minute(shipped, lost=1)
    assert shipped.told() == ["firing"]
    shipped.close()
