"""One authority with its certificates for the whole run, and a user of ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from artimon.runtime import settings
from tests.security.certificates import Authority, Pair


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates") / "ca")


@pytest.fixture(scope="session")
def server_pair(authority: Authority) -> Pair:
    return authority.sign("collector-1", "DNS:collector.artimon,IP:127.0.0.1")


@pytest.fixture(scope="session")
def agent_pair(authority: Authority) -> Pair:
    return authority.sign("agent-1", "DNS:agent-1.artimon")


@pytest.fixture
def auth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """This process shows a user of ZooKeeper; "user:password"."""
    file = tmp_path / "zookeeper-user"
    file.write_text("artimon:a word of the platform\n")
    monkeypatch.setenv("ARTIMON_ZOOKEEPER_AUTH", str(file))
    settings.zookeeper_auth.cache_clear()
    yield "artimon:a word of the platform"
    monkeypatch.delenv("ARTIMON_ZOOKEEPER_AUTH")
    settings.zookeeper_auth.cache_clear()
