"""The agent as the stack starts it, with the test's ledger between source and log."""

from __future__ import annotations

import argparse
from pathlib import Path

from artimon.cli.agent_process import run_agent_process
from artimon.runtime.text import parse_duration
from pipeline.flows.runtime.agent_transport import AgentConfig
from sources.delivery.source_config import SourceConfig
from sources.targets.bean_target import parse_target
from tests.e2e.ledger import LedgerSink


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("command")
    arguments.add_argument("--level", choices=("kafka", "hdfs"), default="hdfs")
    arguments.add_argument("--poll", default="60s")
    for name in ("name", "zookeeper"):
        arguments.add_argument(f"--{name}", required=True)
    for name in ("data", "health", "keys", "ledger", "dropin", "sources"):
        arguments.add_argument(f"--{name}", required=True, type=Path)
    for name in ("jmx", "receive"):
        arguments.add_argument(f"--{name}", action="append", default=[])
    given = arguments.parse_args()
    settings = AgentConfig(given.name, given.data, given.zookeeper, given.level, keys=given.keys, health=given.health)
    polls = SourceConfig(
        given.name,
        given.zookeeper,
        given.data,
        parse_duration(given.poll),
        dropin=given.dropin,
        jmx=tuple(map(parse_target, given.jmx)),
        receive=tuple(given.receive),
        sources=given.sources,
    )
    run_agent_process(settings, polls, lambda sink: LedgerSink(sink, given.ledger))


if __name__ == "__main__":
    main()
