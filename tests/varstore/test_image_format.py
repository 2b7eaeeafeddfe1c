"""The page docs/formats/image.md, the golden bytes and the code agree."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pyarrow as pa

from artimon.model.vshards import ALL_VSHARDS
from tests.varstore.keeping import ALL, Log, catch_up, check, empty, random_log
from varstore.snapshot.manifest import Manifest
from varstore.store.snapshot_frames import SnapshotFrame, decode_frame, read_frames

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "image"
MANIFEST = Manifest(
    1_800_000_000_123,
    "3",
    ALL_VSHARDS,
    1_800_000_000_123,
    "state-1-a.img",
    ("series-0-a.img",),
    {(60_000, 30_000_000): "row-60000-30000000-0-a.img"},
    {"state-1-a.img": 10, "series-0-a.img": 20, "row-60000-30000000-0-a.img": 30},
)


def log() -> Log:
    """Return the log whose shard the golden image holds: all types, incarnations, ends."""
    return random_log(random.Random(5), 50)


def golden() -> list[bytes]:
    """Return the parts of the golden image."""
    data, parts = (GOLDEN / "image.img").read_bytes(), []
    while data:
        size = 16 + int.from_bytes(data[4:8], "little")
        parts.append(data[:size])
        data = data[size:]
    return parts


def test_golden_bytes_are_still_read() -> None:
    """The golden file was written by the first version."""
    shard = empty(0)
    shard.adopt(ALL, golden())
    check(shard, log(), ALL)
    assert Manifest.from_bytes((GOLDEN / "manifest.json").read_bytes(), "golden") == MANIFEST


def documented_kinds() -> dict[str, dict[str, str]]:
    """Return the kinds and columns of the page; types are compared with the encoded columns."""
    page = (ROOT / "docs" / "formats" / "image.md").read_text()
    section = page.split("## 2.")[1].split("## 3.")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| `")]
    return {row[1].strip(" `"): {"meta": row[2], "columns": row[3]} for row in rows}


def test_encoded_columns_match_the_page() -> None:
    """Every kind and column of a real image is on the page, and the order is that of the page."""
    shard = empty()
    catch_up(shard, log())
    export = shard.ownership.export(ALL)
    parts = list(export)
    export.close()
    kinds: list[str] = []
    pages = documented_kinds()
    for frame in map(decode_frame, parts):
        kinds.append(frame.kind)
        for name in frame.columns:
            shown = name if not name.startswith("codes:") else "codes:<label>"
            assert f"`{shown}`" in pages[frame.kind]["columns"], (frame.kind, name)
        for name in frame.meta:
            assert f"`{name}`" in pages[frame.kind]["meta"], (frame.kind, name)
    assert set(kinds) == set(pages)
    order = [kind for kind in pages if kind not in ("values", "series")]
    firsts = [kind for kind in dict.fromkeys(kinds) if kind not in ("values", "series")]
    assert firsts == order


def test_column_types_of_the_image_are_stable() -> None:
    """Types of columns that readers in other languages rely on."""
    frames = {frame.kind: frame for frame in map(decode_frame, golden())}
    types = {name: str(pa.array(column).type) for name, column in frames["row"].columns.items() if name != "text"}
    assert types == {
        "slot": "uint32",
        "count": "uint32",
        "last": "int64",
        "offset": "uint32",
        "min": "int64",
        "max": "int64",
        "sum": "int64",
    }


def test_files_hold_the_same_frames() -> None:
    """A file is the concatenation of the frames."""
    parts = golden()
    found = list(read_frames([("here", lambda: io.BytesIO(b"".join(parts)))]))
    assert [frame.kind for frame in found] == [decode_frame(part).kind for part in parts]
    assert all(isinstance(frame, SnapshotFrame) for frame in found)
