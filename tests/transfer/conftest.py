"""A history of its own for every test, on a local folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from artimon.model.clock import SYSTEM_CLOCK
from tests.spark.local_files import local_files


@pytest.fixture
def hdfs(tmp_path: Path) -> Iterator[str]:
    with local_files(SYSTEM_CLOCK):
        yield f"file://{tmp_path}/hdfs"
