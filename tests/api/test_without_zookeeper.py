"""ZooKeeper goes while the API runs: questions are answered as before, and the state is told in time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from artimon.api.timed_call import TimedCall
from artimon.model.clock import SYSTEM_CLOCK
from artimon.stack.stack import Stack
from tests.api import memcached
from tests.api.serving import Client, served
from tests.query_dsl.plain_store import MINUTE
from tests.varstore.test_server import Cluster, cluster, cluster_store, source_of  # noqa: F401
from tests.waiting import eventually
from varstore.cluster.varstore_client import VarstoreClient

pytestmark = pytest.mark.stack
TEXT = "fetch('memcached.*').range('10m')"


def took_s(client: Client, path: str) -> tuple[float, int]:
    began = SYSTEM_CLOCK.monotonic()
    status = client.get(path).status
    return SYSTEM_CLOCK.monotonic() - began, status


def test_questions_go_on_and_status_is_in_time(
    cluster: Cluster,  # noqa: F811
    cluster_store: VarstoreClient,  # noqa: F811
    zookeeper_stack: Stack,
    tmp_path: Path,
) -> None:
    batches = memcached.log(source_of("0"), SYSTEM_CLOCK.now_ms() // MINUTE * MINUTE - MINUTE)
    cluster.announce(memcached.blocks(source_of("0")))
    cluster.feed("0", batches, 0, len(batches))
    eventually(lambda: len(cluster_store.names()) == 5)
    shards = TimedCall("the shards", cluster_store.statuses, SYSTEM_CLOCK)
    with served(
        cluster_store, clock=SYSTEM_CLOCK, status=lambda _: {"healthy": True, "shards": shards.get().value}
    ) as client:
        then = SYSTEM_CLOCK.now_ms()
        before = client.ask(TEXT, time_ms=then)
        assert len(before.json["series"]) == 6
        zookeeper_stack.stop_part("zookeeper")
        try:
            for _ in range(3):
                seconds, status = took_s(client, "/api/status")
                assert (seconds < 10, status) == (True, 200)
            eventually(lambda: took_s(client, "/api/names")[0] < 1)  # once the loss is noticed nothing waits for it
            assert client.get("/api/names").status == 200
            after = client.ask(TEXT, time_ms=then)
            assert after.json == before.json
            assert set(json.loads(client.get("/api/status").body)["shards"]) == {"0", "1"}
        finally:
            zookeeper_stack.start_part("zookeeper")
            zookeeper_stack.wait_healthy(60)
