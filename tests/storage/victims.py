"""Programs that are killed at random and started again until they are done: compact, import, delete, relabel. Each is a
process that is forked from one that has imported all of this."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from artimon.cli.history_deletion import DeletionToken, SelectedDeletion
from artimon.cli.history_import import ImportFailure
from artimon.cli.history_relabel import SelectedRelabel, read_rules, resume
from artimon.model.clock import SYSTEM_CLOCK
from artimon.rawtable.schema import TableError
from pipeline.compaction.compaction_settings import CompactorConfig, parse_keep, parse_rollups
from pipeline.compaction.compactor import Compactor
from query_dsl.tree.query_errors import NothingSelected
from tests.transfer.importing import job

ROLLUPS = "5m=ever,1h=ever,1d=ever"


def compactor(hdfs: str, folder: Path) -> Compactor:
    """Return one that keeps all samples and rolls them up at every level."""
    keeping, rollups = parse_keep("*=99999"), parse_rollups(ROLLUPS)
    return Compactor(
        CompactorConfig("", hdfs, folder / "compactor", keeping=keeping, rollups=rollups, sweep_s=0.0), None
    )


def compact(hdfs: str, folder: Path) -> None:
    """Compact and roll up until killed."""
    stop = threading.Event()
    while True:
        try:
            compactor(hdfs, folder).run_due(stop)
        except (TableError, OSError) as error:
            print(error, file=sys.stderr)
        SYSTEM_CLOCK.wait(stop, 0.2)


def import_all(hdfs: str, folder: Path, names: Sequence[str]) -> None:
    """Import files, one after another; those before are known."""
    for name in names:
        while True:
            try:
                job(Path(name), hdfs, folder).run()
                break
            except ImportFailure as error:
                print(error, file=sys.stderr)


def delete(hdfs: str, selector: str, start: int, end: int) -> None:
    """Delete until nothing is selected."""
    while True:
        try:
            one = SelectedDeletion(hdfs, selector, start, end)
            plan, token = one.plan()
            if plan.is_empty:
                return
            one.confirm(token)
        except NothingSelected:
            return
        except (TableError, OSError) as error:
            print(error, file=sys.stderr)


def relabel(hdfs: str, folder: Path, selector: str, start: int, end: int, rules: str) -> None:
    """Relabel by one token, which is kept as its caller would."""
    kept, rows = folder / "token", folder / "rows"
    while True:
        try:
            if kept.exists():
                resume(hdfs, DeletionToken.parse(kept.read_text()), rows)
            one = selected(hdfs, folder, selector, start, end, rules)
            if one is None:
                return
            plan, token = one.plan()
            if plan.is_empty:
                return
            kept.with_suffix(".new").write_text(str(token))
            kept.with_suffix(".new").replace(kept)
            one.confirm(token)
        except (TableError, OSError) as error:
            print(error, file=sys.stderr)


def selected(hdfs: str, folder: Path, selector: str, start: int, end: int, rules: str) -> SelectedRelabel | None:
    """Return what is left to relabel."""
    try:
        return SelectedRelabel(hdfs, selector, start, end, read_rules(Path(rules)), folder / "rows")
    except NothingSelected:
        return None


def begin(log: Path, environment: dict[str, str], words: Sequence[str]) -> None:
    """Run a program (name, HDFS, folder, …) in this process; errors, and stacks on SIGUSR1, go to `log`."""
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(out, sys.stderr.fileno())
    faulthandler.register(signal.SIGUSR1)
    os.environ.update(environment)
    name, hdfs, place, *rest = words
    folder = Path(place)
    if name == "compact":
        compact(hdfs, folder)
    elif name == "import":
        import_all(hdfs, folder, rest)
    elif name == "delete":
        delete(hdfs, rest[0], int(rest[1]), int(rest[2]))
    else:
        relabel(hdfs, folder, rest[0], int(rest[1]), int(rest[2]), rest[3])
