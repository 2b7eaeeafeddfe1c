"""The agent's bean sources against the real NameNode and DataNode."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import hdfs_native
import pytest

from artimon.model.labels import parse_canonical
from artimon.model.values import Value
from artimon.stack.stack import Stack
from sources.artimon_source import ArtimonSource
from sources.targets.bean_target import JmxTarget
from tests.sources.helpers import HOST, KeepingSink, running
from tests.waiting import until

pytestmark = pytest.mark.stack
NAMENODE, DATANODE = f"jmx/hdfs-namenode/{HOST}/0", f"jmx/hdfs-datanode/{HOST}/0"
AGENT = f"agent/{HOST}/agent1"


def target(stack: Stack, part: str) -> JmxTarget:
    host, _, port = (stack.context.server(f"{part}.http") or "").rpartition(":")
    return JmxTarget(f"hdfs-{part}", host, int(port))


@contextlib.asynccontextmanager
async def agent(stack: Stack, data: Path, sink: KeepingSink) -> AsyncIterator[ArtimonSource]:
    """Run an agent that polls both servers every second, without ZooKeeper."""
    targets = (target(stack, "namenode"), target(stack, "datanode"))
    async with running("127.0.0.1:1", data, sink, jmx=targets, deadline_s=20.0) as source:
        yield source


def history(sink: KeepingSink, source: str, name: str, **labels: str) -> list[tuple[int, int, Value | None]]:
    """Return (time, start time, value) of the series with that name and these labels, oldest first."""
    found = []
    for text, time_ms, birth_ms, value in sink.samples(source):
        series, has = parse_canonical(text)
        if series == name and labels.items() <= has.items():
            found.append((time_ms, birth_ms, value))
    return found


def now(sink: KeepingSink, source: str, name: str, **labels: str) -> Any:
    """Return the newest value; None if there is none or the series ended."""
    found = history(sink, source, name, **labels)
    return found[-1][2] if found else None


def bean(stack: Stack, part: str, name: str) -> dict[str, Any]:
    """Return the values that the server itself reports."""
    place = target(stack, part)
    connection = http.client.HTTPConnection(place.host, place.port, timeout=60)
    try:
        connection.request("GET", f"/jmx?qry={name}")
        found: dict[str, Any] = json.loads(connection.getresponse().read())["beans"][0]
        return found
    finally:
        connection.close()


def put(uri: str, folder: str, files: int, size: int) -> None:
    client = hdfs_native.Client(uri)
    client.mkdirs(folder, 0o755, True)
    for i in range(files):
        with client.create(f"{folder}/{i}") as file:
            file.write(b"x" * size)


def test_variables_say_what_hdfs_says(hdfs_stack: Stack, hdfs: str, tmp_path: Path) -> None:
    async def run() -> None:
        sink = KeepingSink()
        async with agent(hdfs_stack, tmp_path, sink) as source:
            await until(lambda: now(sink, NAMENODE, "hdfs.files") is not None, "the first poll of the NameNode")
            await until(lambda: now(sink, DATANODE, "jvm.uptime.ms") is not None, "the first poll of the DataNode")
            files, written = (
                now(sink, NAMENODE, "hdfs.files"),
                now(sink, DATANODE, "hdfs.datanode.bytes", direction="written"),
            )
            await asyncio.to_thread(put, hdfs, "/test-jmx", 7, 10_000)
            await until(lambda: now(sink, NAMENODE, "hdfs.files") == files + 8, "7 files and a folder")
            state = bean(hdfs_stack, "namenode", "Hadoop:service=NameNode,name=FSNamesystemState")
            assert now(sink, NAMENODE, "hdfs.blocks") == state["BlocksTotal"] >= 7
            assert now(sink, NAMENODE, "hdfs.capacity.bytes") == state["CapacityTotal"]
            assert now(sink, NAMENODE, "hdfs.datanodes", state="live") == 1
            assert now(sink, NAMENODE, "hdfs.datanodes", state="dead") == 0
            assert now(sink, NAMENODE, "hdfs.safemode") == 0
            assert now(sink, NAMENODE, "hdfs.namenode.active") == 1
            assert now(sink, NAMENODE, "hdfs.blocks.troubled", state="missing") == 0
            volume = os.statvfs(hdfs_stack.context.folder("hdfs") / "data")
            reserved = now(sink, DATANODE, "hdfs.volume.space.bytes", state="reserved")
            assert now(sink, DATANODE, "hdfs.datanode.capacity.bytes") == volume.f_blocks * volume.f_frsize - reserved
            assert now(sink, NAMENODE, "hdfs.capacity.bytes") == now(sink, DATANODE, "hdfs.datanode.capacity.bytes")
            for server in (NAMENODE, DATANODE):
                assert now(sink, server, "jvm.memory.used.bytes", area="heap") > 1_000_000
                assert now(sink, server, "jvm.threads.live") > 5
                assert now(sink, server, "jvm.cpu.ms") > 100
                assert now(sink, server, "jvm.gc.ms", collector="Copy") is not None
            await until(
                lambda: now(sink, DATANODE, "hdfs.datanode.bytes", direction="written") - written >= 70_000,
                "the bytes written",
            )
            await until(lambda: now(sink, NAMENODE, "hdfs.namenode.operations", op="create") >= 7, "7 creations")
            await until(
                lambda: (now(sink, NAMENODE, "hdfs.rpc.method.calls", method="create") or 0) >= 7,
                "7 calls of a method that Hadoop names only once it has been called",
            )
            assert now(sink, AGENT, "artimon.endpoint.up", context="hdfs-namenode", host=HOST, instance="0") == 1
            assert source.figures()["refused"] == {}
            assert source.figures()["poll_errors"] == {}

    try:
        asyncio.run(run())
    finally:
        hdfs_native.Client(hdfs).delete("/test-jmx", True)


def test_no_series_of_the_real_servers_is_refused_or_told_twice(hdfs_stack: Stack, tmp_path: Path) -> None:
    async def run() -> None:
        sink = KeepingSink()
        async with agent(hdfs_stack, tmp_path, sink) as source:
            await until(lambda: now(sink, DATANODE, "jvm.uptime.ms") is not None, "the first poll")
            await until(lambda: now(sink, NAMENODE, "jvm.uptime.ms") is not None, "the first poll")
            assert source.figures()["refused"] == {}
            texts = [text for text, *_ in sink.samples(NAMENODE)]
            assert 100 < len(set(texts)) < 1_000
            assert not any("Hadoop:" in text or "java.lang" in text for text in texts)

    asyncio.run(run())


def test_a_datanode_that_restarts_is_born_anew(hdfs_stack: Stack, tmp_path: Path) -> None:
    """Its series go on with the new start as their birth, so that no increase is negative or counted twice."""

    async def run() -> None:
        sink = KeepingSink()
        async with agent(hdfs_stack, tmp_path, sink):
            await until(lambda: now(sink, DATANODE, "jvm.cpu.ms") is not None, "the first poll")
            first = history(sink, DATANODE, "jvm.cpu.ms")[-1]
            assert first[1] == bean(hdfs_stack, "datanode", "java.lang:type=Runtime")["StartTime"]
            await asyncio.to_thread(hdfs_stack.restart, "datanode")
            await until(lambda: history(sink, DATANODE, "jvm.cpu.ms")[-1][1] > first[1], "the new process")
            started = bean(hdfs_stack, "datanode", "java.lang:type=Runtime")["StartTime"]
            lives: dict[int, list[int]] = {}
            for _, birth, value in history(sink, DATANODE, "jvm.cpu.ms"):
                lives.setdefault(birth, []).extend([] if value is None else [int(value)])
            assert set(lives) == {first[1], started}
            assert all(values == sorted(values) for values in lives.values())

    asyncio.run(run())


def test_a_namenode_that_stops_is_named_and_comes_back(hdfs_stack: Stack, tmp_path: Path) -> None:
    def up(sink: KeepingSink) -> Any:
        return now(sink, AGENT, "artimon.endpoint.up", context="hdfs-namenode")

    async def run() -> None:
        sink = KeepingSink()
        async with agent(hdfs_stack, tmp_path, sink) as source:
            await until(lambda: up(sink) == 1, "up = 1")
            await until(lambda: now(sink, AGENT, "artimon.endpoint.up", context="hdfs-datanode") == 1, "up = 1")
            await asyncio.to_thread(hdfs_stack.stop_part, "namenode")
            try:
                await until(lambda: up(sink) == 0, "up = 0")
                assert any("hdfs-namenode" in problem for problem in source.figures()["problems"])
                assert now(sink, AGENT, "artimon.endpoint.up", context="hdfs-datanode") == 1
                await until(lambda: now(sink, NAMENODE, "hdfs.files") is None, "the end of its series")
            finally:
                await asyncio.to_thread(hdfs_stack.start_part, "namenode")
                await asyncio.to_thread(hdfs_stack.wait_healthy, 60)
            await until(lambda: up(sink) == 1, "up = 1 again")
            await until(lambda: now(sink, NAMENODE, "hdfs.files") is not None, "its series again")
            await until(lambda: not source.figures()["problems"][1:], "the end of the problem")

    asyncio.run(run())
