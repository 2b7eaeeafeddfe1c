"""The stores that hold tables: HDFS, an S3 server, a local folder."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from artimon.runtime import file_access as files
from tests.storage.s3_server import BUCKET, SETTINGS, s3_server


@pytest.fixture(scope="package")
def s3() -> Iterator[str]:
    """Address of an S3 server; the environment names it."""
    with s3_server() as endpoint, pytest.MonkeyPatch.context() as patch:
        for name, value in {**SETTINGS, "AWS_ENDPOINT_URL": endpoint}.items():
            patch.setenv(name, value)
        yield endpoint
        files._file_system.cache_clear()


@pytest.fixture(params=["folder", "s3", pytest.param("hdfs", marks=pytest.mark.stack)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URI of an empty place on each store."""
    if request.param == "folder":
        return f"file://{tmp_path}/store"
    if request.param == "s3":
        request.getfixturevalue("s3")
        return f"s3://{BUCKET}/{uuid.uuid4().hex}"
    return f"{request.getfixturevalue('hdfs')}/{uuid.uuid4().hex}"
