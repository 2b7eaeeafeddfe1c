"""Discoveries that fail, exceed limits, need credentials, or are shared by agents; DNS against a small server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import dns.asyncresolver
import dns.name
import pytest
from dnslib import AAAA, MX, RCODE, SRV, A

from sources.base.source_errors import PollError
from sources.scrape.discovery import discovery as limits
from sources.scrape.discovery.consul_discovery import ConsulConfig
from sources.scrape.discovery.discovered_targets import DiscoveredTargets
from sources.scrape.discovery.discovery import Discovery, DiscoveryConfig
from sources.scrape.discovery.dns_discovery import DnsConfig, DnsDiscovery
from sources.scrape.discovery.http_discovery import HttpConfig
from sources.scrape.discovery.http_endpoint import parse_url, with_access
from sources.scrape.discovery.kubernetes_discovery import KubernetesConfig
from sources.scrape.discovery.scrape_job import DiscoveryJob
from sources.scrape.discovery.static_and_files import FileConfig, StaticConfig
from sources.scrape.discovery.target_group import ADDRESS, DiscoveredGroup
from sources.targets.credentials import CredentialFiles
from sources.targets.prometheus_target import ScrapeJob
from tests.sources.discovery.name_server import Zone, name_server
from tests.sources.discovery.servers import DiscoveryServer, discovery_server, instance, pod
from tests.sources.helpers import HOST, KeepingSink, running
from tests.sources.prometheus.exporters import page
from tests.waiting import until

Test = Callable[[Discovery], Awaitable[None]]


def follow(config: DiscoveryConfig, test: Test) -> None:
    """Run a discovery for the time of a test."""

    async def run() -> None:
        found = config.make(lambda: None)
        task = asyncio.create_task(found.run())
        try:
            await test(found)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())


def addresses(found: Discovery) -> set[str]:
    return {one[ADDRESS] for group in found.groups().values() for one in group.label_sets()}


def populated(server: DiscoveryServer) -> dict[str, DiscoveryConfig]:
    """Return a discovery of each kind that asks the server; each finds one target."""
    server.lists["/"] = [{"targets": ["h:1"]}]
    server.set_service("db", [instance("db", "n", 1, address="h")])
    server.put("pods", {**pod("p", "10.0.0.1"), "spec": {"containers": [{"name": "c"}]}})
    base = parse_url(f"http://{server.address}")
    return {
        "http": HttpConfig("url", base, 0.05),
        "consul": ConsulConfig(base, refresh_s=0.05),
        "kubernetes": KubernetesConfig("pod", base),
    }


KINDS = ("http", "consul", "kubernetes")


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_fails_keeps_the_last_targets(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("discovery", "consul_discovery", "kubernetes_watch"):
        monkeypatch.setattr(f"sources.scrape.discovery.{module}.RETRY_S", 0.05)
    with discovery_server() as server:

        async def test(found: Discovery) -> None:
            await until(lambda: found.ready, "first targets")
            before = addresses(found)
            assert len(before) == 1
            server.refusing = True
            server.break_watches(expire=True)
            assert "500" in await until(lambda: found.problem, "a problem")
            assert addresses(found) == before
            server.refusing = False
            await until(lambda: not found.problem, "recovery")
            assert addresses(found) == before

        follow(populated(server)[kind], test)


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_come_from_files(kind: str, tmp_path: Path) -> None:
    with discovery_server() as server:
        config = populated(server)[kind]
        server.token = "s3cret"
        token = tmp_path / "token"
        base = with_access(f"http://{server.address}", CredentialFiles(bearer_token_file=token))

        async def refused(found: Discovery) -> None:
            assert "token" in await until(lambda: found.problem, "a problem")
            assert not found.ready

        async def accepted(found: Discovery) -> None:
            await until(lambda: found.ready, "targets")

        match config:
            case HttpConfig():
                config = HttpConfig("url", base)
            case ConsulConfig():
                config = ConsulConfig(base)
            case _:
                config = KubernetesConfig("pod", base)
        follow(config, refused)
        token.write_text("s3cret\n")
        follow(config, accepted)


@pytest.mark.parametrize(
    ("kind", "content", "problem"),
    [
        ("text/html", [], "Content-Type"),
        ("application/json", {"targets": []}, "want a JSON list of target groups"),
        ("application/json", [None], "want objects"),
        ("application/json", [{"targets": [1]}], "want a list of texts"),
        ("application/json", [{"targets": ["a"], "labels": {"a": 1}}], "want texts"),
        ("application/json", [{"targets": ["a"], "more": 1}], "want objects"),
        ("application/json", [{"targets": ["a"] * 11}], "11 targets: at most 10"),
        ("application/json", ["x" * 3_000], "answer too large"),
    ],
)
def test_bad_lists(kind: str, content: Any, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_FOUND", 10)
    monkeypatch.setattr("sources.scrape.discovery.http_endpoint.MAX_BODY", 2_000)
    with discovery_server() as server:
        config = populated(server)["http"]
        server.kind, server.lists["/"] = kind, content

        async def test(found: Discovery) -> None:
            assert problem in await until(lambda: found.problem, "a problem")
            assert not found.ready

        follow(config, test)


@pytest.mark.parametrize("role", ["pod", "service", "node", "endpoints", "endpointslice"])
def test_odd_objects_are_a_problem_of_their_discovery(role: str) -> None:
    """Objects without the members that every API server sends."""
    with discovery_server() as server:
        resource = {"endpoints": "endpoints"}.get(role, f"{role}s")
        bad = {"metadata": {"name": "x", "namespace": "y"}, "spec": {"containers": 1, "ports": 1},
               "status": {"addresses": 1, "conditions": 1}, "subsets": 1, "endpoints": 1, "ports": 1}  # fmt: skip
        server.put(resource, bad)

        async def test(found: Discovery) -> None:
            await until(lambda: found.problem, "a problem")
            assert found.groups() == {}

        follow(KubernetesConfig(role, parse_url(f"http://{server.address}")), test)


def test_files_keep_their_targets_while_they_are_invalid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sources.scrape.discovery.static_and_files.CHECK_S", 0.02)
    good, bad = tmp_path / "a.json", tmp_path / "b.yml"
    good.write_text('[{"targets": ["a:1"]}]')
    bad.write_text("- targets: [b:1]\n")

    async def test(found: Discovery) -> None:
        await until(lambda: addresses(found) == {"a:1", "b:1"}, "both files")
        bad.write_text("- target: [b:2]\n")
        assert "b.yml:1:3" in await until(lambda: found.problem, "a problem")
        good.write_text('[{"targets": ["a:2", "a:3"]}]')
        await until(lambda: addresses(found) == {"a:2", "a:3", "b:1"}, "the other file")
        bad.unlink()
        await until(lambda: addresses(found) == {"a:2", "a:3"} and not found.problem, "a file that is gone")

    follow(FileConfig((tmp_path / "*.json", tmp_path / "*.yml")), test)


# --- DNS


@pytest.mark.parametrize(
    ("kind", "records", "labels"),
    [
        ("SRV", [SRV(1, 1, 9100, "n1.example.org")],
         {ADDRESS: "n1.example.org:9100", "__meta_dns_srv_record_target": "n1.example.org.",
          "__meta_dns_srv_record_port": "9100"}),
        ("A", [A("10.0.0.1")], {ADDRESS: "10.0.0.1:90"}),
        ("AAAA", [AAAA("fd00::1")], {ADDRESS: "[fd00::1]:90"}),
        ("MX", [MX("mail.example.org")],
         {ADDRESS: "mail.example.org:90", "__meta_dns_mx_record_target": "mail.example.org."}),
    ],
)  # fmt: skip
def test_records(kind: Any, records: list[Any], labels: Mapping[str, str]) -> None:
    zone = Zone()
    zone.records["x.example.org.", kind] = records
    with name_server(zone) as resolver:
        config = DnsConfig(("x.example.org", "none.example.org"), kind, 90)
        found = DnsDiscovery(config, lambda: None, resolver)
        groups = asyncio.run(found.refresh())
        assert [list(group.label_sets()) for group in groups.values()] == [
            [{"__meta_dns_name": "x.example.org", **labels}],
            [],
        ]


def test_many_records_come_over_tcp() -> None:
    zone = Zone()
    zone.records["x.org.", "SRV"] = [SRV(1, 1, 1 + at, f"host-{at}.example.org") for at in range(300)]
    with name_server(zone) as resolver:
        found = asyncio.run(DnsDiscovery(DnsConfig(("x.org",)), lambda: None, resolver).refresh())
        assert len(found["x.org"].targets) == 300


def test_search_domains() -> None:
    """The first name that exists counts, also if it has no record of this type, or one before it fails."""
    zone = Zone()
    zone.records |= {
        ("db.b.org.", "A"): [A("10.0.0.1")],
        ("six.a.org.", "A"): [],
        ("six.b.org.", "A"): [A("10.0.0.6")],
        ("web.a.org.", "A"): RCODE.SERVFAIL,
        ("web.b.org.", "A"): [A("10.0.0.2")],
        ("ill.a.org.", "A"): RCODE.SERVFAIL,
        ("x.y.", "A"): [A("10.0.0.3")],
        ("x.y.a.org.", "A"): [A("10.0.0.4")],
        ("rooted.", "A"): [A("10.0.0.5")],
    }
    with name_server(zone) as plain:

        def resolver() -> dns.asyncresolver.Resolver:
            made = plain()
            made.search = [dns.name.from_text(text) for text in ("a.org", "b.org")]
            return made

        names = ("db", "web", "x.y", "rooted.", "six")
        found = DnsDiscovery(DnsConfig(names, "A", 1), lambda: None, resolver)
        groups = asyncio.run(found.refresh())
        assert [[one[ADDRESS] for one in groups[name].label_sets()] for name in names] == [
            ["10.0.0.1:1"], ["10.0.0.2:1"], ["10.0.0.3:1"], ["10.0.0.5:1"], []
        ]  # fmt: skip
        failing = DnsDiscovery(DnsConfig(("ill",), "A", 1), lambda: None, resolver)
        with pytest.raises(PollError, match=r"ill: .*SERVFAIL"):
            asyncio.run(failing.refresh())


def test_a_name_that_fails_keeps_its_targets() -> None:
    zone = Zone()
    zone.records |= {("a.org.", "A"): [A("10.0.0.1")], ("b.org.", "A"): [A("10.0.0.2")]}
    with name_server(zone) as resolver:

        async def run() -> None:
            found = DnsDiscovery(DnsConfig(("a.org", "b.org"), "A", 1, 0.05), lambda: None, resolver)
            task = asyncio.create_task(found.run())
            await until(lambda: addresses(found) == {"10.0.0.1:1", "10.0.0.2:1"}, "both")
            zone.records["a.org.", "A"] = RCODE.SERVFAIL
            zone.records["b.org.", "A"] = RCODE.NXDOMAIN
            await until(lambda: addresses(found) == {"10.0.0.1:1"} and "a.org" in found.problem, "the failed one")
            task.cancel()

        asyncio.run(run())


# --- jobs


def job(name: str, count: int, **settings: Any) -> DiscoveryJob:
    targets = tuple({ADDRESS: f"h{at}:1"} for at in range(count))
    return DiscoveryJob(ScrapeJob(name), discoveries=(StaticConfig((DiscoveredGroup(targets),)),), **settings)


def found_by(agent: str, *jobs: DiscoveryJob) -> tuple[list[str], list[str]]:
    async def run() -> tuple[list[str], list[str]]:
        all_ = DiscoveredTargets(agent, lambda task: None)
        await all_.configure(jobs)
        await until(lambda: all_.ready, "targets")
        targets, problems = all_.targets()
        await all_.stop()
        return [one.instance for one in targets], problems

    return asyncio.run(run())


def test_agents_share_the_targets_of_a_job() -> None:
    agents = ("a", "b", "c")
    shares = [set(found_by(agent, job("j", 90, agents=agents))[0]) for agent in agents]
    assert sum(map(len, shares)) == 90
    assert len(set.union(*shares)) == 90
    assert min(map(len, shares)) > 15
    assert found_by("d", job("j", 90, agents=agents))[0] == []
    assert len(found_by("d", job("j", 90))[0]) == 90


def test_targets_have_limits() -> None:
    targets, problems = found_by("a", job("j", 30, max_targets=20), job("k", 1))
    assert len(targets) == 21
    assert problems == ["job j: 30 targets: only 20 are polled; select fewer, or share them"]


def test_invalid_targets_are_named() -> None:
    bad = tuple({ADDRESS: address} for address in ("a/b", "x:99999", "h:1"))
    config = StaticConfig((DiscoveredGroup((*bad, {"a": "b"}, {ADDRESS: "l:1", "z" * 20: "v" * 3_000})),))
    targets, problems = found_by("a", DiscoveryJob(ScrapeJob("j"), discoveries=(config,)))
    assert targets == ["h:1"]
    assert len(problems) == 4
    assert all(text.startswith("job j: ") for text in problems)


# --- an agent


def test_an_agent_polls_what_it_discovers(tmp_path: Path) -> None:
    """Targets come, go, and keep their series while the list cannot be read."""
    body = b"# TYPE a_total counter\na_total 5\n"
    with discovery_server() as server, page(body, "text/plain; version=0.0.4") as target:
        server.lists["/sd"] = [{"targets": [target], "labels": {"team": "x"}}]
        sources = tmp_path / "sources.yaml"
        config = {"job_name": "found", "scrape_interval": "1s", "scrape_timeout": "1s", "proxy_url": "http://x",
                  "http_sd_configs": [{"url": f"http://{server.address}/sd", "refresh_interval": "1s"}]}  # fmt: skip
        sources.write_text(json.dumps({"scrape_configs": [config]}))
        sink, name = KeepingSink(), f"prometheus/found/{target}"

        async def test() -> None:
            async with running("127.0.0.1:1", tmp_path, sink, sources=sources) as source:
                await until(lambda: sink.last(name).get("a_total") == 5, "the target")
                (text,) = {text for text, *_ in sink.samples(name)}
                assert f'host="{HOST}"' in text
                assert 'team="x"' in text
                server.refusing = True
                await until(partial(_has_problem, source, "list at"), "a problem")
                assert source.figures()["discovery"]["found"]["targets"] == 1
                assert any("`proxy_url:` is left out" in one for one in source.figures()["warnings"])
                server.refusing, server.lists["/sd"] = False, []
                await until(lambda: sink.last(name).get("a_total", 5) is None, "the end")

        asyncio.run(test())


def _has_problem(source: Any, text: str) -> bool:
    return any(text in one for one in source.figures()["problems"])
