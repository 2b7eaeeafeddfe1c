"""Help and unit of names in a shard, from announcements to the answer of its service."""

from __future__ import annotations

import json

import pytest

from artimon.model.batch import SeriesBlock, SeriesInfo
from artimon.model.labels import canonical
from artimon.model.values import Kind, ValueType
from varstore.index import metric_metadata
from varstore.index.metric_metadata import MAX_TEXT, Metadata, MetricMetadata
from varstore.shard.shard import Shard
from varstore.shard.shard_service import ShardService


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


def test_the_texts_of_all_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_metadata, "MAX_BYTES", 3 * MAX_TEXT)
    known = MetricMetadata()
    for name in "abcd":
        known.add(name, "x" * 2 * MAX_TEXT, "")
    assert known.read(None) == {name: Metadata("x" * MAX_TEXT) for name in "cd"}
    known.add("d", "short", "s")
    known.add("e", "y" * MAX_TEXT, "")
    assert list(known.read(None)) == ["c", "d", "e"]
