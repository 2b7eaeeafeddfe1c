"""Power failures and kills at every point of random histories; every fsync of the log is necessary."""

from __future__ import annotations

import ast
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pipeline.wal
from tests.crash_disk import CrashDisk
from tests.pipeline.log.histories import History, Violation
from tests.seeds import fixed_and_drawn

LOG = Path(next(iter(pipeline.wal.__path__)))
OURS = sorted(LOG.glob("*.py"))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Silence the warnings of thousands of recoveries."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


SLOW = pytest.mark.slow
BLOCKS = [pytest.param(block, marks=[SLOW] if block >= 1 else []) for block in range(20)]
SEEDS = [pytest.param(seed, marks=[SLOW] if seed >= 1 else []) for seed in range(8)]


@pytest.mark.parametrize("block", BLOCKS)
def test_accepted_batches_survive_any_crash(block: int) -> None:
    """Random failures in random histories."""
    for seed in range(block * 50, block * 50 + 50):
        History(seed, CrashDisk()).run(40)


@pytest.mark.parametrize("seed", fixed_and_drawn([], "histories of the log", 50))
def test_accepted_batches_survive_any_crash_of_a_new_history(seed: int) -> None:
    History(seed, CrashDisk()).run(40)


@pytest.mark.parametrize("seed", SEEDS)
def test_accepted_batches_survive_a_crash_after_each_operation(seed: int) -> None:
    """The same history, cut off at its first operation, its second, …; then it continues from the remains."""
    whole = History(seed, CrashDisk(), crash_at=-1)
    whole.run(25)
    for crash_at in range(1, whole.operations + 1):
        History(seed, CrashDisk(), crash_at).run(25)


def fsyncs_in(path: Path) -> list[int]:
    """Lines that call fsync or fsync_folder, except in the file layer itself."""
    tree = ast.parse(path.read_text())
    layer = {"LocalFileSystem", "FileSystem"}
    tree.body = [node for node in tree.body if not (isinstance(node, ast.ClassDef) and node.name in layer)]
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("fsync", "fsync_folder")
    ]


SITES = [pytest.param(path, line, id=f"{path.name}:{line}") for path in OURS for line in fsyncs_in(path)]


class Without(CrashDisk):
    """Disk on which the fsync calls of one line of the code have no effect."""

    def __init__(self, path: Path, line: int) -> None:
        super().__init__()
        self._site = (str(path), line)
        self.left_out = 0

    def _leave_out(self) -> bool:
        frame = sys._getframe(2)
        found = (frame.f_code.co_filename, frame.f_lineno) == self._site
        self.left_out += found
        return found

    def fsync(self, descriptor: int) -> None:
        if not self._leave_out():
            super().fsync(descriptor)

    def fsync_folder(self, folder: Path) -> None:
        if not self._leave_out():
            super().fsync_folder(folder)


def test_fsync_calls_are_found() -> None:
    assert len(SITES) >= 10


@pytest.mark.parametrize(("path", "line"), SITES)
def test_every_fsync_is_necessary(path: Path, line: int) -> None:
    """Without any single fsync some history breaks an invariant."""
    used = 0
    for seed in range(3000):
        files = Without(path, line)
        try:
            History(seed, files).run(40)
        except Violation:
            return
        except Exception as error:
            raise AssertionError(f"seed {seed}: the log did not even start") from error
        finally:
            used += files.left_out
    pytest.fail(f"{path.name}:{line} ran {used} times in vain and nobody noticed")
