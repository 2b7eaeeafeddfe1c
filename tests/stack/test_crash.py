"""No process of the stack survives the supervisor's process, however that ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from artimon.stack.child_process import rotate_log, same_process, start_time
from artimon.stack.stack_errors import AlreadyRunningError
from artimon.stack.stack_state import DataLock, PartState, StackState, kill_stale, read_state, write_state
from tests.stack.fakes import gone
from tests.waiting import eventually

SUPERVISOR = """
import os, signal, sys
from pathlib import Path
from artimon.stack.supervisor import Supervisor
from tests.stack.fakes import FORKING, Fake, make_context

data = Path(sys.argv[1])
supervisor = Supervisor([Fake("a", FORKING, str(data / "forked"))], make_context(data), lambda states, guard: None)
supervisor.start()
supervisor.wait_healthy(20)
print(supervisor.states()["a"].pid, flush=True)
signal.pause()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_nothing_outlives_a_supervisor_that_crashed(tmp_path: Path, number: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        assert process.stdout is not None
        part = int(process.stdout.readline())
        note = tmp_path / "forked"
        eventually(lambda: note.exists() and note.read_text() != "", "the fork")
        forked = int(note.read_text())
        assert not gone(part)
        process.send_signal(number)
        process.wait(timeout=60)
    eventually(lambda: gone(part) and gone(forked), "the end of both processes")


def test_what_an_earlier_supervisor_left_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True) as left:
        part = PartState("a", "healthy", left.pid, start_time(left.pid))
        other = PartState("b", "healthy", left.pid, start_time(left.pid) - 1000)
        write_state(tmp_path, StackState(1, 0.0, {}, {}, [other]))
        assert kill_stale(tmp_path) == []  # the number was given to another process since
        assert left.poll() is None
        write_state(tmp_path, StackState(1, 0.0, {}, {}, [part]))
        assert kill_stale(tmp_path) == ["a"]
        assert left.wait(timeout=60) == -signal.SIGKILL


def test_one_stack_a_folder(tmp_path: Path) -> None:
    lock = DataLock(tmp_path)
    with pytest.raises(AlreadyRunningError, match="artimon down --data"):
        DataLock(tmp_path)
    lock.release()
    DataLock(tmp_path).release()


def test_state_survives_a_round_and_damage_is_none(tmp_path: Path) -> None:
    state = StackState(12, 3.5, {"kafka.broker": 9092}, {"ARTIMON_DATA": "x"}, [PartState("kafka", "healthy", 13, 3.6)])
    assert read_state(tmp_path) is None
    write_state(tmp_path, state)
    assert read_state(tmp_path) == state
    whole = json.loads((tmp_path / "stack.json").read_text())
    for damage in ("", "{", json.dumps({**whole, "format": 99}), json.dumps({**whole, "more": 1})):
        (tmp_path / "stack.json").write_text(damage)
        assert read_state(tmp_path) is None


def test_a_zombie_is_not_the_process(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as process:
        began = start_time(process.pid)
        eventually(lambda: not same_process(process.pid, began), "the end of the process")


def test_log_rotation_keeps_the_writer_going(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    with log.open("ab") as writer:
        for text in (b"one\n" * 100, b"two\n" * 100, b"three\n" * 100):
            writer.write(text)
            writer.flush()
            assert rotate_log(log, limit=100, kept=2)
        writer.write(b"four\n")
    assert log.read_text() == "four\n"
    assert log.with_suffix(".log.1").read_text().startswith("three")
    assert log.with_suffix(".log.2").read_text().startswith("two")
    assert not rotate_log(log, limit=100)
