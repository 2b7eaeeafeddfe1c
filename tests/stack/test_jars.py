"""Jars: exactly the pinned ones, whole or not at all. A small program stands in for Ivy's Java."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from artimon.runtime.settings import load
from artimon.stack import jars
from artimon.stack.jars import Jar
from artimon.stack.java import Java
from artimon.stack.stack_errors import JarMismatchError, JarsUnresolvedError, StackError

CONTENT = b"a jar\n"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
PINNED = [
    Jar("one", "org.a", "a", "1", DIGEST),
    Jar("one", "org.b", "b", "2", DIGEST),
    Jar("two", "org.a", "a", "1", DIGEST),
    Jar("two", "org.a", "a", "9", DIGEST),
]
# Reads the ivy.xml it is given and "retrieves" each dependency by writing the same bytes.
FAKE_JAVA = """#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in -ivy) ivy=$2 ;; -retrieve) out=${2%%%%/\\[*} ;; esac
    shift
done
echo run >> "%(runs)s"
grep -o 'org="[^"]*" name="[^"]*" rev="[^"]*"' "$ivy" | tr -d '"' | while read -r org name rev; do
    mkdir -p "$out/${org#org=}"
    [ "${name#name=}" = "%(missing)s" ] || printf 'a jar\\n' > "$out/${org#org=}/${name#name=}-${rev#rev=}.jar"
done
"""


def fake_java(folder: Path, missing: str = "-") -> Java:
    program = folder / "java"
    program.write_text(FAKE_JAVA % {"runs": folder / "runs", "missing": missing})
    program.chmod(0o755)
    return Java(program, 17)


@pytest.fixture
def pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "read_lock", lambda _file=None: PINNED)


@pytest.mark.usefixtures("pinned")
def test_retrieved_once_and_then_never_again(tmp_path: Path) -> None:
    settings = load({"HOME": str(tmp_path)})
    folder = jars.ensure_jars(settings, fake_java(tmp_path), ["one", "two"], lambda text: None)
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.jar"))
    assert found == ["one/a-1.jar", "one/b-2.jar", "two/a-1.jar", "two/a-9.jar"]
    assert not (folder / ".resolving").exists()
    ran = (tmp_path / "runs").read_text()
    jars.ensure_jars(settings, fake_java(tmp_path), ["one", "two"], lambda text: None, verify=True)
    assert (tmp_path / "runs").read_text() == ran


@pytest.mark.usefixtures("pinned")
def test_what_cannot_be_had_is_named_and_the_rest_kept(tmp_path: Path) -> None:
    settings = load({"HOME": str(tmp_path)})
    with pytest.raises(JarsUnresolvedError, match=r"org\.b:b:2"):
        jars.ensure_jars(settings, fake_java(tmp_path, missing="b"), ["one"], lambda text: None)
    assert (settings.cache / "jars" / "one" / "a-1.jar").read_bytes() == CONTENT
    jars.ensure_jars(settings, fake_java(tmp_path), ["one"], lambda text: None)
    assert (settings.cache / "jars" / "one" / "b-2.jar").read_bytes() == CONTENT


def test_another_content_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Jar("one", "org.a", "a", "1", "0" * 64)
    monkeypatch.setattr(jars, "read_lock", lambda _file=None: [wrong])
    settings = load({"HOME": str(tmp_path)})
    with pytest.raises(JarMismatchError, match=DIGEST):
        jars.ensure_jars(settings, fake_java(tmp_path), ["one"], lambda text: None)
    assert not (settings.cache / "jars" / "one" / "a-1.jar").exists()


@pytest.mark.usefixtures("pinned")
def test_verify_finds_later_damage(tmp_path: Path) -> None:
    settings = load({"HOME": str(tmp_path)})
    folder = jars.ensure_jars(settings, fake_java(tmp_path), ["one"], lambda text: None)
    (folder / "one" / "a-1.jar").write_bytes(b"changed")
    with pytest.raises(JarMismatchError, match=r"a-1\.jar"):
        jars.ensure_jars(settings, fake_java(tmp_path), ["one"], verify=True)


def test_the_real_lock_is_whole() -> None:
    pinned = jars.read_lock()
    files = [(jar.jar_set, jar.file) for jar in pinned]
    assert len(files) == len(set(files))
    names = {(jar.jar_set, jar.name, jar.version) for jar in pinned}
    assert {("kafka", "kafka_2.13", "4.1.0"), ("hdfs", "hadoop-hdfs", "3.5.0")} <= names
    assert ("spark", "spark-sql-kafka-0-10_2.13", "4.2.0") in names


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    lock = tmp_path / "jars.lock"
    lock.write_text("# head\nkafka a:b 00\n")
    with pytest.raises(StackError, match="line 2"):
        jars.read_lock(lock)


def test_shares_hold_every_jar_once_and_one_version_of_a_module() -> None:
    shares = jars.split_shares(jars.read_lock(), 4)
    assert sorted(jar for share in shares for jar in map(str, share)) == sorted(map(str, jars.read_lock()))
    for share in shares:
        versions = {(jar.group, jar.name): set[str]() for jar in share}
        for jar in share:
            versions[jar.group, jar.name].add(jar.version)
        assert all(len(found) == 1 for found in versions.values())
