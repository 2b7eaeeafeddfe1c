"""The agent as the stack starts it, with the test's ledger between source and log."""

from __future__ import annotations

import argparse
from pathlib import Path

from artimon import processes
from tests.e2e.ledger import LedgerSink


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("command")
    arguments.add_argument("--level", choices=("kafka", "hdfs"), required=True)
    for name in ("name", "zookeeper", "poll"):
        arguments.add_argument(f"--{name}", required=True)
    for name in ("data", "health", "keys", "ledger", "dropin", "sources"):
        arguments.add_argument(f"--{name}", required=True, type=Path)
    arguments.add_argument("--jmx", action="append", default=[])
    given = arguments.parse_args()
    processes.agent(
        name=given.name,
        zookeeper=given.zookeeper,
        data=given.data,
        poll=given.poll,
        level=given.level,
        host_metrics=True,
        labels_rules=None,
        dropin=given.dropin,
        jmx=given.jmx,
        sources=given.sources,
        health=given.health,
        keys=given.keys,
        wrap_sink=lambda sink: LedgerSink(sink, given.ledger),
    )


if __name__ == "__main__":
    main()
