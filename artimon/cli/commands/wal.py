"""Commands for the write-ahead log of an agent or a flow: inspect, verify, repair."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from artimon.cli.common import JsonOption, Panel, print_error

if TYPE_CHECKING:
    from pipeline.wal.inspection import LogReport, RepairReport, SegmentReport

PANEL = Panel.OPERATE
app = typer.Typer()
wal_app = typer.Typer(no_args_is_help=True, help="The write-ahead log of an agent or a flow.")
app.add_typer(wal_app, name="wal")

Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="`log` or `flows/NAME/log` in the data folder of an agent.")
]
GOOD, BAD, MISUSE, NEWER, LOCKED = 0, 1, 2, 3, 4


@wal_app.command("inspect")
def inspect_log(folder: Folder, as_json: JsonOption = False) -> None:
    """Show the segments, unacked batches and quarantined data of a log. Changes nothing."""
    report: LogReport = _or_exit(folder, lambda: _inspect(folder, deep=False))
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        _show(report)
    raise typer.Exit(GOOD)


@wal_app.command("verify")
def verify_log(
    folder: Folder,
    as_json: JsonOption = False,
    quick: Annotated[bool, typer.Option("--quick", help="Skip the digests of the batches.")] = False,
) -> None:
    """Check every byte of a log. Changes nothing. Exit code 0: valid; 1: damaged; 2: no log; 3: newer format."""
    report: LogReport = _or_exit(folder, lambda: _inspect(folder, deep=not quick))
    trouble = report.damage_summary
    if as_json:
        print(json.dumps({"folder": str(folder), "good": not trouble, "trouble": trouble, "used_by": report.used_by}))
    else:
        for text in trouble:
            print(text)
        records = sum(sum(one.records.values()) for one in report.segments)
        print_error(
            f"records: {records}, segments: {len(report.segments)}, "
            + (f"wrong: {len(trouble)}" if trouble else "whole")
        )
        if trouble:
            print_error("the next start, or `artimon wal repair`, sets unreadable data aside; the rest is delivered")
    raise typer.Exit(BAD if trouble else GOOD)


@wal_app.command("repair")
def repair_log(
    folder: Folder,
    as_json: JsonOption = False,
    again: Annotated[
        list[str] | None, typer.Option("--again", help="Restore quarantined data: a file's name, or `all`.")
    ] = None,
) -> None:
    """Repair a log as the next start of its agent would, keeping the data it cuts. --again restores quarantined data.

    The agent must be stopped. Exit code 0: done; 1: failed; 2: no log; 3: newer format; 4: in use."""
    done: RepairReport = _or_exit(folder, lambda: _repair(folder, again or []))
    if as_json:
        print(json.dumps(done.to_json(), indent=2))
    else:
        found = done.recovery
        print(f"cut: {found.cut_bytes} bytes; quarantined: {len(found.quarantined)}; missing: {len(found.missing)}")
        if done.new_epoch_because:
            print(f"new epoch: {done.new_epoch_because}")
        for path, header in done.restored:
            print(f"brought back: {header.id} of {header.source} from {path.name}")
    raise typer.Exit(GOOD)


def _inspect(folder: Path, deep: bool) -> LogReport:
    from pipeline.wal.inspection import inspect

    return inspect(folder, deep)


def _repair(folder: Path, again: list[str]) -> RepairReport:
    from artimon.model.clock import SYSTEM_CLOCK
    from pipeline.wal.inspection import repair

    return repair(folder, again, SYSTEM_CLOCK.now_ms())


def _or_exit(folder: Path, ask: Callable[[], Any]) -> Any:
    """Return the result of `ask`; an error prints a message and exits with its code."""
    from artimon.model.protocols import SinkRefusedError
    from pipeline.wal.file_system import LogError, LogLockedError
    from pipeline.wal.inspection import LogNotFoundError
    from pipeline.wal.segment_format import NewerFormatError

    try:
        return ask()
    except (LogError, SinkRefusedError, OSError) as problem:
        near = _logs_below(folder) if isinstance(problem, LogNotFoundError) else []
        print_error(f"artimon: {problem}" + (f"; here: {', '.join(map(str, near))}" if near else ""))
        codes = {LogLockedError: LOCKED, NewerFormatError: NEWER, LogNotFoundError: MISUSE}
        raise typer.Exit(next((code for kind, code in codes.items() if isinstance(problem, kind)), BAD)) from None


def _logs_below(data: Path) -> list[Path]:
    """Return the logs below an agent's data folder, [] if it is none."""
    places = (data / "log", data / "agent" / "log", *sorted(data.glob("flows/*/log")))
    return [place for place in places if any(place.glob("*.wal"))]


def _show(report: LogReport) -> None:
    from artimon.stack.status_view import table_of

    said = report.epoch_file
    print(f"{report.folder}: " + (f"agent {said.agent}, epoch {said.epoch}" if said else "no file `epoch`"))
    if report.used_by:
        print(f"in use by {_process(report.used_by)}")
    print(
        f"not acked: {report.batches} batches ({report.sent} of them in Kafka) of {report.sources} sources, "
        f"{report.series} announcements"
    )
    if report.oldest_ms is not None and report.newest_ms is not None:
        print(f"polled from {_time(report.oldest_ms)} to {_time(report.newest_ms)}")
    table_of(["segment", "bytes", "epoch", "not acked", "damaged bytes", "records"], list(map(_row, report.segments)))
    if report.quarantined:
        aside = [
            [f"{item.path.parent.name}/{item.path.name}", str(item.size), str(len(item.batches)), item.reason]
            for item in report.quarantined
        ]
        table_of(["quarantined", "bytes", "whole batches", "why"], aside)
        print_error(
            "`artimon wal repair FOLDER --again NAME` brings its whole batches back, while the agent is stopped"
        )
    for text in report.damage_summary:
        print(text)


def _row(one: SegmentReport) -> list[str]:
    records = ", ".join(f"{count} {name.lower()}" for name, count in one.records.items())
    damaged = sum(end - at for at, end in one.damage) + one.tail_bytes
    epoch = "" if one.epoch is None else f"{one.epoch:016x}"
    return [f"{one.number:016x}.wal", str(one.bytes), epoch, str(one.live), str(damaged), records]


def _process(used_by: str) -> str:
    """Format the process id and host in the content of a lock file."""
    try:
        said = json.loads(used_by)
        return f"process {said['pid']} on {said['host']}"
    except (ValueError, KeyError, TypeError):
        return used_by


def _time(ms: int) -> str:
    """Format a time, truncated to seconds."""
    from query_dsl.tree.times import format_time

    return format_time(ms // 1000 * 1000)
