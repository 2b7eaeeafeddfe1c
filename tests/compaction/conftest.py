"""A raw table of its own for every test: on a local folder, so that the ordinary run stays short, and once more (slow)
on the HDFS that the whole run shares. Tests that are about HDFS ask for `on_hdfs`."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from artimon.model.clock import SYSTEM_CLOCK
from tests.compaction.builder import Builder
from tests.spark.local_files import local_files


@pytest.fixture(params=[pytest.param("local"), pytest.param("hdfs", marks=[pytest.mark.slow, pytest.mark.stack])])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URI of an empty folder of its own, as `hdfs` is given to programs."""
    if request.param == "hdfs":
        yield _on(request.getfixturevalue("hdfs"))
    else:
        with local_files(SYSTEM_CLOCK):
            yield f"file://{tmp_path}/files"


@pytest.fixture
def builder(place: str) -> Builder:
    return Builder(place)


@pytest.fixture
def on_hdfs(hdfs: str) -> Builder:
    """A table on a real HDFS, which other processes may work on too."""
    return Builder(_on(hdfs))


def _on(hdfs: str) -> str:
    return f"{hdfs}/c{uuid.uuid4().hex[:10]}"
