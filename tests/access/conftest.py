"""An application with users of every level."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from artimon.access.authenticator import Authenticator
from tests.access.asgi_client import ACCESS, PASSWORD, AsgiClient, asked, opened


def basic(user: str, password: str = PASSWORD) -> dict[str, str]:
    """Return the header of a user."""
    return {"authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


@pytest.fixture
def access(tmp_path: Path) -> Authenticator:
    return opened(ACCESS, tmp_path)


@pytest.fixture
def client(access: Authenticator) -> Iterator[AsgiClient]:
    with asked(access) as found:
        yield found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AsgiClient]:
    """A client for tests that change nothing."""
    with asked(opened(ACCESS, tmp_path_factory.mktemp("access"))) as found:
        yield found
