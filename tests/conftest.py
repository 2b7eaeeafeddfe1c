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
OF_KAFKA_AND_HDFS = tuple(
    f"{folder}/test_{name}.py"
    for folder, names in {
        "spark": "acks buckets deadletters gaps name_service poison raw retention series_table",
        "history": "command engine_store examples partitions post_mortem two_engines",
        "alerts": "pair pair_member process state_log",
        "api": "perl without_zookeeper",
        "compaction": "process",
        "faults": "slow",
        "kafka": "shards topics",
        "pipeline": "broker collector delivery quota",
        "pipeline/delivery": "modes",
        "pipeline/direct": "service",
        "pipeline/flows": "agent_chains files_sink groups_in_zookeeper kafka_channel kafka_ends",
        "pipeline/sites": "links mirror_servers",
        "security": "inputs",
        "series": "keeper",
        "sources/jmx": "hadoop",
        "stack": "class_archives servers status",
        "storage": "conformance contention",
        "upgrade": "tables whole_upgrade",
        "varstore": "cluster process_restore server",
    }.items()
    for name in names.split()
)
"""Files with tests that need Kafka, HDFS or Spark: their starts take a minute of the processor, and each uses 3 % of a
core at rest."""
TOGETHER = (
    ("page", "e2e", "security/test_exposure.py"),
    OF_KAFKA_AND_HDFS,
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
WORKERS = 3
"""Workers that keep two cores busy. If there is one more, that of the first row of TOGETHER ends with it: the tests of
the whole stack wait most of their time."""
LATE = frozenset({"address", "host_known"})
"""Fixtures that wait for the first whole minute of the stack: tests that need none of them run meanwhile."""
LATE_TURN = 2
ENDING = ("whole_stack", "kafka_stack", "hdfs_stack")
"""Fixtures of the session that end with the last test of their row in TOGETHER: the first would use a third of a core
until the end of the run, the others 3 % each."""
ONCE = frozenset({"kafka_stack", "hdfs_stack"})
"""Fixtures of OF_KAFKA_AND_HDFS: they start in one worker only."""
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
    row = TOGETHER.index(OF_KAFKA_AND_HDFS)
    using = [item for item in items if not ONCE.isdisjoint(getattr(item, "fixturenames", ()))]
    strays = {
        item.location[0] for item in using if groups[item.nodeid][0] != row and not item.get_closest_marker("slow")
    }
    if strays:
        raise pytest.UsageError(f"name in OF_KAFKA_AND_HDFS (tests/conftest.py): {', '.join(sorted(strays))}")
    marked = {
        mark: {groups[item.nodeid] for item in items if item.get_closest_marker(mark)} for mark in ("stack", "programs")
    }

    def place(item: pytest.Item) -> tuple[int | bool, ...]:
        group = groups[item.nodeid]
        return group[0], group not in marked["stack"], group not in marked["programs"], _turn(item)

    items.sort(key=place)


def _check_row(items: Sequence[pytest.Item]) -> None:
    """Raise UsageError if a file of the usual run would start Kafka or HDFS in another worker."""
    using = (item for item in items if not ONCE.isdisjoint(getattr(item, "fixturenames", ())))
    files = {item.location[0].removeprefix("tests/") for item in using if not item.get_closest_marker("slow")}
    if strays := files - {*OF_KAFKA_AND_HDFS}:
        raise pytest.UsageError(f"tests/conftest.py: name in OF_KAFKA_AND_HDFS: {', '.join(sorted(strays))}")


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
    """Distribute `_group`s to the workers, in the order of the tests. See WORKERS."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return str(_group(nodeid))

        def _reschedule(self, node: Any) -> None:
            work = self.assigned_work[node]
            if is_extra and str((0, "")) in work and not node.shutting_down and self._pending_of(work) <= 2:
                node.shutdown()  # it runs what it has
            else:
                super()._reschedule(node)

    config.option.loadscopereorder = False
    scheduler = ByGroup(config, log)
    is_extra = scheduler.numnodes > WORKERS and "not stack" not in config.option.markexpr
    return scheduler


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
