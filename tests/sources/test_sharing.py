"""Assignment of processes to agents, addresses of a host, and the state that a poller leaves for the next."""

from __future__ import annotations

import ipaddress
import socket
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from artimon.model.fingerprint import fingerprint
from artimon.model.labels import canonical
from artimon.model.values import ValueType
from bookkeeper.process.host_key import KEY_FILE, MAX_KEY_LENGTH, fit_host_key, host_key, write_host_key
from bookkeeper.rpc.poll_service import MAX_MEMO
from sources.base.rendezvous import assigned_agent
from sources.poll import start_time_memo as memo
from sources.poll.lease_units import (
    NETWORKS,
    Network,
    network_of,
    network_path,
    own_host_keys,
    own_networks,
    parse_networks,
)
from sources.state.schema_binding import bind_schema
from sources.state.series_memory import PlacedColumns, SourceSeries
from sources.state.source_reading import Reading, SourceSchema


def nets(*texts: str) -> frozenset[Network]:
    return frozenset(ipaddress.ip_network(text) for text in texts)


def test_an_elected_agent_that_goes_moves_only_its_own_units() -> None:
    """Hosts without an agent are shared out evenly."""
    some = [f"10.9.{i // 200}.{i % 200 + 1}" for i in range(2_000)]
    shares = Counter(assigned_agent(unit, "abcd") for unit in some)
    assert min(shares.values()) > 350
    moved = [unit for unit in some if assigned_agent(unit, "abcd") != assigned_agent(unit, "abc")]
    assert {assigned_agent(unit, "abcd") for unit in moved} == {"d"}
    assert {assigned_agent(unit, "abc") for unit in moved} == set("abc")
    assert assigned_agent("web1", ()) == ""


def test_host_keys_of_this_host() -> None:
    """The configured one comes first; addresses of bridges are none."""
    assert own_host_keys("127.0.0.1:2181") == ("127.0.0.1",)
    assert own_host_keys("127.0.0.1:2181", "web 1/é") == ("web_1__", "127.0.0.1")
    assert own_host_keys("no.such.name.invalid:1") == (fit_host_key(socket.gethostname()),)


def test_keys_of_containers_are_addresses_in_the_networks_of_the_host() -> None:
    """The narrowest network counts; a name is in none."""
    hosts = nets("10.0.0.1/32", "10.244.0.0/16", "10.244.3.0/24", "fd00::/64")
    for key, network in {"10.244.3.7": "10.244.3.0/24", "10.244.4.7": "10.244.0.0/16", "fd00::7": "fd00::/64"}.items():
        assert network_of(key, hosts) == ipaddress.ip_network(network)
    assert network_of("10.0.0.2", hosts) is None
    assert network_of("fd01::7", hosts) is None
    assert network_of("web1", nets("0.0.0.0/0")) is None
    assert network_of("10.0.0.1", ()) is None


def test_a_network_is_found_again_in_the_name_of_its_node() -> None:
    hosts = nets("10.244.3.0/24", "fd00::/64", "10.0.0.1/32")
    names = [network_path(network).removeprefix(f"{NETWORKS}/") for network in hosts]
    assert not any("/" in name for name in names)
    assert parse_networks([*names, "somebody's", "10.244.3.7_24"]) == hosts


def test_the_host_key_that_an_agent_leaves(tmp_path: Path) -> None:
    """ARTIMON_HOST is preferred, then the file, then the address; a link or a file of somebody else is not read."""
    folder = str(tmp_path)
    assert host_key("", folder, "10.0.0.7") == "10.0.0.7"
    write_host_key(folder, "web1")
    assert host_key("", folder, "10.0.0.7") == "web1"
    assert host_key("mine", folder, "10.0.0.7") == "mine"
    assert [path.name for path in tmp_path.iterdir()] == [KEY_FILE]
    (tmp_path / KEY_FILE).write_text("a/b\n../" + "x" * 500)
    assert host_key("", folder, "10.0.0.7") == ("a_b_.._" + "x" * 500)[:255].strip()[:MAX_KEY_LENGTH]
    (tmp_path / KEY_FILE).unlink()
    (tmp_path / KEY_FILE).symlink_to("/etc/hostname")
    assert host_key("..", folder, "10.0.0.7") == "10.0.0.7"
    write_host_key(str(tmp_path / "missing"), "web1")


def test_addresses_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel reports them; the route to ZooKeeper and configured ones are added."""
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
    """Return the fingerprint of a series without labels."""
    return fingerprint(canonical(name, {}))


def reading(*values: int, birth_ms: int = 1_000, uuid: bytes = b"u" * 16) -> Reading:
    n = len(values)
    names = NAMES[:n]
    schema = SourceSchema(bytes([n]) * 16, names, [{}] * n, np.zeros(n, np.uint8), np.ones(n, np.uint8), {}, {})
    return Reading(uuid, birth_ms, 100_000, schema, np.array(values, np.int64))


def accepted(series: SourceSeries, poll: Reading) -> dict[str, int]:
    """Return the start times of the samples of a poll, by name."""
    placed = placed_in(series, poll)
    prepared = series.prepare(poll, placed)
    series.commit(prepared)
    texts = {of(name): name for name in NAMES}
    return {texts[p]: birth for part in prepared.polled for p, _, birth, _ in part.samples.rows()}


def placed_in(series: SourceSeries, poll: Reading) -> PlacedColumns:
    return series.place(bind_schema(poll.schema, {}), poll.time_ms)


def test_the_births_that_one_poller_found_are_those_of_the_next() -> None:
    """A series that appeared late has one start time for all pollers; two would count it twice."""
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
    """Meanwhile the other poller found the start time of a series that this one has never seen."""
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
