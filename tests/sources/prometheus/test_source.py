"""Prometheus pages as sources, without an exporter: start times, faults, limits, changes of the configuration."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.labels import parse_canonical
from artimon.model.values import Value
from sources.artimon_source import ArtimonSource
from tests.security.certificates import Authority
from tests.sources.helpers import HOST, KeepingSink, running
from tests.sources.jmx.bean_server import BeanServer, Serve, bean_server, saying
from tests.waiting import until

NOWHERE = "127.0.0.1:1"
AGENT = f"agent/{HOST}/agent1"
COUNTERS = "# TYPE a_total counter\na_total 5\n# TYPE g gauge\ng 5\n"
Test = Callable[["World"], Awaitable[None]]


def page(text: str, kind: str = "text/plain; version=0.0.4") -> Serve:
    body = text.encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return saying(head.encode() + body)


class World:
    """A scripted exporter, an agent that polls it, and the agent's file of sources."""

    def __init__(self, folder: Path, server: BeanServer, sink: KeepingSink) -> None:
        self.server, self.sink, self.file = server, sink, folder / "sources.yaml"
        self.source: ArtimonSource

    @property
    def name(self) -> str:
        return f"prometheus/shop/127.0.0.1:{self.server.port}"

    def configure(self, **job: Any) -> None:
        targets = {} if "files" in job else {"targets": [f"127.0.0.1:{self.server.port}"]}
        self.write({"prometheus": [{"job": "shop", **targets, **job}]})

    def write(self, content: Any) -> None:
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps(content))
        fresh.replace(self.file)

    def history(self, name: str, source: str = "") -> list[tuple[int, int, Value | None]]:
        """Return (time, start time, value) of all series with that name."""
        samples = self.sink.samples(source or self.name)
        return [(t, birth, value) for text, t, birth, value in samples if parse_canonical(text)[0] == name]

    def last(self, name: str, source: str = "") -> Value | None:
        found = self.history(name, source)
        return found[-1][2] if found else None

    async def polled(self, name: str, value: float | None, what: str = "") -> None:
        await until(lambda: self.history(name) and self.last(name) == value, what or f"{name} = {value}")

    async def says(self, text: str, name: str, value: float) -> None:
        """Change the page and wait until it was polled."""
        self.server.serve = page(text)
        await self.polled(name, value)

    def named(self, text: str) -> list[str]:
        return [problem for problem in self.source.figures()["problems"] if text in problem]


def with_world(folder: Path, test: Test, job: dict[str, Any] | None = None, **settings: Any) -> None:
    async def run() -> None:
        sink = KeepingSink()
        folder.mkdir(exist_ok=True)
        async with bean_server() as server:
            world = World(folder, server, sink)
            server.serve = page(COUNTERS)
            world.configure(**(job or {}))
            more = {"period_ms": 300, "sources": world.file, **settings}
            async with running(NOWHERE, folder / "agent", sink, **more) as world.source:
                await test(world)

    asyncio.run(run())


def test_labels_and_the_status_of_a_target(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        await world.polled("a_total", 5)
        (text, *_) = next(sample for sample in world.sink.samples(world.name) if sample[0].startswith("a_total"))
        own = {
            "job": "shop",
            "instance": f"127.0.0.1:{world.server.port}",
            "context": "shop",
            "host": HOST,
            "team": "x",
        }
        assert parse_canonical(text) == ("a_total", own)
        await until(lambda: world.last("artimon.endpoint.up", AGENT) == 1, "up = 1")
        assert world.server.paths[0] == "/some?where=1"

    with_world(tmp_path, test, {"labels": {"team": "x"}, "path": "/some?where=1"})


def test_counts_are_never_made_up(tmp_path: Path) -> None:
    """The first poll is no increase; a counter that falls, or appears on a complete page, began after the last poll."""

    async def test(world: World) -> None:
        await world.polled("a_total", 5)
        await world.says("# TYPE a_total counter\na_total 9\n# TYPE b_total counter\nb_total 3\n", "b_total", 3)
        await world.says("# TYPE a_total counter\na_total 2\n# TYPE b_total counter\nb_total 3\n", "a_total", 2)
        lives = world.history("a_total")
        assert {birth for _, birth, value in lives if value in (5, 9)} == {1}, "unknown, so no increase"
        (fell,) = {birth for _, birth, value in lives if value == 2}
        assert fell == max(t for t, _, value in lives if value == 9), "the poll before"
        (appeared,) = {birth for _, birth, value in world.history("b_total")}
        assert appeared in {t for t, _, value in lives if value == 5}, "the poll before"
        assert {birth for _, birth, value in world.history("g")} == {1}
        await world.says("g 6\n", "a_total", None)  # type: ignore[arg-type]
        await world.says("# TYPE a_total counter\na_total 4\ng 7\n", "a_total", 4)
        assert world.history("a_total")[-1][1] == fell, "it was not there for a while, and goes on"

    with_world(tmp_path, test)


def test_after_faults_and_behind_a_proxy_what_appears_may_be_old(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        await world.polled("a_total", 5)
        world.server.serve = page("a_total 5\ng x\n")
        await until(lambda: world.source.figures()["refused"].get("bad line"), "the bad line")
        await world.says("a_total 5\nlate_total 8\n", "late_total", 8)
        assert world.history("late_total")[0][1] == 1

    with_world(tmp_path / "faults", test)

    async def proxied(world: World) -> None:
        await world.polled("a_total", 5)
        await world.says("a_total 5\nlate_total 8\n", "late_total", 8)
        assert world.history("late_total")[0][1] == 1

    with_world(tmp_path / "proxy", proxied, {"proxy": True})


def test_births_that_the_page_tells(tmp_path: Path) -> None:
    """OpenMetrics: `_created` is the birth; a later one between two polls is a new life, whatever the count says."""

    def told(value: int, created_ms: float) -> Serve:
        text = f"# TYPE a counter\na_total {value}\na_created {created_ms / 1000:.3f}\n# EOF\n"
        return page(text, "application/openmetrics-text; version=1.0.0; charset=utf-8")

    async def test(world: World) -> None:
        begun = SYSTEM_CLOCK.now_ms() - 60_000
        world.server.serve = told(7, begun)
        await world.polled("a_total", 7)
        first = next(sample for sample in world.history("a_total") if sample[2] == 7)
        assert world.history("a_created") == []
        again = SYSTEM_CLOCK.now_ms()
        world.server.serve = told(8, again)
        await world.polled("a_total", 8)
        assert world.history("a_total")[-1][1] == again > first[0]
        world.server.serve = told(9, begun - 5_000)
        await world.polled("a_total", 9)
        assert world.history("a_total")[-1][1] == again, "a birth before its last sample begins no new life"

    with_world(tmp_path, test)


def test_a_restart_of_the_agent_goes_on(tmp_path: Path) -> None:
    """A known series is not new again, and the fall of a counter during the pause is detected."""
    births: list[int] = []

    async def before(world: World) -> None:
        await world.polled("a_total", 5)

    async def after(world: World) -> None:
        await world.polled("a_total", 2)
        world.server.serve = page("# TYPE a_total counter\na_total 2\n# TYPE new_total counter\nnew_total 3\n")
        await world.polled("new_total", 3)
        births.extend(world.history(name)[0][1] for name in ("new_total",))
        fallen = [birth for _, birth, value in world.history("a_total") if value == 2]
        assert fallen[0] > 1

    async def run() -> None:
        sink = KeepingSink()
        async with bean_server() as server:
            for test in (before, after):
                sink = KeepingSink(tuple(sink.accepted))
                world = World(tmp_path, server, sink)
                server.serve = page(COUNTERS) if test is before else page("# TYPE a_total counter\na_total 2\n")
                world.configure()
                more: dict[str, Any] = {"period_ms": 300, "sources": world.file}
                async with running(NOWHERE, tmp_path / "agent", sink, **more) as world.source:
                    await test(world)

    asyncio.run(run())
    assert births[0] > 1


OM = "application/openmetrics-text; version=1.0.0"
BAD: list[tuple[str, Serve, str]] = [
    ("http status", saying(b"HTTP/1.1 503 Service Unavailable\r\n\r\n"), "503"),
    ("http status", saying(b"HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n"), "redirects are not followed"),
    ("garbage", page("<html></html>", "text/html"), "an HTML page"),
    ("garbage", page("hello world, this is\n"), "no samples"),
    ("garbage", page("a_total 5\n", OM), "# EOF"),
    ("answer too large", page("a_total 5\n" + "#" * 5_000), "at most 4096"),
    ("closed", saying(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\na_total 5\n"), "of 99"),
]


def test_bad_pages_are_counted_and_named_and_the_next_good_one_taken(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        for value, (reason, serve, text) in enumerate(BAD, 10):
            await world.says(f"a_total {value}\n", "a_total", value)
            before = world.source.figures()["poll_errors"].get(reason, 0)
            world.server.serve = serve
            await until(lambda: world.source.figures()["poll_errors"].get(reason, 0) > before, f"{reason}: {text}")  # noqa: B023
            assert world.named(text), text
        await until(lambda: world.last("artimon.endpoint.up", AGENT) == 0, "up = 0")
        await world.says("a_total 9\n", "a_total", 9)
        await until(lambda: not world.named(str(world.server.port)), "the end of the problem")

    with_world(tmp_path, test, {"max_bytes": "4KiB"})


def test_the_series_of_a_target_that_is_gone_end_after_five_periods_and_go_on_when_it_is_back(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        await world.polled("a_total", 5)
        await world.server.down()
        await world.polled("a_total", None)
        ended = world.history("a_total")
        assert ended[-1][0] - ended[-2][0] >= 4 * 300
        await world.server.up()
        await world.polled("a_total", 5)
        assert world.history("a_total")[-1][1] == 1, "what it had counted does not count again"

    with_world(tmp_path, test)


def test_a_page_in_chunks_and_one_without_a_length(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        chunks = b"8;x=y\r\na_total \r\n2\r\n7\n\r\n0\r\nTrailer: x\r\n\r\n"
        world.server.serve = saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
        await world.polled("a_total", 7)
        world.server.serve = saying(b"HTTP/1.1 200 OK\r\n\r\na_total 8\ng 12")
        await world.polled("a_total", 8)
        await until(lambda: world.source.figures()["refused"].get("half-written") == 1, "the cut line")
        assert world.last("g") in (5, None), "nobody knows whether 12 is all of it"

    with_world(tmp_path, test)


def test_limits_of_series_and_what_is_ignored(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        lines = "".join(f'x{{n="{i}"}} {i} 1520879607789\n' for i in range(10))
        await world.says(lines, "x", 2)
        await until(lambda: world.source.figures()["refused"].get("too many series") == 7, "the count")
        assert world.source.figures()["timestamps_ignored"] >= 10
        assert abs(world.history("x")[-1][0] - SYSTEM_CLOCK.now_ms()) < 600_000, "the time is that of the poll"

    with_world(tmp_path, test, {"max_series": 3})


def test_rules_of_a_job_and_their_counts(tmp_path: Path) -> None:
    rules = [
        {"name": "no-gauges", "source_labels": ["__name__"], "regex": "g", "action": "drop"},
        {"source_labels": ["__name__"], "regex": "(.*)_total", "target_label": "__name__"},
        {"name": "useless", "source_labels": ["nothing"], "regex": "x", "action": "drop"},
    ]

    async def test(world: World) -> None:
        await world.polled("a", 5)
        assert world.history("g") == []

        def counts() -> dict[str, Any]:
            said = [(t, v) for t, _, _, v in world.sink.samples(AGENT) if t.startswith("artimon.rule.series")]
            return {parse_canonical(text)[1]["rule"]: value for text, value in said}

        await until(lambda: counts() == {"no-gauges": 1, "shop.rules[2]": 1, "useless": 0}, "the counts of the rules")

    with_world(tmp_path, test, {"rules": rules})


def test_the_file_of_sources_is_followed(tmp_path: Path) -> None:
    """A target that is no longer named ends; a file that is wrong, or gone, changes nothing."""

    async def test(world: World) -> None:
        await world.polled("a_total", 5)
        for wrong in ("prometheus: [", '{"prometheus": [{"job": "shop"}]}', "x: 1"):
            world.file.write_text(wrong)
            await until(lambda: world.named("sources.yaml:1:"), "the problem")
            assert world.named("stays in use")
        before = len(world.history("a_total"))
        world.file.unlink()
        await until(lambda: world.named("the file was deleted"), "the problem")
        await until(lambda: len(world.history("a_total")) > before + 1, "two more polls")
        assert world.last("a_total") == 5
        polls = len(world.server.paths)
        world.configure()
        await until(lambda: len(world.server.paths) > polls + 2, "polls that go on")
        assert not any(value is None for _, _, value in world.history("a_total")), "the same again changes nothing"
        world.configure(labels={"team": "y"})
        await until(lambda: any('team="y"' in text for text, *_ in world.sink.samples(world.name)), "the new label")
        assert not world.named("sources.yaml")
        world.write({})
        await until(lambda: world.last("a_total") is None, "the end of its series")
        await until(lambda: world.last("artimon.endpoint.up", AGENT) is None, "the end of its status")
        world.configure()
        await world.polled("a_total", 5)

    with_world(tmp_path, test)


def test_files_of_targets_are_followed_and_a_bad_one_drops_none(tmp_path: Path) -> None:
    """The files have the format of Prometheus."""

    async def test(world: World) -> None:
        def put(text: str, name: str = "one.json") -> None:
            (tmp_path / f"{name}.new").write_text(text)
            (tmp_path / f"{name}.new").replace(tmp_path / name)

        address = f"127.0.0.1:{world.server.port}"
        labels = {"instance": "web", "env": "prod", "__metrics_path__": "/m", "__meta_x": "y"}
        good = json.dumps([{"targets": [address], "labels": labels}])
        put(good)
        name = "prometheus/shop/web"
        await until(lambda: world.last("a_total", name) == 5, "the first poll")
        assert world.server.paths[-1] == "/m"
        for bad in ("[{", '[{"targets": ["http://"]}]'):
            put(bad)
            await until(lambda: world.named("one.json:1:"), f"the problem of {bad!r}")
            assert world.named("previous targets stay in use")
            put(good)
            await until(lambda: not world.named("one.json"), "the end of the problem")
        put(good, "two.json")
        await until(lambda: world.named("is http://127.0.0.1"), "the same instance twice")
        (tmp_path / "two.json").unlink()
        assert world.last("a_total", name) == 5
        put("[]")
        await until(lambda: world.last("a_total", name) is None, "its end")

    with_world(tmp_path, test, {"files": ["*.json"]})


def test_a_target_that_was_taken_out_while_the_agent_was_away_ends(tmp_path: Path) -> None:
    async def run() -> None:
        async with bean_server() as server:
            sink = KeepingSink()
            world = World(tmp_path, server, sink)
            server.serve = page(COUNTERS)
            world.configure()
            more: dict[str, Any] = {"period_ms": 300, "sources": world.file}
            async with running(NOWHERE, tmp_path / "agent", sink, **more) as world.source:
                await world.polled("a_total", 5)
            world.write({})
            world.sink = KeepingSink(tuple(sink.accepted))  # the log of before
            async with running(NOWHERE, tmp_path / "agent", world.sink, **more) as world.source:
                name = world.name
                await until(lambda: any(p.source == name for p in world.sink.accepted), "the end of its series")
        (ended,) = [p for p in world.sink.accepted if p.source == name]
        assert {value for *_, value in ended.samples.rows()} == {None}
        assert len(ended.samples) == 2

    asyncio.run(run())


def test_tokens_and_passwords_come_from_files_and_are_never_named(tmp_path: Path) -> None:
    seen: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        seen.append(head)
        good = b"Bearer t0ken" in head or base64.b64encode(b"me:t0ken") in head
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nx 123\n" if good else b"HTTP/1.1 401 No\r\n\r\n")
        writer.close()

    async def run() -> None:
        secret = tmp_path / "secret"
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        jobs = [
            {"job": "bearer", "targets": [address], "bearer_token_file": "secret"},
            {"job": "basic", "targets": [address], "username": "me", "password_file": "secret"},
        ]
        file, sink = tmp_path / "sources.yaml", KeepingSink()
        file.write_text(json.dumps({"prometheus": jobs}))
        async with server, running(NOWHERE, tmp_path / "agent", sink, sources=file, period_ms=300) as source:
            await until(lambda: source.figures()["poll_errors"].get("unauthorized", 0) >= 2, "no file")
            secret.write_text("wr0ng\n")
            await until(lambda: source.figures()["poll_errors"].get("http status", 0) >= 2, "a wrong secret")
            assert not any("wr0ng" in problem for problem in source.figures()["problems"])
            secret.write_text("t0ken\n")
            names = {f"prometheus/{job}/{address}" for job in ("bearer", "basic")}
            await until(lambda: names <= {p.source for p in sink.accepted}, "a poll of both")

    asyncio.run(run())
    assert any(b"Accept: application/openmetrics-text" in head for head in seen)


def test_https_is_believed_by_its_certificate_alone(tmp_path: Path) -> None:
    async def run() -> None:
        authority, other = Authority(tmp_path / "ca"), Authority(tmp_path / "other")
        pair = authority.sign("server")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pair.certificate, pair.key)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nx 123\n")
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        jobs = [
            {"job": name, "targets": [address], "scheme": "https", "ca": ca.certificate, **more}
            for name, ca, more in (
                ("good", authority, {}),
                ("stranger", other, {}),
                ("misnamed", authority, {"server_name": "elsewhere"}),
            )
        ]
        file, sink = tmp_path / "sources.yaml", KeepingSink()
        file.write_text(json.dumps({"prometheus": jobs}))
        async with server, running(NOWHERE, tmp_path / "agent", sink, sources=file, period_ms=500) as source:
            await until(lambda: source.figures()["poll_errors"].get("tls", 0) >= 2, "two refusals")
            await until(lambda: sink.samples(f"prometheus/good/{address}"), "a poll")
            assert not any(p.source.startswith(("prometheus/stranger", "prometheus/misnamed")) for p in sink.accepted)

    asyncio.run(run())
