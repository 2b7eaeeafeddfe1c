"""Help and unit of names in a shard, from announcements to the answer of its service."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from artimon.model.batch import SeriesBlock, SeriesInfo
from artimon.model.labels import canonical
from artimon.model.values import Kind, ValueType
from artimon.model.vshards import ALL_VSHARDS
from varstore.index import metric_metadata
from varstore.index.metric_metadata import MAX_TEXT, Metadata, MetricMetadata
from varstore.shard.shard import Shard
from varstore.shard.shard_service import ShardService
from varstore.snapshot.snapshots import Snapshots


def block(version: int, *told: tuple[str, str, str]) -> SeriesBlock:
    texts = [(canonical(name, {}), help_, unit) for name, help_, unit in told]
    infos = tuple(SeriesInfo(text, ValueType.DOUBLE, Kind.GAUGE, help_, unit) for text, help_, unit in texts)
    return SeriesBlock("a/b/0", 0, version, infos)


def test_a_shard_tells_what_announcements_told() -> None:
    shard = Shard()
    service = ShardService(shard)

    def asked(names: list[str] | None) -> list[list[str]]:
        answer = json.loads(service.find(json.dumps({"what": "metadata", "names": names}).encode()))
        found: list[list[str]] = answer["found"]
        return sorted(found)

    assert asked(None) == []
    shard.announce(block(1, ("heat", "Temperature.", "celsius"), ("load", "", ""), ("size", "", "bytes")))
    assert asked(None) == [["heat", "Temperature.", "celsius"], ["size", "", "bytes"]]
    shard.announce(block(2, ("heat", "Temperature of the air.", "celsius"), ("size", "", "")))
    assert asked(["heat", "load", "other"]) == [["heat", "Temperature of the air.", "celsius"]]
    assert asked(["size"]) == [["size", "", "bytes"]]
    shard.announce(block(1, ("heat", "Old.", "celsius")))
    assert asked(["heat"]) == [["heat", "Temperature of the air.", "celsius"]]


def test_a_restored_shard_knows_them_at_once(tmp_path: Path) -> None:
    """Also a text that changed after the first snapshot; a file of series without texts is read all the same."""
    shard = Shard(owned=frozenset())
    shard.adopt(ALL_VSHARDS)
    folder = Snapshots(shard, tmp_path)
    shard.announce(block(1, ("heat", "Old.", ""), ("size", "", "bytes"), ("load", "", "")))
    assert folder.take() is not None
    shard.announce(block(2, ("heat", "Temperature.", "celsius")))
    assert folder.take() is not None
    after = Shard(owned=frozenset())
    assert Snapshots(after, tmp_path).load()
    assert after.metadata(None) == {"heat": Metadata("Temperature.", "celsius"), "size": Metadata("", "bytes")}
    assert after.names() == ["heat", "load", "size"]


def test_announcements_win_over_a_snapshot() -> None:
    known = MetricMetadata()
    known.add("heat", "New.", "celsius")
    known.restore("heat", "Old.", "kelvin")
    known.restore("size", "", "bytes")
    assert known.read(None) == {"heat": Metadata("New.", "celsius"), "size": Metadata("", "bytes")}


def test_the_texts_of_all_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_metadata, "MAX_BYTES", 3 * MAX_TEXT)
    known = MetricMetadata()
    for name in "abcd":
        known.add(name, "x" * 2 * MAX_TEXT, "")
    assert known.read(None) == {name: Metadata("x" * MAX_TEXT) for name in "cd"}
    known.add("d", "short", "s")
    known.add("e", "y" * MAX_TEXT, "")
    assert list(known.read(None)) == ["c", "d", "e"]
