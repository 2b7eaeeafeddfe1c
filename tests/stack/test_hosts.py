"""Parts of several hosts: an ensemble names all its servers, every part listens on the address of its host."""

from __future__ import annotations

from pathlib import Path

from artimon.runtime.settings import load
from artimon.stack.artimon_parts import ApiPart, CollectorPart
from artimon.stack.hdfs_parts import DataNode, NameNode, write_configuration
from artimon.stack.java import Java
from artimon.stack.kafka_part import KafkaPart, kafka_address
from artimon.stack.stack_part import StackContext, StackHost, StackPart
from artimon.stack.zookeeper_part import ZooKeeperPart, zookeeper_address

PARTS: list[StackPart] = [
    *(ZooKeeperPart(n, 3) for n in (1, 2, 3)),
    *(KafkaPart(n, 3) for n in (1, 2, 3)),
    NameNode(),
    *(DataNode(n) for n in (1, 2)),
    *(CollectorPart(n) for n in (0, 1)),
    ApiPart(2),
]


def context(folder: Path, hosts: bool = True) -> StackContext:
    """A context in which the n-th part of a kind runs on 10.0.0.n."""
    ports = {name: port for part in PARTS for name, port in part.ports.items()}
    places = {part.name: StackHost(f"10.0.0.{part.name[-1] if part.name[-1].isdigit() else 1}") for part in PARTS}
    java = Java(Path("/java/bin/java"), 17)
    return StackContext(folder, ports, load({}), java, folder, folder, {"hdfs_copies": "2"}, places if hosts else {})


def test_every_server_of_an_ensemble_knows_all(tmp_path: Path) -> None:
    here = context(tmp_path)
    ZooKeeperPart(2, 3).prepare(here)
    lines = (tmp_path / "zookeeper-2" / "zoo.cfg").read_text().splitlines()
    assert {"server.1=10.0.0.1:2888:3888", "server.2=10.0.0.2:2889:3889", "server.3=10.0.0.3:2890:3890"} <= set(lines)
    assert "clientPortAddress=10.0.0.2" in lines
    assert (tmp_path / "zookeeper-2" / "data" / "myid").read_text() == "2"
    assert "org.apache.zookeeper.server.quorum.QuorumPeerMain" in ZooKeeperPart(2, 3).command(here).argv
    assert zookeeper_address(here) == "10.0.0.1:2181,10.0.0.2:2182,10.0.0.3:2183"


def test_a_server_alone_has_no_ensemble(tmp_path: Path) -> None:
    alone = ZooKeeperPart()
    alone.prepare(context(tmp_path, hosts=False))
    assert "server." not in (tmp_path / "zookeeper" / "zoo.cfg").read_text()
    assert set(alone.ports) == {"zookeeper.client"}


def test_parts_listen_on_their_host(tmp_path: Path) -> None:
    here = context(tmp_path)
    KafkaPart(3, 3).prepare(here)
    broker = (tmp_path / "kafka-3" / "server.properties").read_text()
    assert "listeners=INTERNAL://10.0.0.3:9124,CLIENT://10.0.0.3:9122" in broker
    assert kafka_address(here) == "10.0.0.1:9092,10.0.0.2:9112,10.0.0.3:9122"
    node = DataNode(2).command(here).argv
    assert "dfs.datanode.address=10.0.0.2:9876" in node
    assert f"dfs.datanode.data.dir=file://{tmp_path}/hdfs/data-2" in node
    assert "<name>dfs.replication</name><value>2</value>" in (write_configuration(here) / "hdfs-site.xml").read_text()
    collector = CollectorPart(1).arguments(here)
    assert collector[collector.index("--host") :][:3] == ["--host", "10.0.0.1", "--insecure"]
    assert "--insecure" in ApiPart(2).arguments(here)


def test_on_one_machine_nothing_listens_beyond_loopback(tmp_path: Path) -> None:
    here = context(tmp_path, hosts=False)
    for part in (CollectorPart(1), ApiPart(2)):
        assert not {"--host", "--insecure"} & set(part.arguments(here))
    assert "dfs.datanode.address=127.0.0.1:9866" in DataNode().command(here).argv
