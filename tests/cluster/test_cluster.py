"""A cluster of three hosts under load through faults of whole hosts: table, memory and answers hold exactly what the
agents accepted and the applications counted."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.grid import bucket_end
from artimon.stack.stack_part import numbered_name
from query_dsl import Matrix, evaluate, parse
from tests.cluster.cluster_faults import ClusterFaults
from tests.cluster.cluster_hosts import ISOLATED
from tests.cluster.cluster_parts import HOSTS, LEDGERS, SHARDS, CountingApplication
from tests.cluster.conftest import BEFORE
from tests.cluster.local_cluster import LocalCluster
from tests.e2e.exactness import NAMES, told
from tests.e2e.ledger import comparable
from tests.faults.ledger import Ledger, read_ledgers
from tests.faults.stored import Stored, differences, settle
from tests.faults.test_shards import holds_all, wrong_buckets
from tests.upgrade.older_version import available_version
from tests.waiting import eventually
from varstore.cluster.varstore_client import VarstoreClient

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.stack,
    pytest.mark.timeout(4 * 3600),
    pytest.mark.skipif(not os.environ.get(ISOLATED), reason="needs namespaces: ./scripts/test --cluster"),
]
DRAIN_S = 900.0
Values = dict[tuple[str, str], tuple[str, str]]
SHARD_IDS = tuple(map(str, range(SHARDS)))


@pytest.fixture
def cluster(tmp_path: Path, pytestconfig: pytest.Config) -> Iterator[LocalCluster]:
    before = str(pytestconfig.getoption("--before"))
    if before == BEFORE and not available_version(before):
        before = ""
        print(f"# the history of {BEFORE} is not here: the upgrade only restarts the present version")
    with LocalCluster(tmp_path, before=before) as made:
        made.produce()
        yield made


def test_nothing_lost_nothing_twice_through_faults_of_hosts(cluster: LocalCluster, pytestconfig: pytest.Config) -> None:
    option = pytestconfig.getoption
    seed = int(option("--faults-seed", 0)) or SYSTEM_CLOCK.now_ms() % 1_000_000
    print(f"# seed {seed}; {sum(cluster.stack.resident().values()) / 2**30:.1f} GiB resident without containers")
    faults = ClusterFaults(cluster, seed, float(option("--hold")), str(option("--kinds")).split(","))
    faults.run(60.0 * float(option("--minutes")))
    check_final_values(cluster)
    expected = drain(cluster)
    wrong = differences(expected.accepted, Stored(cluster.stack.hdfs).digests())
    assert not wrong, f"{len(wrong)} sources differ: " + "; ".join(wrong[:5])
    loads = [source for source in expected.accepted if source.startswith("load-host-")]
    shards = [f"shard-{id_}" for id_ in SHARD_IDS]
    eventually(lambda: holds_all(cluster.stack, shards), "every shard holds everything", DRAIN_S, 2)
    buckets = wrong_buckets(cluster.stack, sorted(loads), SHARD_IDS)
    assert not buckets, f"{len(buckets)} differences: " + "; ".join(buckets[:6])
    print(f"# {expected.rows:,} rows of {len(expected.accepted)} sources equal in ledger, table and both replicas")


def check_final_values(cluster: LocalCluster) -> None:
    """Every application stops counting; the answers must be its own last values, of all four types."""
    context = cluster.stack.context
    applications = [part for part in cluster.stack.parts if isinstance(part, CountingApplication)]
    for application in applications:
        application.final(context).unlink(missing_ok=True)
        cluster.stack.kill(application.name, signal.SIGUSR1)
    with VarstoreClient(cluster.stack.zookeeper) as store:
        for application in applications:
            eventually(application.final(context).exists, f"{application.name} writes its values")
            own = told(json.loads(application.final(context).read_text()))
            assert len(own) == 200
            equal = partial(_has_values, store, application, own)
            eventually(equal, f"values of {application.name}", DRAIN_S, 2)


def _has_values(store: VarstoreClient, application: CountingApplication, own: Values) -> bool:
    return final_values(store, application) == own


def final_values(store: VarstoreClient, application: CountingApplication) -> Values:
    """Return the newest value of each series of an application, by name and label `i`."""
    now = bucket_end(SYSTEM_CLOCK.now_ms(), 60_000)
    selector = f'{{context="counting-{application.number}",host="host-{application.host}"}}'
    found: Values = {}
    for name in NAMES:
        matrix: Matrix = evaluate(
            parse(f"fetch('{name}{selector}').between({now - 600_000}, {now})"), store, now + 20_000
        )
        for labels, _end, value in matrix.points():
            if value is not None:
                found[name, labels["i"]] = comparable(value)
    return found


def drain(cluster: LocalCluster) -> Ledger:
    """Let the agents accept nothing more, wait until everything is acked; returns what must be stored."""
    cluster.produce(False)
    agents = [numbered_name(base, number) for base in ("agent", "load") for number in range(1, HOSTS + 1)]

    def pending() -> int:
        return sum(int(cluster.figures(name).get("pending_batches", 1)) for name in agents)

    began = SYSTEM_CLOCK.monotonic()
    eventually(lambda: pending() == 0, "everything is acked", DRAIN_S, 1)
    print(f"# all acked after {SYSTEM_CLOCK.monotonic() - began:.0f} s", flush=True)
    ledger = read_ledgers(cluster.stack.context.folder(LEDGERS), Ledger())
    assert ledger.rows, "nothing was accepted"
    return settle(ledger, Stored(cluster.stack.hdfs))
