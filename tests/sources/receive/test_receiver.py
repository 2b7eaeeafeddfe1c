"""The listener of an agent: answers of HTTP, tokens, limits, and its figures."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime.settings import SettingsError
from sources.artimon_source import ArtimonSource
from sources.delivery.source_config import SourceConfig
from sources.receive.http_listener import LIMITS
from sources.receive.senders import MAX_SENDERS
from tests.sockets import free_port
from tests.sources.helpers import HOST, KeepingSink, running
from tests.sources.receive.bodies import request_1, request_2, series_1
from tests.sources.receive.test_otlp import LABELS, metric, point
from tests.sources.receive.test_otlp import body as otlp_body
from tests.waiting import until

PATH = "/api/v1/write"
NOWHERE = "127.0.0.1:1"
HEADERS = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}
VERSION_2 = {**HEADERS, "Content-Type": "application/x-protobuf;proto=io.prometheus.write.v2.Request"}
TOKEN = "a token of 24 characters"
Answer = tuple[int, str, Mapping[str, str]]


class Agent:
    def __init__(self, source: ArtimonSource, sink: KeepingSink, port: int) -> None:
        self.source, self.sink, self.port = source, sink, port

    async def send(
        self, body: bytes, path: str = PATH, method: str = "POST", headers: Mapping[str, str] = HEADERS
    ) -> Answer:
        def exchange() -> Answer:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            found = (
                answer.status,
                answer.read().decode(errors="replace"),
                {n.lower(): v for n, v in answer.getheaders()},
            )
            connection.close()
            return found

        return await asyncio.to_thread(exchange)

    def rows(self, sender: str = "default", protocol: str = "received") -> list[tuple[str, object]]:
        return [(text, value) for text, _, _, value in self.sink.samples(f"{protocol}/{HOST}/{sender}")]


@asynccontextmanager
async def receiving(place: Path, token: Path | None = None) -> AsyncIterator[Agent]:
    sink, port = KeepingSink(), free_port()
    settings = {"receive": (f"127.0.0.1:{port}",), "receive_token": token}
    async with running(NOWHERE, place, sink, **settings) as source:

        def listens() -> bool:
            with socket.socket() as client:
                return client.connect_ex(("127.0.0.1", port)) == 0

        await until(listens, "the listener")
        yield Agent(source, sink, port)


def run(place: Path, test: Callable[[Agent], Awaitable[None]], token: Path | None = None) -> None:
    async def whole() -> None:
        async with receiving(place, token) as agent:
            await test(agent)

    asyncio.run(whole())


def body(name: str = "up", value: float = 1.0, ahead_ms: int = 0) -> bytes:
    return request_1(series_1({"__name__": name, "job": "x"}, [(SYSTEM_CLOCK.now_ms() + ahead_ms, value)]))


def test_senders_are_sources_with_figures_of_their_own(tmp_path: Path) -> None:
    async def test(agent: Agent) -> None:
        status, text, headers = await agent.send(body())
        assert (status, text, headers["x-prometheus-remote-write-samples-written"]) == (204, "", "1")
        two = request_2([({"__name__": "jobs_total"}, [(SYSTEM_CLOCK.now_ms(), 2.0)])], 1)
        status, _, headers = await agent.send(two, f"{PATH}/west-1", headers=VERSION_2)
        assert (status, headers["x-prometheus-remote-write-histograms-written"]) == (204, "0")
        status, text, _ = await agent.send(body("a b"))
        assert (status, "0 samples were accepted" in text, "'a b'" in text) == (400, True, True)
        assert agent.rows() == [('up{job="x"}', 1.0)]
        assert agent.rows("west-1") == [("jobs_total{}", 2.0)]

        def figures() -> dict[str, object]:
            told = agent.sink.samples(f"agent/{HOST}/agent1")
            return {text: value for text, _, _, value in told if text.startswith("artimon.receive")}

        await until(lambda: len(figures()) == 5, "its figures")
        assert figures() == {
            f'artimon.receive.samples.accepted{{host="{HOST}",sender="received/default"}}': 1,
            f'artimon.receive.samples.accepted{{host="{HOST}",sender="received/west-1"}}': 1,
            f'artimon.receive.samples.refused{{host="{HOST}",reason="bad name or label",sender="received/default"}}': 1,
            f'artimon.receive.requests{{code="204",host="{HOST}"}}': 2,
            f'artimon.receive.requests{{code="400",host="{HOST}"}}': 1,
        }

    run(tmp_path, test)


def test_otlp_answers_in_the_form_of_the_request(tmp_path: Path) -> None:
    """Parts that were not taken are told; a body that is none has a status."""
    good = otlp_body(metric("load", "gauge", point(SYSTEM_CLOCK.now_ms(), asDouble=0.5)))
    half = otlp_body(
        metric("rest", "gauge", point(SYSTEM_CLOCK.now_ms(), asInt="1")), metric("late", "gauge", point(0, asInt="1"))
    )
    as_json = {"Content-Type": "application/json"}
    as_protobuf = {"Content-Type": "application/x-protobuf"}

    async def test(agent: Agent) -> None:
        path = "/api/v1/otlp/west/v1/metrics"
        assert (await agent.send(good, path, headers=as_protobuf))[:2] == (200, "")
        status, text, _ = await agent.send(half, path, headers=as_protobuf)
        assert (status, "bad time" in text) == (200, True)
        text = json_format.MessageToJson(ExportMetricsServiceRequest.FromString(half))
        status, text, headers = await agent.send(text.encode(), "/v1/metrics", headers=as_json)
        told = json.loads(text)["partialSuccess"]
        assert (status, headers["content-type"], told["rejectedDataPoints"]) == (200, "application/json", "2")
        assert told["errorMessage"].startswith("bad time: line 2")
        status, text, _ = await agent.send(b"{", path, headers=as_json)
        assert (status, json.loads(text)["code"]) == (400, 3)
        assert (await agent.send(b"\xff", path, headers=as_protobuf))[0] == 400
        assert (await agent.send(good, path))[0] == 415
        agent.sink.refusing = "full"
        status, text, headers = await agent.send(
            otlp_body(metric("x", "gauge", point(SYSTEM_CLOCK.now_ms(), asInt="1"))), path, headers=as_protobuf
        )
        assert (status, headers["retry-after"]) == (503, "5")
        assert [text for text, _ in agent.rows("west", "otlp")] == [f"{name}{LABELS}" for name in ("load", "rest")]

    run(tmp_path, test)


def test_a_log_that_refuses_is_tried_again_later(tmp_path: Path) -> None:
    async def test(agent: Agent) -> None:
        sent = body()
        agent.sink.refusing = "the disk is full"
        status, text, headers = await agent.send(sent)
        assert (status, headers["retry-after"], "the disk is full" in text) == (503, "5", True)
        agent.sink.refusing = ""
        assert (await agent.send(sent))[0] == 204
        assert agent.rows() == [('up{job="x"}', 1.0)]

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("changes", "status", "told"),
    [
        ({"path": "/writes"}, 404, PATH),
        ({"path": f"{PATH}/a b"}, 404, "SENDER"),
        ({"path": f"{PATH}/{'x' * 65}"}, 404, "1 to 64"),
        ({"method": "GET"}, 405, "POST"),
        ({"headers": {**HEADERS, "Content-Type": "application/json"}}, 415, "x-protobuf"),
        ({"headers": {**HEADERS, "Content-Type": "application/x-protobuf;proto=other.Request"}}, 415, "1.0 or 2.0"),
        ({"headers": {**HEADERS, "Content-Encoding": "gzip"}}, 415, "snappy"),
        ({"headers": {**HEADERS, "Content-Encoding": "identity"}}, 415, "snappy"),
        ({"body": b"no snappy"}, 400, "snappy"),
        ({"body": b"x" * (LIMITS.body_bytes + 1)}, 413, "body_bytes"),
    ],
)
def test_what_is_no_remote_write_is_refused(tmp_path: Path, changes: dict[str, object], status: int, told: str) -> None:
    async def test(agent: Agent) -> None:
        given: dict[str, object] = {"body": body(), **changes}
        if " " in str(given.get("path", "")):
            given["path"] = str(given["path"]).replace(" ", "%20")
        found, text, _ = await agent.send(**given)  # type: ignore[arg-type]
        assert (found, told in text) == (status, True), text
        assert (await agent.send(body()))[0] == 204

    run(tmp_path, test)


def test_a_token_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")

    async def test(agent: Agent) -> None:
        assert (await agent.send(body()))[0] == 401
        assert (await agent.send(body(), headers={**HEADERS, "Authorization": f"Bearer {TOKEN}x"}))[0] == 401
        assert (await agent.send(body(), headers={**HEADERS, "Authorization": f"Bearer {TOKEN}"}))[0] == 204

    run(tmp_path / "data", test, file)


def test_the_number_of_senders_is_limited(tmp_path: Path) -> None:
    async def test(agent: Agent) -> None:
        for n in range(MAX_SENDERS):
            assert (await agent.send(body(f"up{n}"), f"{PATH}/s{n}"))[0] == 204
        status, text, _ = await agent.send(body("up1"), f"{PATH}/s0")
        assert (status, "series already comes from" in text) == (400, True), text
        status, text, _ = await agent.send(body(), f"{PATH}/one-more")
        assert (status, text) == (400, f"more than {MAX_SENDERS} senders\n")

    run(tmp_path, test)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"receive": ("nonsense",)}, "--receive 'nonsense'"),
        ({"receive": ("0.0.0.0:9201",)}, "give --receive-token"),
        ({"receive": ("127.0.0.1:9201",), "receive_token": Path("/nonexistent")}, "--receive-token"),
    ],
)
def test_settings_are_checked_at_the_start(tmp_path: Path, settings: dict[str, object], message: str) -> None:
    config = SourceConfig("agent1", NOWHERE, tmp_path, **settings)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=message):
        ArtimonSource(config, KeepingSink(), SYSTEM_CLOCK)


def test_a_port_in_use_is_a_problem_until_it_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sources.receive.receiver.RETRY_S", 0.2)

    async def whole() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            sink = KeepingSink()
            async with running(NOWHERE, tmp_path, sink, receive=(f"127.0.0.1:{port}",)) as source:
                await until(lambda: any("--receive" in one for one in source.figures()["problems"]), "the problem")
                taken.close()
                await until(lambda: not any("--receive" in one for one in source.figures()["problems"]), "the port")
                assert (await Agent(source, sink, port).send(body()))[0] == 204

    asyncio.run(whole())


def test_influx_is_written_by_all_of_its_paths(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    now_s = SYSTEM_CLOCK.now_ms() // 1000

    async def test(agent: Agent) -> None:
        given = {"Authorization": f"Token {TOKEN}"}
        for n, path in enumerate(("/write?db=d", "/api/v2/write?bucket=d&org=o", "/api/v3/write_lp?db=d")):
            line = f"cpu,n={n} idle={n}i {now_s}".encode()
            assert (await agent.send(line, f"{path}&precision=s", headers=given))[0] == 204
        packed = gzip.compress(b"cpu,n=3 idle=3i")
        assert (await agent.send(packed, "/influx/west/write", headers={**given, "Content-Encoding": "gzip"}))[0] == 204
        assert agent.rows("default", "influx") == [(f'cpu.idle{{n="{n}"}}', n) for n in range(3)]
        assert agent.rows("west", "influx") == [('cpu.idle{n="3"}', 3)]
        status, text, headers = await agent.send(b"cpu idle=1\nbad\n", "/write", headers=given)
        assert (status, json.loads(text)["code"], headers["content-type"]) == (400, "invalid", "application/json")
        assert "1 fields were accepted, 1 were not" in json.loads(text)["message"]
        assert (await agent.send(b"cpu idle=1", "/write?precision=x", headers=given))[0] == 400
        assert (await agent.send(b"cpu idle=1", "/write?" + "a=b&" * 50, headers=given))[0] == 400
        assert (await agent.send(b"cpu idle=1", "/write"))[0] == 401
        assert (await agent.send(body(), headers={**HEADERS, **given}))[0] == 401  # only InfluxDB says Token

    run(tmp_path / "data", test, file)
