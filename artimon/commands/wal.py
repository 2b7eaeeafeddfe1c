"""Commands about the write-ahead log of an agent or a flow: look, check, put right."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from artimon.commands.common import JsonOption, say

if TYPE_CHECKING:
    from pipeline.log.tool import Repaired, Report

app = typer.Typer()
wal_app = typer.Typer(no_args_is_help=True, help="The write-ahead log of an agent or a flow.")
app.add_typer(wal_app, name="wal")

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="`log` or `flows/NAME` in the data folder of an agent.")]
GOOD, BAD, MISUSE, NEWER, LOCKED = 0, 1, 2, 3, 4


@wal_app.command("inspect")
def inspect_log(folder: Folder, as_json: JsonOption = False) -> None:
    """Show what a log holds: segments, batches that are not acked, what was set aside. Changes nothing."""
    report: Report = _asked(lambda: _look(folder, deep=False))
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
    else:
        _show(report)
    raise typer.Exit(GOOD)


@wal_app.command("verify")
def verify_log(
    folder: Folder,
    as_json: JsonOption = False,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out the digests of the batches.")] = False,
) -> None:
    """Check every byte of a log. Changes nothing. Exit code 0: whole; 1: damaged; 2: no log; 3: of a newer program."""
    report: Report = _asked(lambda: _look(folder, deep=not quick))
    trouble = report.trouble
    if as_json:
        print(json.dumps({"folder": str(folder), "good": not trouble, "trouble": trouble, "used_by": report.used_by}))
    else:
        for text in trouble:
            print(text)
        records = sum(sum(one.records.values()) for one in report.segments)
        say(
            f"{records} records in {len(report.segments)} segments, "
            + (f"{len(trouble)} troubles" if trouble else "whole")
        )
    raise typer.Exit(BAD if trouble else GOOD)


@wal_app.command("repair")
def repair_log(
    folder: Folder,
    as_json: JsonOption = False,
    again: Annotated[
        list[str] | None, typer.Option("--again", help="Bring back what was set aside: a file's name, or `all`.")
    ] = None,
) -> None:
    """Put a log right as the next start of its agent would, keep what is cut, and bring back what was set aside.

    The agent must be stopped. Exit code 0: done; 1: the disk refuses; 2: no log; 3: of a newer program; 4: in use."""
    done: Repaired = _asked(lambda: _repair(folder, again or []))
    if as_json:
        print(json.dumps(done.to_json(), indent=2))
    else:
        found = done.found
        print(f"cut: {found.cut_bytes} bytes; set aside: {len(found.set_aside)}; missing: {len(found.missing)}")
        if done.new_epoch_because:
            print(f"new epoch: {done.new_epoch_because}")
        for path, header in done.brought_back:
            print(f"brought back: {header.id} of {header.source} from {path.name}")
    raise typer.Exit(GOOD)


def _look(folder: Path, deep: bool) -> Report:
    from pipeline.log.tool import inspect

    return inspect(folder, deep)


def _repair(folder: Path, again: list[str]) -> Repaired:
    from artimon.model.clock import SYSTEM_CLOCK
    from pipeline.log.tool import repair

    return repair(folder, again, SYSTEM_CLOCK.now_ms())


def _asked(ask: Callable[[], Any]) -> Any:
    """The answer; a message and an exit code if there is none."""
    from artimon.model.protocols import SinkRefused
    from pipeline.log.files import LogError, LogLocked
    from pipeline.log.framing import NewerFormat
    from pipeline.log.tool import NoLog

    try:
        return ask()
    except (LogError, SinkRefused, OSError) as problem:
        say(f"artimon: {problem}")
        codes = {LogLocked: LOCKED, NewerFormat: NEWER, NoLog: MISUSE}
        raise typer.Exit(next((code for kind, code in codes.items() if isinstance(problem, kind)), BAD)) from None


def _show(report: Report) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    said = report.said
    console.print(
        f"{report.folder}: " + (f"agent {said.agent}, epoch {said.epoch}" if said else "no file `epoch`"),
        highlight=False,
    )
    if report.used_by:
        console.print(f"in use by {report.used_by}", highlight=False)
    console.print(
        f"not acked: {report.batches} batches ({report.sent} of them in Kafka) of {report.sources} sources, "
        f"{report.series} announcements",
        highlight=False,
    )
    table = Table("segment", "bytes", "epoch", "records", "live", "damaged bytes")
    for one in report.segments:
        records = ", ".join(f"{count} {name.lower()}" for name, count in one.records.items())
        damaged = sum(end - at for at, end in one.damage) + one.tail_bytes
        epoch = "" if one.epoch is None else f"{one.epoch:016x}"
        table.add_row(f"{one.number:x}", str(one.bytes), epoch, records, str(one.live), str(damaged))
    console.print(table)
    if report.set_aside:
        aside = Table("set aside", "bytes", "whole batches", "why")
        for item in report.set_aside:
            aside.add_row(f"{item.path.parent.name}/{item.path.name}", str(item.size), str(len(item.batches)), item.why)
        console.print(aside)
    for text in report.trouble:
        console.print(text, highlight=False)
