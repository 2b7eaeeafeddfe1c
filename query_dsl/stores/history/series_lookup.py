"""From a selector to series: searches the table of series. Row groups are pruned by name, and by the index of names and
labels that large files have, and their clustered copies. Of file and copy, the one with fewer row groups is read."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from artimon.model.labels import canonical
from artimon.model.select import NAME, Matcher
from artimon.rawtable.announced_rows import SERIES_SCHEMA, merge_rows
from artimon.rawtable.clustered_copy import copy_path
from artimon.rawtable.delta import ListedTable, files_of
from artimon.rawtable.parquet_reader import GroupReader, OpenFiles
from artimon.rawtable.schema import series_uri, sources_uri
from artimon.rawtable.sources import read_sources
from artimon.rawtable.table_reader import OpenTables
from artimon.rawtable.term_index import MIN_INDEXED_ROWS, TermIndex, index_path, term_of
from query_dsl.stores.history.sample_query import NO_LIMIT, SampleQuery, TooMuchHistory
from query_dsl.stores.history.task_pool import THREADS
from query_dsl.tree.query_errors import NothingSelected
from query_dsl.tree.selector import accepts

MERGED_ROWS = 200_000
"""Minimum number of matching rows from which those of one series are merged while others are still read."""
FEW_GROUPS = 2
"""Number of row groups of a file up to which its copy is not considered: the index of the copy takes as long."""
SHARE_GROUPS = 8
"""Maximum number of row groups that a thread reads one after another."""
_PLAIN = re.compile(r"[\w/:@%,;= -]+")
"""Text without characters that have a meaning in a regular expression."""


@dataclass(frozen=True, slots=True)
class FoundSeries:
    """Matching series: a table of SERIES_SCHEMA, sorted by text and source, with `text` (canonical) and `source_name`.

    `aside` are fingerprints with two texts: they are left out."""

    table: Any
    ambiguous: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.table)


def find_series(hdfs: str, question: SampleQuery, opened: OpenTables | None = None) -> FoundSeries:
    """Return every series that passes the matchers. Raises NothingSelected, TooMuchHistory, OSError, DeltaError, and
    TableNotFoundError if the table does not exist yet."""
    good, aside = read_announced(hdfs, question.matchers, question.series, opened)
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


def read_announced(
    hdfs: str, matchers: tuple[Matcher, ...], most: int = NO_LIMIT, opened: OpenTables | None = None
) -> tuple[Any, tuple[int, ...]]:
    """Return rows of SERIES_SCHEMA that pass all matchers, each (source, series) once, and fingerprints with two texts,
    whose rows are left out. Memory: as for twice `most` rows. `opened` stay open for the next call. Raises
    TooMuchHistory for more than `most` rows, and as `find_series`, except NothingSelected."""
    uri, tables = series_uri(hdfs), opened or OpenTables()
    rows = tables.read(uri, lambda table: _matching(table, uri, matchers, most, tables.files))
    merged = merge_rows(rows).table if len(rows) else rows
    clash = np.asarray(merged.column("clash"), np.bool_)
    aside = np.unique(merged.column("series").to_numpy()[clash]) if len(merged) else np.zeros(0, np.int64)
    return merged.filter(pa.array(~clash)), tuple(aside.tolist())


def read_label_values(hdfs: str, label: str | None, opened: OpenTables | None = None) -> set[str]:
    """Return the values of a label of all series, or with None the names of all labels. Memory: that of a row group and
    of the result. Raises as `find_series`."""
    uri, tables = series_uri(hdfs), opened or OpenTables()

    def read(table: ListedTable) -> set[str]:
        found: set[str] = set()
        for path, *_ in files_of(table, "path"):
            reader = tables.files.reader(f"{uri}/{path}")
            for group in range(reader.groups):
                found.update(_distinct(reader, group, label).to_pylist())
        return found - {None, ""}

    return tables.read(uri, read)


def _distinct(reader: GroupReader, group: int, label: str | None) -> Any:
    if label == NAME:
        return reader.read(group, ["name"]).column("name").unique()
    labels = reader.read(group, ["labels"]).column("labels").combine_chunks()
    labels = pa.chunked_array([labels]) if isinstance(labels, pa.Array) else labels
    if label is None:
        return pa.chunked_array([chunk.keys for chunk in labels.chunks], pa.utf8()).unique()
    return pc.map_lookup(labels, query_key=pa.scalar(label), occurrence="first").unique()


def _matching(table: ListedTable, uri: str, matchers: tuple[Matcher, ...], most: int, files: OpenFiles) -> Any:
    """Return matching rows of every file; a (source, series) may occur several times."""
    actions = pa.table(table.get_add_actions(flatten=True))
    near = [row for row in actions.to_pylist() if _may_hold_file(matchers, row)]
    terms = _terms(matchers)

    def plan(path: str, count: int, size: int) -> list[tuple[GroupReader, list[int]]]:
        indexed = bool(terms) and count >= MIN_INDEXED_ROWS
        held, groups = _fewest_groups(files, uri, path, matchers) if indexed else (path, None)
        if groups is not None and not groups:
            return []
        return _shares(files.reader(f"{uri}/{held}", size if held == path else 0), matchers, groups)

    parts: list[Any] = []
    rows, enough = 0, max(MERGED_ROWS, 2 * most)
    with ThreadPoolExecutor(THREADS, thread_name_prefix="series") as pool:
        try:
            planned = [pool.submit(plan, row["path"], row["num_records"] or 0, row["size_bytes"]) for row in near]
            shares = [share for future in planned for share in future.result()]
            running = deque(pool.submit(_read_share, *share, matchers) for share in shares)
            while running:
                parts += (found := running.popleft().result())
                rows += sum(map(len, found))
                if rows > enough:
                    parts = [merge_rows(pa.concat_tables(parts)).table]
                    rows = len(parts[0])
                    if rows > most:
                        raise TooMuchHistory(f"the selector fits more than {most:,} series: narrow it")
        finally:
            pool.shutdown(cancel_futures=True)
    return pa.concat_tables(parts) if parts else SERIES_SCHEMA.empty_table()


def _may_hold_file(matchers: tuple[Matcher, ...], row: Mapping[str, Any]) -> bool:
    low, high = row.get("min.name"), row.get("max.name")
    return low is None or high is None or _may_hold(matchers, low, high)


def _terms(matchers: tuple[Matcher, ...]) -> list[list[int]]:
    """Return terms of which every matching series has one, for each matcher that the index can answer."""
    found = []
    # most files have the name, which is looked up last: another label that a file has not rules it out
    for matcher in sorted(matchers, key=lambda one: one.label == NAME):
        values = [matcher.value] if matcher.op == "=" else _alternatives(matcher.value) if matcher.op == "=~" else []
        if values and all(values):
            found.append([term_of(matcher.label, value) for value in values])
    return found


def _alternatives(pattern: str) -> list[str]:
    """Return the texts that a pattern such as `a|b` matches; nothing if it is not a list of texts."""
    texts = pattern.split("|")
    return texts if all(_PLAIN.fullmatch(text) for text in texts) else []


def _shares(
    reader: GroupReader, matchers: tuple[Matcher, ...], groups: list[int] | None
) -> list[tuple[GroupReader, list[int]]]:
    """Return those of these row groups of a file, None: of all, that may have a matching row, in shares for one thread
    each."""
    near = _near_groups(reader, matchers, range(reader.groups) if groups is None else groups)
    return [(reader, near[start : start + SHARE_GROUPS]) for start in range(0, len(near), SHARE_GROUPS)]


def _near_groups(reader: GroupReader, matchers: tuple[Matcher, ...], groups: Iterable[int]) -> list[int]:
    """Return those of these row groups whose names may match."""
    bounds = ((group, reader.bounds(group, ["name"]).get("name")) for group in groups)
    return [group for group, names in bounds if names is None or _may_hold(matchers, *names)]


def _read_share(opened: GroupReader, groups: list[int], matchers: tuple[Matcher, ...]) -> list[Any]:
    """Return the matching rows, a table for each row group."""
    reader = GroupReader(opened.uri, opened)
    return [_match_rows(reader.read(group, SERIES_SCHEMA.names).cast(SERIES_SCHEMA), matchers) for group in groups]


def _fewest_groups(
    files: OpenFiles, uri: str, path: str, matchers: tuple[Matcher, ...]
) -> tuple[str, list[int] | None]:
    """Return the file or its clustered copy, whichever has fewer row groups that may match, and these, None: all."""
    terms = _terms(matchers)
    groups = _indexed_groups(files, uri, path, terms)
    if groups is None or len(groups) <= FEW_GROUPS:
        return path, groups
    if any(matcher.op == "prefix" for matcher in matchers):  # the index knows whole names only
        groups = _near_groups(files.reader(f"{uri}/{path}"), matchers, groups)
    near = _indexed_groups(files, uri, copy_path(path), terms)
    return (path, groups) if near is None or len(near) >= len(groups) else (copy_path(path), near)


def _indexed_groups(files: OpenFiles, uri: str, path: str, terms: list[list[int]]) -> list[int] | None:
    """Return the row groups that the index of a file names; None without an index: an older program wrote the file."""
    try:
        return TermIndex(files.reader(f"{uri}/{index_path(path)}")).groups(terms)
    except FileNotFoundError:
        return None


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
    exact = [one for one in matchers if one.op == "=" and one.value and one.label != NAME]
    for matcher in exact:
        rows = rows.take(pa.array(_labelled(rows.column("labels"), matcher.label, matcher.value)))
    for matcher in matchers:
        if not len(rows):
            break
        if matcher in exact:
            continue
        column = rows.column("name")
        if matcher.label != NAME:
            found = pc.map_lookup(rows.column("labels"), query_key=pa.scalar(matcher.label), occurrence="first")
            column = pc.fill_null(found, "")
        coded = column.combine_chunks().dictionary_encode()
        coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
        passes = np.array([accepts(matcher, value) for value in coded.dictionary.to_pylist()], np.bool_)
        rows = rows.filter(pa.array(passes[np.asarray(coded.indices)]))
    return rows


def _labelled(labels: Any, label: str, value: str) -> Any:
    """Return the numbers of the rows that have the label with the value."""
    found, before = [np.zeros(0, np.int64)], 0
    for chunk in labels.chunks:
        offsets = np.asarray(chunk.offsets)
        keys, items = (part.slice(offsets[0], offsets[-1] - offsets[0]) for part in (chunk.keys, chunk.items))
        equal = pc.and_(pc.equal(keys, label), pc.equal(items, value))
        places = np.flatnonzero(equal.to_numpy(zero_copy_only=False)) + offsets[0]
        found.append(np.searchsorted(offsets, places, side="right") - 1 + before)
        before += len(chunk)
    return np.concatenate(found)


def _with_texts(rows: Any, sources: Mapping[int, str]) -> Any:
    pairs = zip(rows.column("name").to_pylist(), rows.column("labels").to_pylist(), strict=True)
    texts = [canonical(name, dict(labels)) for name, labels in pairs]
    names = [sources.get(number, f"source {number}") for number in rows.column("source").to_pylist()]
    rows = rows.append_column("text", pa.array(texts, pa.utf8()))
    rows = rows.append_column("source_name", pa.array(names, pa.utf8()))
    keys = [(key, "ascending") for key in ("text", "source_name", "source")]
    return rows.take(pc.sort_indices(rows, sort_keys=keys)).combine_chunks()
