"""Real servers for the whole test run: each starts when a test first asks for it, and ends with this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from artimon.stack.stack import Stack

SHARED = Path(__file__).resolve().parents[2] / "shared"
TEST_PORTS = 21000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what this checkout cannot run, and say why."""
    if SHARED.is_dir():
        return
    missing = pytest.mark.skip(reason="../shared does not exist beside this checkout")
    for item in items:
        if item.get_closest_marker("shared"):
            item.add_marker(missing)


def _one(tmp_path_factory: pytest.TempPathFactory, part: str) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp(part), [part], base_port=TEST_PORTS) as stack:
        yield stack


@pytest.fixture(scope="session")
def zookeeper_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The stack that runs ZooKeeper only; stop and start the part through it, and leave it running."""
    yield from _one(tmp_path_factory, "zookeeper")


@pytest.fixture(scope="session")
def kafka_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The stack that runs Kafka only."""
    yield from _one(tmp_path_factory, "kafka")


@pytest.fixture(scope="session")
def hdfs_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The stack that runs HDFS only."""
    yield from _one(tmp_path_factory, "hdfs")


@pytest.fixture(scope="session")
def zookeeper(zookeeper_stack: Stack) -> str:
    """host:port of a real ZooKeeper."""
    return zookeeper_stack.zookeeper


@pytest.fixture(scope="session")
def kafka(kafka_stack: Stack) -> str:
    """host:port of a real broker on which the platform's topics exist."""
    return kafka_stack.kafka


@pytest.fixture(scope="session")
def hdfs(hdfs_stack: Stack) -> str:
    """URI of a real, empty HDFS."""
    return hdfs_stack.hdfs
