"""Questions about a month and a year from roll-ups, beside VictoriaMetrics with the same samples on disk.

`history.30d`: sum by rack of the increase in each hour of 30 days of 3,000 counters polled every minute, 130 million
samples. `history.365d`: mean of each day of a year of 1,000 gauges, 526 million samples. Seconds from the text to the
answer, which is compared with the stored samples; the best of several in a running process, in turn with the peer.
`@cold`: the first answer of a new process, the best of as many; `@parts`: asked again of a process that has the closed
days in its cache on disk. The peer's line is with its cache of results off, `@cached` with it on: a question asked
before.
`history.rollup`: samples a second that the compactor rolls up. `history.bytes`: bytes of samples and roll-ups in
relation to those of samples alone, for two days of the counters, in a closed month, with the levels of the default and
the month file; `@mixed`: for the recorded hour of a whole stack; `@5m`: with the level of 5 min, too.
`history.find`: seconds to find one series among all ever seen, by name and pod, in a table of 10 million series of pods
that lived for two days each; `@pod`: the 100 series of a pod, of any name; `@node`: those of one name and node. The
peer's lines are the same questions to /api/v1/series. `limit.history.find` reads the bytes of the row groups that hold
the series once.
`history.import`: samples a second that `artimon history import` stores on HDFS, reads back and commits, of two days of
the counters as the peer exports them, one process, tables that do not exist before. The peer's line is its import of
the same lines, from memory, until they can be read: then a part of them is in its memory alone, and lost if it is
killed; `@stored` is until it has stopped, which writes them to its local disk.

Fewer days or series are a variant: `history.30d@7days`, `history.30d@7days,cold`, `history.find@1000000,pod`.

artimon bench history [--days 30] [--hosts 30] [--year-days 365] [--year-hosts 10] [--series 10000000]
                      [--only 30d|365d|bytes|import|find]... [--no-peers]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import numpy.typing as npt

from artimon.cli.history_import import ImportJob
from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.select import NAME, Matcher
from artimon.model.values import Kind
from artimon.rawtable.commit import CompactionLog
from artimon.rawtable.parquet_reader import GroupReader
from artimon.rawtable.rollups import LEVELS_MS, RollupTable
from artimon.rawtable.schema import raw_uri
from artimon.rawtable.series_delta import SeriesTable
from artimon.rawtable.term_index import MIN_INDEXED_ROWS, TermIndex, index_path, term_of
from artimon.runtime.file_access import read_file
from artimon.stack.stack import Stack
from benchmarks.common import Parts, emit, fail, say
from benchmarks.limits import AT_MEMORY_SPEED, emit_limit, fetched_s, folded_rate, imported_rate, read_rate
from benchmarks.peers.process import drain
from benchmarks.peers.victoria import Victoria, export_line
from benchmarks.storage import find_peers
from benchmarks.storing import churn, recorded, table, years
from pipeline.compaction.month_merger import OPEN_MS, MonthMerger
from pipeline.compaction.rollup_job import RollupRunner
from pipeline.compaction.rollup_plan import RollupRetention, plan_rollups
from query_dsl import Matrix, evaluate, parse
from query_dsl.stores.closed_parts import ClosedParts
from query_dsl.stores.history.engine import History
from query_dsl.stores.history_catalogue import HistoryCatalogue
from query_dsl.stores.history_store import HistoryStore
from tests.compaction.builder import DAY_MS

BASE_PORT = 34_500
HOUR_MS = 3_600_000
TURNS = 3
IMPORT_DAYS = 2
MONTH_DAYS, YEAR_DAYS = 30, 365
BYTES_DAYS = 2
"""Days of `history.bytes`: the fewest that a month file copies. More of them take fewer bytes a day."""
LIMIT_DAYS = 4
"""Days for which the limit of `history.rollup` is measured."""
ROW_BYTES = 24
"""Bytes of a decoded row of roll-ups: three numbers."""
ALL_LEVELS = {(level, "*"): None for level in LEVELS_MS}
ALL_SERIES = 10_000_000
FIND_TURNS = 9
PARTS = ("30d", "365d", "bytes", "import", "find")
FAST_LEVEL = 1
"""Level of zstd of samples that no question reads."""
Floats = npt.NDArray[np.float64]


class WrongHistory(RuntimeError):
    """An answer differs from the stored samples."""


def variant(line: str, *words: str) -> str:
    """Return the name of a line with variants."""
    named = [word for word in words if word]
    return line if not named else f"{line}{',' if '@' in line else '@'}{','.join(named)}"


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a load, for both engines, and the exact answer."""

    line: str
    text: str
    promql: str
    level: str
    step_ms: int
    expected: Floats
    """(series, points)."""
    first: int
    """Points before it have no predecessor and are not compared."""


def increases(load: years.Load) -> Question:
    """Return the question about the increase in each hour by rack, in the order of the racks."""
    hours = load.days * 24
    ends = load.start_ms + np.arange(hours + 1) * HOUR_MS
    totals = np.zeros((years.RACKS, hours))
    for host in range(load.hosts):
        place = np.searchsorted(load.times_ms[host], ends, side="right") - 1
        values = load.values[host * years.OF_HOST : (host + 1) * years.OF_HOST].astype(np.int64).sum(axis=0)
        totals[host % years.RACKS] += np.diff(np.where(place >= 0, values[place], 0))
    text = f"fetch('{load.name}').increase('1h').sum(by=['rack']).between({load.start_ms}, {load.end_ms})"
    promql = f"sum by (rack) (increase({load.name.replace('.', '_')}[1h]))"
    line = variant("history.30d", "" if load.days == MONTH_DAYS else f"{load.days}days")
    return Question(line, text, promql, "1h", HOUR_MS, totals[: min(load.hosts, years.RACKS)], 1)


def means(load: years.Load) -> Question:
    """Return the question about the mean of each day, in the order of the labels."""
    ends = load.start_ms + np.arange(load.days + 1) * DAY_MS
    rows = []
    for host in range(load.hosts):
        place = np.searchsorted(load.times_ms[host], ends, side="right")
        values = load.values[host * years.OF_HOST : (host + 1) * years.OF_HOST].astype(np.float64)
        rows.append(np.add.reduceat(values, place[:-1], axis=1) / np.diff(place))
    text = f"fetch('{load.name}').bucketize('mean', '1d').between({load.start_ms}, {load.end_ms})"
    line = variant("history.365d", "" if load.days == YEAR_DAYS else f"{load.days}days")
    return Question(
        line, text, f"avg_over_time({load.name.replace('.', '_')}[1d])", "1d", DAY_MS, np.concatenate(rows), 0
    )


def ask(store: HistoryStore, question: Question) -> float:
    """Return the seconds of one answer. Raises WrongHistory."""
    began = time.perf_counter()
    found: Matrix = evaluate(parse(question.text), store, SYSTEM_CLOCK.now_ms())
    took = time.perf_counter() - began
    values = np.array([found.tolist(row) for row in range(len(found.series))], np.float64)[:, question.first :]
    right = question.expected[:, question.first :]
    if values.shape != right.shape or not np.allclose(values, right, rtol=1e-9, atol=0.0):
        raise WrongHistory(f"{question.line}: an answer of shape {values.shape} is not what was stored")
    if not any(f"buckets of {question.level}" in note for note in found.notes):
        raise WrongHistory(f"{question.line} was not answered from roll-ups of {question.level}: {found.notes}")
    return took


def ask_in_new_process(hdfs: str, question: Question) -> float:
    """Return the seconds of the first answer of a new process, after its imports."""
    code = (
        "import json, sys, time\n"
        "from artimon.runtime.process_setup import set_up_libraries\n"
        "from query_dsl import evaluate, parse\n"
        "from query_dsl.stores.history.engine import History\n"
        "from query_dsl.stores.history_store import HistoryStore\n"
        "set_up_libraries()\n"
        "with History(sys.argv[1]) as history:\n"
        "    began = time.perf_counter()\n"
        "    evaluate(parse(sys.argv[2]), HistoryStore(history, engine='local'), int(time.time() * 1000))\n"
        "    print(json.dumps(time.perf_counter() - began))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, hdfs, question.text], capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode:
        raise WrongHistory(f"{question.line}: a new process fails: {done.stderr[-500:]}")
    return float(json.loads(done.stdout))


def ask_peer(url: str, load: years.Load, question: Question, cached: bool) -> float:
    """Return the seconds of the peer's answer over HTTP."""
    told = {
        "query": question.promql,
        "start": (load.start_ms + question.step_ms) / 1000,
        "end": load.end_ms / 1000,
        "step": question.step_ms / 1000,
    }
    took, parts = drain(f"{url}/api/v1/query_range?{urlencode(told if cached else {**told, 'nocache': 1})}")
    answer = json.loads(b"".join(parts))
    if len(answer["data"]["result"]) != len(question.expected):
        raise WrongHistory(f"the peer gives {len(answer['data']['result'])} series for {question.promql}")
    return took


def roll_up_all(hdfs: str, retention: RollupRetention) -> tuple[float, int]:
    """Write the roll-ups and month files that lack; return samples a second and the number of samples."""
    log, rollups = CompactionLog(hdfs), RollupTable(hdfs)
    log.refresh()
    rollups.refresh()
    runner = RollupRunner(rollups, raw_uri(hdfs))
    done = [runner.run(job) for job in plan_rollups(log.live(), rollups.live(), retention, 0)]
    rollups.refresh()
    MonthMerger(rollups.uri, lambda: None).update(rollups.live(), SYSTEM_CLOCK.now_ms())
    samples = sum(one.samples for one in done)
    return samples / sum(one.seconds for one in done), samples


def measure(
    hdfs: str,
    folder: Path,
    peers: Sequence[Victoria],
    load: years.Load,
    question_of: Callable[[years.Load], Question],
) -> None:
    """Measure the lines of one load."""
    question = question_of(load)
    say(f"{question.line}: {load.samples:,} samples of {len(load.values):,} series into the raw table")
    years.fill(hdfs, load, FAST_LEVEL)
    say(f"{question.line}: rolling up")
    pace, samples = roll_up_all(hdfs, RollupRetention())
    if question.step_ms == HOUR_MS:
        emit("history.rollup", pace, f"samples/s of {samples:,}, the levels of the default, one process")
        log = CompactionLog(hdfs)
        log.refresh()
        days = [read_file(f"{log.uri}/{file.path}") for file in log.live()[:LIMIT_DAYS]]
        emit_limit("history.rollup", pace, folded_rate(days), "samples/s (decoded, reduced to hours, all cores)")
    unit = f"s ({samples:,} samples of {len(load.values):,} series, {load.days} days; {question.promql})"
    asked: Sequence[Victoria | None] = peers or [None]
    for peer in asked:
        if peer is not None:
            say(f"{question.line}: {peer.name} stores the same")
            peer.store(load.peer_series())
        took = ask_in_turns(hdfs, folder, load, question, peer)
        emit_turns(question.line, unit, took, peer.name if peer else None)
        emit_turn_limits(hdfs, question, took)
    shutil.rmtree(folder, ignore_errors=True)


def ask_in_turns(
    hdfs: str, folder: Path, load: years.Load, question: Question, peer: Victoria | None
) -> dict[str, float]:
    """Return the least seconds of each kind of answer. Both engines answer in turn: they meet the same load of the
    machine. Raises WrongHistory."""
    took: dict[str, list[float]] = {}

    def keep(kind: str, seconds: float) -> None:
        took.setdefault(kind, []).append(seconds)

    for _ in range(TURNS):
        keep("cold", ask_in_new_process(hdfs, question))
        if peer:
            with peer.serve() as url:
                keep("peer cold", ask_peer(url, load, question, False))
    with History(hdfs) as history, peer.serve() if peer else nullcontext("") as url:
        store = HistoryStore(history, engine="local")
        with_parts = HistoryStore(history, engine="local", parts=ClosedParts(folder / "parts"))
        for turn in range(TURNS + 1):
            if turn == 1:  # the first has filled the caches
                took = {kind: took[kind] for kind in took if kind.endswith("cold")}
            keep("warm", ask(store, question))
            keep("parts", ask(with_parts, question))
            if peer:
                keep("peer warm", ask_peer(url, load, question, False))
                keep("peer cached", ask_peer(url, load, question, True))
    for kind, seconds in took.items():
        say(f"{question.line} {kind}: {', '.join(f'{one:.3f}' for one in seconds)} s")
    return {kind: min(seconds) for kind, seconds in took.items()}


def emit_turns(line: str, unit: str, took: Mapping[str, float], peer: str | None) -> None:
    """Print the lines of one question; `took` is that of `ask_in_turns`."""

    def ratio(kind: str, of: str) -> float | None:
        return took[f"peer {kind}"] / took[of] if peer else None

    cold, parts, cached = "the first in a new process", "closed days cached", "asked before"
    emit(line, took["warm"], unit, peer, ratio("warm", "warm"))
    emit(variant(line, "cold"), took["cold"], f"{unit}, {cold}", peer, ratio("cold", "cold"))
    emit(variant(line, "parts"), took["parts"], f"{unit}, {parts}", peer, ratio("cached", "parts"))
    if peer:
        theirs = f"peer.{peer}.{line}"
        emit(theirs, took["peer warm"], f"{unit}, without its cache of results", peer)
        emit(variant(theirs, "cold"), took["peer cold"], f"{unit}, {cold}", peer)
        emit(variant(theirs, "cached"), took["peer cached"], f"{unit}, {cached}", peer, ratio("cached", "warm"))


def emit_turn_limits(hdfs: str, question: Question, took: Mapping[str, float]) -> None:
    """Print the limits of a warm and of a cold answer."""
    rollups = RollupTable(hdfs)
    rollups.refresh()
    files = [file for file in rollups.live() if file.level_ms == question.step_ms]
    least = sum(file.rows for file in files) * ROW_BYTES / read_rate()
    emit_limit(question.line, took["warm"], least, f"s (its roll-ups, decoded, {AT_MEMORY_SPEED})", more=False)
    least = fetched_s([f"{rollups.uri}/{file.path}" for file in files])
    emit_limit(variant(question.line, "cold"), took["cold"], least, "s (its roll-ups fetched once)", more=False)


def measure_bytes(hdfs: str, folder: Path, hosts: int) -> None:
    """Measure the bytes of days of counters, and of the recorded hour, compacted as a day."""
    load = years.make_load(folder, "load.requests", Kind.COUNTER, _closed_month(), BYTES_DAYS, hosts)
    years.fill(f"{hdfs}/counters", load)
    _emit_bytes("history.bytes", f"{hdfs}/counters")
    hdfs = f"{hdfs}/mixed"
    recorded.fill(hdfs, _midnight(2))
    table.compact(hdfs, folder, days=True)
    _emit_bytes("history.bytes@mixed", hdfs)


def measure_import(hdfs: str, folder: Path, peers: Sequence[Victoria], hosts: int) -> None:
    """Measure an import, and compare the number of stored samples."""
    load = years.make_load(folder, "load.requests", Kind.COUNTER, _midnight(4), IMPORT_DAYS, hosts)
    file = folder / "export.jsonl"
    with file.open("wb") as out:
        out.writelines(map(export_line, load.peer_series()))
    began = time.perf_counter()
    result, _ = ImportJob.of(file, None, None, source="import", keep="default", hdfs=hdfs, data=folder).run()
    pace = load.samples / (time.perf_counter() - began)
    if result.samples != load.samples:
        raise WrongHistory(f"{result.samples:,} of {load.samples:,} samples were imported")
    unit = f"samples/s of {load.samples:,} of {len(load.values):,} series, from its export to HDFS"
    least = imported_rate(file, folder)
    emit_limit("history.import", pace, least, "samples/s (lines decoded, written as Parquet, all cores)")
    for peer in peers:
        readable, stored = (load.samples / seconds for seconds in peer.load(load.peer_series()))
        line, same = f"peer.{peer.name}.history.import", f"samples/s of the same, {os.cpu_count()} cores"
        emit("history.import", pace, unit, peer.name, pace / readable)
        emit(line, readable, f"{same}, until they can be read", peer.name)
        emit(f"{line}@stored", stored, f"{same}, until all are on disk", peer.name, pace / stored)
    if not peers:
        emit("history.import", pace, unit)
    shutil.rmtree(folder, ignore_errors=True)


def measure_find(hdfs: str, peers: Sequence[Victoria], series: int) -> None:
    """Measure the search for series among all ever seen."""
    load = churn.Churn(series, _midnight(churn.YEAR_DAYS))
    began = time.perf_counter()
    size = load.fill(hdfs)
    say(f"history.find: {series:,} series, {size / series:.1f} bytes each, in {time.perf_counter() - began:.0f} s")
    pods = np.linspace(0, load.pods - 1, FIND_TURNS, dtype=int).tolist()
    metrics = [load.name(n) for n in range(FIND_TURNS)]
    line = variant("history.find", "" if series == ALL_SERIES else str(series))
    of_pod, of_node = variant(line, "pod"), variant(line, "node")
    asked: dict[str, list[tuple[tuple[str, str], ...]]] = {
        line: [((NAME, name), ("pod", load.pod_name(pod))) for name, pod in zip(metrics, pods, strict=True)],
        of_pod: [(("pod", load.pod_name(pod)),) for pod in pods],
        of_node: [((NAME, name), ("node", load.labels(pod)["node"])) for name, pod in zip(metrics, pods, strict=True)],
    }
    counts = {
        line: [1] * FIND_TURNS,
        of_pod: [churn.OF_POD] * FIND_TURNS,
        of_node: [len(range(pod % churn.NODES, load.pods, churn.NODES)) for pod in pods],
    }
    ours: dict[str, float] = {}
    catalogue = HistoryCatalogue(hdfs)
    for name, questions in asked.items():
        took = []
        for labels, count in zip(questions, counts[name], strict=True):
            began = time.perf_counter()
            found = catalogue.find(tuple(Matcher(label, "=", value) for label, value in labels))
            took.append(time.perf_counter() - began)
            if len(found) != count:
                raise WrongHistory(f"{name}: {len(found)} series of {labels}, not {count}")
        ours[name] = float(np.median(took))
        say(f"{name}: {', '.join(f'{one:.3f}' for one in took)} s")
    unit = f"s, median of {FIND_TURNS} searches among {series:,} series ever seen"
    limit = float(np.median([_read_once(hdfs, labels) for labels in asked[line]]))
    emit_limit(line, ours[line], limit, f"{unit}: its row groups read once", more=False)
    theirs: dict[str, float] = {}
    for peer in peers:
        say(f"history.find: {peer.name} stores the same series")
        peer.load(load.peer_series())
        with peer.serve() as url:
            for name, questions in asked.items():
                took = []
                for labels, count in zip(questions, counts[name], strict=True):
                    seconds, found_there = _find_at_peer(url, load, labels)
                    if found_there != count:
                        raise WrongHistory(f"{name}: {peer.name} finds {found_there} series of {labels}, not {count}")
                    took.append(seconds)
                theirs[name] = float(np.median(took))
                emit(f"peer.{peer.name}.{name}", theirs[name], f"{unit}, /api/v1/series", peer.name)
    for name, seconds in ours.items():
        if name in theirs:
            emit(name, seconds, unit, peers[0].name, theirs[name] / seconds)
        else:
            emit(name, seconds, unit)


def _find_at_peer(url: str, load: churn.Churn, labels: Sequence[tuple[str, str]]) -> tuple[float, int]:
    """Return the seconds of the peer's answer, and its number of series."""
    selector = ",".join(f'{label}="{value.replace(".", "_") if label == NAME else value}"' for label, value in labels)
    told = {"match[]": f"{{{selector}}}", "start": load.start_ms / 1000, "end": SYSTEM_CLOCK.now_ms() / 1000}
    took, parts = drain(f"{url}/api/v1/series?{urlencode(told)}")
    return took, len(json.loads(b"".join(parts))["data"])


def _read_once(hdfs: str, labels: Sequence[tuple[str, str]]) -> float:
    """Return the seconds to fetch the row groups that hold these series, without decoding."""
    table = SeriesTable(hdfs)
    wanted = [[term_of(label, value)] for label, value in labels]
    indexed = [file for file in table.live() if file.rows >= MIN_INDEXED_ROWS]
    held = [(file, TermIndex(GroupReader(f"{table.uri}/{index_path(file.path)}")).groups(wanted)) for file in indexed]
    began = time.perf_counter()
    for file, groups in held:
        if groups:
            reader = GroupReader(f"{table.uri}/{file.path}")
            for group in groups:
                reader.prefetch([group])
    return time.perf_counter() - began


def _emit_bytes(line: str, hdfs: str) -> None:
    """Roll up, and print the bytes of data files of both tables, and of month files, with the levels of the default and
    with all."""
    for name, retention in ((line, RollupRetention()), (variant(line, "5m"), RollupRetention(ALL_LEVELS))):
        _, samples = roll_up_all(hdfs, retention)
        rollups = RollupTable(hdfs)
        rollups.refresh()
        raw, made = table.size(hdfs).data, rollups.stored_bytes()
        unit = f"x the bytes of samples alone ({raw / samples:.3g} bytes a sample, roll-ups {made / samples:.3g})"
        emit(name, (raw + made) / raw, unit)


def _closed_month() -> int:
    """Return the first ms of the newest month that the compactor takes for closed."""
    last = datetime.fromtimestamp((SYSTEM_CLOCK.now_ms() - OPEN_MS) / 1000, UTC).replace(day=1) - timedelta(days=1)
    return int(datetime(last.year, last.month, 1, tzinfo=UTC).timestamp()) * 1000


def _midnight(days_ago: int) -> int:
    return SYSTEM_CLOCK.now_ms() // DAY_MS * DAY_MS - days_ago * DAY_MS


def _victoria(options: argparse.Namespace, folder: Path, line: str) -> list[Victoria]:
    if options.no_peers:
        return []
    found = [peer for peer in find_peers(folder, line) if isinstance(peer, Victoria)]
    if not found:
        fail(f"{line}@peer", "VictoriaMetrics is not here")
    return found


def _run_part(options: argparse.Namespace, folder: Path, part: str) -> None:
    with Stack(folder / f"stack-{part}", ["hdfs"], base_port=BASE_PORT) as stack:
        hdfs, values = f"{stack.hdfs}/{part}", folder / f"values-{part}"
        if part == "bytes":
            measure_bytes(hdfs, values, options.hosts)
        elif part == "import":
            measure_import(hdfs, values, _victoria(options, folder / part, "history.import"), options.hosts)
        elif part == "find":
            measure_find(hdfs, _victoria(options, folder / part, "history.find"), options.series)
        elif part == "30d":
            peers = _victoria(options, folder / part, "history.30d")
            start = _midnight(options.days + 1)
            load = years.make_load(values, "load.requests", Kind.COUNTER, start, options.days, options.hosts)
            measure(hdfs, values, peers, load, increases)
        else:
            peers = _victoria(options, folder / part, "history.365d")
            start = _midnight(options.year_days + 1)
            load = years.make_load(values, "load.depth", Kind.GAUGE, start, options.year_days, options.year_hosts)
            measure(hdfs, values, peers, load, means)
    shutil.rmtree(folder / f"stack-{part}", ignore_errors=True)


def run(args: Sequence[str]) -> None:
    """Run the command line; the module describes it."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="artimon bench history", description=__doc__, formatter_class=form)
    parser.add_argument("--days", type=int, default=MONTH_DAYS, help="days of history.30d")
    parser.add_argument("--hosts", type=int, default=30, help="hosts of history.30d, 100 series each")
    parser.add_argument("--year-days", type=int, default=YEAR_DAYS, help="days of history.365d")
    parser.add_argument("--year-hosts", type=int, default=10, help="hosts of history.365d")
    parser.add_argument("--series", type=int, default=ALL_SERIES, help="series of history.find")
    parser.add_argument("--only", choices=PARTS, action="append", help="omit the others; may be repeated")
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args(args)
    folder, parts = Path(tempfile.mkdtemp(prefix="artimon-bench-")), Parts()
    try:
        for part in PARTS:
            if part in (options.only or PARTS):
                parts.run(f"history.{part}.part", lambda part=part: _run_part(options, folder, part))  # type: ignore[misc]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    parts.finish()


if __name__ == "__main__":
    run(sys.argv[1:])
