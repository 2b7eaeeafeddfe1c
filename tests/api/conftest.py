"""One server for the tests that need no limits of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.api.serving import Client, served


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with served() as found:
        yield found
