"""PromQL over HTTP and remote write, beside VictoriaMetrics and Prometheus.

The queries and samples are those of `benchmarks.query`, asked in PromQL of all sides by `query_range`. Answers are
compared before a line is printed, within 1e-9; rates of VictoriaMetrics, which extrapolates otherwise, within 5 %, and
so `promql.3days`, whose increases come from buckets of an hour, because memory holds raw samples of an hour only.

`promql.remote_write` is measured by `benchmarks.serving.write_rate`.

python -m benchmarks.promql [--series N] [--only NAME] [--no-peers]
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from artimon.api.api_limits import ApiLimits
from artimon.model.grid import Grid
from benchmarks.common import Parts, emit, fail, say
from benchmarks.limits import emit_echo
from benchmarks.loads.queries import QueryWorld
from benchmarks.peers.series import Peer
from benchmarks.query import (
    HOST,
    MINUTES,
    QUESTIONS,
    RATES,
    ROUNDS,
    SERIES,
    SINGLE_ROUNDS,
    Question,
    ask_peer,
    end_ms,
    median_ms,
    news,
)
from benchmarks.serving.racks import Got, Served, get_of_peer
from benchmarks.serving.write_rate import measure_remote_write
from benchmarks.storage import find_peers

ASKED = tuple(question for question in QUESTIONS if "@" not in question.name)
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
CLOSE = 1e-9
LIMITS = ApiLimits(series=2 * SERIES, cells_read=60_000_000, query_s=120.0)
BASE_PORT = 23900
_METRIC = re.compile(r"\b(bench|disk)_(\w+)(?:\{\{(.*?)\}\})?")


def our_text(question: Question) -> str:
    """Return a template of the query on our names, with the placeholder {new} in its selectors."""
    return _METRIC.sub(
        lambda found: f'{{{{"{found[1]}.{found[2]}",{{new}}{"," + found[3] if found[3] else ""}}}}}', question.theirs
    )


def grid_of(question: Question, last_ms: int) -> Grid:
    """Return the steps of a query, which memory holds with the windows before them."""
    if question.name == "3days":
        return Grid(last_ms, HOUR_MS, 71)
    return Grid(last_ms, MINUTE_MS, 60 if "[" not in question.theirs else 50)


def paths(question: Question, last_ms: int) -> list[str]:
    """Return the paths of distinct queries to us."""
    grid = grid_of(question, last_ms)
    start, end, step = (grid.start_ms + grid.step_ms) // 1000, last_ms // 1000, grid.step_ms // 1000
    rounds = SINGLE_ROUNDS if question.single else ROUNDS
    texts = question.texts(our_text(question), news(), rounds)
    return [f"/api/v1/query_range?query={quote(text)}&start={start}&end={end}&step={step}" for text in texts]


def as_matrix(answer: dict[str, Any], question: Question, last_ms: int) -> dict[str, Any]:
    """Return an answer of `query_range` in the form of /api/query, for the comparison with peers."""
    grid = grid_of(question, last_ms)
    places = {end // 1000: i for i, end in enumerate(grid.ends().tolist())}
    rows = []
    for one in answer["data"]["result"]:
        values: list[float | None] = [None] * grid.n
        for time_s, text in one["values"]:
            values[places[int(time_s)]] = float(text)
        rows.append({"labels": one["metric"], "values": values})
    shown = {"start_ms": grid.start_ms, "end_ms": last_ms, "step_ms": grid.step_ms}
    return {"grid": shown, "series": rows}


def tolerance(question: Question, peer: Peer) -> float:
    """Return the relative difference of equal values: VictoriaMetrics extrapolates rates otherwise."""
    differs = question.name == "3days" or ("rate" in question.theirs and peer.name != "prometheus")
    return RATES if differs else CLOSE


def measure_queries(
    folder: Path, series: int, wanted: Sequence[Question], peers: bool, base_port: int, parts: Parts
) -> None:
    """Measure one line a query and peer."""
    long = any(question.name == "3days" for question in wanted)
    world = QueryWorld(series, MINUTES, end_ms(), long=long)
    made = partial(QueryWorld, series, MINUTES, world.end_ms, long=long)
    ours: dict[str, Got] = {}
    with Served(world, folder / "ours", base_port, made, LIMITS) as served:
        for question in wanted:
            say(f"ours: {question.name}")
            got = get_of_peer(served.address, paths(question, world.end_ms))
            ours[question.name] = replace(got, answer=as_matrix(got.answer, question, world.end_ms))
    theirs: dict[str, dict[str, Got]] = {question.name: {} for question in wanted}
    wrong: dict[str, str] = {}
    for peer in find_peers(folder / "peers", "promql") if peers and wanted else []:
        asked = [replace(one, within=tolerance(one, peer)) for one in wanted]
        parts.run(f"peer.{peer.name}.promql", partial(ask_peer, peer, world, asked, ours, theirs, wrong, "promql"))
    for question in wanted:
        if question.name in wrong:
            parts.failed += 1
            fail(f"promql.{question.name}", wrong[question.name])
            continue
        took = {name: median_ms(got) for name, got in theirs[question.name].items()}
        ms = median_ms(ours[question.name])
        best = min(took, key=lambda name: took[name], default=None)
        unit = f"ms ({question.theirs.format(host=HOST, new='')}; {series:,} series, HTTP to the last byte of JSON)"
        emit(f"promql.{question.name}", ms, unit, best, took[best] / ms if best else None)
        emit_echo(f"promql.{question.name}", ms, ours[question.name].size)
        for name, peer_ms in took.items():
            emit(f"peer.{name}.promql.{question.name}", peer_ms, unit, name, peer_ms / ms)


def run(args: Sequence[str]) -> None:
    """Run the command line; the module describes it."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="benchmarks.promql", description=__doc__, formatter_class=form)
    names = [question.name for question in ASKED]
    parser.add_argument("--series", type=int, default=SERIES)
    parser.add_argument("--only", action="append", choices=[*names, "remote_write"])
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--base-port", type=int, default=BASE_PORT)
    options = parser.parse_args(args)
    folder, parts = Path(tempfile.mkdtemp(prefix="artimon-bench-")), Parts()
    only = set(options.only or (*names, "remote_write"))
    wanted = [question for question in ASKED if question.name in only]
    measure = partial(measure_queries, folder, options.series, wanted, not options.no_peers, options.base_port, parts)
    try:
        if "remote_write" in only:
            write = partial(measure_remote_write, folder, not options.no_peers, options.base_port)
            parts.run("promql.remote_write", write)
        if wanted:
            parts.run("promql.queries", measure)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    parts.finish()


if __name__ == "__main__":
    run(sys.argv[1:])
