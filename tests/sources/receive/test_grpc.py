"""OTLP over gRPC: the exporter of an SDK, tokens, limits and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from artimon.model.clock import SYSTEM_CLOCK
from sources.receive.grpc_listener import MAX_BODY
from tests.sockets import free_port
from tests.sources.helpers import HOST, KeepingSink, running
from tests.sources.receive.test_otlp import body, metric, point
from tests.waiting import until

TOKEN = "a token of 24 characters"
METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"


class Agent:
    def __init__(self, sink: KeepingSink, port: int) -> None:
        self.sink, self.port = sink, port

    async def export(self, request: bytes, metadata: tuple[tuple[str, str], ...] = (), **more: Any) -> Any:
        options = [("grpc.max_send_message_length", -1)]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.port}", options=options) as channel:
            answer = await channel.unary_unary(METHOD)(request, metadata=metadata, timeout=60, **more)
            return ExportMetricsServiceResponse.FromString(answer)

    async def refused(self, request: bytes, metadata: tuple[tuple[str, str], ...] = (), **more: Any) -> Any:
        with pytest.raises(grpc.RpcError) as found:
            await self.export(request, metadata, **more)
        return found.value

    def rows(self, sender: str = "default") -> list[tuple[str, object]]:
        return [(text.partition("{")[0], value) for text, _, _, value in self.sink.samples(f"otlp/{HOST}/{sender}")]


def run(place: Path, test: Callable[[Agent], Awaitable[None]], token: Path | None = None) -> None:
    async def whole() -> None:
        sink, port = KeepingSink(), free_port()
        address = f"otlp+grpc://127.0.0.1:{port}"
        async with running("127.0.0.1:1", place, sink, receive=(address,), receive_token=token):

            async def answers() -> bool:
                async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                    await asyncio.wait_for(channel.channel_ready(), 60)
                    return True

            assert await answers()
            await test(Agent(sink, port))

    asyncio.run(whole())


def load(name: str = "load", time_ms: int | None = None) -> bytes:
    return body(metric(name, "gauge", point(SYSTEM_CLOCK.now_ms() if time_ms is None else time_ms, asDouble=0.5)))


def test_the_sdk_exports_over_grpc(tmp_path: Path) -> None:
    async def test(agent: Agent) -> None:
        def send() -> None:
            exporter = OTLPMetricExporter(f"127.0.0.1:{agent.port}", insecure=True, compression=grpc.Compression.Gzip)
            reader = PeriodicExportingMetricReader(exporter, export_interval_millis=60_000)
            provider = MeterProvider([reader], Resource({"service.name": "shop"}))
            count = provider.get_meter("app").create_counter("orders.placed")
            for _ in range(2):
                count.add(3)
                reader.force_flush()
            provider.shutdown()

        await asyncio.to_thread(send)
        assert [value for name, value in agent.rows() if name == "orders.placed"][:2] == [3, 6]

    run(tmp_path, test)


def test_what_is_not_taken_is_told(tmp_path: Path) -> None:
    async def test(agent: Agent) -> None:
        assert (await agent.export(load(), (("artimon-sender", "west"),))).partial_success.rejected_data_points == 0
        assert agent.rows("west") == [("load", 0.5)]
        told = (await agent.export(load("late", 0))).partial_success
        assert (told.rejected_data_points, "bad time" in told.error_message) == (1, True)
        problem = await agent.refused(b"\xff\xff")
        assert problem.code() == grpc.StatusCode.INVALID_ARGUMENT
        problem = await agent.refused(load(), (("artimon-sender", "a/b"),))
        assert problem.code() == grpc.StatusCode.INVALID_ARGUMENT
        agent.sink.refusing = "full"
        problem = await agent.refused(load("more"))
        assert problem.code() == grpc.StatusCode.UNAVAILABLE
        details = dict(problem.trailing_metadata())["grpc-status-details-bin"]
        retry = error_details_pb2.RetryInfo()
        assert status_pb2.Status.FromString(details).details[0].Unpack(retry)
        assert retry.retry_delay.seconds == 5

    run(tmp_path, test)


def test_a_token_is_asked_for_over_grpc(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)

    async def test(agent: Agent) -> None:
        for metadata in ((), (("authorization", f"Bearer {TOKEN}x"),), (("authorization", TOKEN),)):
            assert (await agent.refused(load(), metadata)).code() == grpc.StatusCode.UNAUTHENTICATED
        await agent.export(load(), (("authorization", f"Bearer {TOKEN}"),))
        assert agent.rows() == [("load", 0.5)]

    run(tmp_path / "data", test, file)


def test_large_bodies_bombs_and_slow_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sources.receive.grpc_listener.BODY_S", 0.5)

    async def test(agent: Agent) -> None:
        large = bytes(MAX_BODY + 1)
        for more in ({}, {"compression": grpc.Compression.Gzip}):
            assert (await agent.refused(large, **more)).code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        async with grpc.aio.insecure_channel(f"127.0.0.1:{agent.port}") as channel:
            call = channel.stream_unary(METHOD)(timeout=60)
            assert await call.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            assert "no whole request" in str(await call.details())
        await agent.export(load())
        await until(lambda: agent.rows() == [("load", 0.5)], "the good request")

    run(tmp_path, test)
