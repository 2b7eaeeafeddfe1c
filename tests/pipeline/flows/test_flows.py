"""All flows of an agent: start, change, modes, stop; and flows in an agent's process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import psutil
import pytest

from artimon.runtime.config_file import ConfigFileError
from pipeline.control.agent_commands import AgentMode
from pipeline.control.agent_controls import FlowControls as PlaneFlows
from pipeline.flows.config.flow_file import parse_flows
from pipeline.flows.runtime.flow import Flow
from pipeline.flows.runtime.flows import Flows
from pipeline.flows.spi import ChannelFull, FlowError
from tests.pipeline.flows.parts import Sinks, context, event_batch, eventually_has, numbers_of, registry
from tests.waiting import eventually


def one(name: str, id: str = "one", **more: Any) -> dict[str, Any]:
    return {"name": name, "source": {"type": "api"}, "sink": {"type": "list", "id": id}, **more}


@pytest.fixture
def sinks() -> Sinks:
    return Sinks()


@pytest.fixture
def flows(tmp_path: Path, sinks: Sinks) -> Iterator[Flows]:
    about = context(tmp_path, sinks)
    known = registry(sinks)
    made = Flows(parse_flows(json.dumps({"flow": [one("fixed", "fixed")]}), known, "json"), about, known)
    made.start()
    yield made
    for sink in sinks.values():
        sink.gate.set()
    made.stop(20.0)


def running(flows: Flows, *names: str) -> None:
    """Wait until exactly these flows run."""
    eventually(
        lambda: {r["name"]: r["state"] for r in flows.report()} == dict.fromkeys(names, "running"), f"{names} run"
    )


def test_flows_implement_the_protocol_of_the_control_plane(flows: Flows) -> None:
    plane: PlaneFlows = flows
    assert plane.fault() == ""


def test_added_and_removed_flows_leave_the_others_running(flows: Flows, sinks: Sinks) -> None:
    running(flows, "fixed")
    flows.change([one("a", "a"), one("b", "b")])
    running(flows, "fixed", "a", "b")
    kept, replaced = flows.flow("a"), flows.flow("b")
    kept.put([event_batch(1)])
    replaced.put([event_batch(2)])
    eventually_has(sinks["b"], [2])
    flows.change([one("a", "a"), one("b", "b", batch=7), one("c", "c", off=True)])
    running(flows, "fixed", "a", "b")
    assert flows.flow("a") is kept
    assert flows.flow("b") is not replaced
    with pytest.raises(ChannelFull):
        replaced.put([event_batch(3)])
    flows.flow("b").put([event_batch(4)])
    eventually_has(sinks["b"], [2, 4])
    flows.change([])
    running(flows, "fixed")
    with pytest.raises(FlowError, match="no flow is called 'a'"):
        flows.flow("a")


def test_fault_31_an_invalid_configuration_changes_nothing(flows: Flows, sinks: Sinks) -> None:
    flows.change([one("a", "a")])
    before = flows.flow("a")
    with pytest.raises(ConfigFileError, match="did you mean"):
        flows.change([one("a", "a", batch=3), {**one("b"), "sorce": {}}])
    with pytest.raises(ConfigFileError):
        flows.check([{"name": "x"}])
    assert flows.flow("a") is before
    assert before.state == "running"


def test_scenario_36_a_stopped_flow_delivers_its_events_after_its_return(flows: Flows, sinks: Sinks) -> None:
    """Reconfigured under load: nothing is lost, nothing hangs."""
    sinks["a"].down()
    for round_ in range(5):
        flows.change([one("a", "a", batch=round_ + 1)])
        flows.flow("a").put([event_batch(round_)])
    flows.change([])
    assert any("belongs to no flow" in text for text in flows.figures()["problems"])
    sinks["a"].up()
    flows.change([one("a", "a")])
    eventually_has(sinks["a"], range(5))


def test_a_new_flow_that_cannot_start_is_an_error_and_the_others_run(flows: Flows) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        bad = {**one("bad"), "source": {"type": "agent", "port": port}}
        with pytest.raises(FlowError, match=f"cannot listen on 127.0.0.1:{port}"):
            flows.change([one("good"), bad])
        assert "bad" in flows.fault()
        assert flows.flow("good").state == "running"
    eventually(lambda: flows.fault() == "", "the port is free again")


def test_modes_apply_to_every_flow(flows: Flows, sinks: Sinks) -> None:
    running(flows, "fixed")
    flows.set_mode(AgentMode.PAUSED)
    flow = flows.flow("fixed")
    eventually(lambda: all(r["paused"] for r in flow.figures()["runners"].values()), "paused")
    flow.put([event_batch(1)])
    assert flows.waiting() == 1
    flows.set_mode(AgentMode.DRAINING)
    eventually(lambda: flows.waiting() == 0, "drained")
    with pytest.raises(ChannelFull):
        flow.put([event_batch(2)])
    flows.set_mode(AgentMode.RUNNING)
    flow.put([event_batch(3)])
    eventually_has(sinks["fixed"], [1, 3])


def test_roll_reaches_sinks_that_support_it(flows: Flows, sinks: Sinks) -> None:
    running(flows, "fixed")
    assert flows.roll() == 0
    sinks["fixed"].roll = lambda: None  # type: ignore[attr-defined]
    assert flows.roll("fixed") == 1


def test_a_hanging_flow_does_not_delay_the_others(flows: Flows, sinks: Sinks) -> None:
    flows.change([one("hangs", "hangs", stop_s=30), one("fine", "fine")])
    running(flows, "fixed", "hangs", "fine")
    sinks["hangs"].gate.clear()
    flows.flow("hangs").put([event_batch(1)])
    eventually(sinks["hangs"].entered.is_set, "it hangs")
    began = monotonic()
    problems = flows.stop(8.0)
    assert monotonic() - began < 20
    assert all("hangs" in text for text in problems), problems
    assert problems
    assert sinks["fine"].stopped == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_dead_supervisor_is_restarted(flows: Flows, monkeypatch: pytest.MonkeyPatch) -> None:
    running(flows, "fixed")

    def die(self: Flow) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(Flow, "tick", die)
        eventually(lambda: not any(t.name == "flows" for t in threading.enumerate()), "the supervisor is dead")
    assert flows.figures()["supervisor_restarts"] == 1
    eventually(lambda: any(t.name == "flows" for t in threading.enumerate()), "another one")


def files_open() -> int:
    """Number of handles of this process that are no sockets."""
    count = 0
    for handle in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile, as that of the listing is
            count += not handle.readlink().name.startswith("socket:")
    return count


def test_scenario_41_thousands_of_batches_leak_nothing(flows: Flows, sinks: Sinks) -> None:
    """Files and threads return to their number; memory grows only by the data of the test itself. Sockets do not count:
    this flow has none, and clients of other tests of the process may connect again meanwhile."""
    running(flows, "fixed")
    flow, sink = flows.flow("fixed"), sinks["fixed"]
    me = psutil.Process()

    def many(first: int) -> tuple[int, int, int]:
        for n in range(first, first + 800, 50):
            flow.put([event_batch(m) for m in range(n, n + 50)])
        eventually(lambda: flow.waiting == 0, "delivered")
        assert len(sink.event_batches) == 800
        assert numbers_of(sink.event_batches[-1:]) == [first + 799]
        sink.event_batches.clear()
        return files_open(), me.num_threads(), me.memory_info().rss

    many(0)
    files, threads, memory = many(800)
    for turn in range(2, 5):
        after = many(800 * turn)
    assert after[0] <= files
    assert after[1] <= threads
    assert after[2] < memory + 8 * 1024 * 1024


def test_an_agent_process_runs_flows_of_a_file_and_polls(tmp_path: Path) -> None:
    """ZooKeeper is absent and not needed."""
    file, health = tmp_path / "flows.toml", tmp_path / "health.json"
    file.write_text(
        '[[flow]]\nname = "numbers"\n[flow.source]\ntype = "sequence"\ncount = 1000\n[flow.sink]\ntype = "null"\n'
    )
    command = [sys.executable, "-m", "artimon.cli", "agent", "--name", "a", "--zookeeper", "127.0.0.1:1"]
    command += ["--data", str(tmp_path / "data"), "--flows", str(file), "--health", str(health), "--no-host-metrics"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            eventually(lambda: delivered(health) == 10, "all delivered")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert (tmp_path / "data" / "flows" / "numbers" / "log").is_dir()


def delivered(health: Path) -> int:
    try:
        found = json.loads(health.read_text())["figures"]
        return int(found["flow_delivered"]["numbers"])
    except (OSError, ValueError, KeyError):
        return 0


def test_an_agent_does_not_start_with_invalid_flows(tmp_path: Path) -> None:
    file = tmp_path / "flows.toml"
    file.write_text('[[flow]]\nname = "x"\n[flow.sink]\ntype = "nul"\n')
    command = [sys.executable, "-m", "artimon.cli", "agent", "--data", str(tmp_path / "data"), "--flows", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert "flows.toml:4:1: flow[0].sink.type: no sink is called 'nul'; did you mean null" in done.stderr
    check = subprocess.run(
        [sys.executable, "-m", "artimon.cli", "flows", "check", str(file)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert check.returncode == 1
    assert "did you mean null" in check.stdout + check.stderr
