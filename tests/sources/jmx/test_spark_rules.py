"""The rules for Spark against a real driver, through the agent of Jolokia in its JVM."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from artimon.runtime import settings
from artimon.stack import jars
from artimon.stack.java import find_java
from sources.scrape.jmx.mapping_file import rule_set
from tests.sockets import free_port
from tests.sources.helpers import HOST, KeepingSink, running
from tests.waiting import until

DRIVER = """
import sys
from pyspark.sql import SparkSession
made = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
for pair in sys.argv[2:]:
    made = made.config(*pair.split("=", 1))
session = made.getOrCreate()
session.range(1000).repartition(2).count()
rows = session.readStream.format("rate").load().writeStream.queryName("q1").format("noop")
query = rows.option("checkpointLocation", sys.argv[1]).start()
print("ready", flush=True)
sys.stdin.read()
query.stop()
session.stop()
"""


@pytest.mark.slow
def test_a_real_driver(tmp_path: Path) -> None:
    folder = jars.ensure_jars(settings.load(), find_java(settings.load()), ["jolokia"]) / "jolokia"
    (jar,) = folder.glob("jolokia-jvm-*.jar")
    port = free_port()
    options = [
        f"spark.driver.extraJavaOptions=-javaagent:{jar}=host=127.0.0.1,port={port}",
        "spark.metrics.conf.*.sink.jmx.class=org.apache.spark.metrics.sink.JmxSink",
        "spark.sql.streaming.metricsEnabled=true",
    ]
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "checkpoint"), *options]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as driver:
        try:
            assert driver.stdout is not None
            assert "ready\n" in driver.stdout, "the agent writes lines before"
            sink = asyncio.run(polled(tmp_path, port))
        finally:
            driver.communicate(timeout=60)
    texts = {text: value for text, _, _, value in sink.samples(f"jmx/spark/{HOST}/0")}
    assert {text.partition("{")[0] for text in texts} == {v.name for rule in rule_set("spark") for v in rule.variables}
    (completed,) = [value for text, value in texts.items() if text.startswith("spark.tasks.completed{")]
    assert isinstance(completed, int)
    assert completed >= 3
    assert any('query="q1"' in text for text in texts)


async def polled(folder: Path, port: int) -> KeepingSink:
    sink, file = KeepingSink(), folder / "sources.yaml"
    target = {"context": "spark", "url": f"http://127.0.0.1:{port}/jolokia", "rules": ["spark"]}
    file.write_text(json.dumps({"jolokia": [target]}))
    async with running("127.0.0.1:1", folder / "agent", sink, sources=file, deadline_s=5.0) as source:
        await until(lambda: any("streaming.latency" in t for t, *_ in sink.samples()), "the streaming query")
        assert source.figures()["refused"] == {}
    return sink
