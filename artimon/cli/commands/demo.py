"""Command that loads the history of a fleet that does not exist."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from artimon.cli.common import DataOption, Panel, exits
from artimon.model.clock import SYSTEM_CLOCK
from artimon.runtime.text import format_duration

if TYPE_CHECKING:
    from pathlib import Path

    from artimon.stack.demo_fleet import DemoFleet
    from artimon.stack.demo_sender import DemoSender

PANEL = Panel.MACHINE
app = typer.Typer()
QUERIES = (
    ("requests per second by route", "fetch('http.requests').rate('10m').sum(by=['route'])"),
    ("share of failed requests", "fetch('http.requests{status=\"500\"}').rate('10m').sum(by=['datacenter'])"),
    (
        "volumes, the fullest first",
        "(fetch('host.volume.used.bytes') / fetch('host.volume.size.bytes')).topk(5, by=[])",
    ),
    ("versions of the shop, also as marks of a chart", "fetch('shop.version')"),
    ("mean load of each rack", "fetch('host.load{window=\"5m\",context=\"demo\"}').mean(by=['rack'])"),
)


@app.command()
def demo(
    hosts: Annotated[int, typer.Option(min=1, max=2_000, help="Hosts of the fleet.")] = 200,
    days: Annotated[
        int, typer.Option(min=1, max=400, help="Days of history; of more than 89 the older ones have a sample an hour.")
    ] = 30,
    live: Annotated[
        bool, typer.Option("--live", help="Go on with a sample of each series a minute, until Ctrl-C.")
    ] = False,
    data: DataOption = None,
    to: Annotated[
        str | None, typer.Option(metavar="URL", help="Receiver of an agent. Default: the running stack's.")
    ] = None,
) -> None:
    """Load a month of plausible history of 200 hosts with incidents, for a look at every page; --days 365: a year.

    The samples go to the agent of the stack by remote write and from there the way of all samples; those of a year that
    are older than 30 days are imported into the history. They have the label context="demo". Without --to the stack
    gets a file demo.yaml of alert rules and one of a dashboard."""
    from artimon.stack.demo_fleet import HOUR_MS, MAX_SENT_DAYS, MINUTE_MS, DemoFleet
    from artimon.stack.demo_sender import DemoSender
    from artimon.stack.stack_location import receiver_of

    if to is not None and days > MAX_SENT_DAYS:
        raise typer.BadParameter(f"an agent takes at most {MAX_SENT_DAYS} days: leave out --to, or give fewer --days")
    fleet = DemoFleet(hosts, days, SYSTEM_CLOCK.now_ms() // MINUTE_MS * MINUTE_MS)
    sender = DemoSender(to or receiver_of(data), fleet)
    print(f"{len(fleet.series):,} series of {hosts} hosts over {days} days to {sender.address}")
    for one in fleet.incidents.values():
        ago_ms = fleet.end_ms - one.begin_ms
        if ago_ms < days * 24 * HOUR_MS:
            print(f"  {format_duration(round(ago_ms / HOUR_MS) * HOUR_MS)} ago: {one.text}")
    began = SYSTEM_CLOCK.monotonic()
    try:
        if days > MAX_SENT_DAYS:
            _import_past(fleet, data)
        sender.load(_report)
        print(f"{sender.samples:,} samples sent in {SYSTEM_CLOCK.monotonic() - began:.0f} s. Try:")
        for text, query in QUERIES:
            print(f"  {text}\n    {query}")
        if to is None:
            _place_files(data)
        if live:
            _go_on(sender, fleet)
    except KeyboardInterrupt:
        print()
    finally:
        sender.close()


def _import_past(fleet: DemoFleet, data: Path | None) -> None:
    """Store the samples that are too old to be sent."""
    from artimon.rawtable.schema import TableError
    from artimon.stack.demo_history import import_samples
    from artimon.stack.stack_location import locate_settings
    from pipeline.compaction.sorted_runs import RunError

    place = locate_settings(data)
    with exits(TableError, RunError, OSError):
        stored = import_samples(fleet, fleet.past(), place.hdfs, place.data)
    print(f"{stored:,} samples of the days before the last {fleet.sent_days} are imported into {place.hdfs}")


def _place_files(data: Path | None) -> None:
    """Write alert rules and a dashboard of the demo into the folders of the running stack."""
    from artimon.stack.demo_files import place_files
    from artimon.stack.stack_location import locate_settings

    with exits(OSError):
        for place, is_ours in place_files(locate_settings(data).data):
            print(f"{place} {'is written' if is_ours else 'was changed and stays as it is'}")


def _report(share: float, samples: int) -> None:
    if sys.stdout.isatty():
        print(f"\r{share:6.1%}  {samples:,} samples", end="\n" if share >= 1 else "", flush=True)


def _go_on(sender: DemoSender, fleet: DemoFleet) -> None:
    """Send the samples of each minute once it is over."""
    import numpy as np

    from artimon.stack.demo_fleet import MINUTE_MS

    next_ms, never = fleet.end_ms, threading.Event()
    while True:
        next_ms += MINUTE_MS
        SYSTEM_CLOCK.wait(never, max(0.0, (next_ms - SYSTEM_CLOCK.now_ms()) / 1000))
        sender.send(fleet.at(np.array([next_ms]), MINUTE_MS))
