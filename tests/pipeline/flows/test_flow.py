"""One running flow: delivery modes, faults of sinks and sources, groups, lifecycle, supervision."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.event import EventError
from pipeline.flows.config.flow_file import parse_flows
from pipeline.flows.context import Context
from pipeline.flows.event import Event, EventBatch
from pipeline.flows.lifecycle import LifecycleState
from pipeline.flows.options import Options
from pipeline.flows.registry import Component, ComponentKind
from pipeline.flows.runtime.flow import Flow
from pipeline.flows.runtime.flow_runners import SourceRunner
from pipeline.flows.spi import ChannelFull, SinkFailed
from tests.pipeline.flows.parts import Sinks, event_batch, eventually_has, flow, numbers_of, registry, until_full
from tests.waiting import eventually

PLAIN = """
[[flow]]
name = "plain"
delivery = "{delivery}"
[flow.source]
type = "api"
{channel}
[flow.sink]
type = "list"
"""


def plain(folder: Path, sinks: Sinks, delivery: str = "end-to-end", channel: str = "") -> Flow:
    made = flow(PLAIN.format(delivery=delivery, channel=channel), folder, sinks)
    made.start()
    assert made.state is LifecycleState.RUNNING, made.problem
    return made


@pytest.mark.parametrize("delivery", ["end-to-end", "disk-failover", "best-effort"])
def test_events_arrive_once_and_in_order(tmp_path: Path, delivery: str) -> None:
    sinks = Sinks()
    running = plain(tmp_path, sinks, delivery)
    for n in range(50):
        running.put([event_batch(n)])
    eventually_has(sinks["one"], range(50))
    assert running.stop() == []
    assert running.state is LifecycleState.STOPPED
    assert sinks["one"].stopped == 1


@pytest.mark.parametrize("delivery", ["end-to-end", "disk-failover", "best-effort"])
def test_a_failing_sink_is_retried_until_it_succeeds(tmp_path: Path, delivery: str) -> None:
    sinks = Sinks()
    sinks["one"].down()
    running = plain(tmp_path, sinks, delivery)
    for n in range(20):
        running.put([event_batch(n)])
    eventually(lambda: sinks["one"].calls > 3, "tries")
    assert any("down" in text for text in running.figures()["problems"])
    sinks["one"].up()
    eventually_has(sinks["one"], range(20))
    running.put([event_batch(20)])
    eventually_has(sinks["one"], range(21))
    eventually(lambda: not running.figures()["problems"], "no problem any more")
    running.stop()


def test_disk_failover_bypasses_the_log_while_the_sink_works(tmp_path: Path) -> None:
    sinks = Sinks()
    running = plain(tmp_path, sinks, "disk-failover")
    running.put([event_batch(0)])
    assert sinks["one"].numbers == [0]  # when put returns, without any runner
    before = running.figures()["channel"]["fsyncs"]
    sinks["one"].down()
    running.put([event_batch(1)])
    running.put([event_batch(2)])
    figures = running.figures()["channel"]
    assert (figures["direct"], figures["logged"]) == (1, 2)
    assert figures["fsyncs"] > before
    sinks["one"].up()
    eventually_has(sinks["one"], [0, 1, 2])

    def straight_again() -> bool:
        running.put([event_batch(3)])
        return bool(running.figures()["channel"]["direct"] > 1)

    eventually(straight_again, "direct delivery again")
    assert sinks["one"].numbers == sorted(sinks["one"].numbers)
    running.stop()


def test_events_logged_by_disk_failover_survive_a_restart(tmp_path: Path) -> None:
    sinks = Sinks()
    running = plain(tmp_path, sinks, "disk-failover")
    running.put([event_batch(0)])
    sinks["one"].down()
    running.put([event_batch(1)])
    running.stop()
    sinks["one"].up()
    running = plain(tmp_path, sinks, "disk-failover")
    eventually_has(sinks["one"], [0, 1])
    running.stop()


def test_best_effort_delivers_the_rest_when_it_stops(tmp_path: Path) -> None:
    sinks = Sinks()
    running = plain(tmp_path, sinks, "best-effort")
    for n in range(100):
        running.put([event_batch(n)])
    running.stop()
    assert sinks["one"].numbers == list(range(100))


def test_permanently_refused_event_batches_are_rejected_and_the_rest_is_delivered(tmp_path: Path) -> None:
    """Scenario 28 at the end of the flow."""
    sinks = Sinks()
    sinks["one"].fails = lambda event_batches: (
        SinkFailed("bad", retry=False) if 3 in numbers_of(event_batches) else None
    )
    sinks["one"].gate.clear()
    running = plain(tmp_path, sinks)
    for n in range(8):
        running.put([event_batch(n)])
    sinks["one"].gate.set()
    eventually_has(sinks["one"], [0, 1, 2, 4, 5, 6, 7])
    (aside,) = (tmp_path / "plain" / "rejected").iterdir()
    assert b'"reason": "bad"' in aside.read_bytes()
    assert running.figures()["runners"]["sink sink"]["rejected"] == 1
    running.stop()


def test_an_event_beyond_the_limits_refuses_its_whole_call(tmp_path: Path) -> None:
    sinks = Sinks()
    running = plain(tmp_path, sinks)
    with pytest.raises(EventError, match="at most"):
        running.put([event_batch(1), EventBatch((Event({}, bytes(300_000)),))])
    with pytest.raises(EventError, match="headers"):
        running.put([EventBatch((Event({str(n): "" for n in range(65)}, b""),))])
    running.put([EventBatch(tuple(Event({"n": str(n)}, bytes(100_000)) for n in range(20)))])  # cut so that it fits
    eventually_has(sinks["one"], range(20))
    assert len(sinks["one"].event_batches) > 3
    assert running.figures()["in"]["refused"] == {"event": 2}
    running.stop()


def test_pause_stops_delivery_and_drain_empties_the_channel(tmp_path: Path) -> None:
    sinks = Sinks()
    running = plain(tmp_path, sinks)
    running.pause()
    running.put([event_batch(1)])
    eventually(lambda: running.figures()["runners"]["sink sink"]["paused"], "paused")
    running.stop_accepting()
    with pytest.raises(ChannelFull):
        running.put([event_batch(2)])
    assert running.waiting == 1
    running.resume()
    running.put([event_batch(3)])
    eventually_has(sinks["one"], [1, 3])
    running.stop()


FAN_OUT = """
[[flow]]
name = "fan"
delivery = "{delivery}"
[flow.source]
type = "api"
[flow.group]
type = "fan-out"
sinks = [
  {{ type = "list", id = "a", name = "a" }},
  {{ type = "list", id = "b", name = "b" }},
  {{ type = "list", id = "c", name = "c", required = false, behind_bytes = 20000 }},
]
"""


@pytest.mark.parametrize("delivery", ["end-to-end", "best-effort"])
def test_scenario_37_branches_continue_without_a_dead_optional_one(tmp_path: Path, delivery: str) -> None:
    """Fault 25: a failure of one branch does not repeat deliveries to another."""
    sinks = Sinks()
    sinks["c"].down()
    running = flow(FAN_OUT.format(delivery=delivery), tmp_path, sinks)
    running.start()
    for n in range(100):
        running.put([EventBatch((Event({"n": str(n)}, bytes(1000)),))])
    eventually_has(sinks["a"], range(100))
    eventually_has(sinks["b"], range(100))
    sinks["b"].down()
    running.put([event_batch(100)])
    eventually_has(sinks["a"], range(101))
    assert sinks["c"].numbers == []
    skipped = running.figures()["channel"]["branches"]["c"]["skipped"]
    assert skipped > 0
    sinks["b"].up()
    sinks["c"].up()
    eventually_has(sinks["b"], range(101))
    eventually(lambda: sinks["c"].numbers[-1:] == [100], "the optional branch follows")
    assert len(sinks["c"].numbers) == len(set(sinks["c"].numbers))
    running.stop()


def test_a_dead_required_branch_blocks_the_flow_and_loses_nothing(tmp_path: Path) -> None:
    sinks = Sinks()
    sinks["b"].down()
    text = FAN_OUT.format(delivery="best-effort") + "[flow.channel]\nbytes = 20000\n"
    running = flow(text.replace('name = "fan"', 'name = "fan"\nput_s = 0.2'), tmp_path, sinks)
    running.start()
    count = until_full(lambda n: running.put([EventBatch((Event({"n": str(n)}, bytes(1000)),))]))
    eventually_has(sinks["a"], range(count))
    sinks["b"].up()
    eventually_has(sinks["b"], range(count))
    running.stop()


GROUP = """
[[flow]]
name = "group"
[flow.source]
type = "api"
[flow.group]
type = "{kind}"
sinks = [{{ type = "list", id = "a", name = "a" }}, {{ type = "list", id = "b", name = "b" }}]
"""


def test_failover_switches_to_the_next_sink_and_back(tmp_path: Path) -> None:
    sinks = Sinks()
    running = flow(GROUP.format(kind="failover"), tmp_path, sinks)
    running.start()
    running.put([event_batch(0)])
    eventually_has(sinks["a"], [0])
    sinks["a"].down()
    running.put([event_batch(1)])
    eventually_has(sinks["b"], [1])
    sinks["a"].up()

    def back() -> bool:
        running.put([event_batch(9)])
        return sinks["a"].numbers[-1] == 9

    eventually(back, "the first sink again")
    assert running.figures()["sinks"]["failover"]["sinks"]["a"]["failures"] == 1
    running.stop()


@pytest.mark.parametrize("kind", ["round-robin", "least-loaded"])
def test_balance_uses_all_sinks_but_failing_ones(tmp_path: Path, kind: str) -> None:
    sinks = Sinks()
    running = flow(GROUP.format(kind=kind), tmp_path, sinks)
    running.start()
    count = 0
    while not (sinks["a"].numbers and sinks["b"].numbers):
        running.put([event_batch(count)])
        count += 1
        eventually(lambda: running.waiting == 0, "delivered")
        assert count < 1000
    sinks["a"].down()
    before = len(sinks["a"].numbers)
    for n in range(count, count + 10):
        running.put([event_batch(n)])
    eventually(lambda: len(sinks["a"].numbers) + len(sinks["b"].numbers) == count + 10, "all")
    assert len(sinks["a"].numbers) == before
    assert sorted(sinks["a"].numbers + sinks["b"].numbers) == list(range(count + 10))
    running.stop()


class Dying:
    """Pollable source whose thread dies sometimes, by SystemExit, which is no Exception."""

    def __init__(self) -> None:
        self.next = 0

    def start(self) -> None:
        pass

    def poll(self, put: Any) -> bool:
        if self.next >= 30:
            return False
        put([event_batch(self.next)])
        self.next += 1
        if self.next in (10, 20):
            raise SystemExit
        return True

    def stop(self, deadline_s: float) -> None:
        pass

    def figures(self) -> dict[str, Any]:
        return {}


class NoOptions(Options):
    pass


def component(name: str, made: Any) -> Component:
    return Component(name, NoOptions, lambda options, context: made)


def built(text: str, folder: Path, sinks: Sinks, *sources: Component) -> Flow:
    found = registry(sinks)
    found.add(ComponentKind.SOURCE, *sources)
    (config,) = parse_flows(text, found)
    return Flow(config, Context("agent-1", "", "", folder, found))


def ticking(running: Flow, until: Any, what: str) -> None:
    def ready() -> bool:
        running.tick()
        return bool(until())

    eventually(ready, what)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_scenario_40_a_thread_that_dies_is_restarted_and_counted(tmp_path: Path) -> None:
    sinks = Sinks()
    deaths = iter([SystemExit(), SystemExit()])
    sinks["one"].fails = lambda event_batches: next(deaths, None) if sinks["one"].calls % 3 == 1 else None  # type: ignore
    text = PLAIN.format(delivery="end-to-end", channel="").replace('"api"', '"dying"')
    running = built(text, tmp_path, sinks, component("dying", Dying()))
    running.start()
    ticking(running, lambda: len(sinks["one"].numbers) == 30, "all events")
    assert sinks["one"].numbers == list(range(30))
    runners = running.figures()["runners"]
    assert runners["source"]["deaths"] == 2
    assert runners["sink sink"]["deaths"] >= 1
    running.stop()


def test_scenario_40_work_without_progress_is_an_alarm(tmp_path: Path) -> None:
    sinks = Sinks()
    sinks["one"].gate.clear()
    text = PLAIN.format(delivery="end-to-end", channel="").replace('name = "plain"', 'name = "plain"\nstall_s = 0.05')
    running = built(text, tmp_path, sinks)
    running.start()
    running.put([event_batch(1)])
    ticking(running, lambda: running.figures()["runners"]["sink sink"]["alarms"] == 1, "the alarm")
    assert any("no progress" in text for text in running.figures()["problems"])
    sinks["one"].gate.set()
    eventually_has(sinks["one"], [1])
    ticking(running, lambda: not running.figures()["problems"], "no alarm any more")
    running.stop()


def test_fault_29_an_idle_source_is_polled_at_once_when_it_wakes(tmp_path: Path) -> None:
    sinks, polls = Sinks(), []
    there = threading.Event()

    class Sleepy(Dying):
        def __init__(self, context: Context) -> None:
            super().__init__()
            self.wake = context.wake

        def poll(self, put: Any) -> bool:
            polls.append(monotonic())
            if there.is_set() and self.next == 0:
                put([event_batch(0)])
                self.next = 1
            return False

    made: list[Sleepy] = []

    def build(options: NoOptions, about: Context) -> Sleepy:
        made.append(Sleepy(about))
        return made[-1]

    text = PLAIN.format(delivery="best-effort", channel="").replace('name = "plain"', 'name = "plain"\nidle_s = 60')
    running = built(text.replace('"api"', '"sleepy"'), tmp_path, sinks, Component("sleepy", NoOptions, build))
    running.start()
    eventually(lambda: len(polls) == 1, "the first poll")
    there.set()
    made[0].wake()
    eventually_has(sinks["one"], [0], seconds=20)
    assert len(polls) == 2
    running.stop()


def test_fault_23_a_stop_while_the_source_clears_its_wake_is_not_missed() -> None:
    """Otherwise the source would sleep for its idle time and outlive the stop."""

    class Source(Dying):
        def poll(self, put: Any) -> bool:
            del put
            return False

    class Late(threading.Event):
        """`stop` arrives just before the wake event is cleared."""

        def clear(self) -> None:
            runner._stop.set()
            self.set()
            super().clear()

    runner = SourceRunner("source", Source(), lambda _: None, 3_600.0, 60.0, SYSTEM_CLOCK)
    runner._there = Late()
    runner.start()
    runner._thread.join(60.0)  # type: ignore[union-attr]
    assert not runner._thread.is_alive()  # type: ignore[union-attr]


def test_fault_23_stop_is_bounded_when_any_part_hangs(tmp_path: Path) -> None:
    sinks = Sinks()
    sinks["one"].gate.clear()
    text = PLAIN.format(delivery="end-to-end", channel="").replace('name = "plain"', 'name = "plain"\nstop_s = 0.5')
    running = built(text, tmp_path, sinks)
    running.start()
    running.put([event_batch(1)])
    eventually(sinks["one"].entered.is_set, "the sink hangs")
    began = monotonic()
    problems = running.stop()
    assert monotonic() - began < 15
    assert any("sink sink" in text for text in problems)
    assert running.state is LifecycleState.ERROR
    assert sinks["one"].stopped == 1  # the stop continues after a failure
    sinks["one"].gate.set()  # the abandoned delivery returns: it must not commit
    again = plain(tmp_path, sinks)
    eventually(lambda: sinks["one"].numbers[-1:] == [1] and again.waiting == 0, "the event")
    again.stop()


@pytest.mark.parametrize("channel", ["memory", "file", "sql", "disk-failover", "fan-out"])
def test_stop_interrupts_a_take_that_waits_for_data(
    tmp_path: Path, channel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For any length of the wait."""
    monkeypatch.setattr("pipeline.flows.runtime.flow_runners.TAKE_WAIT_S", 120.0)
    sinks = Sinks()
    if channel == "disk-failover":
        running = plain(tmp_path, sinks, channel)
    elif channel == "fan-out":
        running = flow(FAN_OUT.format(delivery="end-to-end"), tmp_path, sinks)
        running.start()
    else:
        durable = "best-effort" if channel == "memory" else "end-to-end"
        running = plain(tmp_path, sinks, durable, f'[flow.channel]\ntype = "{channel}"\n')
    running.put([event_batch(1)])
    eventually(lambda: not running.waiting and all(sink.numbers == [1] for sink in sinks.values()), "it has arrived")
    began = monotonic()
    assert running.stop(60.0) == []
    assert monotonic() - began < 30


def test_a_failed_start_of_a_flow_is_retried(tmp_path: Path) -> None:
    sinks = Sinks()
    first = plain(tmp_path, sinks)
    second = flow(PLAIN.format(delivery="end-to-end", channel=""), tmp_path, sinks)
    second.start()
    assert second.fault
    assert "in use" in second.figures()["problems"][0]
    first.stop()
    ticking(second, lambda: second.state is LifecycleState.RUNNING, "the second flow")
    second.put([event_batch(5)])
    eventually_has(sinks["one"], [5])
    second.stop()


def test_scenario_36_stop_just_after_start(tmp_path: Path) -> None:
    sinks = Sinks()
    for n in range(5):
        running = plain(tmp_path, sinks)
        running.put([event_batch(n)])
        assert running.stop() == []
    running = plain(tmp_path, sinks)
    eventually_has(sinks["one"], range(5))
    running.stop()


def test_interceptors_change_events(tmp_path: Path) -> None:
    sinks = Sinks()
    text = """
[[flow]]
name = "cut"
[flow.source]
type = "list"
events = ["GET /a 200", "GET /b 500", "noise"]
headers = { secret = "x" }
[[flow.interceptor]]
type = "regex-filter"
pattern = "^GET"
[[flow.interceptor]]
type = "regex-extract"
pattern = '^GET (?P<path>\\S+) (?P<status>\\d+)'
[[flow.interceptor]]
type = "static"
headers = { dc = "jb" }
[[flow.interceptor]]
type = "timestamp"
[[flow.interceptor]]
type = "host"
[[flow.interceptor]]
type = "drop-headers"
names = ["secret"]
[flow.sink]
type = "list"
"""
    running = flow(text, tmp_path, sinks)
    running.start()
    eventually(lambda: len(sinks["one"].event_batches) == 1, "events")
    from pipeline.flows.event import events_of

    first, second = events_of(sinks["one"].event_batches[0])
    assert first.headers.keys() == {"path", "status", "dc", "timestamp", "host"}
    assert (second.headers["path"], second.headers["status"], second.headers["dc"]) == ("/b", "500", "jb")
    assert running.figures()["in"]["interceptors"][0] == {"name": "regex-filter", "dropped": 1}
    running.stop()


def test_a_failing_interceptor_refuses_the_put(tmp_path: Path) -> None:
    class Broken:
        def __call__(self, event_batches: Sequence[EventBatch]) -> Sequence[EventBatch]:
            raise ZeroDivisionError

        def figures(self) -> dict[str, Any]:
            return {}

    sinks = Sinks()
    found = registry(sinks)
    found.add(ComponentKind.INTERCEPTOR, component("broken", Broken()))
    text = PLAIN.format(delivery="end-to-end", channel='[[flow.interceptor]]\ntype = "broken"')
    (config,) = parse_flows(text, found)
    running = Flow(config, Context("agent-1", "", "", tmp_path, found))
    running.start()
    with pytest.raises(RuntimeError, match="interceptor broken"):
        running.put([event_batch(1)])
    assert running.waiting == 0
    running.stop()
