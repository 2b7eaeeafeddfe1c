"""Read the history in a separate process: seconds of the first answer and of the best later one.

python -m benchmarks.storing.reading HDFS SELECTOR FROM_MS TO_MS SAMPLES SUM
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence

import pyarrow.compute as pc

from benchmarks.peers.series import Content
from query_dsl.stores.history.engine import History

TURNS = 3
TIMEOUT_S = 900.0


def read(hdfs: str, selector: str, start_ms: int, end_ms: int, expected: Content) -> tuple[float, float]:
    """Run this module in a separate process; return the two times. Raises RuntimeError."""
    command = [sys.executable, "-m", "benchmarks.storing.reading", hdfs, selector]
    done = subprocess.run(
        [*command, str(start_ms), str(end_ms), str(expected.samples), str(expected.total)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"reading {selector} failed: {done.stderr[-500:]}")
    first, best = json.loads(done.stdout)
    return first, best


def main(given: Sequence[str]) -> None:
    hdfs, selector, start, end, samples, total = given
    took = []
    for _ in range(TURNS):
        began = time.perf_counter()
        with History(hdfs) as history:
            answer = history.read(selector, int(start), int(end), samples=int(samples), engine="local")
        took.append(time.perf_counter() - began)
        if len(answer) != int(samples):
            raise RuntimeError(f"{len(answer)} of {samples} samples came")
        found = pc.sum(answer.to_arrow().column("integer")).as_py()
        if found != int(total):
            raise RuntimeError(f"the sum of the samples is {found}, not {total}")
        del answer  # frees the memory before the next read
    print(json.dumps([took[0], min(took[1:])]))


if __name__ == "__main__":
    main(sys.argv[1:])
