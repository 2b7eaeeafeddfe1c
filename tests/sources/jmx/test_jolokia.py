"""Bean servers with a Jolokia agent: the protocol, and the agent in a real ZooKeeper and a real Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kafka as kafka_python
import pytest
from hypothesis import given
from hypothesis import strategies as st

from artimon.model.values import Value
from artimon.runtime import settings
from artimon.stack import jars
from artimon.stack.java import find_java
from artimon.stack.stack import Stack
from sources.base.source_errors import PollError
from sources.scrape.jmx.bean_mapper import BeanMapper
from sources.scrape.jmx.jmx_response import BeanResponse, identity_of
from sources.scrape.jmx.jolokia import JolokiaRead, escape_path, parse_bulk, parse_singles, requests_for
from sources.scrape.jmx.mapping_file import RULE_SETS, rule_set
from tests.sockets import free_port
from tests.sources.helpers import HOST, KeepingSink, registry, running
from tests.sources.jmx.bean_server import parse_rules
from tests.waiting import eventually, until

NOWHERE = "127.0.0.1:1"
RULES = parse_rules(
    """beans:
  - bean: shop:type=Queue,name=<queue>
    labels: {queue: <queue>}
    variables:
      - {name: shop.orders, attribute: Orders, kind: counter}
      - {name: shop.size.bytes, attribute: Size.used}
  - bean: shop:type=Other,name=x<_>y,*
    variables:
      - {name: shop.any, attribute: <a>Count, labels: {a: <a>}}
""",
    "shop.yaml",
)
START = {"status": 200, "value": {"StartTime": 1_700_000_000_000, "Name": "1@x"}}


def bulk(*answers: Any) -> Any:
    return parse_bulk(json.dumps([START, *answers]).encode(), requests_for(RULES))


def test_what_is_asked_for_is_what_the_rules_name() -> None:
    assert requests_for(RULES) == (
        JolokiaRead("java.lang:type=Runtime", ("Name", "StartTime")),
        JolokiaRead("shop:type=Queue,name=*", ("Orders", "Size")),
        JolokiaRead("shop:type=Other,name=x*y,*", ()),
    )
    runtime = [one for one in requests_for(rule_set("jvm")) if one.mbean == "java.lang:type=Runtime"]
    assert runtime == [JolokiaRead("java.lang:type=Runtime", ("Name", "StartTime", "Uptime"))]


def test_paths_of_questions_by_get() -> None:
    assert escape_path('a/b!c"d') == 'a!/b!!c!"d'
    read = JolokiaRead('shop:type=Queue,name="a/b"', ("Orders", "Size"))
    assert read.path("/jolokia").startswith(
        "/jolokia/read/shop:type=Queue,name=!%22a!/b!%22/Orders,Size?ignoreErrors=true"
    )


def test_beans_and_what_is_wrong_with_some() -> None:
    queues = {
        "shop:name=a,type=Queue": {"Orders": 5, "Size": {"used": 7}},
        "shop:name=b,type=Queue": {"Orders": "ERROR: javax.management.AttributeNotFoundException : no", "Size": None},
        "shop:name=c,type=Queue": {"Orders": "ERROR: java.lang.IllegalStateException : broken"},
        "shop:name=d,type=Queue": 7,
    }
    answer = bulk({"status": 200, "value": queues}, {"status": 404, "error": "InstanceNotFoundException"})
    variables = BeanMapper(RULES, 100).variables(answer)
    assert [(v.name, dict(v.labels), v.value) for v in variables] == [
        ("shop.orders", {"queue": "a"}, 5),
        ("shop.size.bytes", {"queue": "a"}, 7),
    ]
    assert answer.faults.counts == {"attribute error": 1, "bad bean": 1}
    assert "broken" in answer.faults.examples["attribute error"]
    start = identity_of(answer)
    assert start is not None
    assert start.time_ms == 1_700_000_000_000


def test_an_error_within_an_answer_is_counted_and_the_others_are_taken() -> None:
    answer = bulk({"status": 403, "error": "no access"}, {"status": 500, "error": "java.lang.Error : x"})
    assert answer.faults.counts == {"unauthorized": 1, "jolokia status": 1}
    assert "500: java.lang.Error" in answer.faults.examples["jolokia status"]


@pytest.mark.parametrize(
    ("data", "reason", "text"),
    [
        (b"<html>", "garbage", "not JSON"),
        (b"{}", "garbage", "no list of 3"),
        (b"[]", "garbage", "no list of 3"),
        (b"[1, 2, 3]", "garbage", "no status"),
        (b'{"status": 403, "error": "not from 10.0.0.1"}', "unauthorized", "not from 10.0.0.1"),
        (b'{"status": 500, "error": "out of memory"}', "jolokia status", "out of memory"),
        (b'[{"status": 403}, {"status": 403}, {"status": 403}]', "unauthorized", "403"),
    ],
)
def test_bad_answers(data: bytes, reason: str, text: str) -> None:
    with pytest.raises(PollError) as caught:
        parse_bulk(data, requests_for(RULES))
    assert caught.value.reason == reason
    assert text in str(caught.value)


BEAN = "shop:type=Queue,name=a"
KEYS = st.sampled_from(["status", "value", "error", BEAN, "Orders", "Size"]) | st.text(max_size=5)
SINGLE = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.sampled_from(["ERROR: x", BEAN])
)
JSON = st.recursive(
    SINGLE, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


@given(st.lists(JSON | st.fixed_dictionaries({"status": st.just(200), "value": JSON}), min_size=3, max_size=3))
def test_no_json_makes_it_raise_anything_else(content: list[Any]) -> None:
    asked = requests_for(RULES)
    ways: list[Callable[[], BeanResponse]] = [
        lambda: parse_bulk(json.dumps(content).encode(), asked),
        lambda: parse_singles([json.dumps(one).encode() for one in content], asked),
    ]
    for way in ways:
        with contextlib.suppress(PollError):
            BeanMapper(RULES, 10).variables(way())


# --- real servers


def attach(stack: Stack, part: str) -> str:
    """host:port of an agent in the JVM of a part. Jolokia's launcher gives a busy machine half a second to start it."""
    java = find_java(settings.load())
    folder = jars.ensure_jars(settings.load(), java, ["jolokia"])
    (jar,) = (folder / "jolokia").glob("jolokia-jvm-*.jar")
    port, pid = str(free_port()), str(stack.pid(part))
    command = [str(java.program), "-jar", str(jar), "--host", "127.0.0.1", "--port", port, "start", pid]

    def attached() -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if "already attached" in done.stdout:
            return done.stdout.split("http://")[1].split("/")[0]
        return f"127.0.0.1:{port}" if done.returncode == 0 else ""

    return eventually(attached, f"Jolokia in the JVM of {part}")


@pytest.fixture(scope="module")
def zookeeper_agent(zookeeper_stack: Stack) -> str:
    return attach(zookeeper_stack, "zookeeper")


def polled(tmp_path: Path, target: dict[str, Any], done: Any) -> tuple[KeepingSink, dict[str, Any]]:
    """Return the samples that an agent reads from one target until `done(sink)`."""

    async def run() -> tuple[KeepingSink, dict[str, Any]]:
        sink, file = KeepingSink(), tmp_path / "sources.yaml"
        file.write_text(json.dumps({"jolokia": [target]}))
        async with running(NOWHERE, tmp_path / "agent", sink, sources=file, period_ms=500, deadline_s=20.0) as source:
            await until(lambda: done(sink), "the values")
            return sink, source.figures()

    return asyncio.run(run())


def values(sink: KeepingSink, source: str) -> dict[str, Value | None]:
    """Text without the labels of the source -> newest value."""
    return {text.replace(f',host="{HOST}",instance="0"', ""): value for text, _, _, value in sink.samples(source)}


@pytest.mark.stack
@pytest.mark.parametrize("method", ["post", "get"])
def test_a_real_zookeeper(zookeeper_agent: str, zookeeper_stack: Stack, tmp_path: Path, method: str) -> None:
    source = f"jmx/zk/{HOST}/0"
    target = {"context": "zk", "url": f"http://{zookeeper_agent}/jolokia", "method": method}

    def packets(sink: KeepingSink) -> int:
        return max((int(v or 0) for t, _, _, v in sink.samples(source) if t.startswith("zookeeper.packets")), default=0)

    with registry(zookeeper_stack.zookeeper) as client:
        client.create("/jolokia", makepath=True)
        sink, figures = polled(tmp_path, target, lambda sink: packets(sink) > 2)
        client.delete("/jolokia")
    found = values(sink, source)
    names = {text.partition("{")[0] for text in found}
    want = {v.name for rule in rule_set("zookeeper")[:2] for v in rule.variables}
    assert want - names <= {"zookeeper.fsync.last.ms"}
    assert found['zookeeper.connections{context="zk"}'] >= 1  # type: ignore[operator]
    assert found['zookeeper.znodes{context="zk"}'] > 5  # type: ignore[operator]
    assert any(text.startswith("jvm.memory.used.bytes{") for text in found)
    assert figures["refused"] == figures["poll_errors"] == {}, figures["problems"]
    born = {birth for text, _, birth, _ in sink.samples(source) if text.startswith("zookeeper.packets")}
    assert len(born) == 1
    assert min(born) > 1_600_000_000_000, "the start of the JVM"


@pytest.mark.slow
@pytest.mark.stack
def test_a_real_kafka(kafka_stack: Stack, tmp_path: Path) -> None:
    source = f"jmx/broker/{HOST}/0"
    admin = kafka_python.KafkaAdminClient(bootstrap_servers=kafka_stack.kafka)
    admin.create_topics([kafka_python.admin.NewTopic("jolokia-test", 1, 1)])
    admin.close()
    producer = kafka_python.KafkaProducer(bootstrap_servers=kafka_stack.kafka)
    for _ in range(7):
        producer.send("jolokia-test", b"x" * 100).get(timeout=60)
    producer.close()
    target = {"context": "broker", "url": f"http://{attach(kafka_stack, 'kafka')}/jolokia/", "rules": ["kafka"]}
    sink, figures = polled(tmp_path, target, lambda sink: sink.samples(source))
    found = values(sink, source)
    assert found['kafka.topic.messages{context="broker",topic="jolokia-test"}'] == 7
    assert found['kafka.topic.bytes{context="broker",direction="in",topic="jolokia-test"}'] > 700  # type: ignore[operator]
    assert found['kafka.controller.active{context="broker"}'] == 1
    assert found['kafka.broker.state{context="broker"}'] == 3
    assert found['kafka.partitions.troubled{context="broker",state="under_replicated"}'] == 0
    names = {text.partition("{")[0] for text in found}
    assert names == {variable.name for rule in rule_set("kafka") for variable in rule.variables}
    assert figures["refused"] == figures["poll_errors"] == {}, figures["problems"]


def test_all_rule_sets_can_be_asked_for() -> None:
    for name in RULE_SETS:
        asked = requests_for(rule_set(name))
        assert asked[0].mbean == "java.lang:type=Runtime"
        assert len({one.mbean for one in asked}) == len(asked)
