"""Fixtures of the end-to-end tests; the stack itself is the fixture `whole_stack` of tests/conftest.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from artimon.stack.stack import Stack
from tests.e2e.whole import ROOT
from varstore.cluster.varstore_client import VarstoreClient

__all__ = ["ROOT"]


@pytest.fixture
def store(whole_stack: Stack) -> Iterator[VarstoreClient]:
    """The memory store of the whole stack."""
    with VarstoreClient(whole_stack.zookeeper) as client:
        yield client
