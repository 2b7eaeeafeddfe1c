"""Endpoints that misbehave, registered in a real ZooKeeper beside a healthy one."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from artimon.model.values import Kind, Value
from tests.sources.helpers import (
    HOST,
    Behaviour,
    KeepingSink,
    answering,
    columns,
    endpoint,
    register,
    registry,
    reply,
    running,
)
from tests.waiting import until

pytestmark = pytest.mark.stack


def uuid_of(n: int) -> bytes:
    return bytes(15) + bytes([n])


@contextlib.asynccontextmanager
async def registered(client: Any, context: str, n: int, behaviour: Behaviour) -> AsyncIterator[str]:
    """Register an endpoint with this behaviour; yield the path of its znode."""
    async with endpoint(behaviour) as port:
        path = await asyncio.to_thread(register, client, context, port, uuid_of(n))
        yield path
        if await asyncio.to_thread(client.exists, path):
            await asyncio.to_thread(client.delete, path)


async def _hang(seqid: int, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def _garbage(seqid: int, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\0\0\0\x10" + bytes(range(16)))


async def _half(seqid: int, writer: asyncio.StreamWriter) -> None:
    writer.write(reply(columns(uuid_of(3), {"a": 1}, "bad"), seqid)[:50])
    writer.close()


async def _giant(seqid: int, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x7f\xff\xff\xff" + bytes(1000))


def test_one_bad_endpoint_never_disturbs_the_others(tree: str, tmp_path: Path) -> None:
    async def run() -> None:
        sink, source = KeepingSink(), f"bad/{HOST}/good"
        polls = [0]

        def good() -> Any:
            polls[0] += 1
            return columns(uuid_of(9), {"a": polls[0]}, "bad", "good")

        stranger = answering(lambda: columns(uuid_of(77), {"a": 1}, "bad", "stranger"))
        bad = [_hang, _garbage, _half, _giant, stranger]
        with registry(tree) as client:
            async with contextlib.AsyncExitStack() as stack:
                for n, behaviour in enumerate(bad):
                    await stack.enter_async_context(registered(client, "bad", n, behaviour))
                await stack.enter_async_context(registered(client, "bad", 9, answering(good)))
                await asyncio.to_thread(client.create, "/artimon/hosts/127.0.0.1/bad:no-endpoint", b"", None, True)
                async with running(tree, tmp_path, sink, concurrency=4) as artimon:
                    await until(lambda: sink.last(source).get("a", 0) == 6, "six polls of the good one")
                    errors = artimon.figures()["poll_errors"]
                    wanted = {"timeout", "garbage", "closed", "frame too large", "wrong uuid"}
                    assert wanted <= errors.keys()
                    times = [time for _, time, _, _ in sink.samples(source)]
                    assert all(b - a < 1_500 for a, b in itertools.pairwise(times)), times
                    figures = artimon.figures()
                    assert figures["endpoints_up"] == 1
                    assert figures["endpoints_down"] == len(bad)
                    assert figures["refused"]["bad znode"] == 1
                    assert any("no-endpoint" in problem for problem in figures["problems"])
        assert {polled.source for polled in sink.accepted if polled.source.startswith("bad/")} == {source}

    asyncio.run(run())


def test_two_live_processes_of_one_name_are_never_merged(tree: str, tmp_path: Path) -> None:
    """The second is refused, counted and named; when the first leaves, the second owns the source."""

    async def run() -> None:
        sink, source = KeepingSink(), f"twice/{HOST}/0"
        with registry(tree) as client:
            async with contextlib.AsyncExitStack() as outer, contextlib.AsyncExitStack() as inner:
                first = answering(lambda: columns(uuid_of(1), {"a": 1}, "twice"))
                second = answering(lambda: columns(uuid_of(2), {"a": 2}, "twice", birth_ms=2_000))
                artimon = await outer.enter_async_context(running(tree, tmp_path, sink))
                await inner.enter_async_context(registered(client, "twice", 1, first))
                await until(lambda: sink.last(source).get("a") == 1, "the first")
                await outer.enter_async_context(registered(client, "twice", 2, second))
                await until(lambda: artimon.figures()["refused"] == {"same source twice": 1}, "the refusal")
                (problem,) = artimon.figures()["problems"]
                assert source in problem
                count = len(sink.samples(source))
                await until(lambda: len(sink.samples(source)) > count + 2, "more polls")
                assert {value for _, _, _, value in sink.samples(source)} == {1}
                await inner.aclose()
                await until(lambda: sink.last(source)["a"] == 2, "the second")
                await until(lambda: artimon.figures()["refused"] == {}, "no refusal")
                assert sink.samples(source)[-1][2] == 2_000

    asyncio.run(run())


def test_an_endpoint_that_changes_types_is_told_of(tree: str, tmp_path: Path) -> None:
    async def run() -> None:
        sink, source = KeepingSink(), f"types/{HOST}/0"
        values: dict[str, Value] = {"a": 1, "b": 1}

        def answer() -> Any:
            return columns(uuid_of(1), values, "types", kinds={"b": Kind.COUNTER})

        with registry(tree) as client:
            async with registered(client, "types", 1, answering(answer)), running(tree, tmp_path, sink) as it:
                await until(lambda: sink.last(source).get("a") == 1, "the integer")
                values["a"] = 1.5
                await until(lambda: sink.last(source)["a"] == 1.5, "the double")
                assert it.figures()["refused"] == {}
                values["a"], values["b"] = "text", 7
                await until(lambda: it.figures()["refused"] == {"type change": 1}, "the refusal")
                await until(lambda: sink.last(source)["b"] == 7, "the others to go on")
                assert sink.last(source)["a"] is None
                assert any('a{context="types"' in problem for problem in it.figures()["problems"])

    asyncio.run(run())
