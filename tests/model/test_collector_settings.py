"""The settings of the garbage collector are restored when the part of the process that changed them ends."""

from __future__ import annotations

import gc
import subprocess
import sys
from importlib.util import find_spec

import pytest

from artimon.runtime.process_setup import OLD, gc_tuned

EXIT = """
import {library}
from artimon.runtime.process_setup import gc_tuned
with gc_tuned():
    pass
"""


def test_the_garbage_collector_settings_are_restored() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    with gc_tuned():
        assert gc.get_threshold()[2] == OLD
        assert gc.get_freeze_count() > frozen
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


@pytest.mark.skipif(find_spec("duckdb") is None, reason="duckdb reports at exit what was not freed")
def test_no_library_reports_leaks_at_exit() -> None:
    """duckdb counts its own objects when the interpreter exits: frozen ones filled the end of a test run."""
    done = subprocess.run(
        [sys.executable, "-c", EXIT.format(library="duckdb")], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
