"""The tables of version 1 on a real HDFS, each test with its own."""

from __future__ import annotations

import uuid

import pytest

from tests.spark.conftest import connector, session
from tests.upgrade.golden import upload

__all__ = ["connector", "session"]  # a process has one JVM, and its class path is that of its first session


@pytest.fixture
def tables(hdfs: str) -> str:
    """The HDFS folder that holds them."""
    place = f"{hdfs}/u{uuid.uuid4().hex[:10]}"
    upload(place)
    return place
