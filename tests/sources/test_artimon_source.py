"""The whole source against a real ZooKeeper and real applications in processes of their own."""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial
from pathlib import Path

import pytest

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.labels import parse_canonical
from artimon.stack.stack import Stack
from tests.sources.helpers import HOST, Application, KeepingSink, registry, running, wipe
from tests.waiting import until

pytestmark = pytest.mark.stack
AGENT = f"agent/{HOST}/agent1"


def has(sink: KeepingSink, source: str, orders: int) -> bool:
    return sink.last(source)["orders"] == orders


def up_of(sink: KeepingSink, context: str) -> list[object]:
    """Return the values of artimon.endpoint.up of a context, oldest first; None where it ended."""
    return [
        value
        for text, _, _, value in sink.samples(AGENT)
        if text.startswith("artimon.endpoint.up{") and f'context="{context}"' in text
    ]


def test_an_application_is_found_polled_and_its_end_told(tree: str, tmp_path: Path) -> None:
    """The last count before an orderly exit is stored; then its series and `up` end."""

    async def run() -> None:
        sink, source = KeepingSink(), f"whole/{HOST}/0"
        app = Application(tree, "whole", tmp_path / "run")
        started = SYSTEM_CLOCK.now_ms()
        await app.do("add orders 5")
        await app.do("set load 0.5")
        await app.do("text state ünï")
        async with running(tree, tmp_path / "data", sink) as artimon:
            await until(lambda: sink.last(source).get("orders") == 5, "the first poll")
            assert sink.last(source)["load"] == 0.5
            assert sink.last(source)["state"] == "ünï"
            text = next(text for text, *_ in sink.samples(source) if text.startswith("orders"))
            assert parse_canonical(text)[1] == {
                "part": "x",
                "context": "whole",
                "instance": "0",
                "host": HOST,
            }
            assert all(abs(birth - started) < 10_000 for _, _, birth, _ in sink.samples(source))
            await until(lambda: up_of(sink, "whole")[-1:] == [1], "up = 1")
            before_drop = sink.samples(source)[-1][1]
            await app.do("add late 1")
            await app.do("drop orders")
            await until(lambda: sink.last(source)["orders"] is None, "the end of a removed variable")
            births = {birth for text, _, birth, _ in sink.samples(source) if text.startswith("late")}
            assert len(births) == 1
            assert min(births) >= before_drop, "it began at the poll before, not with the process"
            await app.do("add late 41")
            await app.leave()
            await until(lambda: sink.last(source)["late"] is None, "the end of the process")
            values = [value for text, _, _, value in sink.samples(source) if text.startswith("late")]
            assert values[-2:] == [42, None], "the last poll came after the last add"
            await until(lambda: up_of(sink, "whole")[-1:] == [None], "up to end, as it left in order")
            assert 0 not in up_of(sink, "whole")
            assert artimon.figures()["refused"] == {}

    asyncio.run(run())


def test_a_killed_application_stays_down_and_its_successor_goes_on(tree: str, tmp_path: Path) -> None:
    async def run() -> None:
        sink, source = KeepingSink(), f"killed/{HOST}/0"
        first = Application(tree, "killed", tmp_path / "run")
        await first.do("add orders 5")
        await first.do("add only.first 1")
        async with running(tree, tmp_path / "data", sink) as artimon:
            await until(lambda: sink.last(source).get("orders") == 5, "the first poll")
            first.kill()
            await until(lambda: up_of(sink, "killed")[-1:] == [0], "up = 0")
            assert artimon.figures()["poll_errors"]
            second = Application(tree, "killed", tmp_path / "run")
            await second.do("add orders 2")
            await until(lambda: sink.last(source)["orders"] == 2, "the successor")
            await until(lambda: sink.last(source)["only.first"] is None, "the end of what it does not have")
            await until(lambda: up_of(sink, "killed")[-1:] == [1], "up = 1 again")
            births = [birth for text, _, birth, _ in sink.samples(source) if text.startswith("orders")]
            assert births == sorted(births)
            assert len(set(births)) == 2
            second.kill()
            await until(lambda: sink.last(source)["orders"] is None, "the end")
            count = len(up_of(sink, "killed"))
            await until(lambda: len(up_of(sink, "killed")) > count + 2, "more polls")
            assert up_of(sink, "killed")[-3:] == [0, 0, 0], "it vanished: that stays to be seen"
        # A restarted agent still tells of it.
        again = KeepingSink()
        async with running(tree, tmp_path / "data", again):
            await until(lambda: up_of(again, "killed")[-1:] == [0], "up = 0 after a restart")

    asyncio.run(run())


def test_a_restarted_source_goes_on_where_it_was_without_zookeeper(tree: str, tmp_path: Path) -> None:
    """Start times are kept; a counter that fell meanwhile is detected. Nothing listens on ZooKeeper's port."""

    async def run() -> None:
        sink, source = KeepingSink(), f"again/{HOST}/0"
        app = Application(tree, "again", tmp_path / "run")
        await app.do("add orders 50")
        await app.do("add steady 1")
        async with running(tree, tmp_path / "data", sink):
            await until(lambda: sink.last(source).get("steady") == 1, "the first poll")
        last_poll = sink.samples(source)[-1][1]
        await app.do("drop orders")
        await app.do("add orders 3")
        later = KeepingSink()
        async with running("127.0.0.1:1", tmp_path / "data", later):
            await until(lambda: later.last(source).get("orders") == 3, "a poll without ZooKeeper")
        births = {text.partition("{")[0]: birth for text, _, birth, _ in later.samples(source)}
        ends = [time for text, time, _, value in later.samples(source) if text.startswith("orders") and value is None]
        assert births["orders"] == (ends or [last_poll])[-1], "the poll at which it was missing, or the one before"
        assert births["steady"] == sink.samples(source)[0][2]
        app.kill()

    asyncio.run(run())


def test_zookeeper_killed_and_wiped_disturbs_no_poll(tree: str, zookeeper_stack: Stack, tmp_path: Path) -> None:
    async def run() -> None:
        sink, source = KeepingSink(), f"wiped/{HOST}/0"
        app = Application(tree, "wiped", tmp_path / "run")
        await app.do("add orders 1")
        async with running(tree, tmp_path / "data", sink) as artimon:
            await until(lambda: sink.last(source).get("orders") == 1, "the first poll")
            await asyncio.to_thread(zookeeper_stack.kill, "zookeeper")
            await app.do("add orders 1")
            await until(lambda: sink.last(source)["orders"] == 2, "a poll while ZooKeeper is down")
            await asyncio.to_thread(zookeeper_stack.wait_healthy, 60)
            with registry(tree) as client:
                await asyncio.to_thread(wipe, client, "/artimon/hosts/127.0.0.1")
            for total in (3, 4, 5):
                await app.do("add orders 1")
                await until(partial(has, sink, source, total), f"a poll of {total} after the wipe")
            assert None not in [value for _, _, _, value in sink.samples(source)]
            assert artimon.figures()["endpoints_up"] >= 1
        app.kill()

    asyncio.run(run())


def test_what_the_sink_refuses_comes_with_the_next_poll(tree: str, tmp_path: Path) -> None:
    async def run() -> None:
        sink, source = KeepingSink(), f"full/{HOST}/0"
        sink.refusing = "quota"
        app = Application(tree, "full", tmp_path / "run")
        await app.do("add orders 7")
        async with running(tree, tmp_path / "data", sink) as artimon:
            await until(lambda: artimon.figures()["sink_refused"] > 1, "refusals")
            assert any("quota" in problem for problem in artimon.figures()["problems"])
            sink.refusing = ""
            await until(lambda: sink.last(source).get("orders") == 7, "acceptance")
            await until(lambda: not artimon.figures()["problems"], "no problem to be left")
        app.kill()

    asyncio.run(run())


def test_the_host_and_the_agent_are_sources_too(tree: str, tmp_path: Path) -> None:
    async def run() -> None:
        sink = KeepingSink()
        async with running(tree, tmp_path / "data", sink, host_metrics=True) as artimon:
            await until(lambda: len(sink.samples(f"host/{HOST}")) > 0, "the host")
            assert artimon.figures()["polls"] >= 0
        names = sink.last(f"host/{HOST}")
        assert {"host.cpu.ms", "host.volume.free.bytes", "host.load"} <= names.keys()
        text, time_ms, birth_ms, _ = sink.samples(f"host/{HOST}")[0]
        assert parse_canonical(text)[1]["host"] == HOST
        assert birth_ms < time_ms - 1_000

    asyncio.run(run())


BRIEF = """
import bookkeeper
from bookkeeper.process import process_endpoint as endpoint
# On a busy machine, too, it is the order that counts.
endpoint.ZOOKEEPER_CONNECT_S = endpoint.REGISTRATION_TIMEOUT_S = endpoint.MIN_REGISTERED_S = 20.0
bookkeeper.add_to_integer_var("brief.runs", {}, 7)
"""


def test_a_program_that_lives_for_a_moment_is_found_and_counted(tree: str, tmp_path: Path) -> None:
    """It ends before its registration is complete, and no count is lost."""

    async def run() -> None:
        sink, source = KeepingSink(), f"brief/{HOST}/0"
        environment = {**os.environ, "ARTIMON_ZOOKEEPER": tree, "ARTIMON_CONTEXT": "brief"}
        environment["ARTIMON_RUN"] = str(tmp_path / "run")
        async with running(tree, tmp_path / "data", sink):
            for _ in range(5):
                started = SYSTEM_CLOCK.monotonic()
                process = await asyncio.create_subprocess_exec(sys.executable, "-c", BRIEF, env=environment)
                assert await process.wait() == 0
                assert SYSTEM_CLOCK.monotonic() - started < 60.0
            await until(lambda: len(lives(sink, source)) == 5, "five lives")
        assert lives(sink, source) == [7] * 5

    def lives(sink: KeepingSink, source: str) -> list[object]:
        """Return the last value of each incarnation."""
        last = {birth: value for _, _, birth, value in sink.samples(source) if value is not None}
        return list(last.values())

    asyncio.run(run())
