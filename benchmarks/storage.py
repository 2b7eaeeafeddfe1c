"""Bytes a sample on disk, and the time to read a day, beside VictoriaMetrics and Prometheus on the same samples.

`storage.mixed`: an hour of samples of a whole stack (host, JVMs, shop, itself) after the hourly compaction. If the
stack has collected a whole clock hour, as partitions are, the last one counts; else everything. `--recorded`: an hour
that was recorded once (benchmarks/storing/mix.parquet: values and times; names and labels are made up), which takes a
minute instead of an hour.
`storage.walk`: a day of integers that walk at random, after the daily compaction. Both count everything in the folder
of the raw table, its log and dead files too. `storage.read`: every sample of 10,000 series of one name, 24 h.

artimon bench storage [--minutes N | --from-stack FOLDER | --recorded] [--only mixed|walk] [--sources 7] [--no-peers]
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from artimon.model.clock import SYSTEM_CLOCK
from artimon.rawtable.announced_rows import merge_rows
from artimon.rawtable.schema import FILE_SCHEMA, raw_uri, series_uri
from artimon.rawtable.table_reader import read_raw
from artimon.runtime.settings import load as load_settings
from artimon.stack.port_leases import PortLeases
from artimon.stack.stack import Stack
from artimon.stack.stack_state import read_state
from benchmarks.common import Parts, emit, fail, say
from benchmarks.limits import AT_MEMORY_SPEED, SAMPLE_BYTES, emit_limit, entropy_bytes, read_rate
from benchmarks.peers.prometheus import Prometheus
from benchmarks.peers.series import Content, Peer, PeerSeries, Stored, series_of
from benchmarks.peers.victoria import Victoria
from benchmarks.storing import reading, recorded, table, walk
from pipeline.compaction.row_order import sort_rows
from scripts.programs import ProgramsMissing, ensure

BASE_PORT = 33_000
PEER_PORT = 33_900
READ_SERIES = 10_000
HOUR_MS = 3_600_000
LAST_APPEND_S = 150.0
UNIT = "bytes/sample"
Series = Callable[[], Iterable[PeerSeries]]


def find_peers(folder: Path, what: str) -> list[Peer]:
    """Return the peers whose programs are here or can be fetched; others become failed lines `peer.NAME.what`."""
    cache, found = load_settings().cache, list[Peer]()
    makers: list[tuple[str, tuple[str, ...]]] = [
        ("victoriametrics", ("victoria-metrics",)),
        ("prometheus", ("prometheus", "promtool")),
    ]
    leases = PortLeases()  # held until this process ends
    for name, programs in makers:
        try:
            held = ensure(programs, cache, say)
        except ProgramsMissing as problem:
            fail(f"peer.{name}.{what}", str(problem))
            continue
        place, port = folder / name, leases.lease(PEER_PORT)
        if name == "prometheus":
            found.append(Prometheus(held["prometheus"], held["promtool"], place, port))
        else:
            found.append(Victoria(held["victoria-metrics"], place, port))
    return found


@contextmanager
def collected(minutes: float | None, given: Path | None, folder: Path) -> Iterator[str]:
    """Yield the HDFS of a stack with samples: of a given folder, running or not, or of a new stack after `minutes`."""
    state = read_state(given) if given else None
    if state is not None and state.alive():
        yield state.addresses["ARTIMON_HDFS"]
    elif given is not None:
        with Stack(given, ["hdfs"], base_port=BASE_PORT) as stack:
            yield stack.hdfs
    else:
        with Stack(folder / "stack", ["all", "examples"], base_port=BASE_PORT) as stack:
            seconds = _until_full_hour() if minutes is None else minutes * 60
            say(f"a whole stack collects for {seconds / 60:.0f} minutes")
            time.sleep(seconds)
            yield stack.hdfs


def measure_mixed(hdfs: str, peers: Sequence[Peer], folder: Path) -> None:
    """Measure the lines of `storage.mixed`, from a copy of the tables of a stack."""
    copy = f"{hdfs}/bench-{uuid.uuid4().hex[:8]}"
    try:
        table.copy_tables(hdfs, copy)
        hour = table.only_full_hour(copy)
        say(f"mixed: {hour or 'no full hour: everything that was collected'}")
        before = table.appended_bytes(copy)
        table.compact(copy, folder, days=False)
        after = table.size(copy)
        rows = read_raw(raw_uri(copy))
        samples, about = len(rows), table.size(copy, "series").all + table.size(copy, "sources").all
        series = series_of(_sorted(rows), _texts(copy))
    finally:
        table.delete_folder(copy)
    say(f"mixed: {samples:,} samples of {len(series):,} series; data {after.data:,}, log {after.log:,} bytes")
    stored = compare("storage.mixed", after.all, samples, peers, lambda: series)
    if before is not None:
        emit("storage.mixed@append", before / samples, f"{UNIT} of the files of appends alone")
    emit("storage.mixed@files", after.data / samples, f"{UNIT} of data files alone")
    emit("storage.mixed@tables", (after.all + about) / samples, f"{UNIT} with the tables of series and sources")
    for peer, held in stored:
        emit(f"peer.{peer}.storage.mixed@index", held.index_bytes / held.samples, f"{UNIT} of its index")


def measure_walk(hdfs: str, sources: int, peers: Sequence[Peer], folder: Path) -> None:
    """Measure the lines of `storage.walk` and `storage.read`."""
    place = f"{hdfs}/bench-{uuid.uuid4().hex[:8]}"
    named = min(READ_SERIES, sources * walk.SERIES)
    made = walk.make_walk(_two_days_ago(), sources, named)
    samples = made.samples
    try:
        say(f"walk: appending {samples:,} samples")
        walk.fill(place, made)
        appended = table.size(place)
        say("walk: compacting")
        began = time.process_time()
        table.compact(place, folder, days=False)
        hour, took = table.size(place), time.process_time() - began
        table.compact(place, folder, days=True)
        day = table.size(place)
        about = table.size(place, "series").all + table.size(place, "sources").all
        say(f"walk: day files {day.data:,}, log {day.log:,} bytes; hours took {took:.0f} CPU seconds")
        compare("storage.walk", day.all, samples, peers, made.peer_series)
        least = entropy_bytes(np.diff(made.values, axis=2))
        emit_limit("storage.walk", day.all / samples, least, f"{UNIT} (entropy of its steps)", more=False)
        emit("storage.walk@append", appended.all / samples, f"{UNIT} before the hourly step")
        emit("storage.walk@hour", hour.all / samples, f"{UNIT} after the hourly step")
        emit("storage.walk@tables", (day.all + about) / samples, f"{UNIT} with the tables of series and sources")
        measure_read(place, made, peers)
    finally:
        table.delete_folder(place)


def measure_read(hdfs: str, made: walk.Walk, peers: Sequence[Peer]) -> None:
    """Measure reading the same samples from ours and from every peer."""
    start, end = made.start_ms, made.start_ms + 86_460_000
    count = made.named * made.polls
    content = Content(count, made.total)
    say(f"read: {count:,} samples of {made.named:,} series")
    first, warm = reading.read(hdfs, walk.NAME, start, end, content)
    theirs = {peer.name: peer.read(walk.NAME.replace(".", "_"), start, end, content) for peer in peers}
    unit = f"s ({count:,} samples of {made.named:,} series, 24 h)"
    for n, (name, ours) in enumerate((("storage.read", warm), ("storage.read@first", first))):
        side = 1 - n
        best = min(theirs, key=lambda peer: theirs[peer][side], default=None)
        emit(name, ours, unit, best, theirs[best][side] / ours if best else None)
        least = count * SAMPLE_BYTES / read_rate()
        emit_limit(name, ours, least, f"s (times and values {AT_MEMORY_SPEED})", more=False)
        for peer, times in theirs.items():
            emit(f"peer.{peer}.{name}", times[side], unit, peer, times[side] / ours)


def compare(name: str, size: int, samples: int, peers: Sequence[Peer], series: Series) -> list[tuple[str, Stored]]:
    """Store the series in every peer, and print our line beside theirs."""
    stored = []
    for peer in peers:
        say(f"{name}: {peer.name} {peer.version} stores the same")
        stored.append((peer.name, peer.store(series())))
    ours, best = size / samples, min(stored, key=lambda one: one[1].bytes / one[1].samples, default=None)
    ratio = best[1].bytes / best[1].samples / ours if best else None
    emit(name, ours, f"{UNIT} ({samples:,} samples)", best[0] if best else None, ratio)
    for peer_name, held in stored:
        theirs = held.bytes / held.samples
        emit(f"peer.{peer_name}.{name}", theirs, f"{UNIT} ({held.samples:,} samples)", peer_name, theirs / ours)
    return stored


def _sorted(rows: object) -> object:
    return sort_rows(rows.select(FILE_SCHEMA.names).cast(FILE_SCHEMA))  # type: ignore[attr-defined]


def _texts(hdfs: str) -> dict[tuple[int, int], tuple[str, dict[str, str]]]:
    """Return name and labels of every announced series."""
    rows = merge_rows(read_raw(series_uri(hdfs))).table.select(["source", "series", "name", "labels"]).to_pylist()
    return {(row["source"], row["series"]): (row["name"], dict(row["labels"])) for row in rows}


def _until_full_hour() -> float:
    """Return the seconds until the next whole clock hour has ended and its last append is done."""
    return (2 * HOUR_MS - SYSTEM_CLOCK.now_ms() % HOUR_MS) / 1000 + LAST_APPEND_S


def _two_days_ago() -> int:
    """Return midnight UTC two days ago: peers refuse future samples."""
    day = 86_400_000
    return SYSTEM_CLOCK.now_ms() // day * day - 2 * day


def run(args: Sequence[str]) -> None:
    """Run the command line; the module describes it."""
    parser = argparse.ArgumentParser(
        prog="artimon bench storage", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, help="minutes of a new stack for storage.mixed (default: a full hour)")
    parser.add_argument("--recorded", action="store_true", help="storage.mixed of the hour recorded in the repository")
    parser.add_argument("--from-stack", type=Path, help="data folder of a stack with samples, running or not")
    parser.add_argument("--only", choices=["mixed", "walk"], help="omit the other")
    parser.add_argument("--sources", type=int, default=7, help="sources of storage.walk, 1,500 series each")
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args(args)
    folder, parts = Path(tempfile.mkdtemp(prefix="artimon-bench-")), Parts()
    try:
        if options.only != "walk":
            parts.run("storage.mixed.part", lambda: _mixed(options, folder))
        if options.only != "mixed":
            parts.run("storage.walk.part", lambda: _walk(options, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    parts.finish()


def _mixed(options: argparse.Namespace, folder: Path) -> None:
    peers = [] if options.no_peers else find_peers(folder / "mixed", "storage.mixed")
    if options.recorded:
        with Stack(folder / "mixed-stack", ["hdfs"], base_port=BASE_PORT) as stack:
            place = f"{stack.hdfs}/recorded"
            recorded.fill(place, _two_days_ago())
            measure_mixed(place, peers, folder)
    else:
        with collected(options.minutes, options.from_stack, folder) as hdfs:
            measure_mixed(hdfs, peers, folder)


def _walk(options: argparse.Namespace, folder: Path) -> None:
    peers = [] if options.no_peers else find_peers(folder / "walk", "storage.walk")
    with Stack(folder / "walk-stack", ["hdfs"], base_port=BASE_PORT) as stack:
        measure_walk(stack.hdfs, options.sources, peers, folder)


if __name__ == "__main__":
    run(sys.argv[1:])
