"""`artimon direct` and `artimon sites` on folders of this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from artimon.cli import app
from artimon.model.ranges import LaneRanges
from pipeline.collector.hdfs.batch_file import encode_batch_record, encode_header, encode_index
from pipeline.collector.hdfs.file_names import DATA, FinishedName
from pipeline.rolling_files.file_store import LocalStore
from tests.pipeline.direct.test_container import put
from tests.pipeline.direct.test_stream import batch


def folder(place: Path, *sequences: int) -> str:
    """A folder with one closed file of these batches."""
    data = encode_header("s", 0) + b"".join(encode_batch_record(0, batch(n)[1]) for n in sequences)
    index = encode_index(0, LaneRanges(), len(sequences))
    store = LocalStore(place)
    put(store, f"{DATA}/2026-11-21T13/{FinishedName('s', 0, len(data)).name}", data + index)
    return store.uri


def run(*words: str) -> tuple[int, Any]:
    done = CliRunner().invoke(app, list(words))
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return done.exit_code, lines[0] if len(lines) == 1 else lines


def test_a_folder_is_verified_and_read(tmp_path: Path) -> None:
    uri = folder(tmp_path / "a", 0, 1, 1, 2)
    code, found = run("direct", "verify", uri, "--json")
    assert (code, found["batches"], found["repeats"], found["samples"]) == (0, 3, 1, 15)
    code, rows = run("direct", "read", uri, "--limit", "7")
    assert code == 0
    assert len(rows) == 7
    assert {row["source"] for row in rows} == {"src"}
    file = next((tmp_path / "a" / DATA).rglob("*.batches"))
    file.write_bytes(file.read_bytes()[:200])
    code, found = run("direct", "verify", uri, "--json")
    assert (code, len(found["damaged"])) == (1, 1)
    assert run("direct", "verify", "s3://x")[0] == 2


def test_stores_of_several_sites_are_compared(tmp_path: Path) -> None:
    near, far = folder(tmp_path / "n", 0, 1), folder(tmp_path / "f", 2, 3)
    code, found = run("sites", "verify", f"near=batches:{near}", f"far=batches:{far}", "--json")
    assert (code, found["union"], found["read"], found["missing"]) == (0, 4, ["near", "far"], {})
    both = folder(tmp_path / "b", 1, 2)
    code, found = run("sites", "verify", f"near=batches:{near}", f"both=batches:{both}", "--json")
    assert (code, found["once"], found["read"]) == (1, False, [])
    assert "near" in found["problem"]
    whole = folder(tmp_path / "w", 0, 1, 2, 3)
    code, found = run("sites", "verify", f"near=batches:{near}", f"whole=batches:{whole}", "--json")
    assert (code, found["read"]) == (0, ["whole"]), "mirrored: only the complete store is read"
    assert run("sites", "verify", "near")[0] == 2
