"""Other labels for the past on the command line: a dry run with a token, then the change."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from artimon.cli.common import print_error
from artimon.cli.history_deletion import DeletionToken, near_files, parse_rewrite, select
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.failpoints import Failpoint, no_failpoint
from artimon.model.fingerprint import fingerprint, signed
from artimon.model.labels import LabelError, canonical
from artimon.model.select import NAME, Matcher
from artimon.runtime.config_file import read_config
from artimon.runtime.config_model import Section
from pipeline.history.deletion import DeletionPlan, DeletionResult
from pipeline.history.series_moves import Relabel, RelabelError, SeriesMoves, moves_table, read_moves
from query_dsl.stores.history.sample_query import HistoryError
from query_dsl.stores.history.series_lookup import FoundSeries, find_series, read_announced
from query_dsl.tree.query_errors import NothingSelected
from query_dsl.tree.times import format_time
from sources.scrape.config_sections import RelabelRuleList
from sources.state.relabel import RelabelRegistry

MAX_SHOWN = 5
"""Number of moves that a dry run prints."""


class RelabelFile(Section):
    """File with relabel rules, as in the file of sources."""

    relabel: RelabelRuleList


def read_rules(file: Path) -> RelabelRegistry:
    """Read relabel rules. Raises ConfigFileError."""
    found = read_config(file).validate(RelabelFile)
    return RelabelRegistry([rule.build(f"relabel[{number}]") for number, rule in enumerate(found.relabel, 1)])


class SelectedRelabel:
    """Relabel of what a selector matches in (after, until]. `folder`: local, of this process alone. `acted` counts the
    series that each rule changed. Raises QueryError, RelabelError, TableError, OSError."""

    def __init__(
        self,
        hdfs: str,
        selector: str,
        start: object,
        end: object,
        rules: RelabelRegistry,
        folder: Path,
        clock: Clock = SYSTEM_CLOCK,
        probe: Failpoint = no_failpoint,
    ) -> None:
        asked = parse_rewrite(selector, start, end, clock)
        self.acted: Counter[str] = Counter()
        self.found = find_series(hdfs, asked)
        self.moves = SeriesMoves.of(_moves(self.found, rules, self.acted), asked.after_ms, asked.until_ms)
        if not len(self.moves):
            raise NothingSelected(f"the rules change no series of {selector}")
        self.merged = _check_types(hdfs, self.moves)
        self._relabel = Relabel(hdfs, self.moves, near_files, select, folder, clock, probe)

    def plan(self) -> tuple[DeletionPlan, DeletionToken]:
        """Return the plan, and the token that confirms it."""
        plan, code = self._relabel.plan()
        return plan, DeletionToken(plan.version, self.moves.after_ms, self.moves.until_ms, code)

    def confirm(self, token: DeletionToken) -> DeletionResult:
        """Change the labels. Raises HistoryError if something else is selected now than in the dry run."""
        plan, now = self.plan()
        if (now.after_ms, now.until_ms, now.code) != (token.after_ms, token.until_ms, token.code):
            raise HistoryError(
                f"the selection is another one than in the dry run, it has {plan.samples:,} samples now: nothing is"
                " changed; repeat the dry run"
            )
        return self._relabel.run(plan, token.code)


def resume(
    hdfs: str, token: DeletionToken, folder: Path, clock: Clock = SYSTEM_CLOCK, probe: Failpoint = no_failpoint
) -> DeletionResult | None:
    """Go on with the relabel of this token, if it was begun and has not ended; else None."""
    moves = read_moves(hdfs, token.code)
    if moves is None:
        return None
    return Relabel(hdfs, moves, near_files, select, folder, clock, probe).resume(token.code)


def _moves(found: FoundSeries, rules: RelabelRegistry, acted: Counter[str]) -> Any:
    """Return the moves of the series that the rules change. Raises RelabelError for one that they drop, or whose new
    labels are not valid."""
    rows, new, dropped = list[int](), list[tuple[str, dict[str, str], int]](), list[str]()
    for row, (source, text, name, labels) in enumerate(_descriptions(found)):
        own = rules.for_source(source)
        if own is None:
            continue
        changed = own.apply(name, labels, acted)
        if changed is None:
            dropped.append(text)
            continue
        if changed == (name, labels):
            continue
        try:
            moved = canonical(*changed)
        except LabelError as problem:
            raise RelabelError(f"the rules make an invalid series of {text}: {problem}") from None
        rows.append(row)
        new.append((*changed, signed(fingerprint(moved))))
    if dropped:
        raise RelabelError(
            f"the rules drop {len(dropped):,} series, such as {dropped[0]}: narrow the selector, or delete them with"
            " `artimon history delete`"
        )
    table = found.table.take(np.array(rows, np.int64))
    return moves_table(table, new, table.column("series").cast("int64").to_numpy())


def _descriptions(found: FoundSeries) -> Iterator[tuple[str, str, str, dict[str, str]]]:
    columns = (found.table.column(name).to_pylist() for name in ("source_name", "text", "name", "labels"))
    for source, text, name, labels in zip(*columns, strict=True):
        yield source, text, name, dict(labels)


def _check_types(hdfs: str, moves: SeriesMoves) -> int:
    """Return the number of moves to a series that exists already, or that another one moves to. Raises RelabelError if
    their types differ: samples of two types are not one series."""
    types: dict[int, set[str]] = defaultdict(set)
    origins: dict[int, set[int]] = defaultdict(set)
    """Series whose samples become one, by the series that they become."""
    moved, kinds = moves.new.tolist(), moves.table.column("type").to_pylist()
    for series, old, kind in zip(moved, moves.old.tolist(), kinds, strict=True):
        types[series].add(kind)
        origins[series].add(old)
    existing: set[int] = set()
    for name in moves.table.column("name").unique().to_pylist():
        rows, clashes = read_announced(hdfs, (Matcher(NAME, "=", name),))
        existing.update(clashes)
        for series, kind in zip(rows.column("series").to_pylist(), rows.column("type").to_pylist(), strict=True):
            if series in types:
                existing.add(series)
                types[series].add(kind)
                origins[series].add(series)
    mixed = [series for series, held in types.items() if len(held) > 1 and len(origins[series]) > 1]
    if mixed:
        row = moves.table.slice(moved.index(mixed[0]), 1).to_pylist()[0]
        raise RelabelError(
            f"{len(mixed):,} series would get samples of several types, such as {row['name']} {dict(row['labels'])}"
            f" ({', '.join(sorted(types[mixed[0]]))}): give them other labels"
        )
    return sum(series in existing or len(origins[series]) > 1 for series in moved)


def show_plan(plan: DeletionPlan, token: DeletionToken, chosen: SelectedRelabel) -> None:
    """Print what a relabel would change."""
    moves = chosen.moves
    print(
        f"would give other labels to {plan.samples:,} samples of {len(plan.pairs):,} series,"
        f" from {format_time(token.after_ms)} (exclusive) to {format_time(token.until_ms)}"
    )
    texts = dict(zip(_keys(chosen.found.table, "series"), chosen.found.table.column("text").to_pylist(), strict=True))
    for row in moves.table.slice(0, MAX_SHOWN).to_pylist():
        new = canonical(row["name"], dict(row["labels"]))
        print(f"  {texts[row['source'], row['old_series']]} -> {new}")
    if len(moves) > MAX_SHOWN:
        print(f"  and {len(moves) - MAX_SHOWN:,} more")
    for rule, count in sorted(chosen.acted.items()):
        print(f"rule {rule} acts on {count:,} series")
    if chosen.merged:
        print(
            f"{chosen.merged:,} series get the labels of one another, or of series that exist: their samples become"
            " one series; samples of equal time all stay"
        )
    files = [file for file, _ in plan.raw]
    print(f"would rewrite {len(files):,} files of {sum(file.size for file in files):,} bytes, and their roll-ups")
    if plan.rollups:
        print(f"would rewrite {len(plan.rollups):,} files of roll-ups of samples that have expired")
    if chosen.found.ambiguous:
        print_error(f"artimon: {len(chosen.found.ambiguous):,} fingerprints with two texts are left out")
    print("nothing is changed yet; to change it for ever, repeat the command with")
    print(f"  --confirm {token}")


def _keys(table: Any, series: str) -> list[tuple[int, int]]:
    return list(zip(table.column("source").to_pylist(), table.column(series).to_pylist(), strict=True))


def show_result(result: DeletionResult) -> None:
    """Print what was changed, and when the old labels are gone."""
    print(
        f"gave other labels to {result.samples:,} samples, rewrote {result.files:,} files, removed"
        f" {result.series:,} series"
    )
    print(
        f"no reader of version {result.version} of the raw table, or of a later one, finds the old labels in this time."
        " To prove it once the compactor has deleted the replaced files (see `artimon history delete`):"
    )
    print(f"  artimon history relabel --verify {result.version}")
