"""An object store that loses answers, is slow or refuses: every append is in the table once."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from deltalake.exceptions import DeltaError

from artimon.rawtable.commit import RawTable
from artimon.rawtable.schema import DataFile, TableError
from artimon.runtime import file_access as files
from tests.compaction.builder import START_MS, Builder, Row, expected, file_table, held
from tests.seeds import fixed_and_drawn
from tests.storage.s3_server import BUCKET, Fault, faulty, random_faults

APPENDS, ATTEMPTS = 12, 40


@contextmanager
def through(endpoint: str) -> Iterator[str]:
    """Use the object store at this address; yields an empty place there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        files._file_system.cache_clear()
        yield f"s3://{BUCKET}/{uuid.uuid4().hex}"
    files._file_system.cache_clear()


def append_surely(builder: Builder, number: int) -> None:
    """Append two rows as a writer does that does not know the outcome of a failed commit: it reads the table."""
    rows: list[Row] = [(1, series, START_MS + number, number) for series in range(2)]
    builder.ledger.update(("default", repr((START_MS // 3_600_000, *row))) for row in rows)
    before, new = builder.state, list[DataFile]()
    for _ in range(ATTEMPTS):
        try:
            new = new or [builder.write(START_MS, "default", file_table(rows))]
            builder.commit(new, START_MS + number)
        except (DeltaError, TableError, OSError):
            if _has_landed(builder, before.until()[0]):
                return
            builder.state = before
        else:
            return
    raise AssertionError(f"append {number} failed {ATTEMPTS} times")


def _has_landed(builder: Builder, until: int) -> bool:
    """True if the table has an append beyond this offset, whose state is then that of the builder."""
    for _ in range(ATTEMPTS):
        try:
            builder.table = RawTable(builder.hdfs)
            _, state = builder.table.head()
        except (DeltaError, TableError, OSError):
            continue
        if state.until()[0] > until:
            builder.state = state
            return True
        return False
    raise AssertionError("the table cannot be read")


@pytest.mark.parametrize("seed", fixed_and_drawn(range(1), "object store faults", 1))
def test_every_append_is_in_the_table_once(s3: str, seed: int) -> None:
    with through(s3) as place:
        builder = Builder(place)
        with faulty(s3, random_faults(seed, 0.15)) as endpoint, pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", endpoint)
            files._file_system.cache_clear()
            builder.table = RawTable(place)
            for number in range(APPENDS):
                append_surely(builder, number)
        files._file_system.cache_clear()
        assert held(builder.table.uri) == expected(builder.ledger)


def test_a_commit_whose_answer_is_lost_is_found_in_the_table(s3: str) -> None:
    lost = list[str]()

    def choose(method: str, path: str) -> Fault:
        if method == "PUT" and path.endswith("00000000000000000002.json") and not lost:
            lost.append(path)
            return "lost"
        return ""

    with faulty(s3, choose) as endpoint, through(endpoint) as place:
        builder = Builder(place)
        append_surely(builder, 0)
        assert lost
        assert held(builder.table.uri) == expected(builder.ledger)


def test_a_server_that_is_down_is_named_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nothing listens
        with through(f"http://127.0.0.1:{taken.getsockname()[1]}") as place:
            began = time.monotonic()
            with pytest.raises(OSError, match=r"object store at http://127.0.0.1:.* is not reachable"):
                files.check_reachable(place)
            assert time.monotonic() - began < 20
            with pytest.raises(OSError, match="not reachable"):
                RawTable(place).head()


@pytest.mark.parametrize("uri", ["s3:///x", "http://a/b", "/tmp/x", "file://host/x", "s3"])
def test_a_wrong_address_is_refused(uri: str) -> None:
    with pytest.raises(ValueError, match=r"write it as hdfs://HOST:PORT/path, s3://BUCKET/path"):
        files.read_file(uri)
