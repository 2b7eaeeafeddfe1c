"""Deletion from the history on the command line: a dry run with a token, the deletion, its proof."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artimon.access.audit_log import AuditLog, AuditSettings
from artimon.cli.common import print_error, user_name
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.model.failpoints import Failpoint, no_failpoint
from pipeline.history.deletion import Deletion, DeletionPlan, DeletionResult, prove_deletion
from pipeline.history.row_selection import Ints, RowSelection
from query_dsl.stores.history.file_pruning import RowFilter, prune
from query_dsl.stores.history.sample_query import NO_LIMIT, HistoryError, SampleQuery, parse_sample_query
from query_dsl.stores.history.series_lookup import FoundSeries, find_series
from query_dsl.tree.times import format_time


@dataclass(frozen=True, slots=True)
class DeletionToken:
    """Proof of a dry run: version of the raw table, times in ms, and the code of the plan."""

    version: int
    after_ms: int
    until_ms: int
    code: str

    def __str__(self) -> str:
        return f"{self.version}-{self.after_ms}-{self.until_ms}-{self.code}"

    @classmethod
    def parse(cls, text: str) -> DeletionToken:
        """Raises ValueError."""
        parts = text.split("-")
        if len(parts) != 4 or not all(part.isdigit() for part in parts[:3]):
            raise ValueError(f"{text!r} is not a token: copy it from the dry run")
        return cls(int(parts[0]), int(parts[1]), int(parts[2]), parts[3])


def parse_rewrite(selector: str, start: object, end: object, clock: Clock) -> SampleQuery:
    """Return what a rewrite of the past selects. Raises QueryError, HistoryError for times before 1970."""
    asked = parse_sample_query(selector, start, end, clock.now_ms(), NO_LIMIT, NO_LIMIT)
    if asked.after_ms < 0:
        raise HistoryError("samples begin in 1970: give --from 1970-01-01T00:00:00Z or later")
    return asked


class SelectedDeletion:
    """Deletion of what a selector matches in (after, until]. Raises QueryError, TableError, OSError."""

    def __init__(
        self,
        hdfs: str,
        selector: str,
        start: object,
        end: object,
        clock: Clock = SYSTEM_CLOCK,
        probe: Failpoint = no_failpoint,
    ) -> None:
        asked = parse_rewrite(selector, start, end, clock)
        self.found: FoundSeries = find_series(hdfs, asked)
        source, series = (self.found.table.column(name).cast("int64").to_numpy() for name in ("source", "series"))
        self.selection = select(source, series, asked.after_ms, asked.until_ms)
        self._asked = asked
        self._deletion = Deletion(hdfs, self.selection, near_files, select, clock, probe)

    def plan(self) -> tuple[DeletionPlan, DeletionToken]:
        """Return the plan, and the token that confirms it."""
        plan = self._deletion.plan()
        code = plan.code(self.selection)
        return plan, DeletionToken(plan.version, self._asked.after_ms, self._asked.until_ms, code)

    def confirm(self, token: DeletionToken) -> DeletionResult:
        """Delete. Raises HistoryError if something else is selected now than in the dry run."""
        plan, now = self.plan()
        if (now.after_ms, now.until_ms, now.code) != (token.after_ms, token.until_ms, token.code):
            raise HistoryError(
                f"the selection is another one than in the dry run, it has {plan.samples:,} samples now: nothing is"
                " deleted; repeat the dry run"
            )
        return self._deletion.run(plan)


def select(source: Ints, series: Ints, after_ms: int, until_ms: int) -> RowFilter:
    """Return the selection of pairs at the times (after, until]."""
    return RowFilter(source, series, max(after_ms, -(2**50)), min(until_ms, 2**50))


def near_files(table: Any, selection: RowSelection) -> set[str]:
    """Return the paths of the files that may hold selected rows."""
    own = selection
    wanted = RowFilter(own.source, own.series, own.after_us // 1000, own.until_us // 1000)
    return {file.path for file in prune(table, wanted).files}


def show_plan(plan: DeletionPlan, token: DeletionToken, found: FoundSeries) -> None:
    """Print what a deletion would remove."""
    files = [file for file, _ in plan.raw]
    print(
        f"would delete {plan.samples:,} samples of {len(plan.pairs):,} series,"
        f" from {format_time(token.after_ms)} (exclusive) to {format_time(token.until_ms)}"
    )
    print(f"would rewrite {len(files):,} files of {sum(file.size for file in files):,} bytes, and their roll-ups")
    if plan.rollups:
        days = sorted({file.period for file, _ in plan.rollups})
        print(
            f"would delete {plan.buckets:,} buckets of samples that have expired, of {len(days):,} days from {days[0]}"
            f" to {days[-1]}: those that overlap this time, as a whole"
        )
    if found.ambiguous:
        print_error(f"artimon: {len(found.ambiguous):,} fingerprints with two texts are left out")
    print("nothing is deleted yet; to delete this for ever, repeat the command with")
    print(f"  --confirm {token}")


def show_result(result: DeletionResult) -> None:
    """Print what was deleted, and when its bytes are gone."""
    print(f"deleted {result.samples:,} samples, rewrote {result.files:,} files, removed {result.series:,} series")
    print(
        f"no reader of version {result.version} of the raw table, or of a later one, finds them. The compactor deletes"
        " the replaced files when it searches for dead ones (every 5 min), once no reader has a lease (at most 1 h);"
        " replaced files of the table of series go 6 h later, with its next merge. To prove it then:"
    )
    print(f"  artimon history delete --verify {result.version}")


def audit(file: Path, action: str, selector: str, **fields: Any) -> None:
    """Append a line to the audit log."""
    file.parent.mkdir(parents=True, exist_ok=True)
    AuditLog(AuditSettings(file)).write(action, None, user=user_name(), selector=selector, **fields)


def verify(hdfs: str, version: int) -> bool:
    """Print the proof of a deletion; return True if nothing remains."""
    proof = prove_deletion(hdfs, version, select)
    for uri in proof.remaining:
        print(f"remains: {uri}")
    print(
        f"{len(proof.remaining):,} of {proof.searched:,} files hold deleted samples or labels"
        + ("" if proof.remaining else ": they are gone")
    )
    return not proof.remaining
