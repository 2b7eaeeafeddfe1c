"""A raw table of its own for every test, on the HDFS that the whole run shares."""

from __future__ import annotations

import uuid

import pytest

from tests.compaction.builder import Builder


@pytest.fixture
def place(hdfs: str) -> str:
    """URI of an empty folder of its own, as `hdfs` is given to programs."""
    return f"{hdfs}/c{uuid.uuid4().hex[:10]}"


@pytest.fixture
def builder(place: str) -> Builder:
    return Builder(place)
