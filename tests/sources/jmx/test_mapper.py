"""Mapping rules on beans: results of valid, odd and hostile values."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artimon.model.values import Kind, Value
from sources.base.source_errors import PollError
from sources.scrape.jmx.bean_mapper import BeanMapper
from sources.scrape.jmx.jmx_response import identity_of, parse_answers
from sources.scrape.jmx.mapping_file import RULE_SETS, rule_set
from sources.scrape.jmx.name_patterns import camel, parse_bean_pattern, parse_pattern, snake, split_bean_name
from tests.sources.jmx.bean_server import parse_rules

RULES = parse_rules(
    """
beans:
  - bean: shop:type=Queue,name=<queue>
    labels: {queue: <queue>}
    variables:
      - {name: shop.queued, attribute: Size, help: Orders that wait}
      - {name: shop.done, attribute: Done, kind: counter}
      - {name: shop.time.ms, attribute: Nanos, type: double, divide: 1000000}
      - {name: shop.limit, attribute: Limit, missing: [-1]}
      - {name: shop.open, attribute: Open, type: boolean}
      - {name: shop.state, attribute: State, values: {"": 0, up: 1, else: 2}}
      - {name: shop.mode, attribute: Mode, values: {"true": 7}}
      - {name: shop.used.bytes, attribute: Memory.used}
      - {name: shop.disk.bytes, attribute: Disks.<disk>.free, labels: {disk: <disk>, owner: <tag.Owner>}}
      - {name: shop.calls, attribute: <call>NumOps, except: [Old<_>], labels: {call: <call|camel>}}
""",
    "test.yaml",
)


def beans(*found: Any) -> bytes:
    return json.dumps({"beans": found}).encode()


def mapped(
    attributes: dict[str, Any], name: str = "shop:type=Queue,name=a b"
) -> tuple[dict[str, Value], dict[str, int]]:
    """Return name and labels -> value, and the faults."""
    answer = parse_answers([beans({"name": name, **attributes})])
    made = BeanMapper(RULES, 100).variables(answer)
    return {f"{v.name}{dict(v.labels)}": v.value for v in made}, dict(answer.faults.counts)


def one(attributes: dict[str, Any], name: str) -> Value | None:
    found = [value for text, value in mapped(attributes)[0].items() if text.startswith(name + "{")]
    assert len(found) <= 1
    return found[0] if found else None


def test_a_bean_becomes_variables_with_labels_from_its_name() -> None:
    found, faults = mapped({"Size": 3, "Done": 2**60, "Memory": {"used": 5, "max": 9}})
    labels = "{'queue': 'a b'}"
    assert found == {f"shop.queued{labels}": 3, f"shop.done{labels}": 2**60, f"shop.used.bytes{labels}": 5}
    assert faults == {}


def test_the_order_of_the_keys_in_a_name_does_not_matter() -> None:
    assert len(mapped({"Size": 1}, "shop:name=q,type=Queue")[0]) == 1
    assert len(mapped({"Size": 1}, "shop:name=q,type=Queue,more=1")[0]) == 0


@pytest.mark.parametrize(
    ("attribute", "value", "name", "expected"),
    [
        ("Nanos", 1_500_000, "shop.time.ms", 1.5),
        ("Nanos", 2.5e6, "shop.time.ms", 2.5),
        ("Nanos", "Infinity", "shop.time.ms", math.inf),
        ("Limit", 7, "shop.limit", 7),
        ("Limit", -1, "shop.limit", None),
        ("Open", True, "shop.open", True),
        ("State", "", "shop.state", 0),
        ("State", "up", "shop.state", 1),
        ("State", "melting", "shop.state", 2),
        ("Mode", True, "shop.mode", 7),
        ("Size", None, "shop.queued", None),
        ("Memory", None, "shop.used.bytes", None),
        ("Disks", [{"key": "d1", "value": {"free": 4}}], "shop.disk.bytes", 4),
        ("Disks", '{"d1":{"free":4}}', "shop.disk.bytes", 4),
        ("Disks", "", "shop.disk.bytes", None),
        ("SendNumOps", 4, "shop.calls", 4),
        ("OldSendNumOps", 4, "shop.calls", None),
    ],
)
def test_values(attribute: str, value: Any, name: str, expected: Value | None) -> None:
    found = one({attribute: value}, name)
    assert found == expected
    assert type(found) is type(expected)
    assert mapped({attribute: value})[1] == {}


@pytest.mark.parametrize(
    ("attribute", "value", "reason"),
    [
        ("Size", "three", "wrong type"),
        ("Size", 0.5, "wrong type"),
        ("Size", True, "wrong type"),
        ("Size", [1], "wrong type"),
        ("Size", 2**63, "out of range"),
        ("Size", 10**400, "out of range"),
        ("Nanos", 10**400, "out of range"),
        ("Open", 1, "wrong type"),
        ("Mode", "odd", "unknown value"),
        ("Mode", [1], "unknown value"),
        ("Memory", 5, "wrong type"),
        ("Disks", '{"d1"', "wrong type"),
        ("Disks", [{"key": 1, "value": 2}], "wrong type"),
    ],
)
def test_a_value_that_does_not_fit_is_counted_and_the_rest_stays(attribute: str, value: Any, reason: str) -> None:
    found, faults = mapped({"Done": 4, attribute: value, "SendNumOps": 1})
    assert faults == {reason: 1}
    assert set(found.values()) == {4, 1}


def test_one_bad_entry_of_a_table_does_not_lose_the_others() -> None:
    found, faults = mapped({"Disks": {"a": {"free": 1}, "b": 7, "c": {"free": "x"}, "d": {"free": 2}}})
    assert sorted(map(int, found.values())) == [1, 2]
    assert faults == {"wrong type": 2}


def test_a_bare_nan_is_no_value() -> None:
    answer = parse_answers([b'{"beans":[{"name":"shop:type=Queue,name=q","Nanos":NaN,"Size":NaN,"Done":1}]}'])
    assert [v.value for v in BeanMapper(RULES, 100).variables(answer)] == [1]
    assert not answer.faults.counts


def test_labels_follow_a_tag_that_changes() -> None:
    mapper = BeanMapper(RULES, 100)
    owners = []
    for owner in ("ann", "bob", None):
        bean = {"name": "shop:type=Queue,name=q", "Disks": {"d": {"free": 1}}, "tag.Owner": owner}
        owners.append([v.labels["owner"] for v in mapper.variables(parse_answers([beans(bean)]))])
    assert owners == [["ann"], ["bob"], [""]]


def test_the_number_of_variables_is_limited() -> None:
    answer = parse_answers([beans(*({"name": f"shop:type=Queue,name={i}", "Size": i} for i in range(20)))])
    assert [v.value for v in BeanMapper(RULES, 7).variables(answer)] == list(range(7))
    assert answer.faults.counts == {"too many series": 13}
    assert "7" in answer.faults.examples["too many series"]


def test_beans_that_come_twice_or_have_no_name_are_counted() -> None:
    bean = {"name": "shop:type=Queue,name=q", "Size": 1}
    first = beans(bean, {**bean, "Size": 2}, {"Size": 3})
    answer = parse_answers([first, beans(bean, "what", {"name": "odd", "Size": 1})])
    assert [v.value for v in BeanMapper(RULES, 100).variables(answer)] == [1]
    assert answer.faults.counts == {"bean twice": 1, "bad bean": 3}


def test_of_an_attribute_that_comes_twice_the_last_counts() -> None:
    answer = parse_answers([b'{"beans":[{"name":"shop:type=Queue,name=q","Size":1,"Size":2}]}'])
    assert [v.value for v in BeanMapper(RULES, 100).variables(answer)] == [2]
    assert answer.faults.counts == {"attribute twice": 1}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>",
        b'{"beans":[{"name"',
        b"[]",
        b"{}",
        b'{"beans":{}}',
        b"[" * 100_000,
        b"\xff",
        b'{"result":"ERROR"}',
        b'{"beans":[' + b"9" * 5000 + b"]}",
    ],
)
def test_what_is_no_answer_is_garbage(data: bytes) -> None:
    with pytest.raises(PollError, match="garbage"):
        parse_answers([data])


@pytest.mark.parametrize("time_ms", [None, "1", -1, 0, True, 1.5, 2**60])
def test_a_start_that_is_none_is_a_fault(time_ms: Any) -> None:
    answer = parse_answers([beans({"name": "java.lang:type=Runtime", "StartTime": time_ms})])
    assert identity_of(answer) is None
    assert answer.faults.counts == {"no start": 1}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)
NAMES = st.sampled_from(
    [
        "java.lang:type=Memory",
        "java.lang:type=MemoryPool,name=x",
        "Hadoop:service=NameNode,name=NameNodeInfo",
        "Hadoop:service=NameNode,name=RpcDetailedActivityForPort1",
        "Hadoop:service=DataNode,name=DataNodeInfo",
        "Hadoop:service=DataNode,name=DataNodeVolume-/x",
        "Hadoop:service=NameNode,name=FSNamesystemState",
    ]
) | st.text(max_size=12)
ATTRIBUTES = st.sampled_from(
    ["HeapMemoryUsage", "Usage", "VolumeInfo", "xNumOps", "NonDfsUsedSpace", "FSState", "tag.VolumeName", "FilesTotal"]
) | st.text(max_size=5)
SHIPPED = [rule for name in RULE_SETS for rule in rule_set(name)]


@given(st.lists(st.dictionaries(ATTRIBUTES, JSON, max_size=4) | JSON, max_size=4), st.lists(NAMES, min_size=4))
def test_no_json_makes_the_mapper_raise(found: list[Any], names: list[str]) -> None:
    for bean, name in zip(found, names, strict=False):
        if isinstance(bean, dict):
            bean["name"] = name
    answer = parse_answers([json.dumps({"beans": found}).encode()])
    mapper = BeanMapper(SHIPPED, 50)
    first = mapper.variables(answer)
    assert mapper.variables(answer) == first
    assert len(first) <= 50
    for variable in first:
        assert isinstance(variable.value, (int, float))
        assert not isinstance(variable.value, float) or not math.isnan(variable.value)
        assert isinstance(variable.value, float) or -(2**63) <= variable.value < 2**63


def test_names_of_beans() -> None:
    assert split_bean_name('a:k="x,y=\\"",l=2') == ("a", {"k": '"x,y=\\""', "l": "2"})
    for bad in ("", "a", "a:", ":=", "a:k", "a:k=1,k=2", "a:,"):
        assert split_bean_name(bad) is None, bad


def test_patterns() -> None:
    pattern = parse_bean_pattern("a:type=T<_>,name=<name>-<port>,*")
    assert pattern.match("a", {"name": "x-y-1", "type": "Tx", "more": "z"}) == {"name": "x-y", "port": "1"}
    assert pattern.match("a", {"name": "x", "type": "Tx"}) is None
    assert parse_pattern("a.b").match("axb") is None


def test_forms_of_words() -> None:
    assert camel("SendHeartbeat") == "sendHeartbeat"
    assert [snake(t) for t in ("WriteBlock", "RPCCall", "x")] == ["write_block", "rpc_call", "x"]


def test_shipped_rules_give_every_name_one_kind_and_unit() -> None:
    """Each has a help text; announcements have one for a name."""
    about: dict[str, set[tuple[Kind, str, str]]] = {}
    for rule in SHIPPED:
        for v in rule.variables:
            about.setdefault(v.name, set()).add((v.kind, v.unit, v.help))
    assert {name: found for name, found in about.items() if len(found) > 1} == {}
    assert all(help_ for found in about.values() for _, _, help_ in found)
    assert all(
        (unit in ("bytes", "ms")) == (name.split(".")[-1] in ("bytes", "ms"))
        for name, found in about.items()
        for _, unit, _ in found
    )
