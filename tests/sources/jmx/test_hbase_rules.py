"""Rules for HBase, on answers from its documentation; there is no HBase in the tests."""

from __future__ import annotations

import json

from artimon.model.values import Kind
from sources.scrape.jmx.bean_mapper import BeanMapper
from sources.scrape.jmx.jmx_response import parse_answers
from sources.scrape.jmx.mapping_file import rule_set

REGION = "Namespace_{}_table_{}_region_{}_metric_{}"
BEANS = [
    {"name": "java.lang:type=Runtime", "StartTime": 1_700_000_000_000, "Name": "1@x"},
    {
        "name": "Hadoop:service=HBase,name=Master,sub=Server",
        "modelerType": "Master,sub=Server",
        "tag.isActiveMaster": "true",
        "numRegionServers": 3,
        "numDeadRegionServers": 1,
        "averageLoad": 12.5,
        "clusterRequests": 900,
    },
    {
        "name": "Hadoop:service=HBase,name=Master,sub=AssignmentManager",
        "ritCount": 2,
        "ritCountOverThreshold": 0,
        "ritOldestAge": 70,
    },
    {
        "name": "Hadoop:service=HBase,name=RegionServer,sub=Server",
        "tag.zookeeperQuorum": "zk:2181",
        "regionCount": 2,
        "readRequestCount": 11,
        "writeRequestCount": 12,
        "percentFilesLocal": 99.5,
        "blockCacheHitCount": 5,
        "Get_num_ops": 7,
        "Get_mean": 1.5,
        "Get_99th_percentile": 9.0,
        "Get_min": 0,
        "ScanSize_num_ops": 1,
        "ScanSize_mean": 100.0,
        "FlushMemstoreSize_mean": 5.0,
    },
    {
        "name": "Hadoop:service=HBase,name=RegionServer,sub=IPC",
        "sentBytes": 5,
        "receivedBytes": 6,
        "exceptions": 0,
        "TotalCallTime_mean": 0.5,
    },
    {
        "name": "Hadoop:service=HBase,name=RegionServer,sub=WAL",
        "appendCount": 4,
        "SyncTime_num_ops": 3,
        "SyncTime_mean": 2.5,
    },
    {
        "name": "Hadoop:service=HBase,name=RegionServer,sub=Regions",
        REGION.format("default", "a_b", "0123abcd", "readRequestCount"): 21,
        REGION.format("hbase", "meta", "1588230740", "writeRequestCount"): 22,
        REGION.format("ns_1", "t", "ff", "storeFileSize"): 1 << 40,
        REGION.format("ns_1", "t", "ff", "replicaid"): 0,
        "numRegions": 2,
    },
]


def test_regions_operations_and_servers() -> None:
    answer = parse_answers([json.dumps({"beans": BEANS}).encode()])
    variables = BeanMapper(rule_set("hbase"), 5_000).variables(answer)
    assert answer.faults.counts == {}
    found = {(v.name, tuple(sorted(v.labels.items()))): v.value for v in variables}
    assert len(found) == len(variables), "none stands there twice"
    region = (("namespace", "default"), ("op", "read"), ("region", "0123abcd"), ("table", "a_b"))
    assert found["hbase.region.requests", region] == 21
    meta = (("namespace", "hbase"), ("op", "write"), ("region", "1588230740"), ("table", "meta"))
    assert found["hbase.region.requests", meta] == 22
    files = (("namespace", "ns_1"), ("region", "ff"), ("table", "t"))
    assert found["hbase.region.store.files.bytes", files] == 1 << 40
    assert found["hbase.servers", (("state", "dead"),)] == 1
    assert found["hbase.master.active", ()] == 1
    assert found["hbase.requests", (("op", "write"),)] == 12
    assert found["hbase.ops", (("op", "get"),)] == 7
    assert found["hbase.op.mean.ms", (("op", "get"),)] == 1.5
    assert {labels for name, labels in found if name.startswith("hbase.op")} == {(("op", "get"),)}, "sizes are no times"
    assert {v.kind for v in variables if v.name == "hbase.region.requests"} == {Kind.COUNTER}


def test_a_thousand_regions_take_no_time() -> None:
    """Each attribute is held against the patterns of four variables, in time linear in its length."""
    names = {
        REGION.format("n", f"t{i}", f"{i:032x}", what): i
        for i in range(1_000)
        for what in ("readRequestCount", "storeCount")
    }
    evil = {"Namespace_" + "_table_" * 300 + "_region_" * 300 + "_metric_x": 1}
    bean = {"name": "Hadoop:service=HBase,name=RegionServer,sub=Regions", **names, **evil}
    answer = parse_answers([json.dumps({"beans": [bean]}).encode()])
    assert len(BeanMapper(rule_set("hbase"), 5_000).variables(answer)) == 1_000
