"""24 hours of a sample a minute from the raw table on a local HDFS, cut into buckets by Spark and reduced.

Seconds from the text to the answer, which is compared with the stored samples. `query.history`: about a thousand
series, a new engine in a running Spark session; `@first`: the first such answer. `@cold`: including the start of the
session. `@local`: read in this process. `@large`: ten thousand series.

python -m benchmarks.query_history [--large]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt

from artimon.model.clock import SYSTEM_CLOCK
from artimon.stack.stack import Stack
from benchmarks.common import emit, say
from benchmarks.limits import AT_MEMORY_SPEED, SAMPLE_BYTES, emit_limit, read_rate
from benchmarks.storing import walk
from query_dsl import Matrix, evaluate, parse
from query_dsl.stores.history.engine import Engine, History
from query_dsl.stores.history_store import HistoryStore

DAY_MS, STEP_MS = 86_400_000, 900_000
NAMED, LARGE = 1_000, 10_000
TURNS = 3
BASE_PORT = 23900


class WrongHistory(RuntimeError):
    """An answer differs from the stored samples."""


def text_of(made: walk.Walk) -> str:
    """Return the query: the 95th percentile, over the series of a host, of their means of 15 minutes."""
    end = made.start_ms + DAY_MS
    return f"fetch('{walk.NAME}').bucketize('mean', '15m').quantile(0.95, by=['host']).between({made.start_ms}, {end})"


def expected(made: walk.Walk) -> npt.NDArray[np.float64]:
    """Return the expected answer: (hosts, buckets)."""
    buckets, out = DAY_MS // STEP_MS, []
    for source in range(-(-made.named // walk.SERIES)):
        place = -(-(made.times_ms[source] - made.start_ms) // STEP_MS) - 1
        inside = (place >= 0) & (place < buckets)
        mine = made.values[source, : made.named - source * walk.SERIES][:, inside].astype(np.float64)
        starts = np.flatnonzero(np.diff(place[inside], prepend=-1))
        means = np.add.reduceat(mine, starts, axis=1) / np.diff(np.append(starts, mine.shape[1]))
        out.append(np.quantile(means, 0.95, axis=0))
    return np.array(out)


def ask(history: History, made: walk.Walk, engine: Engine, right: npt.NDArray[np.float64]) -> float:
    """Return the seconds of one answer. Raises WrongHistory."""
    began = time.perf_counter()
    found: Matrix = evaluate(parse(text_of(made)), HistoryStore(history, engine=engine), SYSTEM_CLOCK.now_ms())
    took = time.perf_counter() - began
    values = found.column.cells.view(np.float64)
    if values.shape != right.shape or not found.present.all() or not np.allclose(values, right, rtol=1e-9, atol=0.0):
        raise WrongHistory(f"{engine}: an answer of shape {values.shape} is not what was stored")
    return took


def measure(hdfs: str, named: int, mark: str) -> None:
    """Measure the lines of `named` series; those of a thousand begin with the start of Spark."""
    midnight = SYSTEM_CLOCK.now_ms() // DAY_MS * DAY_MS - 2 * DAY_MS
    made = walk.make_walk(midnight, -(-named // walk.SERIES), named)
    say(f"history: appending {made.samples:,} samples")
    walk.fill(hdfs, made, polls_a_file=60)  # one file an hour, as the hourly step leaves them
    right, samples = expected(made), named * made.polls
    unit = f"s ({samples:,} samples of {named:,} series, 24 h to buckets of 15 minutes, from text to answer)"
    with ExitStack() as open_:
        first = open_.enter_context(History(hdfs))  # it owns the session
        cold = ask(first, made, "spark", right)
        for engine, line in (("spark", "query.history"), ("local", "query.history@local")):
            took = [ask(open_.enter_context(History(hdfs)), made, engine, right) for _ in range(TURNS)]  # type: ignore[arg-type]
            emit(_marked(line, mark), statistics.median(took), unit)
            least = samples * SAMPLE_BYTES / read_rate()
            emit_limit(_marked(line, mark), statistics.median(took), least, f"s ({AT_MEMORY_SPEED})", more=False)
            if engine == "spark":
                emit(_marked(f"{line}@first", mark), took[0], f"{unit}, the first question in a session that runs")
        emit(_marked("query.history@cold", mark), cold, f"{unit}, Spark is started for it")


def _marked(line: str, mark: str) -> str:
    name, _, variant = line.partition("@")
    variants = [one for one in (mark, variant) if one]
    return f"{name}@{'.'.join(variants)}" if variants else name


def run(args: Sequence[str], base_port: int = BASE_PORT) -> None:
    """Run the command line; the module describes it."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="benchmarks.query_history", description=__doc__, formatter_class=form)
    parser.add_argument("--large", action="store_true", help="ten thousand series too")
    parser.add_argument("--base-port", type=int, default=base_port)
    options = parser.parse_args(args)
    folder = Path(tempfile.mkdtemp(prefix="artimon-bench-"))
    try:
        with Stack(folder / "stack", ["hdfs"], base_port=options.base_port) as stack:
            measure(f"{stack.hdfs}/usual", NAMED, "")
            if options.large:
                measure(f"{stack.hdfs}/large", LARGE, "large")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    run(sys.argv[1:])
