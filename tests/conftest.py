"""Real servers for the whole test run: each starts when a test first asks for it, and ends with this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from artimon.stack.stack import Stack
from tests.e2e.whole import whole_stack

__all__ = ["whole_stack"]  # one stack for the end-to-end tests and those of the page

SHARED = Path(__file__).resolve().parents[2] / "shared"
TEST_PORTS = 21000
LISTED = 40
LEFT_OUT = pytest.StashKey[list[str]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what this checkout cannot run, and say why."""
    if SHARED.is_dir():
        return
    missing = pytest.mark.skip(reason="../shared does not exist beside this checkout")
    for item in items:
        if item.get_closest_marker("shared"):
            item.add_marker(missing)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Remember what a marker expression left out, for the summary."""
    for item in items:
        slow = item.get_closest_marker("slow") is not None
        reason = "slow: ./scripts/test --slow runs it" if slow else "not selected by the command line"
        item.config.stash.setdefault(LEFT_OUT, []).append(f"{item.nodeid} ({reason})")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which tests were left out, and why; those that were skipped are listed by pytest itself."""
    left_out = config.stash.get(LEFT_OUT, [])
    if left_out:
        terminalreporter.section("left out")
        for line in sorted(left_out)[:LISTED]:
            terminalreporter.line(line)
        if len(left_out) > LISTED:
            terminalreporter.line(f"... and {len(left_out) - LISTED} more")


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
