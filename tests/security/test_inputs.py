"""Attacks by a hostile writer of ZooKeeper, HDFS or Kafka on each input; the table is in docs/security.md."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import xxhash
from kazoo.client import KazooClient
from typer.testing import CliRunner

from alerts.state.publication import ALERTS_PATH, read_alerts
from artimon.cli import app
from artimon.model.ack_state import AckState, PartitionState
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.znode import MAX_BYTES, parse_json_object
from artimon.rawtable import table_reader as leases
from artimon.runtime import file_access as files
from artimon.runtime import settings
from artimon.runtime.partition_counts import ACKS_PATH
from artimon.runtime.zookeeper_client import zookeeper_client
from pipeline.compaction.dead_files import FileSweeper
from pipeline.control.ack_watcher import AckWatcher
from pipeline.control.agent_commands import MAX_WAITING
from pipeline.control.control_tree import ControlTree
from pipeline.control.group_directory import GroupDirectory
from pipeline.control.shard_directory import SHARDS_PATH, ShardDirectory
from pipeline.flows.runtime.agent_transport import ROOT_WARNING
from pipeline.link.collector_choice import COLLECTORS_PATH, CollectorEndpoint
from pipeline.sites.mirror import OffsetsNode
from sources.base.endpoint_address import parse_endpoint, parse_host_endpoint
from sources.base.source_errors import AddressError
from tests.pipeline.plane.world import KEYS, Operator, new_name, running
from tests.varstore.test_image_format import MANIFEST
from tests.waiting import eventually
from tests.zookeepers import connected, own_tree
from varstore.cluster.cluster_directory import ClusterDirectory as Shards
from varstore.cluster.membership import VARSTORE_PATH, Membership, MembershipError
from varstore.snapshot.manifest import Manifest
from varstore.store.snapshot_frames import SnapshotFormatError

JUNK: dict[str, bytes] = {
    "empty": b"",
    "list": b"[]",
    "null": b"null",
    "no_text": b"\xff\xfe",
    "deep": b"[" * 100_000,
    "deep_table": b'{"host":' * 100_000,
    "infinite": b'{"host": "h", "port": Infinity, "until": 1e999}',
    "no_port": b'{"host": "h", "port": 0, "partitions": {"x": 1}}',
    "large_number": b'{"host": "h", "port": ' + b"9" * 5_000 + b"}",
    "other_types": b'{"host": {}, "port": [], "partitions": 5, "members": 7, "table": 1, "networks": 3, "rules": 0}',
}
"""Contents of nodes; ZooKeeper takes at most 1 MiB."""


@pytest.fixture
def client(zookeeper: str) -> Iterator[KazooClient]:
    """A tree of its own."""
    with own_tree(zookeeper) as place, connected(place) as found:
        yield found


def litter(client: KazooClient, folder: str, good: dict[str, Any]) -> None:
    """Put every piece of junk beside a good node, in front of it and behind it."""
    for number, data in enumerate(JUNK.values()):
        client.create(f"{folder}/{'az'[number % 2]}{number}", data, makepath=True)
    client.create(f"{folder}/good", json.dumps(good).encode(), makepath=True)


@pytest.mark.parametrize("name", JUNK)
def test_a_node_is_a_table_or_an_error(name: str) -> None:
    try:
        found = parse_json_object(JUNK[name])
    except ValueError:
        return
    assert isinstance(found, dict)
    assert name in ("no_port", "other_types")
    with pytest.raises(ValueError, match="at most"):
        parse_json_object(b" " * (MAX_BYTES + 1))


class Heard:
    """A sender that remembers what it is told."""

    def __init__(self) -> None:
        self.collectors: dict[str, CollectorEndpoint] = {}
        self.verdicts: list[Any] = []
        self.waiting: list[Any] = []

    def update_collectors(self, found: dict[str, CollectorEndpoint]) -> None:
        self.collectors = found

    def unacked(self) -> list[Any]:
        return self.waiting

    def apply_verdict(self, verdict: Any) -> None:
        self.verdicts.append(verdict)


@pytest.mark.stack
def test_junk_among_collectors_and_acks_hides_no_good_one(client: KazooClient) -> None:
    litter(client, COLLECTORS_PATH, {"host": "127.0.0.1", "port": 4140})
    state = AckState("c", "artimon.samples", "good", 0, {0: PartitionState(7, 0, 9)})
    litter(client, ACKS_PATH, json.loads(state.to_json()))
    heard = Heard()
    control = AckWatcher(client, heard, "artimon.samples")
    control.refresh()
    assert control.problem == ""
    assert heard.collectors == {"good": CollectorEndpoint("127.0.0.1", 4140)}
    assert control._read_states().keys() == {"good"}


@pytest.mark.stack
def test_junk_among_members_of_groups_and_agents_hides_no_good_one(client: KazooClient) -> None:
    litter(client, "/artimon/groups/web", {"host": "127.0.0.1", "port": 4140})
    litter(client, "/artimon/agents", {"mode": "running"})
    directory = GroupDirectory(client)
    directory.members("web")
    directory.refresh(lambda _: None)
    assert directory.members("web") == {"good": CollectorEndpoint("127.0.0.1", 4140)}
    assert ControlTree(client).agents()["good"] == {"mode": "running"}
    assert ControlTree(client).live_reports(["good", "nobody", "../acks"], 10.0) == {"good": {"mode": "running"}}


@pytest.mark.stack
def test_junk_among_shards_hides_no_good_one(client: KazooClient) -> None:
    good = {"host": "127.0.0.1", "port": 4150, "incarnation": "x", "held": "1", "holds": "1", "lagging": "0"}
    litter(client, SHARDS_PATH, good)
    client.create(VARSTORE_PATH, Membership(("good",)).to_bytes(), makepath=True)
    assert "good" in ShardDirectory(client).live_shards()
    found = Shards(client)
    assert "good" in {place.id for place in found.read().live}
    assert found.stale == ""


@pytest.mark.parametrize("name", JUNK)
def test_a_membership_that_is_none_changes_nothing(name: str) -> None:
    with pytest.raises(MembershipError, match="unreadable"):
        Membership.from_bytes(JUNK[name])


@pytest.mark.stack
def test_junk_among_leases_delays_deleting_and_no_longer_than_an_hour(client: KazooClient) -> None:
    uri, now = "hdfs://here/raw", SYSTEM_CLOCK.now_ms()
    litter(client, leases.LEASES_PATH, {"table": uri, "version": 7})
    held = leases.leased_versions(client, uri, now)
    assert 7 in held
    assert leases.ANY_VERSION in held
    assert leases.leased_versions(client, uri, now + 2 * leases.LEASE_MS) == []


@pytest.mark.stack
def test_junk_among_alert_engines_hides_no_good_one(client: KazooClient) -> None:
    good = {"id": "good", "time_ms": 0, "mail": {}, "problems": [], "rules": [], "alerts": [], "truncated": 0}
    litter(client, ALERTS_PATH, good)
    found = read_alerts(client)
    assert [engine["id"] for engine in found["engines"]] == ["good"]
    assert "cannot be read" in found["problem"]


@pytest.mark.parametrize(
    "node",
    [
        *(
            "shop",
            "shop:1.2.3.4:80",
            ":1.2.3.4:80:{id}",
            "shop:0.0.0.0:80:{id}",
            "shop:[::1:80:{id}",
            "shop:::1:80:{id}",
        ),
        *("shop:1.2.3.4:99999:{id}", "shop:1.2.3.4:80:junk", "shop:[fe80::1]:80:{id}", "shop:host.invalid:80:{id}"),
    ],
)
def test_znodes_of_a_host_that_name_no_process_are_refused(node: str) -> None:
    with pytest.raises(AddressError):
        parse_host_endpoint("web1", node.format(id=uuid.UUID(int=1)))


def test_a_context_may_contain_colons() -> None:
    found = parse_host_endpoint("web1", f"a:b:[::1]:{uuid.UUID(int=1)}:[::1]:80:{uuid.UUID(int=1)}")
    assert (found.context, found.ip, found.port, found.unit) == (f"a:b:[::1]:{uuid.UUID(int=1)}", "::1", 80, "web1")


@pytest.mark.stack
def test_a_flood_of_commands_is_read_in_part(client: KazooClient) -> None:
    for number in range(3 * MAX_WAITING):
        client.create(f"/artimon/commands/a/x{number:05d}", b"{}", makepath=True)
    found, bad = ControlTree(client).read_commands("a")
    assert len(found) + len(bad) == MAX_WAITING


@pytest.mark.stack
def test_junk_in_the_offsets_of_a_handover_is_an_error_and_no_offset(client: KazooClient) -> None:
    node = OffsetsNode(client, "x", "artimon.samples", "T")
    for data in JUNK.values():
        client.ensure_path(node.path)
        client.set(node.path, data)
        with pytest.raises(ValueError, match=r"\w"):
            node._read()


@pytest.mark.stack
def test_offsets_of_a_handover_that_others_may_write_are_not_believed(secured: str) -> None:
    """A larger offset there would leave batches out."""
    client = zookeeper_client(secured)
    client.start(60)
    own, foreign = (OffsetsNode(client, name, "artimon.samples", "T") for name in ("own", "foreign"))
    with connected(secured) as stranger:
        stranger.create(foreign.path, json.dumps({"offsets": {"0": 10**9}}).encode(), makepath=True)
    own.save({0: 7})
    assert own.load() == {0: 7}
    with pytest.raises(ValueError, match="others may write"):
        foreign.load()
    client.stop()
    client.close()


# --- acks: who writes them makes agents forget


@pytest.fixture
def secured(zookeeper: str, auth: str) -> Iterator[str]:
    with own_tree(zookeeper, auth_data=[("digest", auth)]) as place:
        yield place


@pytest.mark.stack
def test_acks_that_others_may_write_are_not_believed(secured: str) -> None:
    state = AckState("c", "artimon.samples", "T", 0, {0: PartitionState(10**9, 0, 10**9)})
    client = zookeeper_client(secured)
    client.start(60)
    with connected(secured) as stranger:
        stranger.create(f"{ACKS_PATH}/T", state.to_json(), makepath=True)
        control = AckWatcher(client, Heard(), "artimon.samples")
        control.refresh()
        assert control._read_states() == {}
        secure = CliRunner().invoke(app, ["config", "secure", "--zookeeper", secured])
        assert secure.exit_code == 0, secure.stderr
        assert control._read_states().keys() == {"T"}, "the owner's are"
        control._untrusted = ""
    client.stop()
    client.close()


@pytest.mark.stack
def test_an_agent_says_whose_acks_it_does_not_believe(secured: str, tmp_path: Path) -> None:
    state = AckState("c", "artimon.samples", "T", 0, {0: PartitionState(10**9, 0, 10**9)})
    with connected(secured) as stranger:  # before an agent makes the folder, with its own access list
        stranger.create(f"{ACKS_PATH}/T", state.to_json(), makepath=True)
    with running(new_name(), tmp_path, secured) as agent:
        agent._ack_watcher._sender.unacked = lambda: [object()]  # type: ignore[method-assign]
        eventually(lambda: "not trusted" in agent._ack_watcher.problem, "it says so")


# --- authenticated writers instead of keys


@pytest.mark.stack
def test_without_keys_the_owner_of_the_nodes_is_believed_and_nobody_else(
    secured: str, auth: str, tmp_path: Path, zookeeper: str
) -> None:
    name = new_name()
    scope = f"agent/{name}"
    stranger = Operator(secured, keys=None)
    owner = Operator(secured, keys=None)
    owner.client.stop()
    owner.client = zookeeper_client(secured)
    owner.client.start(60)
    owner.tree = ControlTree(owner.client)
    stranger.push(scope, collectors=["of-the-attacker"])
    with running(name, tmp_path, secured, keys=None) as agent:
        eventually(lambda: agent.plane.figures()["refused"], "a stranger is not believed")
        assert "others may write" in agent.plane.figures()["refused"]
        assert agent._groups == ()
        given = stranger.give(name, "drain")
        refused = eventually(lambda: owner.answer(name, given), "nor his commands")
        assert refused.state == "refused"
        owner.client.delete(f"/artimon/config/agents/{name}", recursive=True)
        owner.push(scope, collectors=["ours"])
        eventually(lambda: agent._groups == ("ours",), "the owner is")
        eventually(lambda: agent.plane.figures()["refused"] == "", "and it says nothing more")
        drained = owner.give(name, "pause")
        answer = eventually(lambda: owner.answer(name, drained), "commands too")
        assert answer.state == "done"
    stranger.close()
    owner.close()
    del zookeeper, auth


# --- discovery


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "255.255.255.255", "224.0.0.1", "169.254.169.254", "240.0.0.1", "[::]", "[ff02::1]", "[fe80::1]"),
        *("metadata.internal", "127.1", "0x7f000001", "10.0.0.1@x"),
    ],
)
def test_discovery_takes_addresses_of_single_processes_alone(address: str) -> None:
    with pytest.raises(AddressError):
        parse_endpoint("shop", f"{address}:80:{uuid.uuid4()}")


def test_discovery_takes_what_processes_have() -> None:
    for address in ("127.0.0.1", "10.1.2.3", "192.0.2.7", "[2001:db8::1]", "[::1]"):
        assert parse_endpoint("shop", f"{address}:8080:{uuid.uuid4()}").port == 8080


# --- HDFS


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", ".hidden", "a/b", "", "..", "a\\b"])
def test_a_manifest_names_files_of_its_own_folder(name: str) -> None:
    hostile = replace(MANIFEST, state=name, sizes={**MANIFEST.sizes, name: 1})
    with pytest.raises(SnapshotFormatError, match="cannot name a file"):
        Manifest.from_bytes(hostile.to_bytes(), "here")
    body = b"[]"
    with pytest.raises((SnapshotFormatError, AttributeError)):
        Manifest.from_bytes(body + b"\n" + xxhash.xxh3_64_hexdigest(body).encode() + b"\n", "here")


class HostileLog:
    """A log whose commits name files outside of the table as removed."""

    def __init__(self, uri: str, removed: set[str]) -> None:
        self.uri, self._removed = uri, removed

    def removed(self) -> set[str]:
        return set(self._removed)

    def forget(self, paths: Any) -> None:
        self._removed.difference_update(paths)

    def live(self) -> list[Any]:
        return []

    def fence(self, note: Any) -> None:
        del note


@pytest.mark.stack
def test_a_log_that_names_files_elsewhere_has_none_of_them_deleted(hdfs: str) -> None:
    root = f"{hdfs}/{uuid.uuid4().hex}"
    files.write_file(f"{root}/victim/a.parquet", b"theirs")
    files.write_file(f"{root}/table/period=x/b.parquet", b"removed")
    named = {"../victim/a.parquet", f"{root}/victim/a.parquet", "/victim/a.parquet", "period=x/b.parquet"}
    hostile: Any = HostileLog(f"{root}/table", named)
    swept = FileSweeper(hostile).sweep(1, [], SYSTEM_CLOCK.now_ms())
    assert swept.deleted == 1, "only what lies in the folder of the table"
    assert files.read_file(f"{root}/victim/a.parquet") == b"theirs"


# --- what a terminal shows, and warnings


@pytest.mark.stack
def test_reports_of_agents_do_not_steer_the_terminal(zookeeper: str) -> None:
    name = new_name()
    with own_tree(zookeeper) as place, connected(place) as client:
        report = {"mode": "\x1b[2Jrunning", "problems": ["\x1b]0;owned\x07"], "config": {"refused": "\x1b[31m"}}
        client.create(f"/artimon/agents/{name}", json.dumps(report).encode(), makepath=True)
        for words in (["agents"], ["config", "status"], ["flows"]):
            told = CliRunner().invoke(app, [*words, "--zookeeper", place])
            assert "\x1b" not in told.stdout
            assert "\x07" not in told.stdout


@pytest.mark.stack
def test_an_agent_warns_of_an_open_zookeeper_and_of_root(
    tmp_path: Path, zookeeper: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, user = new_name(), [0]
    monkeypatch.setattr("pipeline.flows.runtime.agent_transport.os.geteuid", lambda: user[0])
    with own_tree(zookeeper) as place, running(name, tmp_path, place) as agent:
        eventually(lambda: len(agent.figures()["warnings"]) == 2, "both are told")
        assert ROOT_WARNING in agent.figures()["warnings"]
        assert "artimon config secure" in agent.figures()["warnings"][0]
        assert not any("root" in text for text in agent.figures()["problems"]), "no fault of the agent"
        operator = Operator(place, KEYS)
        eventually(lambda: len(operator.report(name).get("warnings", [])) == 2, "in its node too")
        told = CliRunner().invoke(app, ["agents", "--zookeeper", place])
        assert f"warning: {name}: ZooKeeper has no access lists" in told.stdout
        operator.close()
        user[0] = 1000
        assert len(agent.figures()["warnings"]) == 1


@pytest.mark.stack
def test_an_agent_does_not_warn_of_a_closed_zookeeper(tmp_path: Path, secured: str) -> None:
    assert CliRunner().invoke(app, ["config", "secure", "--zookeeper", secured]).exit_code == 0
    with running(new_name(), tmp_path, secured) as agent:
        eventually(lambda: agent.plane._access_due > 0, "it has looked")
        assert agent.plane.warnings() == []


@pytest.mark.stack
def test_the_doctor_warns_of_an_open_zookeeper(tmp_path: Path, zookeeper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from artimon.stack.doctor import CheckResult, run_checks

    with own_tree(zookeeper) as place, connected(place) as client:
        client.ensure_path("/artimon/config")
        monkeypatch.setattr("artimon.stack.jars.read_lock", lambda: [])
        found = settings.load({"HOME": str(tmp_path), "ARTIMON_ZOOKEEPER": place})
        (check,) = [one for one in run_checks(found, tmp_path) if one.name == "zookeeper access"]
        assert check.mark is CheckResult.WARNING
        assert "/artimon" in check.detail
        assert "artimon config secure" in check.fix
