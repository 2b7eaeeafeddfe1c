"""Archives of the servers' classes: which flags a JVM gets, and that the servers of the tests use them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from artimon.runtime.class_archive import archive_flags, class_path_key
from artimon.runtime.settings import Settings, load
from artimon.stack import class_recording
from artimon.stack.stack import Stack


@pytest.fixture
def place(tmp_path: Path) -> Settings:
    settings = load({"XDG_CACHE_HOME": str(tmp_path)})
    settings.class_archives.mkdir(parents=True)
    return settings


@pytest.fixture
def jars(tmp_path: Path) -> list[Path]:
    found = [tmp_path / "a.jar", tmp_path / "b.jar"]
    for jar in found:
        jar.write_bytes(b"jar")
    return found


def archive(place: Settings, jars: list[Path]) -> Path:
    return place.class_archives / f"server-{class_path_key(place, jars)}.jsa"


def test_a_server_without_an_archive_starts_without_flags(place: Settings, jars: list[Path]) -> None:
    assert archive_flags(place, "server", jars) == []


def test_an_archive_is_used_while_the_class_path_stays(place: Settings, jars: list[Path]) -> None:
    archive(place, jars).touch()
    assert archive_flags(place, "server", reversed(jars))[0] == f"-XX:SharedArchiveFile={archive(place, jars)}"
    assert archive_flags(place, "other", jars) == []
    os.utime(jars[0], ns=(1, 1))
    assert archive_flags(place, "server", jars) == []


def test_another_java_has_other_archives(tmp_path: Path, place: Settings, jars: list[Path]) -> None:
    (tmp_path / "release").write_text('JAVA_VERSION="99"')
    assert class_path_key(replace(place, java_home=tmp_path), jars) != class_path_key(place, jars)


def test_what_is_missing_is_recorded(place: Settings, jars: list[Path]) -> None:
    recording = replace(place, recording_classes=True)
    assert archive_flags(recording, "server", jars)[0] == f"-XX:ArchiveClassesAtExit={archive(place, jars)}.new"
    archive(place, jars).touch()
    assert archive_flags(recording, "server", jars) == []


def test_old_archives_are_deleted(tmp_path: Path) -> None:
    for number in range(5):
        for kind in ("spark-", "kafka-", "tried-"):
            path = tmp_path / f"{kind}{number}"
            path.touch()
            os.utime(path, ns=(number, number))
    (tmp_path / "lock").touch()
    class_recording.forget_old(tmp_path)
    kept = {f"{kind}{number}" for kind in ("spark-", "kafka-", "tried-") for number in (2, 3, 4)}
    assert {path.name for path in tmp_path.iterdir()} == {"lock", *kept}


@pytest.mark.stack
@pytest.mark.parametrize("kind", ["zookeeper", "kafka", "namenode", "datanode"])
def test_servers_use_the_archives_of_the_setup(kind: str, request: pytest.FixtureRequest) -> None:
    group = "hdfs" if kind.endswith("node") else kind
    stack: Stack = request.getfixturevalue(f"{group}_stack")
    mapped = Path(f"/proc/{stack.pid(kind)}/maps").read_text()
    assert f"/classes/{kind}-" in mapped
