"""The Spark application appends to an object store and to a folder as to HDFS."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.storage.s3_server import BUCKET

pytestmark = [pytest.mark.stack, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("kind", ["s3", "folder"])
def test_the_raw_query_appends_to_the_store(kind: str, s3: str, zookeeper: str, kafka: str, tmp_path: Path) -> None:
    place = f"s3://{BUCKET}/{uuid.uuid4().hex}" if kind == "s3" else f"file://{tmp_path}/store"
    command = [sys.executable, "-m", "tests.storage.spark_store", zookeeper, kafka, place, str(tmp_path / "local")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
