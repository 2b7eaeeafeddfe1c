"""Table of a run: processor time of children, rows of several workers."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

from tests.durations import Durations, machine_s, processor_s

BUSY_S = 0.3
BUSY = f"""
import time
while time.process_time() < {BUSY_S}: pass
print("done", flush=True)
time.sleep(600)
"""


def test_the_processor_time_of_a_child_counts_while_it_lives_and_afterwards() -> None:
    before = processor_s()
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", BUSY], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "done\n"
        assert processor_s() - before >= BUSY_S - 0.05
        assert processor_s(str(child.pid)) >= BUSY_S - 0.05
        child.kill()
    assert processor_s() - before >= BUSY_S - 0.05
    assert processor_s("no process") == 0.0


def test_rows_of_workers_are_added_up() -> None:
    table = Durations()
    for name, seconds in (("gw0", 1.0), ("gw1", 2.0)):
        output = {"durations": ({"a.py": [seconds, 0.5, 3]}, [seconds, 0.5, 3])}
        table.pytest_testnodedown(SimpleNamespace(workeroutput=output, gateway=SimpleNamespace(id=name)), None)
    table.pytest_testnodedown(SimpleNamespace(gateway=SimpleNamespace(id="crashed")), None)
    assert table.files == {"a.py": [3.0, 1.0, 6]}
    assert table.workers == {"gw0": [1.0, 0.5, 3], "gw1": [2.0, 0.5, 3], "crashed": [0.0, 0.0, 0]}


def test_the_machine_is_idle_for_a_part_of_its_time() -> None:
    idle, whole = machine_s()
    assert 0 <= idle < whole
