"""The first turns of the cluster's faults: every fault of every host, each kind once the last of a turn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from tests.cluster.cluster_faults import ClusterFaults
from tests.cluster.cluster_hosts import ClusterHost
from tests.cluster.local_cluster import LocalCluster
from tests.upgrade.older_version import available_version

HOSTS = [ClusterHost(f"host-{number}", "", "", 0) for number in (1, 2, 3)]
CLUSTER = cast(LocalCluster, SimpleNamespace(hosts=HOSTS, version="26725a3f"))
WORDS = ("cut off", "killed", "stopped")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_host_is_cut_off_killed_and_stopped(seed: int) -> None:
    upgrade, *turns, disk, node = [
        [fault.name for fault in turn] for turn in ClusterFaults(CLUSTER, seed).first_turns()
    ]
    assert "upgraded from 26725a3f" in upgrade[0]
    assert "disk" in disk[0]
    assert "nodemanager" in node[0]
    wanted = {(host.name, word) for host in HOSTS for word in WORDS}
    assert {(name.split()[0], word) for turn in turns for name in turn for word in WORDS if word in name} == wanted
    assert len({name.split()[0] for name in turns[0]}) == 1  # one host a turn
    assert {word for turn in turns for word in WORDS if word in turn[-1]} == set(WORDS)


def test_only_wanted_kinds() -> None:
    assert ClusterFaults(CLUSTER, 1, kinds=["node"]).first_turns()[0][0].name.startswith("nodemanager")
    turns = ClusterFaults(CLUSTER, 1, kinds=["kill", "disk"]).first_turns()
    assert [len(turn) for turn in turns] == [1, 1, 1, 1]


def test_the_upgrade_begins_where_history_is() -> None:
    assert available_version("HEAD") == "HEAD"
    assert not available_version("0" * 40)
