"""The supervisor keeps parts running, in order, and leaves nothing behind. Parts are real processes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from artimon.stack.part_runner import Phase
from artimon.stack.stack_errors import NotHealthyError, UnknownPartError
from artimon.stack.stack_part import StackPart
from artimon.stack.stack_state import PartState
from artimon.stack.supervisor import Supervisor
from tests.stack.fakes import DEADLINE_S, FORKING, Fake, gone, make_context
from tests.waiting import eventually


@contextmanager
def supervised(data: Path, *parts: StackPart) -> Iterator[tuple[Supervisor, list[list[PartState]]]]:
    """A running supervisor and what it published, oldest first."""
    published: list[list[PartState]] = []
    supervisor = Supervisor(parts, make_context(data), lambda states, guard_pid: published.append(states))
    supervisor.start()
    try:
        yield supervisor, published
    finally:
        supervisor.stop()


def test_a_killed_part_is_restarted(tmp_path: Path) -> None:
    with supervised(tmp_path, Fake("a")) as (supervisor, _):
        supervisor.wait_healthy(DEADLINE_S)
        first = supervisor.states()["a"].pid
        assert supervisor.kill("a") == first
        assert supervisor.wait(lambda states: states["a"].pid not in (0, first), DEADLINE_S)
        supervisor.wait_healthy(DEADLINE_S)
        assert supervisor.states()["a"].restarts == 1
        assert gone(first)


def test_what_a_part_forked_dies_with_it(tmp_path: Path) -> None:
    """Also a child that made a process group of its own, as Spark's Python workers do."""
    note = tmp_path / "forked"
    with supervised(tmp_path, Fake("a", FORKING, str(note))) as (supervisor, _):
        eventually(lambda: note.exists() and note.read_text() != "", "the fork")
        forked = int(note.read_text())
        first = supervisor.kill("a")
        assert supervisor.wait(lambda states: states["a"].pid != first, DEADLINE_S)
        eventually(lambda: gone(forked), "the end of the first fork")
        eventually(lambda: int(note.read_text() or forked) != forked, "the second fork")
        last = int(note.read_text())
    eventually(lambda: gone(last), "the end of the second fork")


def test_start_waits_for_what_is_needed(tmp_path: Path) -> None:
    ready: list[bool] = []
    base = Fake("base", problem=lambda: "" if ready else "not yet")
    with supervised(tmp_path, base, Fake("user", after=("base",))) as (supervisor, published):
        assert supervisor.wait(lambda states: states["base"].problem == "not yet", DEADLINE_S)
        assert supervisor.states()["user"].state == Phase.WAITING
        ready.append(True)
        supervisor.wait_healthy(DEADLINE_S)
    for states in published:
        now = {state.name: state for state in states}
        assert not (now["user"].pid and now["base"].state in (Phase.STOPPED, Phase.WAITING))


def test_stop_goes_from_the_upper_layer_down(tmp_path: Path) -> None:
    slow = "import signal, sys, time; signal.signal(15, lambda *_: (time.sleep(0.3), sys.exit(0))); signal.pause()"
    with supervised(tmp_path, Fake("base"), Fake("upper", slow, layer=1)) as (supervisor, published):
        supervisor.wait_healthy(DEADLINE_S)
    for states in published:
        now = {state.name: state.state for state in states}
        assert not (now["base"] == Phase.STOPPING and now["upper"] == Phase.STOPPING)
    assert all(state.pid == 0 for state in published[-1])


def test_a_part_that_ignores_sigterm_is_killed_in_time(tmp_path: Path) -> None:
    deaf = "import signal; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True)\nwhile True: signal.pause()"
    with supervised(tmp_path, Fake("a", deaf, limits={"stop_s": 0.3})) as (supervisor, _):
        eventually(lambda: "deaf" in _log(tmp_path, "a"), "the program")
        pid = supervisor.states()["a"].pid
    assert gone(pid)


def test_stop_one_and_start_it_again(tmp_path: Path) -> None:
    with supervised(tmp_path, Fake("a"), Fake("b")) as (supervisor, _):
        supervisor.wait_healthy(DEADLINE_S)
        supervisor.set_wanted("a", False)
        assert supervisor.wait(lambda states: states["a"].state == Phase.STOPPED, DEADLINE_S)
        supervisor.wait_healthy(DEADLINE_S)  # a stopped part is not waited for
        supervisor.set_wanted("a", True)
        assert supervisor.wait(lambda states: states["a"].state == Phase.HEALTHY, DEADLINE_S)
        assert supervisor.states()["a"].restarts == 0


def test_orderly_restart(tmp_path: Path) -> None:
    with supervised(tmp_path, Fake("a")) as (supervisor, _):
        supervisor.wait_healthy(DEADLINE_S)
        first = supervisor.states()["a"].pid
        supervisor.restart("a")
        assert supervisor.wait(lambda states: states["a"].pid not in (0, first), DEADLINE_S)


def test_a_program_that_ends_says_why(tmp_path: Path) -> None:
    with supervised(tmp_path, Fake("a", "import sys; sys.exit(7)")) as (supervisor, _):
        assert supervisor.wait(lambda states: states["a"].restarts >= 2, DEADLINE_S)
        with pytest.raises(NotHealthyError, match="exit code 7"):
            supervisor.wait_healthy(0.1)


def test_a_failed_preparation_is_tried_again(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    once = (
        f"import pathlib, sys; flag = pathlib.Path({str(flag)!r}); sys.exit(0 if flag.exists() else flag.touch() or 3)"
    )
    with supervised(tmp_path, Fake("a", prepared=(once,))) as (supervisor, _):
        supervisor.wait_healthy(DEADLINE_S)
        assert supervisor.states()["a"].restarts == 1


def test_a_part_that_stays_unhealthy_is_restarted(tmp_path: Path) -> None:
    problems = [""]
    part = Fake("a", problem=lambda: problems[0], limits={"hung_s": 0.3})
    with supervised(tmp_path, part) as (supervisor, _):
        supervisor.wait_healthy(DEADLINE_S)
        problems[0] = "deaf"
        assert supervisor.wait(lambda states: states["a"].restarts >= 1, DEADLINE_S)
        assert "deaf" in supervisor.states()["a"].problem
        problems[0] = ""
        supervisor.wait_healthy(DEADLINE_S)


def test_a_stopped_process_can_be_stopped(tmp_path: Path) -> None:
    with supervised(tmp_path, Fake("a")) as (supervisor, _):
        supervisor.wait_healthy(DEADLINE_S)
        pid = supervisor.kill("a", signal.SIGSTOP)
    assert gone(pid)


def test_a_check_that_raises_is_a_problem_not_an_end(tmp_path: Path) -> None:
    def broken() -> str:
        raise ConnectionRefusedError("nobody there")

    with supervised(tmp_path, Fake("a", problem=broken)) as (supervisor, _):
        assert supervisor.wait(lambda states: "nobody there" in states["a"].problem, DEADLINE_S)


def test_unknown_part(tmp_path: Path) -> None:
    with supervised(tmp_path, Fake("a")) as (supervisor, _), pytest.raises(UnknownPartError, match="known parts are a"):
        supervisor.restart("b")


def _log(data: Path, part: str) -> str:
    path = data / "logs" / f"{part}.log"
    return path.read_text() if path.exists() else ""
