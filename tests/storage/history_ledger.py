"""Plain ledger of a history, and its comparison with the raw table, the roll-ups of every level and answers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise, product
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from artimon.model.clock import SYSTEM_CLOCK
from artimon.model.grid import bucket_end
from artimon.rawtable.commit import CompactionLog
from artimon.rawtable.rollup_rows import RollupRows, concat_rows, from_table, merge_rows
from artimon.rawtable.rollups import LEVELS_MS, RollupTable, stem_of
from artimon.rawtable.schema import raw_uri
from artimon.rawtable.table_reader import read_raw
from artimon.runtime import file_access as files
from artimon.runtime.text import format_duration
from query_dsl import Matrix, evaluate, parse
from query_dsl.evaluation.planner import FROM_BUCKETS
from query_dsl.stores.history.engine import History
from query_dsl.stores.history.result import Sample
from query_dsl.stores.history_store import HistoryStore
from tests.rollups.test_reading import near
from tests.rollups.test_rollup_rows import plainly, shown
from tests.transfer.importing import samples

HOUR_MS = LEVELS_MS[1]
VALUES = "integer", "double", "boolean", "string"
OF_BUCKET: dict[str, Callable[[Sequence[Sample]], Any]] = {
    "last": lambda group: max(group, key=lambda one: one.time_ms).value,
    "min": lambda group: min(_numbers(group)),
    "max": lambda group: max(_numbers(group)),
    "sum": lambda group: sum(_numbers(group)),
    "mean": lambda group: sum(_numbers(group)) / len(group),
    "count": len,
}


class Ledger:
    """Samples that a history must hold, in any order. Each time of a series occurs once."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    def delete(self, hosts: str, after_ms: int, until_ms: int) -> int:
        """Remove the samples of the hosts that match, from after one time until another; return their number."""
        before = len(self.samples)
        self.samples = [
            one
            for one in self.samples
            if not (after_ms < one.time_ms <= until_ms and re.fullmatch(hosts, host_of(one.series)))
        ]
        return before - len(self.samples)

    def rename(self, host: str, to: str) -> None:
        """Give the samples of a host another one."""
        self.samples = [
            one._replace(series=one.series.replace(f'"{host}"', f'"{to}"')) if host_of(one.series) == host else one
            for one in self.samples
        ]


def host_of(series: str) -> str:
    """Return the value of the only label."""
    return series.split('"')[1]


def check_samples(hdfs: str, expected: Iterable[Sample]) -> None:
    """Compare every sample of the raw table, its start time included."""
    found, wanted = Counter(samples(hdfs)), Counter(expected)
    missing, more = wanted - found, found - wanted
    told = f"{missing.total()} are missing, as {list(missing)[:3]}; {more.total()} too many, as {list(more)[:3]}"
    assert not missing, told
    assert not more, told


def check_rollups(hdfs: str) -> dict[int, int]:
    """Compare every statistic of every bucket with the samples; return the number of rows of each level.

    Each raw file must have one roll-up of each level."""
    log, table = CompactionLog(hdfs), RollupTable(hdfs)
    log.refresh()
    table.refresh()
    live = {stem_of(file.path) for file in log.live() if file.rows}
    made = Counter((file.level_ms, file.raw_name) for file in table.live() if file.raw_name in live)
    assert made == Counter(product(LEVELS_MS, live))
    stored = [_plain_row(row) for row in read_raw(raw_uri(hdfs)).to_pylist()]
    counts = {}
    for level in LEVELS_MS:
        paths = [file.path for file in table.live() if file.level_ms == level and file.raw_name in live]
        parts = [_rows_of(f"{table.uri}/{path}") for path in paths]
        found = shown(merge_rows(concat_rows(parts), level))
        right = plainly(stored, level)
        different = [key for key in found.keys() | right.keys() if found.get(key) != right.get(key)]
        told = [(key, found.get(key), right.get(key)) for key in different[:3]]
        assert not different, f"{len(different)} buckets of {format_duration(level)} differ: {told}"
        counts[level] = len(found)
    return counts


def _plain_row(row: dict[str, Any]) -> tuple[int, int, int, int, bool, Any]:
    given = [row[name] for name in VALUES if row[name] is not None]
    time, birth = (round(row[name].timestamp() * 1000) for name in ("time", "birth"))
    return row["source"], row["series"], time, birth, row["future"], given[0] if given else None


def _rows_of(uri: str) -> RollupRows:
    table = pq.ParquetFile(pa.BufferReader(files.read_file(uri))).read()
    keys = (table.column(name).cast(pa.int64()).to_numpy() for name in ("source", "series"))
    return from_table(table, *keys)


def check_answers(hdfs: str, expected: Iterable[Sample], name: str, start_ms: int, end_ms: int) -> None:
    """Compare the mean, last, least, … value in each bucket of each level of the series of a name."""
    found = _by_series(expected, name)
    with History(hdfs) as history:
        store = HistoryStore(history, engine="local")
        for level, function in product(LEVELS_MS, FROM_BUCKETS):
            call = f"bucketize('{function}', '{format_duration(level)}')"
            answer = ask(store, f"fetch('{name}').{call}.between({start_ms}, {end_ms})", level)
            wanted = {series: _buckets(group, level, OF_BUCKET[function]) for series, group in found.items()}
            _compare(answer, wanted, call, 0 if function == "count" else None)


def check_increases(hdfs: str, expected: Iterable[Sample], name: str, hosts: str, start_ms: int, end_ms: int) -> None:
    """Compare the increase in each hour but the first of the counters of hosts that match. None of their samples was
    deleted."""
    counters = _by_series((one for one in expected if re.fullmatch(hosts, host_of(one.series))), name)
    wanted = {series: _buckets(_steps(group), HOUR_MS, OF_BUCKET["sum"]) for series, group in counters.items()}
    call = "increase('1h').bucketize('last', '1h')"
    with History(hdfs) as history:
        text = f"fetch('{name}{{host=~\"{hosts}\"}}').{call}.between({start_ms + HOUR_MS}, {end_ms})"
        answer = ask(HistoryStore(history, engine="local"), text, HOUR_MS)
    _compare(answer, wanted, call)


def ask(store: HistoryStore, text: str, level_ms: int) -> Matrix:
    """Return an answer that must come from roll-ups of a level."""
    answer: Matrix = evaluate(parse(text), store, SYSTEM_CLOCK.now_ms())
    source = f"buckets of {format_duration(level_ms)} of"
    assert any(source in note for note in answer.notes), (text, answer.notes)
    return answer


def _compare(answer: Matrix, wanted: dict[str, dict[int, Any]], what: str, absent: Any = None) -> None:
    ends = answer.grid.ends().tolist()
    found = dict(zip(map(str, answer.series), map(answer.tolist, range(len(answer.series))), strict=True))
    assert {series for series, right in wanted.items() if not right.keys().isdisjoint(ends)} <= set(found), what
    for series, values in found.items():
        right = wanted.get(series, {})
        for end, value in zip(ends, values, strict=True):
            assert near(value if value is not None else absent, right.get(end, absent)), (what, series, end)


def _by_series(expected: Iterable[Sample], name: str) -> dict[str, list[Sample]]:
    """Return the samples of each series of a name, in order."""
    out: dict[str, list[Sample]] = {}
    for one in sorted(expected):
        if one.series.startswith(name + "{"):
            out.setdefault(one.series, []).append(one)
    return out


def _buckets(group: Iterable[Sample], step_ms: int, fold: Callable[[Sequence[Sample]], Any]) -> dict[int, Any]:
    held: dict[int, list[Sample]] = {}
    for one in group:
        held.setdefault(bucket_end(one.time_ms, step_ms), []).append(one)
    return {end: fold(rows) for end, rows in held.items()}


def _steps(group: Sequence[Sample]) -> list[Sample]:
    """Return for each sample but the first the count since the one before; a reset counts from 0."""
    made = []
    for before, now in pairwise(group):
        last, value = _numbers((before, now))
        made.append(now._replace(value=value - last if now.birth_ms == before.birth_ms else value))
    return made


def _numbers(group: Iterable[Sample]) -> list[float]:
    return [float(one.value) for one in group if one.value is not None]
