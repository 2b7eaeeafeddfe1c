"""Nodes of ours in ZooKeeper are for the platform alone; applications may register."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from typer.testing import CliRunner

from artimon.cli import app
from bookkeeper.process.process_endpoint import ProcessEndpoint
from bookkeeper.runtime.process_settings import ProcessSettings, SettingsError, zookeeper_digest
from bookkeeper.variables.variable_registry import VariableRegistry
from pipeline.control.access import open_nodes
from tests.pipeline.plane.world import Operator, new_name, running
from tests.waiting import eventually
from tests.zookeepers import own_tree

pytestmark = pytest.mark.stack


@pytest.fixture
def chroot(zookeeper: str, auth: str) -> Iterator[str]:
    with own_tree(zookeeper, auth_data=[("digest", auth)]) as place:
        yield place


def anonymous(place: str) -> KazooClient:
    client = KazooClient(place)
    client.start(60)
    return client


def test_what_the_platform_makes_nobody_else_reads_or_writes(tmp_path: Path, chroot: str, auth: str) -> None:
    name, file = new_name(), tmp_path / "c.toml"
    file.write_text('[metrics]\nquota = "100MiB"\n')
    pushed = CliRunner().invoke(app, ["config", "push", str(file), "--agent", name, "--zookeeper", chroot])
    assert pushed.exit_code == 0, pushed.stderr
    with running(name, tmp_path / "agent", chroot) as agent:
        eventually(lambda: agent.log.quota_bytes == 100 * 2**20, "the agent may read it")
        eventually(lambda: agent._registration.registered, "and register")
        stranger = anonymous(chroot)
        for path in (f"/artimon/config/agents/{name}", f"/artimon/agents/{name}"):
            with pytest.raises(NoAuthError):
                stranger.get(path)
            with pytest.raises(NoAuthError):
                stranger.set(path, b"mine")
        with pytest.raises(NoAuthError):
            stranger.create(f"/artimon/commands/{name}/x", b"{}", makepath=True)
        stranger.stop()
        stranger.close()


def test_a_tree_that_was_open_is_closed_by_a_command_and_applications_still_register(
    chroot: str, auth: str, tmp_path: Path
) -> None:
    before = Operator(chroot)  # shows nothing
    before.push("group/web", quota="100MiB")
    secured = CliRunner().invoke(app, ["config", "secure", "--zookeeper", chroot])
    assert secured.exit_code == 0, secured.stderr
    assert "now belong to artimon" in secured.stdout
    with pytest.raises(NoAuthError):
        before.push("group/web", quota="200MiB")
    before.close()
    owner = KazooClient(chroot, auth_data=[("digest", auth)])
    owner.start(60)
    assert open_nodes(owner) == []
    application = ProcessEndpoint(
        VariableRegistry(), ProcessSettings("shop", zookeeper=chroot, run=str(tmp_path)), uuid.uuid4().bytes
    )
    application.start()
    try:
        host = "/artimon/hosts/127.0.0.1"
        eventually(lambda: bool(owner.exists(host)), "the application makes the node of its host")
        eventually(lambda: len(owner.get_children(host)) == 1, "and registers")
        found = owner.get(f"{host}/{owner.get_children(host)[0]}")[0]
        assert json.loads(found)["instance"] == "0"
    finally:
        application.close()
        owner.stop()
        owner.close()


def test_the_file_of_the_user(tmp_path: Path) -> None:
    good = tmp_path / "good"
    good.write_text("a:b:c\n")
    assert zookeeper_digest(str(good)) == "a:b:c"
    for text in ("", "no colon", "a:", ":b", "a:b\nc:d"):
        good.write_text(text)
        with pytest.raises(SettingsError, match="user:password"):
            zookeeper_digest(str(good))
    with pytest.raises(SettingsError, match="ARTIMON_ZOOKEEPER_AUTH"):
        zookeeper_digest(str(tmp_path / "missing"))
