"""Small messages that declare much are refused before anything is decompressed: tests/security/attacks.py."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from artimon.model import batch_codec as codec
from artimon.model.batch import (
    MAX_BYTES,
    MAX_DECODED_BYTES,
    Batch,
    BatchError,
    BatchId,
    BatchKind,
    Samples,
    UnknownFormatError,
)
from artimon.model.ipc import read_ipc, write_ipc
from artimon.model.ipc_limits import IpcError, IpcLimits, check_stream
from artimon.rawtable.parquet_reader import MAX_GROUP_BYTES, oversized_group
from pipeline.spark import message_checks as messages
from query_dsl.stores.partial_codec import decode_partial
from tests.security.attacks import ROWS, bomb
from tests.security.fuzzing import ROOT
from varstore.store.snapshot_frames import SnapshotFormatError, decode_frame, encode_frame

MiB = 1 << 20
LIMITS = IpcLimits(10_000, MAX_DECODED_BYTES)
POOL = pa.proxy_memory_pool(pa.system_memory_pool())
ID = BatchId("mallory", 1, 0, 0)


def test_no_process_takes_memory_for_it(tmp_path: Path) -> None:
    """A collector, the tasks of both Spark queries and a shard: each refuses it, and takes what stands beside it."""
    column = pa.array(np.zeros(ROWS, np.int64))
    types = pa.array(np.zeros(ROWS, np.uint8))
    feed = pa.record_batch([column, column, column, types, column], names=["series", "time", "birth", "type", "cell"])
    message, part = tmp_path / "message", tmp_path / "feed"
    message.write_bytes(bomb("bomb/h/0"))
    part.write_bytes(write_ipc(feed, pa.ipc.IpcWriteOptions(compression="zstd")))
    assert max(message.stat().st_size, part.stat().st_size) < 64 * 1024
    command = [sys.executable, "-m", "tests.security.small_message", str(message), str(part)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, tuple[str, int]] = json.loads(done.stdout)
    assert list(found) == ["collector", "raw", "buckets", "shard"]
    assert found["collector"][0].startswith("damaged: body of mallory")
    assert "8000000 rows declared: at most 10000" in found["raw"][0]
    assert found["buckets"][0] == "refused 1"
    assert "8000000 rows declared" in found["shard"][0]
    assert {name: grown // MiB for name, (_, grown) in found.items() if grown > 16 * MiB} == {}


def sealed(table: Any, rows: int | None = None, options: Any = None) -> bytes:
    body = write_ipc(table, options or pa.ipc.IpcWriteOptions(compression="zstd"))
    return codec.assemble(
        BatchKind.SAMPLES, ID, "s", bytes(16), 0, 0, len(table) if rows is None else rows, 0, "", body
    ).data


def columns(rows: int = 3, **more: Any) -> Any:
    zeros = np.zeros(rows, np.int64)
    found = {"series": pa.array(zeros.view(np.uint64)), "time": pa.array(zeros), "birth": pa.array(zeros)}
    found |= {name: pa.array(value) if isinstance(value, list) else value for name, value in more.items()}
    return pa.record_batch(list(found.values()), names=list(found))


def nested(depth: int) -> Any:
    array = pa.array([1, 2, 3])
    for _ in range(depth):
        array = pa.StructArray.from_arrays([array], names=["x"])
    return array


MANY: Any = [f"c{n}" for n in range(20)]
LIES: dict[str, tuple[Callable[[], bytes], str]] = {
    "rows_beyond_the_limit": (lambda: sealed(columns(10_001), 10_000), "10001 rows declared"),
    "rows_unlike_the_header": (lambda: sealed(columns(4), 3), "4 rows, its header says 3"),
    "bytes_beyond_the_limit": (lambda: sealed(columns(3, string=["x" * (3 * MiB)] * 3)), "bytes of decompressed"),
    "another_compression": (
        lambda: sealed(columns(), options=pa.ipc.IpcWriteOptions(compression="lz4")),
        "compression other than zstd",
    ),
    "an_old_version": (
        lambda: sealed(columns(), options=pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4)),
        "metadata version",
    ),
    "a_dictionary": (lambda: sealed(columns(string=pa.array(["a"] * 3).dictionary_encode())), "not supported"),
    "a_view": (lambda: sealed(columns(string=pa.array(["a"] * 3, pa.string_view()))), "Arrow type"),
    "many_columns": (lambda: sealed(columns(3, **{key: [1, 2, 3] for key in MANY})), "columns"),
    "deep_columns": (lambda: sealed(columns(x=nested(8))), "nested more than 4 deep"),
    "a_large_schema": (
        lambda: sealed(columns().replace_schema_metadata({b"x": b"y" * 10_000})),
        "a schema of",
    ),
    "two_values_in_a_row": (lambda: sealed(columns(integer=[1, 2, 3], double=[None, 0.5, None])), "two values"),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_a_body_declares_is_checked(lie: str) -> None:
    made, reason = LIES[lie]
    data = made()
    with pytest.raises(BatchError, match=reason.split(",")[0]):
        messages.decode(codec.parse_header(data), data)
    if lie in ("rows_unlike_the_header", "two_values_in_a_row"):
        return
    before = pa.default_memory_pool()
    pa.set_memory_pool(POOL)
    try:
        with pytest.raises(BatchError, match=reason.split(",")[0]):
            codec.verify_limits(data)
    finally:
        pa.set_memory_pool(before)
    assert POOL.max_memory() == 0


def test_a_length_before_a_frame_of_zstd_is_what_counts() -> None:
    """Every one of them, also where several buffers lie in one place."""
    data = sealed(columns(5_000))
    header = codec.parse_header(data)
    assert check_stream(data, header.body_at, LIMITS) == 5_000
    at = data.index((40_000).to_bytes(8, "little"), header.body_at + 300)
    for declared, reason in ((9 * MiB, "bytes of decompressed"), (2**62, "decompressed"), (-2, "declares -2")):
        lying = data[:at] + (declared & (2**64 - 1)).to_bytes(8, "little") + data[at + 8 :]
        with pytest.raises(IpcError, match=reason):
            check_stream(lying, header.body_at, LIMITS)
    small = data[:at] + (1 << 20).to_bytes(8, "little") + data[at + 8 :]
    assert check_stream(small, header.body_at, LIMITS) == 5_000
    with pytest.raises(IpcError, match="Corrupt ZSTD"):
        read_ipc(small, header.body_at, LIMITS)


@pytest.mark.parametrize(
    ("kind", "rows", "names"),
    [(1, 10_001, {}), (2, 1_001, {}), (3, 10_001, {}), (1, 1, {"agent": "a" * 256}), (1, 1, {"keep": "k" * 256})],
)
def test_what_a_header_declares_is_checked(kind: int, rows: int, names: dict[str, str]) -> None:
    fields = [b"ARTB", 1, kind, 0, 1, 1, 0, 0, bytes(16), rows, 0, 0]
    texts = [names.get(name, "").encode() for name in ("agent", "source", "keep")]
    data = codec._FIXED.pack(*fields, *map(len, texts)) + bytes(16) + b"".join(texts)
    with pytest.raises(BatchError, match="at most"):
        codec.parse_header(data)


def test_a_message_beyond_512_kib_is_no_batch_unless_a_newer_program_says_so() -> None:
    data = bytearray(sealed(columns()))
    data += bytes(MAX_BYTES)
    with pytest.raises(BatchError, match="at most 524288"):
        codec.parse_header(bytes(data))
    data[4] = 2
    with pytest.raises(UnknownFormatError):
        codec.parse_header(bytes(data))


def test_an_encoder_makes_nothing_that_a_decoder_refuses() -> None:
    """Strings that compress well: an agent splits them instead."""

    def encode(count: int) -> Batch:
        rows = Samples.of([(n, 0, 0, "x" * 32_000) for n in range(count)])
        return codec.encode_samples(ID, "s", bytes(16), 0, 0, "", rows)

    with pytest.raises(BatchError, match="split into batches"):
        encode(300)
    batch = encode(250)
    assert len(codec.decode_samples(codec.verify_limits(batch.data), batch.data).strings) == 1


def test_a_part_of_an_image_that_declares_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checksum is right."""
    with monkeypatch.context() as patch:
        patch.setattr("varstore.store.snapshot_frames.MAX_DECODED", 1 * MiB)
        with pytest.raises(SnapshotFormatError, match="at most"):
            encode_frame("slots", {}, {"text": ["x" * 32_000] * 40})
    import xxhash

    from varstore.store.snapshot_frames import _HEAD, MAGIC

    zeros = pa.array(np.zeros(17_000_000, np.int64))
    payload = write_ipc(pa.record_batch([zeros], names=["slot"]), pa.ipc.IpcWriteOptions(compression="zstd"))
    data = _HEAD.pack(MAGIC, len(payload), xxhash.xxh3_64_intdigest(payload)) + payload
    with pytest.raises(SnapshotFormatError, match="17000000 rows declared"):
        decode_frame(data)


def test_a_piece_of_the_history_that_declares_too_much() -> None:
    head = json.dumps({"lengths": [1 << 40], "bytes": 8 << 40, "strings": [], "samples": 0, "columns": 0}).encode()
    with pytest.raises(ValueError, match="a piece of"):
        decode_partial(len(head).to_bytes(8, "big") + head + b"x")


def test_a_parquet_file_that_declares_too_much(tmp_path: Path) -> None:
    path = tmp_path / "large.parquet"
    table = pa.table({"string": pa.array(np.zeros(5_000_000, np.int64))})
    pq.write_table(table, path, row_group_size=5_000_000, compression="zstd")
    assert "row group 0 declares 5000000 rows" in oversized_group(pq.read_metadata(path))
    pq.write_table(table, path, row_group_size=1_000_000)
    assert oversized_group(pq.read_metadata(path)) == ""
    assert MAX_GROUP_BYTES == 1 << 30
