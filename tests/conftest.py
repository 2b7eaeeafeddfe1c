"""Real servers for the whole test run: each starts at its first use and ends with this process.

Parallel workers (pytest-xdist) are processes with servers and ports of their own."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from artimon.stack.stack import Stack
from tests.e2e.whole import whole_stack

__all__ = ["whole_stack"]  # one stack for the end-to-end tests and those of the page
pytest_plugins = ["tests.seeds", "tests.durations"]

SHARED = Path(__file__).resolve().parents[2] / "shared"
TEST_PORTS = 21000


def _files(names: dict[str, str]) -> tuple[str, ...]:
    """Return the paths of test files, given by folder."""
    return tuple(f"{folder}/test_{name}.py" for folder, some in names.items() for name in some.split())


OF_HDFS = _files(
    {
        "compaction": "process",
        "history": "command engine_store examples partitions post_mortem two_engines",
        "kafka": "shards",
        "pipeline/direct": "service",
        "pipeline/flows": "agent_chains files_sink",
        "security": "inputs",
        "series": "keeper",
        "sources/jmx": "hadoop",
        "spark": "acks buckets deadletters gaps name_service poison raw retention series_table",
        "stack": "class_archives servers",
        "storage": "conformance contention",
        "upgrade": "tables whole_upgrade",
        "varstore": "process_restore",
    }
)
"""Files with tests that need HDFS or Spark, and perhaps Kafka: their starts take a minute of the processor, and each
uses 3 % of a core at rest."""
OF_KAFKA = _files(
    {
        "alerts": "pair pair_member process state_log",
        "api": "perl without_zookeeper",
        "faults": "slow",
        "kafka": "topics",
        "pipeline": "broker collector delivery quota",
        "pipeline/delivery": "modes",
        "pipeline/flows": "groups_in_zookeeper kafka_channel kafka_ends",
        "pipeline/sites": "links mirror_servers",
        "stack": "status",
        "varstore": "cluster server",
    }
)
"""Files with tests that need Kafka without HDFS."""
TOGETHER = (
    ("page", "e2e", "security/test_exposure.py"),
    OF_HDFS,
    OF_KAFKA,
    ("page/test_compare.py", "page/test_ranges.py", "page/test_several_queries.py", "page/test_views.py"),
    ("simulation/test_simulation.py",),
)
"""Folders and files whose tests go to one parallel worker, because they share what is expensive to start; the longest
first. Other files go to a free worker, those with a `stack` test first, then those with many programs: a long one never
runs alone at the end. A file is in the row that names it, else in that of its folder."""
APART = frozenset(
    f"page/test_{name}.py" for name in ("chart", "colours", "editor_build", "endpoints", "language", "lint", "promql")
)
"""Files of folders of TOGETHER that share nothing with the others: here those without the whole stack."""
LATE = frozenset({"address", "host_known"})
"""Fixtures that wait for the first whole minute of the stack: tests that need none of them run meanwhile."""
LATE_TURN = 2
ENDING = ("whole_stack", "kafka_stack", "hdfs_stack")
"""Fixtures of the session that end with the last test of their row in TOGETHER: the first would use a third of a core
until the end of the run, the others 3 % each."""
ROWS = {"kafka_stack": (OF_HDFS, OF_KAFKA), "hdfs_stack": (OF_HDFS,)}
"""Rows of TOGETHER that may use a fixture: it starts in their workers only."""
SERVERS = frozenset({"zookeeper_stack", "kafka_stack", "hdfs_stack", "whole_stack", "connector", "java", "browser"})
"""Fixtures that start servers, Spark, a Java program or a browser."""
REASONS = {
    "slow": "slow: ./scripts/test --slow runs them",
    "stack": "servers: ./scripts/test runs them",
    "programs": "many programs: ./scripts/test runs them",
}
LEFT_OUT = pytest.StashKey[Counter[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Give each parallel worker its own host identity, so that instance numbers of programs never collide."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = tempfile.mkdtemp(prefix="artimon-run-")
        os.environ["ARTIMON_RUN"] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test `stack` before tests are selected by their marks."""
    if not SERVERS.isdisjoint(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.stack)


@pytest.hookimpl(trylast=True)  # after the order was made random
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out tests that this checkout cannot run, with the reason; the tests of TOGETHER come first."""
    missing = pytest.mark.skip(reason="../shared does not exist beside this checkout")
    for item in items:
        if item.get_closest_marker("shared") and not SHARED.is_dir():
            item.add_marker(missing)
    groups = {item.nodeid: _group(item.nodeid) for item in items}
    if strays := sorted({item.location[0] for item in items if _is_stray(item, groups[item.nodeid][0])}):
        raise pytest.UsageError(f"name in OF_HDFS or OF_KAFKA (tests/conftest.py): {', '.join(strays)}")
    marked = {
        mark: {groups[item.nodeid] for item in items if item.get_closest_marker(mark)} for mark in ("stack", "programs")
    }

    def place(item: pytest.Item) -> tuple[int | bool, ...]:
        group = groups[item.nodeid]
        return group[0], group not in marked["stack"], group not in marked["programs"], _turn(item)

    items.sort(key=place)


def _is_stray(item: pytest.Item, row: int) -> bool:
    """Return True if a test of the usual run would start Kafka or HDFS in one more worker."""
    used = [ROWS[name] for name in getattr(item, "fixturenames", ()) if name in ROWS]
    return not item.get_closest_marker("slow") and any(row not in map(TOGETHER.index, rows) for rows in used)


def _turn(item: pytest.Item) -> int:
    """Position within the group of a test: that of its mark, else 0, or LATE_TURN for tests of LATE."""
    mark = item.get_closest_marker("turn")
    if mark:
        return int(mark.args[0])
    return 0 if LATE.isdisjoint(getattr(item, "fixturenames", ())) else LATE_TURN


def _group(nodeid: str) -> tuple[int, str]:
    """Unit of distribution to parallel workers: all of a row of TOGETHER, or the file of the test; sortable."""
    file = nodeid.partition("::")[0]
    path = file.removeprefix("tests/")
    names = (path,) if path in APART else (path, path.partition("/")[0])
    rows = (row for name in names for row, together in enumerate(TOGETHER) if name in together)
    row = next(rows, len(TOGETHER))
    return row, file if row == len(TOGETHER) else ""


@pytest.hookimpl(trylast=True)  # after the fixtures of the test
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the fixtures of ENDING behind the tests of their row."""
    if not isinstance(item, pytest.Function) or (nextitem and _group(nextitem.nodeid) == _group(item.nodeid)):
        return
    for name in ENDING:
        for one in item.session._fixturemanager.getfixturedefs(name, item) or ():
            one.finish(item._request)  # type: ignore[arg-type]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute `_group`s to the workers, in the order of the tests."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return str(_group(nodeid))

    config.option.loadscopereorder = False
    return ByGroup(config, log)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Count what a marker expression left out, for the summary."""
    for item in items:
        reasons = (text for mark, text in REASONS.items() if item.get_closest_marker(mark))
        reason = next(reasons, "not selected by the command line")
        item.config.stash.setdefault(LEFT_OUT, Counter())[f"{item.location[0]} ({reason})"] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the counts of a worker to the run that started it."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        counts: Counter[str] = session.config.stash.get(LEFT_OUT, Counter())
        output["left_out"] = dict(counts)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Every worker collects all tests, so the counts of any finished worker are those of the run."""
    counts = getattr(node, "workeroutput", {}).get("left_out")
    if counts:
        node.config.stash[LEFT_OUT] = Counter(counts)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the number of tests left out by reason and file; pytest itself lists skipped ones."""
    left_out = config.stash.get(LEFT_OUT, Counter())
    if left_out:
        terminalreporter.section(f"{left_out.total()} tests left out")
        for line in sorted(left_out):
            terminalreporter.line(f"{left_out[line]:4} {line}")
    for report in [*terminalreporter.stats.get("passed", ()), *terminalreporter.stats.get("failed", ())]:
        for text in (value for name, value in report.user_properties if name == "seeds"):
            terminalreporter.line(str(text))


def _one(tmp_path_factory: pytest.TempPathFactory, part: str) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp(part), [part], base_port=TEST_PORTS) as stack:
        yield stack


@pytest.fixture(scope="session")
def zookeeper_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Stack with only ZooKeeper; a test that stops it starts it again."""
    yield from _one(tmp_path_factory, "zookeeper")


@pytest.fixture(scope="session")
def kafka_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Stack with only Kafka."""
    yield from _one(tmp_path_factory, "kafka")


@pytest.fixture(scope="session")
def hdfs_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Stack with only HDFS."""
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
