"""From a selector to series: searches the table of series, with files and row groups pruned by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from artimon.model.labels import canonical
from artimon.model.select import NAME, Matcher
from artimon.rawtable.announced_rows import SERIES_SCHEMA, merge_rows
from artimon.rawtable.parquet_reader import GroupReader
from artimon.rawtable.schema import series_uri, sources_uri
from artimon.rawtable.sources import read_sources
from artimon.rawtable.table_reader import read_with_retry
from query_dsl.stores.history.sample_query import SampleQuery, TooMuchHistory
from query_dsl.tree.query_errors import NothingSelected
from query_dsl.tree.selector import accepts


@dataclass(frozen=True, slots=True)
class FoundSeries:
    """Matching series: a table of SERIES_SCHEMA, sorted by text and source, with `text` (canonical) and `source_name`.

    `aside` are fingerprints with two texts: they are left out."""

    table: Any
    ambiguous: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.table)


def find_series(hdfs: str, question: SampleQuery) -> FoundSeries:
    """Return every series that passes the matchers. Raises NothingSelected, TooMuchHistory, OSError, DeltaError, and
    TableNotFoundError if the table does not exist yet."""
    good, aside = read_announced(hdfs, question.matchers)
    if not len(good):
        raise NothingSelected(
            f"no series fits {question.text}: all series ever announced are in {series_uri(hdfs)}"
            + (f"; {len(aside)} fingerprints with two texts are left out" if len(aside) else "")
        )
    if len(good) > question.series:
        raise TooMuchHistory(
            f"{question.text} fits {len(good):,} series, the limit is {question.series:,}: narrow the selector, or"
            " raise the limit"
        )
    names = read_sources(sources_uri(hdfs), good.column("source").unique().to_pylist())
    return FoundSeries(_with_texts(good, names), aside)


def read_announced(hdfs: str, matchers: tuple[Matcher, ...]) -> tuple[Any, tuple[int, ...]]:
    """Return rows of SERIES_SCHEMA that pass all matchers, each (source, series) once, and fingerprints with two texts,
    whose rows are left out. Raises as `find_series`, except NothingSelected and TooMuchHistory."""
    uri = series_uri(hdfs)
    rows = read_with_retry(uri, lambda table: _matching(table, uri, matchers))
    merged = merge_rows(rows).table if len(rows) else rows
    clash = np.asarray(merged.column("clash"), np.bool_)
    aside = np.unique(merged.column("series").to_numpy()[clash]) if len(merged) else np.zeros(0, np.int64)
    return merged.filter(pa.array(~clash)), tuple(aside.tolist())


def _matching(table: DeltaTable, uri: str, matchers: tuple[Matcher, ...]) -> Any:
    """Return matching rows of every file; a (source, series) may occur several times."""
    actions = pa.table(table.get_add_actions(flatten=True))
    parts = []
    for row in actions.to_pylist():
        low, high = row.get("min.name"), row.get("max.name")
        if low is None or high is None or _may_hold(matchers, low, high):
            parts += _rows(f"{uri}/{row['path']}", matchers)
    return pa.concat_tables(parts) if parts else SERIES_SCHEMA.empty_table()


def _rows(uri: str, matchers: tuple[Matcher, ...]) -> list[Any]:
    reader = GroupReader(uri)
    parts = []
    for group in range(reader.groups):
        bounds = reader.bounds(group, ["name"]).get("name")
        if bounds is None or _may_hold(matchers, *bounds):
            parts.append(_match_rows(reader.read(group, SERIES_SCHEMA.names).cast(SERIES_SCHEMA), matchers))
    return parts


def _may_hold(matchers: tuple[Matcher, ...], low: str, high: str) -> bool:
    """True if names in [low, high] can match. Bounds may be truncated, so only prefixes of long names are compared."""
    for matcher in matchers:
        if matcher.label != NAME or matcher.op not in ("=", "prefix"):
            continue
        value = matcher.value
        if high[: len(value)] < value[: len(high)]:
            return False
        if (low > value) if matcher.op == "=" else (low[: len(value)] > value):
            return False
    return True


def _match_rows(rows: Any, matchers: tuple[Matcher, ...]) -> Any:
    """Return rows that pass every matcher; each distinct value is tested once."""
    for matcher in matchers:
        if not len(rows):
            break
        column = rows.column("name")
        if matcher.label != NAME:
            found = pc.map_lookup(rows.column("labels"), query_key=pa.scalar(matcher.label), occurrence="first")
            column = pc.fill_null(found, "")
        coded = column.combine_chunks().dictionary_encode()
        coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
        passes = np.array([accepts(matcher, value) for value in coded.dictionary.to_pylist()], np.bool_)
        rows = rows.filter(pa.array(passes[np.asarray(coded.indices)]))
    return rows


def _with_texts(rows: Any, sources: Mapping[int, str]) -> Any:
    pairs = zip(rows.column("name").to_pylist(), rows.column("labels").to_pylist(), strict=True)
    texts = [canonical(name, dict(labels)) for name, labels in pairs]
    names = [sources.get(number, f"source {number}") for number in rows.column("source").to_pylist()]
    rows = rows.append_column("text", pa.array(texts, pa.utf8()))
    rows = rows.append_column("source_name", pa.array(names, pa.utf8()))
    keys = [(key, "ascending") for key in ("text", "source_name", "source")]
    return rows.take(pc.sort_indices(rows, sort_keys=keys)).combine_chunks()
