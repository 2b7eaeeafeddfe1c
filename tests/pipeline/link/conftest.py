"""Certificates of the tests of links."""

from __future__ import annotations

import pytest

from tests.security.certificates import Authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("link-certificates") / "ca")
