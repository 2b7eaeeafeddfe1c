"""One shard in a process of its own: `python -m tests.varstore.shard_process CONFIG`, in JSON. "dies_in_refill": the
batch of rows of the raw table before which it kills itself with SIGKILL; "notice_s": interval at which it checks the
table."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from tests.crashing import kill_at
from varstore.cluster import gap_repair as healing
from varstore.shard_process import ShardConfig, run_shard
from varstore.snapshot.raw_row_loader import RawRowLoader


def die_in_refill(nth: int) -> None:
    """Kill the process before the nth batch of rows is applied."""
    probe, apply = kill_at("rows", nth), RawRowLoader.apply

    def probed(rows: RawRowLoader, batch: Any) -> None:
        probe("rows")
        apply(rows, batch)

    RawRowLoader.apply = probed  # type: ignore[method-assign, assignment]


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("kafka").setLevel(logging.ERROR)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    plain = json.loads(sys.argv[1])
    if nth := plain.pop("dies_in_refill", 0):
        die_in_refill(nth)
    if (notice_s := plain.pop("notice_s", None)) is not None:
        healing.REPAIR_DELAY_S = healing.TABLE_CHECK_S = notice_s
    plain |= {name: Path(plain[name]) for name in ("health", "data") if plain.get(name)}
    run_shard(ShardConfig(**plain), stop)


if __name__ == "__main__":
    main()
