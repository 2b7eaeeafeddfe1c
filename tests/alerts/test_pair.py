"""A pair of engines against real ZooKeeper and Kafka: kills, stops, cuts and lost answers. The ledger of the receivers
holds every notification, and none under two identities."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.alerts.api_client import ApiClient
from tests.alerts.pair_engine import MINUTE
from tests.alerts.pair_world import Ledger, PairWorld, balance, receivers, rows_of
from tests.seeds import drawn
from tests.waiting import eventually

pytestmark = pytest.mark.stack


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(random.Random(drawn("pair")))


@pytest.fixture
def pair(tmp_path: Path, zookeeper: str, kafka: str, ledger: Ledger) -> Iterator[PairWorld]:
    """Two engines that are not started yet."""
    with receivers(ledger) as (smtp, web):
        world = PairWorld(tmp_path, zookeeper, kafka, smtp, web, speed=60.0, period=16)
        yield world
        world.close()


def has_silence(api: ApiClient, id: str) -> bool:
    return [one["id"] for one in api.ask("/api/v2/silences")] == [id]


def test_a_killed_a_stopped_and_a_cut_off_leader_is_replaced(pair: PairWorld, ledger: Ledger) -> None:
    ledger.lossy = 0.2
    for one in pair.engines:
        one.start()
    first = pair.leader()
    begin = pair.minute() + 1
    other = pair.other(first)
    eventually(lambda: other.figures.get("pair", {}).get("engines") == ["a", "b"], "both are registered")

    # a silence and an acknowledgement made at the engine that follows are in force at both
    apis = [ApiClient(one.figures["api"]) for one in (other, first)]
    silence = {
        "matchers": [{"name": "host", "value": "none", "isRegex": False, "isEqual": True}],
        "startsAt": "2020-01-01T00:00:00Z", "endsAt": "2099-01-01T00:00:00Z", "createdBy": "x", "comment": "y",
    }  # fmt: skip
    made = apis[0].ask("/api/v2/silences", silence)["silenceID"]
    for api in apis:
        eventually(partial(has_silence, api, made), "the silence is there")
    assert {one["name"] for one in apis[0].ask("/api/v2/status")["cluster"]["peers"]} == {"a", "b"}

    pair.until_minute(begin + 4)
    first.kill()
    second = pair.leader(but=first)
    first.start()
    eventually(lambda: first.figures.get("pair", {}).get("position", 0) > 0, "it follows")
    pair.until_minute(pair.minute() + 3)
    second.stop()
    third = pair.leader(but=second)
    second.go_on()
    eventually(lambda: not second.leads, "the one that slept leads no more")
    pair.until_minute(pair.minute() + 3)
    third.to_zookeeper.cut()
    third.to_kafka.cut()
    fourth = pair.leader(but=third)
    third.to_zookeeper.mend()
    third.to_kafka.mend()
    eventually(lambda: not third.leads, "the one that was cut off leads no more")
    # without ZooKeeper the leader goes on: nobody can take its place
    before = fourth.figures["last_ms"]
    for one in pair.engines:
        one.to_zookeeper.cut()
    lease = pair.lease_ms / 1000 * pair.speed / 60
    pair.until_minute(pair.minute() + 2 * lease)
    eventually(lambda: fourth.figures["last_ms"] > before + lease * MINUTE, "the leader goes on without ZooKeeper")
    assert fourth.leads
    for one in pair.engines:
        one.to_zookeeper.mend()
    fourth = pair.leader()
    until = pair.minute()
    pair.until_minute(until + 4)
    fourth.end()
    last = pair.leader(but=fourth)
    eventually(lambda: last.figures["mail"]["pending"] == 0, "the outbox is empty")
    last.end()
    assert rows_of(last)
    found = balance(pair, ledger, begin, until)
    print(found)
    assert found.incidents > found.unseen  # a busy machine evaluates few of its fast minutes
    assert (found.missed, found.twice, found.unknown, found.unsent) == ([], [], [], [])
