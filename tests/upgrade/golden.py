"""Files of an earlier version, copied so that today's program may continue with them."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from artimon.model.batch import Batch
from artimon.model.fingerprint import fingerprint
from artimon.runtime import file_access as files
from pipeline.wal.epoch import host_identity
from tests.spark.helpers import Ledger
from tests.upgrade.make_golden import TEXTS, batch, values_of

V1 = Path(__file__).resolve().parents[1] / "golden" / "upgrade" / "v1"
ABOUT = json.loads((V1 / "about.json").read_text())
EPOCH = int(ABOUT["epoch"], 16)
BATCHES = 10


def log_in_place(place: Path) -> Path:
    """The agent's log, as it stands on its own machine: not a copy, as far as the log can tell."""
    folder = place / "log"
    shutil.copytree(V1 / "log", folder)
    path = folder / "epoch"
    said = json.loads(path.read_text())
    path.write_text(json.dumps({**said, "host": host_identity(), "inode": path.stat().st_ino}))
    return folder


def upload(hdfs: str) -> None:
    """The three tables, to an HDFS folder of one's own."""
    root = V1 / "tables"

    def one(path: Path) -> None:
        files.write_file(f"{hdfs}/artimon/{path.relative_to(root)}", path.read_bytes())

    with ThreadPoolExecutor(8) as pool:  # each file waits for its disk
        list(pool.map(one, (path for path in root.rglob("*") if path.is_file())))


def batches() -> list[tuple[Batch, int]]:
    """The batches that the log holds, made by today's program, and their append times."""
    return [batch(number, EPOCH) for number in range(BATCHES)]


def rows_of(numbers: range) -> Ledger:
    """Return the rows of these batches in the raw table."""
    rows: Ledger = Counter()
    for number in numbers:
        one, _ = batch(number, EPOCH)
        for text, value in zip(TEXTS, values_of(number), strict=True):
            rows[one.header.source, fingerprint(text), one.header.poll_ms, one.header.birth_ms, repr(value)] += 1
    return rows
