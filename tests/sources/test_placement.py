"""Addresses: their form in znodes, and the labels of their place."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from artimon.model.clock import SYSTEM_CLOCK, ManualClock
from artimon.runtime.config_file import ConfigFileError
from sources.base.endpoint_address import parse_endpoint
from sources.base.source_errors import AddressError
from sources.delivery import placement_resolver as module
from sources.delivery.placement_resolver import (
    RETRY_MS,
    PlacementResolver,
    PlacementRule,
    labels_by_rule,
    labels_of_name,
    read_rules,
)

T = TypeVar("T")
UUID = "01234567-89ab-cdef-0123-456789abcdef"


@pytest.mark.parametrize(
    ("node", "ip", "port", "address"),
    [
        (f"10.1.2.3:4567:{UUID}", "10.1.2.3", 4567, "10.1.2.3:4567"),
        (f"[2001:db8::1]:80:{UUID}", "2001:db8::1", 80, "[2001:db8::1]:80"),
    ],
)
def test_a_znode_names_an_endpoint(node: str, ip: str, port: int, address: str) -> None:
    endpoint = parse_endpoint("shop", node)
    assert (endpoint.ip, endpoint.port, endpoint.address) == (ip, port, address)
    assert endpoint.uuid.hex() == UUID.replace("-", "")


@pytest.mark.parametrize(
    "node",
    [
        "", "10.1.2.3:80", f"10.1.2.3:http:{UUID}", f"10.1.2.3:0:{UUID}", f"10.1.2.3:65536:{UUID}",
        f"host:80:{UUID}", f"2001:db8::1:80:{UUID}", f"[10.1.2.3]:80:{UUID}", "10.1.2.3:80:no-uuid",
    ],
)  # fmt: skip
def test_any_other_name_is_an_error_that_names_it(node: str) -> None:
    with pytest.raises(AddressError, match="shop"):
        parse_endpoint("shop", node)


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("jb-r12-web01.example", {"host": "jb-r12-web01", "dc": "jb", "rack": "r12", "module": "web"}),
        ("dc2-7-db3-b.example.org", {"host": "dc2-7-db3-b", "dc": "dc2", "rack": "7", "module": "db"}),
        ("ip-10-1-2-3.cloud", {"host": "ip-10-1-2-3"}),
        ("web01", {"host": "web01"}),
        ("my-laptop-x", {"host": "my-laptop-x"}),
    ],
)
def test_what_a_name_says(name: str, labels: dict[str, str]) -> None:
    assert labels_of_name(name) == labels


RULES = [
    {"net": "10.1.0.0/16", "labels": {"dc": "jb", "environment": "prod"}},
    {"net": "10.1.2.0/24", "labels": {"rack": "r12", "environment": "test"}},
    {"net": "2001:db8::/32", "labels": {"dc": "six"}},
]


def test_the_narrower_rule_has_the_say(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(list(reversed(RULES))))
    rules = read_rules(path)
    assert labels_by_rule(rules, "10.1.2.3") == {"dc": "jb", "rack": "r12", "environment": "test"}
    assert labels_by_rule(rules, "10.1.9.9") == {"dc": "jb", "environment": "prod"}
    assert labels_by_rule(rules, "2001:db8::7") == {"dc": "six"}
    assert labels_by_rule(rules, "192.0.2.1") == {}


def test_rules_may_be_toml(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[rules]]\nnet = "10.0.0.0/8"\nlabels = { dc = "jb" }\n')
    assert labels_by_rule(read_rules(path), "10.9.9.9") == {"dc": "jb"}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("{", "Expecting"),
        ("{}", "list"),
        ('[{"net": "10.0.0.0/8"}]', "1:2: \\[0\\].labels: is missing"),
        ('[{"net": "10.0.0.1/8", "labels": {}}]', "host bits"),
        ('[{"net": "10.0.0.0/8", "labels": {"not good": "x"}}]', "not good"),
        ('[{"net": "10.0.0.0/8", "labels": {"dc": 7}}]', "dc"),
    ],
)
def test_bad_rules_say_what_is_wrong_with_which_entry(tmp_path: Path, text: str, wrong: str) -> None:
    path = tmp_path / "rules.json"
    path.write_text(text)
    with pytest.raises(ConfigFileError, match=wrong):
        read_rules(path)


class Resolver:
    """Resolver with a fixed table; other addresses have no name."""

    def __init__(self, **names: str) -> None:
        self.names = {ip.replace("_", "."): name for ip, name in names.items()}
        self.asked: list[str] = []

    def __call__(self, ip: str) -> str:
        self.asked.append(ip)
        if ip not in self.names:
            raise OSError("no such name")
        return self.names[ip]


IP = "192.0.2.1"


def using(
    cache: Path,
    work: Callable[[PlacementResolver], Awaitable[T]],
    resolve: Callable[[str], str],
    rules: tuple[PlacementRule, ...] = (),
    clock: ManualClock | None = None,
    deadline_s: float = 5.0,
) -> T:
    async def run() -> T:
        placement = PlacementResolver(
            cache, rules, clock or ManualClock(), hostname="here.example", resolve=resolve, deadline_s=deadline_s
        )
        try:
            return await work(placement)
        finally:
            placement.close()

    return asyncio.run(run())


def _asking(ip: str) -> Callable[[PlacementResolver], Awaitable[dict[str, str]]]:
    return lambda placement: placement.labels(ip)


def test_a_loopback_address_is_this_machine(tmp_path: Path) -> None:
    resolver = Resolver()
    for ip in ("127.0.0.1", "127.1.2.3", "::1"):
        assert using(tmp_path / "n", _asking(ip), resolver) == {"host": "here"}
    assert not resolver.asked


def test_the_reverse_name_is_asked_once_and_kept_on_disk(tmp_path: Path) -> None:
    resolver = Resolver(**{"192_0_2_1": "jb-r1-web2.example"})
    expected = {"host": "jb-r1-web2", "dc": "jb", "rack": "r1", "module": "web"}

    async def twice(placement: PlacementResolver) -> list[dict[str, str]]:
        return [await placement.labels(IP), await placement.labels(IP)]

    assert using(tmp_path / "n", twice, resolver) == [expected, expected]
    assert resolver.asked == [IP]
    nobody = Resolver()
    assert using(tmp_path / "n", lambda p: p.labels(IP), nobody) == expected


def test_a_failed_look_up_keeps_the_last_answer(tmp_path: Path) -> None:
    resolver, clock = Resolver(**{"192_0_2_1": "a.example"}), ManualClock(0)

    async def work(placement: PlacementResolver) -> list[str]:
        first = await placement.labels(IP)
        resolver.names.clear()
        clock.advance(100_000_000)
        second = await placement.labels(IP)
        while placement._lookups:
            await asyncio.sleep(0.01)
        return [first["host"], second["host"], (await placement.labels(IP))["host"]]

    assert using(tmp_path / "n", work, resolver, clock=clock) == ["a", "a", "a"]


def test_a_full_cache_still_follows_a_machine_that_gets_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_NAMES", 1)
    resolver, clock = Resolver(**{"192_0_2_1": "a.example"}), ManualClock(0)

    async def work(placement: PlacementResolver) -> list[str]:
        first = await placement.labels(IP)
        resolver.names[IP] = "b.example"
        clock.advance(100_000_000)
        await placement.labels(IP)
        while placement._lookups:
            await asyncio.sleep(0.01)
        return [first["host"], (await placement.labels(IP))["host"]]

    assert using(tmp_path / "n", work, resolver, clock=clock) == ["a", "b"]


def test_an_address_without_a_name_is_its_own_host_and_asked_again_later(tmp_path: Path) -> None:
    resolver, clock = Resolver(), ManualClock(0)

    async def work(placement: PlacementResolver) -> list[str]:
        hosts = [(await placement.labels(IP))["host"] for _ in range(3)]
        resolver.names[IP] = "named.example"
        clock.advance(RETRY_MS)
        return [*hosts, (await placement.labels(IP))["host"]]

    assert using(tmp_path / "n", work, resolver, clock=clock) == [IP, IP, IP, "named"]
    assert len(resolver.asked) == 2


def test_rules_go_before_the_name(tmp_path: Path) -> None:
    path = tmp_path / "rules.json"
    path.write_text('[{"net": "192.0.2.0/24", "labels": {"dc": "rule"}}]')
    labels = using(
        tmp_path / "n",
        lambda p: p.labels(IP),
        Resolver(**{"192_0_2_1": "jb-r1-web2.example"}),
        read_rules(path),
    )
    assert (labels["dc"], labels["rack"]) == ("rule", "r1")


def test_a_resolver_that_hangs_costs_the_deadline_once(tmp_path: Path) -> None:
    release = threading.Event()

    def hang(ip: str) -> str:
        release.wait(30)
        return "late.example"

    async def work(placement: PlacementResolver) -> tuple[float, list[str]]:
        began = SYSTEM_CLOCK.monotonic()
        hosts = [(await placement.labels(IP))["host"]]
        took = SYSTEM_CLOCK.monotonic() - began
        release.set()
        while hosts[-1] == IP:
            await asyncio.sleep(0.01)
            hosts.append((await placement.labels(IP))["host"])
        return took, hosts

    took, hosts = using(tmp_path / "n", work, hang, deadline_s=0.1)
    assert took < 15
    assert (hosts[0], hosts[-1]) == (IP, "late")
