"""Tools that build the clients in other languages: Thrift's compiler, a JDK, the jars."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from artimon.runtime import settings
from artimon.stack import jars
from artimon.stack.java import find_java
from tests.programs import require
from tests.sources.conftest import tree

__all__ = ["tree"]  # a part of ZooKeeper for each test
ROOT = Path(__file__).parents[2]
IDL = ROOT / "bookkeeper" / "bookkeeper.thrift"
JAVA = ROOT / "clients" / "java" / "src"
LIBRARIES = ("libthrift-*.jar", "slf4j-api-*.jar", "zookeeper-*.jar", "netty-*.jar")
Generate = Callable[[str], Path]


@pytest.fixture(scope="session")
def generate(tmp_path_factory: pytest.TempPathFactory) -> Generate:
    """Makes the classes of bookkeeper.thrift in a language; the folder that holds them."""

    def run(language: str) -> Path:
        thrift, folder = require("thrift"), tmp_path_factory.mktemp("generated")
        environment = settings.child_environment(thrift.environment)
        command = [str(thrift.path), "-strict", "--gen", language, "-out", str(folder), str(IDL)]
        subprocess.run(command, check=True, env=environment, timeout=60)
        return folder

    return run


@dataclass(frozen=True)
class Built:
    """The compiled Java client and its tests."""

    java: Path
    classes: Path
    libraries: str
    junit: Path

    def command(self, name: str, *words: str) -> list[str]:
        """That starts a main class; without the costly compiler, which a short program does not need."""
        path = f"{self.classes}:{self.libraries}"
        return [str(self.java), "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp", path, name, *words]


@pytest.fixture(scope="session")
def java(generate: Generate, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """clients/java, compiled for Java 11 without a warning of its own, with the libraries that PySpark brings."""
    place = settings.load()
    found = find_java(place)
    compiler = found.program.resolve().parent / "javac"
    if not compiler.exists():
        text = f"{compiler} is not there: a JDK is needed, `apt-get install openjdk-17-jdk-headless`"
        pytest.fail(text) if os.environ.get("CI") else pytest.skip(text)
    junit = next((jars.ensure_jars(place, found, ["java-client"]) / "java-client").glob("junit-*.jar"))
    libraries = ":".join(str(jar) for pattern in LIBRARIES for jar in sorted(jars.spark_jars().glob(pattern)))
    generated, classes = generate("java:generated_annotations=suppress"), tmp_path_factory.mktemp("classes")
    _compile(compiler, classes, libraries, sorted(generated.rglob("*.java")))
    told = _compile(compiler, classes, f"{classes}:{libraries}:{junit}", sorted(JAVA.rglob("*.java")))
    assert str(JAVA) not in told, told
    return Built(found.program, classes, libraries, junit)


def _compile(compiler: Path, classes: Path, path: str, files: Sequence[Path]) -> str:
    command = [str(compiler), "--release", "11", "-Xlint:all,-serial,-path", "-d", str(classes), "-cp", path]
    done = subprocess.run([*command, *map(str, files)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr
