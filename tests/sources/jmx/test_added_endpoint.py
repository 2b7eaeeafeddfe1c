"""JMX endpoints that are added to the file of sources of a running agent."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.sources.helpers import HOST, KeepingSink, running
from tests.sources.jmx.bean_server import bean_server
from tests.waiting import until

NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize("before", [None, "{}"], ids=["no_file", "file_without_endpoints"])
def test_an_endpoint_that_is_added_while_the_agent_runs_has_values(tmp_path: Path, before: str | None) -> None:
    async def run() -> None:
        file, sink, source = tmp_path / "sources.yaml", KeepingSink(), f"jmx/hbase/{HOST}/0"
        if before is not None:
            file.write_text(before)
        async with bean_server() as server, running(NOWHERE, tmp_path / "agent", sink, sources=file, period_ms=500):
            server.beans = [{"name": "java.lang:type=Threading", "ThreadCount": 7}]
            await until(lambda: sink.accepted, "the agent runs")
            url = f"http://127.0.0.1:{server.port}/jmx"
            file.write_text(json.dumps({"jmx": [{"context": "hbase", "url": url, "rules": ["jvm"]}]}))
            await until(lambda: sink.last(source).get("jvm.threads.live") == 7, "the value of the new endpoint")

    asyncio.run(run())
