"""The targets of one configuration, discovered by us and by Prometheus' own packages: equal labels and URLs.

Debian's Prometheus is built without discovery by Consul and Kubernetes, so a program with these packages is built here.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from sources.scrape.discovery.discovered_targets import JobDiscovery
from tests.sources.discovery.oracle import running_oracle
from tests.sources.discovery.servers import discovery_server
from tests.sources.discovery.test_against_prometheus import (
    Sets,
    configuration,
    equal,
    populate,
    their_sets,
    with_ours,
)
from tests.sources.discovery.varied_objects import change_varied_objects, put_varied_objects, varied_jobs
from tests.waiting import until

OTHERS = ("http", "files", "probe", "twins")
"""Jobs that the running Prometheus is compared with."""


CHANGED = ("k8s-pod", "k8s-service", "k8s-node", "k8s-endpoints", "k8s-endpointslice", "with-nodes", "pods by label",
           "consul", "consul rules", "consul named", "consul named and tagged")  # fmt: skip


def has_changed(before: dict[str, Sets], now: dict[str, Sets]) -> bool:
    return all(before.get(job) != now.get(job) for job in CHANGED)


@pytest.mark.slow
@pytest.mark.timeout(2_400)
def test_kubernetes_and_consul_give_the_targets_of_prometheus(tmp_path: Path) -> None:
    """Every job before and after changes, with broken watches between.

    No watch expires: this version of Prometheus then ends at the deletion of a node, and keeps deleted services."""
    with discovery_server() as server:
        populate(server, tmp_path)
        put_varied_objects(server)
        jobs = [one for one in configuration(server) if one["job_name"] not in OTHERS] + varied_jobs(server.address)
        file = tmp_path / "prometheus.yml"
        file.write_text(json.dumps({"scrape_configs": jobs}))
        with running_oracle(file, tmp_path / "oracle.log") as theirs:

            def told() -> dict[str, Sets]:
                return their_sets(theirs())

            async def test(ours: list[JobDiscovery]) -> None:
                await equal(ours, told)
                first = told()
                assert sum(len(active) for active, _ in first.values()) > 100, "the oracle found nothing"
                server.break_watches()
                change_varied_objects(server)
                await until(lambda: has_changed(first, told()), "changes in all jobs of the oracle")
                await equal(ours, told)

            asyncio.run(with_ours(file, test))
