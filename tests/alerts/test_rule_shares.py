"""Rules that another engine of a pair evaluates: equal results, and none missing if it fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from alerts.api.engine_server import EngineServer
from alerts.api.handlers import AlertHandlers
from alerts.pair import rule_shares
from alerts.pair.engine_lease import EngineAddress, EngineLease
from alerts.pair.pair_member import EnginePair, PairMember
from alerts.pair.rule_shares import RuleShares, decode_results, encode_results, rules_of
from tests.alerts.api_client import ApiClient
from tests.alerts.mailboxes import free_port
from tests.alerts.worlds import World

HOSTS, RULES = 10, 300


def many_rules() -> str:
    lines = ["rules:"]
    for n in range(RULES):
        lines += [
            f"  - name: down-{n:03d}",
            f"    expr: fetch('up{{host=\"h{n % HOSTS}\"}}')",
            '    threshold: "< 1"',
            f"    for: {n % 3}m",
            "    missing: keep",
            f"    labels: {{rule: 'r{n}'}}",
        ]
    return "\n".join(lines) + "\n"


@dataclass
class Copy:
    """Engine b: a world whose state is loaded from that of engine a."""

    world: World
    offset: int = 1
    shares: RuleShares = field(init=False)
    asked: int = 0

    def __post_init__(self) -> None:
        self.shares = RuleShares(self.world.engine, "b", tuple, lambda: self.offset, self.world.clock)
        self.world.engine.read_rules()

    def is_elsewhere(self) -> bool:
        return False

    def forward(self, request: object) -> Any:
        raise NotImplementedError

    def answer_share(self, asked: Any) -> Any:
        self.asked += 1
        return self.shares.answer(asked)

    def peers(self) -> list[dict[str, Any]]:
        return []

    def follow(self, leader: World) -> None:
        self.world.clock.advance(leader.clock.now_ms() - self.world.clock.now_ms())
        self.world.engine.load(leader.database.load())


@contextmanager
def served(world: World, pair: Any) -> Iterator[str]:
    handlers = AlertHandlers(world.engine, world.database, world.clock, "")
    handlers.pair = pair
    server = EngineServer(handlers, token=None)
    server.start()
    try:
        yield server.address
    finally:
        server.stop()


@pytest.fixture
def copy(tmp_path: Path, world: World) -> Iterator[Copy]:
    folder = tmp_path / "b"
    folder.mkdir()
    other = World(folder, store=world.store)
    for one in (world, other):
        one.write(many_rules())
        one.start()
    yield Copy(other)
    other.close()


def share_with(world: World, address: str) -> RuleShares:
    engines = [EngineAddress("a", "", 0), EngineAddress("b", address, 0)]
    shares = RuleShares(world.engine, "a", lambda: engines, lambda: 1, world.clock)
    world.engine.shares = shares.request
    return shares


def values(minute: int) -> dict[str, int]:
    return {f"h{n}": int((minute + n) % 4 > 1) for n in range(HOSTS)}


def test_both_shares_together_are_what_one_engine_finds(world: World, copy: Copy, tmp_path: Path) -> None:
    (tmp_path / "alone").mkdir()
    alone = World(tmp_path / "alone", store=world.store)
    alone.write(many_rules())
    with served(copy.world, copy) as address:
        share_with(world, address)
        for minute in range(6):
            world.tick(values(minute))
            copy.follow(world)
            alone.clock.advance(world.clock.now_ms() - alone.clock.now_ms())
            alone.engine.evaluate(world.time)
            assert world.engine.view().alerts() == alone.engine.view().alerts()
    assert copy.asked == 6
    assert [one.message for one in world.letters()] == [one.message for one in alone.letters()]
    mine = rules_of("a", ["a", "b"], world.engine.active.rules if world.engine.active else {})
    assert 0.2 * RULES < len(mine) < 0.8 * RULES, "queries of ten hosts are shared"
    alone.close()


@pytest.mark.parametrize("failure", ["gone", "other files", "behind"])
def test_the_leader_evaluates_what_another_engine_does_not(
    world: World, copy: Copy, failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if failure == "other files":
        copy.world.write(many_rules() + "# changed\n")
        copy.world.engine.read_rules()
    if failure == "behind":
        copy.offset = 0
    with served(copy.world, copy) as address:
        shares = share_with(world, f"127.0.0.1:{free_port()}" if failure == "gone" else address)
        world.tick(dict.fromkeys(values(0), 0))
    assert len(world.states()) == HOSTS
    assert len(world.engine.view().alerts()) == RULES
    assert all(not one.error for one in world.engine.view().results.values())
    assert "engine b does not evaluate its share" in shares.problems["b"]


def test_an_engine_that_does_not_answer_costs_time_only(
    world: World, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_shares, "ANSWER_S", 0.5)
    shares = share_with(world, "127.0.0.1:1")
    answer = threading.Event()
    monkeypatch.setattr(shares, "_ask", lambda *_: answer.wait(60))
    world.tick(dict.fromkeys(values(0), 0))
    answer.set()
    assert len(world.engine.view().alerts()) == RULES
    assert "b" in shares.problems


def test_results_are_read_as_they_were_written(world: World) -> None:
    world.write(many_rules())
    world.tick({"h0": 0, "h1": float("nan")})
    found = world.engine.evaluate_some(world.engine.active.rules if world.engine.active else {}, world.time + 60_000)
    read = decode_results(encode_results(found))
    assert {name: list(one.steps) for name, one in read.items()} == {
        name: list(one.steps) for name, one in found.items()
    }


def test_a_change_is_passed_on_once(world: World) -> None:
    """Two engines that take each other for the leader do not send a request in circles."""
    engines = [EngineAddress("a", "", 0), EngineAddress("b", "", 0)]

    class Wrong(EngineLease):
        def __init__(self, leader: EngineAddress) -> None:
            self.leader, self.ours, self.engines = leader, False, tuple(engines)

    class Follower(PairMember):
        def __init__(self) -> None:
            self.leads = False

    shares = RuleShares(world.engine, "a", tuple, lambda: 0, world.clock)
    pairs = [EnginePair(Wrong(engines[n]), Follower(), shares) for n in (1, 0)]
    with served(world, pairs[0]) as first, served(world, pairs[1]) as second:
        pairs[0].lease.leader = EngineAddress("b", second, 0)
        pairs[1].lease.leader = EngineAddress("a", first, 0)
        assert ApiClient(first).ask("/api/v2/alerts", []) == (
            503,
            "no engine of the pair leads at the moment: try again",
        )
        assert ApiClient(first).ask("/api/v2/alerts") == []
