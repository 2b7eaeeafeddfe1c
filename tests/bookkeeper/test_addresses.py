"""Listening and advertised addresses of a process: containers, mapped ports, IPv6."""

from __future__ import annotations

import socket

import pytest

from bookkeeper.process import addresses
from bookkeeper.process.addresses import (
    Addresses,
    address_of,
    choose_addresses,
    source_address,
    split_host_port,
    zookeeper_hosts,
)

HERE = "127.0.0.1:2181"
LOCAL = ["127.0.0.1", "127.0.0.1"]
OUT = "203.0.113.9"
SIX = "2001:db8::1"
NOBODY = "no.such.name.invalid"


@pytest.mark.parametrize(
    ("advertise", "bind", "expected"),
    [
        pytest.param(None, None, Addresses(LOCAL, "127.0.0.1"), id="the_way_to_zookeeper"),
        pytest.param(OUT, None, Addresses([OUT, "127.0.0.1"], OUT), id="by_hand"),
        pytest.param(f"{OUT}:40000", "0.0.0.0:9000", Addresses(["0.0.0.0"], OUT, 9000, 40000), id="mapped"),
        pytest.param(f"{OUT}:40000", ":9000", Addresses([OUT, "127.0.0.1"], OUT, 9000, 40000), id="port"),
        pytest.param(f"[{SIX}]:40000", "[::]:9000", Addresses(["::"], SIX, 9000, 40000), id="ipv6_mapped"),
        pytest.param(SIX, "::", Addresses(["::"], SIX), id="ipv6_bare"),
        pytest.param("[2001:db8:0::1]", None, Addresses([SIX, "127.0.0.1"], SIX), id="ipv6_one_form"),
        pytest.param("localhost", None, Addresses(LOCAL, "127.0.0.1"), id="name_becomes_address"),
        pytest.param("0.0.0.0", None, Addresses(LOCAL, "127.0.0.1", ignored="0.0.0.0"), id="nobody_in_particular"),
        pytest.param("::", "::", Addresses(["::"], "127.0.0.1", ignored="::"), id="nobody_in_particular_ipv6"),
        pytest.param(NOBODY, None, Addresses(LOCAL, "127.0.0.1", ignored=NOBODY), id="no_address"),
    ],
)  # fmt: skip
def test_what_is_advertised_is_an_address(advertise: str | None, bind: str | None, expected: Addresses) -> None:
    """Pollers may not know a name that is good here, as those of pods are."""
    if expected.advertise == "127.0.0.1" and advertise == "localhost" and address_of("localhost") != "127.0.0.1":
        pytest.skip("localhost has another address here")
    assert choose_addresses(HERE, advertise, bind) == expected


def test_without_a_way_to_zookeeper_the_host_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "2001:db8::7")
    assert choose_addresses("no.such.name.invalid:2181", None, None) == Addresses(
        ["2001:db8::7", "127.0.0.1"], "2001:db8::7"
    )
    monkeypatch.setattr(socket, "gethostname", lambda: "no.such.name.invalid")
    assert choose_addresses("no.such.name.invalid:2181", None, None).advertise == addresses.LOOPBACK


def test_a_server_without_a_way_gives_way_to_the_next() -> None:
    assert source_address("no.such.name.invalid:1,127.0.0.1:2") == "127.0.0.1"
    assert source_address("[::1]:2181") in ("::1", None)  # None: a machine without IPv6


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("h", ("h", 5)),
        ("h:1", ("h", 1)),
        (":1", ("", 1)),
        ("", ("", 5)),
        ("h:x", ("h:x", 5)),
        ("h:65536", ("h:65536", 5)),
        ("::1", ("::1", 5)),
        ("2001:db8::1:2181", ("2001:db8::1:2181", 5)),
        ("[::1]", ("::1", 5)),
        ("[::1]:7", ("::1", 7)),
    ],
)
def test_host_and_port(text: str, expected: tuple[str, int]) -> None:
    assert split_host_port(text, 5) == expected


def test_servers_of_zookeeper() -> None:
    assert zookeeper_hosts("a:1, [::1]:2,[::1],b/x/y") == [("a", 1), ("::1", 2), ("::1", 2181), ("b", 2181)]
