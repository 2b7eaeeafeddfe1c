"""Which agent should poll which processes, the addresses of a host, and what one poller leaves for the next."""

from __future__ import annotations

import ipaddress
import socket
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

from artimon.model.fingerprint import fingerprint
from artimon.model.labels import canonical
from artimon.model.values import ValueType
from bookkeeper.rpc.poll_turns import MAX_MEMO
from sources.poll import start_time_memo as memo
from sources.poll.group_assignment import GroupAssignment, HostGroup, Network, own_networks
from sources.state.schema_binding import bind_schema
from sources.state.series_memory import PlacedColumns, SourceSeries
from sources.state.source_reading import Reading, SourceSchema


def nets(*texts: str) -> frozenset[Network]:
    return frozenset(ipaddress.ip_network(text) for text in texts)


def groups(count: int, ip: str = "10.9.{}.{}") -> list[HostGroup]:
    return [HostGroup("shop", ip.format(i // 200, i % 200 + 1)) for i in range(count)]


def test_the_agent_of_the_host_polls() -> None:
    """By its address, or by a network that it says is its own; of two on one host exactly one."""
    sharing = GroupAssignment(
        {"a": nets("10.0.0.1/32"), "b": nets("10.0.0.2/32", "10.244.2.0/24"), "c": nets("fd00::1/128")}
    )
    assert sharing.poller(HostGroup("x", "10.0.0.1")) == "a"
    assert sharing.poller(HostGroup("x", "10.244.2.77")) == "b"
    assert sharing.poller(HostGroup("x", "fd00::1")) == "c"
    twins = GroupAssignment({"a": nets("10.0.0.1/32"), "b": nets("10.0.0.1/32"), "far": nets("10.0.0.9/32")})
    shares = Counter(twins.poller(HostGroup(f"context{i}", "10.0.0.1")) for i in range(400))
    assert set(shares) == {"a", "b"}
    assert min(shares.values()) > 100


def test_a_loopback_address_is_near_every_agent_and_nobody_polls_without_agents() -> None:
    sharing = GroupAssignment({"a": nets("10.0.0.1/32"), "b": nets()})
    assert {sharing.poller(HostGroup(f"c{i}", "127.0.0.1")) for i in range(50)} == {"a", "b"}
    assert GroupAssignment({}).poller(HostGroup("x", "127.0.0.1")) == ""


def test_an_agent_that_goes_moves_only_its_own_groups() -> None:
    """Hosts without an agent are shared out evenly."""
    all_four = {name: nets() for name in "abcd"}
    before, after = (
        GroupAssignment(all_four),
        GroupAssignment({n: o for n, o in all_four.items() if n != "d"}),
    )
    some = groups(2_000)
    shares = Counter(before.poller(group) for group in some)
    assert min(shares.values()) > 350
    moved = [group for group in some if before.poller(group) != after.poller(group)]
    assert {before.poller(group) for group in moved} == {"d"}
    assert {after.poller(group) for group in moved} == set("abc")


def test_addresses_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel tells them; the way to ZooKeeper and what was told by hand besides."""
    assert own_networks("no.such.name.invalid:1") >= nets("127.0.0.1/32")
    given = [(socket.AF_INET, "10.1.2.3"), (socket.AF_INET6, "fd00::7%eth0"), (socket.AF_PACKET, "02:42:ac:11:00:02")]
    told = {"eth0": [SimpleNamespace(family=family, address=address) for family, address in given], "dummy0": []}
    monkeypatch.setattr("psutil.net_if_addrs", lambda: told)
    found = own_networks("127.0.0.1:2181", ["10.244.3.0/24"])
    assert found == nets("10.1.2.3/32", "fd00::7/128", "127.0.0.1/32", "10.244.3.0/24")
    with pytest.raises(ValueError, match="nonsense"):
        own_networks("127.0.0.1:2181", ["nonsense"])


NAMES = ("a", "b", "c")


def of(name: str) -> int:
    """The fingerprint of a series without labels."""
    return fingerprint(canonical(name, {}))


def reading(*values: int, birth_ms: int = 1_000, uuid: bytes = b"u" * 16) -> Reading:
    n = len(values)
    names = NAMES[:n]
    schema = SourceSchema(bytes([n]) * 16, names, [{}] * n, np.zeros(n, np.uint8), np.ones(n, np.uint8), {}, {})
    return Reading(uuid, birth_ms, 100_000, schema, np.array(values, np.int64))


def accepted(series: SourceSeries, poll: Reading) -> dict[str, int]:
    """Births of the samples of a poll, by name."""
    placed = placed_in(series, poll)
    prepared = series.prepare(poll, placed)
    series.commit(prepared)
    texts = {of(name): name for name in NAMES}
    return {texts[p]: birth for part in prepared.polled for p, _, birth, _ in part.samples.rows()}


def placed_in(series: SourceSeries, poll: Reading) -> PlacedColumns:
    return series.place(bind_schema(poll.schema, {}), poll.time_ms)


def test_the_births_that_one_poller_found_are_those_of_the_next() -> None:
    """A series that came late has one birth, whoever polls it: two would count what it had twice."""
    first, second = SourceSeries("s"), SourceSeries("s")
    assert accepted(first, reading(5, 5)) == {"a": 1_000, "b": 1_000}
    assert accepted(first, reading(6, 6, 6)) == {"a": 1_000, "b": 1_000, "c": 100_000}
    left = memo.decode_memo(memo.encode_memo(memo.late_series_of(first)))
    assert left.tolist() == [(of("c"), 100_000)]
    poll = reading(7, 7, 7)
    memo.apply_memo(second, left, poll, placed_in(second, poll))
    assert accepted(second, poll) == accepted(first, reading(7, 7, 7)) == {"a": 1_000, "b": 1_000, "c": 100_000}
    assert memo.late_series_of(second).tolist() == left.tolist(), "the one after that learns it, too"


def test_a_poller_that_comes_back_forgets_what_it_thought_then() -> None:
    """While it was away the other polled a series that it has never seen, and found its birth."""
    away = SourceSeries("s")
    accepted(away, reading(5))
    late = np.array([(of("b"), 70_000)], memo.MEMO_DTYPE)
    poll = reading(9, 9, 9)
    memo.apply_memo(away, late, poll, placed_in(away, poll))
    assert accepted(away, poll) == {"a": 1_000, "b": 70_000, "c": 1_000}
    assert away.rows.state["type"].tolist() == [ValueType.INTEGER] * 3


def test_a_memo_is_bounded_and_garbage_says_nothing() -> None:
    late = np.zeros(MAX_MEMO, memo.MEMO_DTYPE)
    late["birth_ms"] = np.arange(MAX_MEMO)
    encoded = memo.encode_memo(late)
    assert len(encoded) <= MAX_MEMO
    assert memo.decode_memo(encoded)["birth_ms"].min() == MAX_MEMO - len(encoded) // 16, "the newest are kept"
    assert len(memo.decode_memo(b"garbage")) == 0
