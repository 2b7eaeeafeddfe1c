"""One authority with its certificates for the whole run."""

from __future__ import annotations

import pytest

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
