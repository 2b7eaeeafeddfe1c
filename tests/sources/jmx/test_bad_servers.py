"""Bean servers that answer wrongly, slowly or not at all; restarts and gaps, without a JVM."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.values import Value
from artimon.runtime.config_file import ConfigFileError
from sources.artimon_source import ArtimonSource
from sources.targets.bean_target import JmxTarget, parse_target
from tests.sources.helpers import HOST, KeepingSink, running
from tests.sources.jmx.bean_server import BeanServer, Serve, bean_server, good, saying
from tests.waiting import until

NOWHERE = "127.0.0.1:1"
"""No ZooKeeper is needed here."""
SOURCE, AGENT = f"jmx/shop/{HOST}/0", f"agent/{HOST}/agent1"
GC = "java.lang:name=Copy,type=GarbageCollector"
Test = Callable[[BeanServer, ArtimonSource, KeepingSink], Awaitable[None]]


def values(sink: KeepingSink, name: str, source: str = SOURCE) -> list[tuple[int, int, Value | None]]:
    """Return (time, start time, value) of the series of a variable, oldest first; None where it ended."""
    return [(t, birth, value) for text, t, birth, value in sink.samples(source) if text.startswith(name + "{")]


def last(sink: KeepingSink, name: str, source: str = SOURCE) -> Value | None:
    found = values(sink, name, source)
    return found[-1][2] if found else None


@contextlib.asynccontextmanager
async def polled(server: BeanServer, data: Path, sink: KeepingSink, **settings: Any) -> AsyncIterator[ArtimonSource]:
    target = JmxTarget("shop", "127.0.0.1", server.port)
    async with running(NOWHERE, data, sink, **{"jmx": (target,), "period_ms": 500, **settings}) as source:
        yield source


def with_server(tmp_path: Path, test: Test, **settings: Any) -> None:
    async def run() -> None:
        sink = KeepingSink()
        async with bean_server() as server:
            server.beans = [{"name": GC, "CollectionCount": 5, "CollectionTime": 7}]
            async with polled(server, tmp_path, sink, **settings) as source:
                await test(server, source, sink)

    asyncio.run(run())


def named(source: ArtimonSource, text: str) -> list[str]:
    """Return the problems with this text."""
    return [problem for problem in source.figures()["problems"] if text in problem]


def body_of(text: bytes) -> Serve:
    return saying(good(text))


async def drip(writer: asyncio.StreamWriter) -> None:
    """Send bytes slowly without end."""
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n{")
    while not writer.is_closing():
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.05)


async def silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(30)


async def huge(writer: asyncio.StreamWriter) -> None:
    """Send 100 MB."""
    writer.write(b'HTTP/1.1 200 OK\r\n\r\n{"beans":[')
    for _ in range(100):
        writer.write(b" " * 1_000_000)
        await writer.drain()


BAD: list[tuple[str, Serve, str]] = [
    ("http status", saying(b"HTTP/1.1 404 Not Found\r\n\r\n{}"), "404 Not Found"),
    ("http status", saying(b"HTTP/1.1 500 Server Error\r\n\r\n"), "500 Server Error"),
    ("http status", saying(b"HTTP/1.1 302 Found\r\nLocation: http://x/\r\n\r\n"), "redirects are not followed"),
    ("garbage", body_of(b"<html><body>hello</body></html>"), "<html>"),
    ("garbage", body_of(b'{"beans":[{"name":"java'), "not JSON"),
    ("garbage", saying(b"SSH-2.0-OpenSSH_9.2\r\n\r\n\r\n"), "not HTTP"),
    ("garbage", saying(b"SSH-2.0-OpenSSH_9.2\r\n"), "not HTTP"),
    ("garbage", saying(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000), "headers"),
    ("garbage", saying(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}"), "Content-Length"),
    ("garbage", saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n{}\r\n"), "size of a chunk"),
    ("garbage", saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n"), "longer than announced"),
    ("garbage", saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: zip\r\n\r\n{}"), "Transfer-Encoding"),
    ("garbage", saying(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n{}"), "compressed"),
    ("closed", saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"), "closed"),
    ("answer too large", saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7FFFFFFF\r\n{"), "more than"),
    ("closed", saying(b""), "without an answer"),
    ("closed", saying(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}"), "2 of 100"),
    ("answer too large", saying(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n{}"), "at most 1048576"),
    ("answer too large", huge, "more than 1048576"),
    ("timeout", drip, "within 0.3 s"),
    ("timeout", silent, "within 0.3 s"),
]


@pytest.mark.parametrize(
    ("reason", "serve", "text"), BAD, ids=[f"{i}-{reason}" for i, (reason, _, _) in enumerate(BAD)]
)
def test_a_bad_answer_is_counted_and_named_and_the_next_good_one_taken(
    tmp_path: Path, reason: str, serve: Serve, text: str
) -> None:
    async def test(server: BeanServer, source: ArtimonSource, sink: KeepingSink) -> None:
        await until(lambda: last(sink, "jvm.gc.collections") == 5, "the first poll")
        server.serve = serve
        await until(lambda: source.figures()["poll_errors"].get(reason), f"the error {reason}")
        assert set(source.figures()["poll_errors"]) <= {reason, "timeout"}, "a busy machine may be late"
        assert any(text in problem and str(server.port) in problem for problem in source.figures()["problems"])
        await until(lambda: last(sink, "artimon.endpoint.up", AGENT) == 0, "up = 0")
        server.serve, before = None, len(values(sink, "jvm.gc.collections"))
        await until(lambda: len(values(sink, "jvm.gc.collections")) > before, "another good poll")
        await until(lambda: not named(source, "shop/0 at"), "the end of the problem")
        await until(lambda: last(sink, "artimon.endpoint.up", AGENT) == 1, "up = 1")

    with_server(tmp_path, test, deadline_s=0.3, max_frame=1 << 20)


def test_a_server_that_is_down_is_named_and_its_series_end_after_five_periods(tmp_path: Path) -> None:
    """After an outage the same process keeps the start times of its counters: nothing is counted twice."""

    async def test(server: BeanServer, source: ArtimonSource, sink: KeepingSink) -> None:
        await until(lambda: last(sink, "jvm.gc.collections") == 5, "the first poll")
        await server.down()
        await until(lambda: source.figures()["poll_errors"].get("refused"), "a poll without answer")
        assert source.figures()["endpoints_down"] == 1
        assert last(sink, "jvm.gc.collections") == 5, "one missing poll ends nothing"
        await until(lambda: last(sink, "jvm.gc.collections") is None, "the end of the series")
        last_good, ended = values(sink, "jvm.gc.collections")[-2][0], values(sink, "jvm.gc.collections")[-1][0]
        assert 4 * 500 < ended - last_good < 12 * 500
        assert any("no process listens" in problem for problem in source.figures()["problems"])
        server.beans[0]["CollectionCount"] = 9
        await server.up()
        await until(lambda: last(sink, "jvm.gc.collections") == 9, "the server again")
        births = {birth for _, birth, value in values(sink, "jvm.gc.collections") if value is not None}
        assert births == {server.start_ms}

    with_server(tmp_path, test)


def test_a_server_that_starts_after_the_agent_is_met_within_the_period(tmp_path: Path) -> None:
    async def run() -> None:
        sink = KeepingSink()
        async with bean_server() as server:
            server.beans = [{"name": GC, "CollectionCount": 5}]
            await server.down()
            async with polled(server, tmp_path, sink, period_ms=12_000) as source:
                await until(lambda: source.figures()["poll_errors"].get("refused"), "a poll without answer")
                await server.up()
                await until(lambda: last(sink, "jvm.gc.collections") == 5, "the first poll")

    asyncio.run(run())


def test_a_restart_is_a_new_birth_even_when_the_counters_are_larger(tmp_path: Path) -> None:
    async def test(server: BeanServer, source: ArtimonSource, sink: KeepingSink) -> None:
        await until(lambda: last(sink, "jvm.gc.collections") == 5, "the first poll")
        first = server.start_ms
        server.restart()
        server.beans[0]["CollectionCount"] = 50
        await until(lambda: last(sink, "jvm.gc.collections") == 50, "the next process")
        births = [birth for _, birth, _ in values(sink, "jvm.gc.collections")]
        assert (births[0], births[-1]) == (first, server.start_ms)
        assert first < server.start_ms

    with_server(tmp_path, test)


def test_a_counter_that_is_missing_for_a_poll_goes_on_with_its_birth(tmp_path: Path) -> None:
    """A counter that appears later, or falls, began at the poll before."""

    async def test(server: BeanServer, source: ArtimonSource, sink: KeepingSink) -> None:
        await until(lambda: last(sink, "jvm.gc.collections") == 5, "the first poll")
        bean = server.beans[0]
        server.beans = []
        await until(lambda: last(sink, "jvm.gc.collections") is None, "the end of the series")
        server.beans = [{**bean, "CollectionCount": 6}]
        await until(lambda: last(sink, "jvm.gc.collections") == 6, "the series again")
        assert {birth for _, birth, value in values(sink, "jvm.gc.collections") if value} == {server.start_ms}
        server.beans = [
            {**bean, "CollectionCount": 2},
            {"name": "java.lang:type=Compilation", "TotalCompilationTime": 8},
        ]
        await until(lambda: last(sink, "jvm.compilation.ms") == 8, "a new counter")
        (_, born, _), *_ = values(sink, "jvm.compilation.ms")
        polls = [t for t, _, _ in values(sink, "jvm.uptime.ms")]
        assert born in polls
        fallen = next(birth for _, birth, value in values(sink, "jvm.gc.collections") if value == 2)
        assert fallen in polls

    with_server(tmp_path, test)


def test_a_counter_after_a_fault_is_as_old_as_its_process(tmp_path: Path) -> None:
    """The first poll could not read it, so its value is no increase since then."""

    async def test(server: BeanServer, source: ArtimonSource, sink: KeepingSink) -> None:
        await until(lambda: source.figures()["refused"].get("wrong type"), "the fault")
        assert named(source, "CollectionCount")
        await until(lambda: last(sink, "jvm.gc.ms") == 7, "the other attribute of the bean")
        server.beans[0]["CollectionCount"] = 1_000
        await until(lambda: last(sink, "jvm.gc.collections") == 1_000, "the counter")
        assert {birth for _, birth, _ in values(sink, "jvm.gc.collections")} == {server.start_ms}
        await until(lambda: not source.figures()["refused"], "no more faults")
        assert not named(source, "CollectionCount")

    async def run() -> None:
        sink = KeepingSink()
        async with bean_server() as server:
            server.beans = [{"name": GC, "CollectionCount": "many", "CollectionTime": 7}]
            async with polled(server, tmp_path, sink) as source:
                await test(server, source, sink)

    asyncio.run(run())


def test_a_server_without_a_start_is_polled_all_the_same(tmp_path: Path) -> None:
    async def test(server: BeanServer, source: ArtimonSource, sink: KeepingSink) -> None:
        began = SYSTEM_CLOCK.now_ms()
        server.serve = body_of(b'{"beans":[{"name":"%s","CollectionCount":3}]}' % GC.encode())
        await until(lambda: len(values(sink, "jvm.gc.collections")) >= 2, "two polls")
        assert source.figures()["refused"]["no start"] == 1
        births = {birth for _, birth, _ in values(sink, "jvm.gc.collections")}
        assert len(births) == 1
        assert births.pop() >= began - 1_000

    async def run() -> None:
        sink = KeepingSink()
        async with bean_server() as server:
            server.serve = body_of(b'{"beans":[{"name":"%s","CollectionCount":3}]}' % GC.encode())
            async with polled(server, tmp_path, sink) as source:
                await test(server, source, sink)

    asyncio.run(run())


def test_two_bean_servers_of_one_source_are_not_merged(tmp_path: Path) -> None:
    async def run() -> None:
        sink = KeepingSink()
        async with bean_server() as one, bean_server() as two:
            targets = tuple(JmxTarget("shop", "127.0.0.1", server.port) for server in (one, two))
            other = JmxTarget("shop", "127.0.0.1", two.port, instance="1")
            async with running(NOWHERE, tmp_path, sink, jmx=(*targets, other), period_ms=500) as source:
                await until(lambda: source.figures()["poll_errors"].get("same source twice"), "the refusal")
                await until(lambda: last(sink, "jvm.uptime.ms", f"jmx/shop/{HOST}/1"), "the one with an instance")
                assert named(source, "give one of the two another instance")
            assert len(one.paths) > 0

    asyncio.run(run())


def test_an_agent_that_restarts_goes_on_and_ends_what_is_no_longer_configured(tmp_path: Path) -> None:
    async def run() -> None:
        sink = KeepingSink()
        async with bean_server() as server:
            server.beans = [{"name": GC, "CollectionCount": 5}]
            async with polled(server, tmp_path, sink):
                await until(lambda: last(sink, "jvm.gc.collections") == 5, "the first poll")
            server.beans[0]["CollectionCount"] = 8
            async with polled(server, tmp_path, sink):
                await until(lambda: last(sink, "jvm.gc.collections") == 8, "the next run")
            assert {birth for _, birth, _ in values(sink, "jvm.gc.collections")} == {server.start_ms}
            async with running(NOWHERE, tmp_path, sink):
                await until(lambda: last(sink, "jvm.gc.collections") is None, "the end of the series")

    asyncio.run(run())


def test_own_rules_decide_what_is_asked_and_what_is_taken(tmp_path: Path) -> None:
    rules = tmp_path / "own.yaml"
    rules.write_text("beans:\n  - {bean: 'shop:type=Q', variables: [{name: shop.queued, attribute: Size}]}\n")

    async def test(server: BeanServer, source: ArtimonSource, sink: KeepingSink) -> None:
        server.beans.append({"name": "shop:type=Q", "Size": 4})
        await until(lambda: last(sink, "shop.queued") == 4, "the variable")
        assert server.paths[0] == "/jmx?qry=java.lang:*"
        assert {"/jmx?qry=shop:*", "/jmx?qry=Hadoop:*"} <= set(server.paths)

    with_server(tmp_path, test, jmx_rules=(rules,))


def test_a_wrong_rule_file_stops_the_agent_at_its_start(tmp_path: Path) -> None:
    rules = tmp_path / "own.yaml"
    rules.write_text("beans:\n  - bean: x\n")

    async def run() -> None:
        target = parse_target("shop=http://127.0.0.1:1/jmx")
        with pytest.raises(ConfigFileError, match=r"own\.yaml:2:5: beans\[0\]\.variables: is missing"):
            async with running(NOWHERE, tmp_path, KeepingSink(), jmx=(target,), jmx_rules=(rules,)):
                pass

    asyncio.run(run())
