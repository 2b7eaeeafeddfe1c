"""Commands for several data centres (docs/sites.md)."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from artimon.cli.common import JsonOption, Panel, exits, print_error
from artimon.cli.settings_command import OptionValues, settings_command

PANEL = Panel.OPERATE
app = typer.Typer()
sites = typer.Typer(help="Several data centres, each with its own ZooKeeper, Kafka and store.", no_args_is_help=True)
app.add_typer(sites, name="sites")


@sites.command()
def verify(
    stores: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=STORE...",
            help="STORE: the URI of a raw table's HDFS, or batches:URI of a collector's folder.",
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Check that the stores of several sites hold each batch once, and name the stores to read; exit 1 if not."""
    from pipeline.sites.sites_report import SitesUnionError, compare_stores, lanes_of_store

    held = {}
    for text in stores:
        name, equals, store = text.partition("=")
        if not equals or not store or name in held:
            raise typer.BadParameter(f"{text!r}: write NAME=STORE, each name once")
        with exits(OSError, ValueError, RuntimeError, where=f"{name}: "):
            held[name] = lanes_of_store(store)
    report = compare_stores(held)
    read: list[str] = []
    why = ""
    try:
        read = report.stores_to_read()
    except SitesUnionError as error:
        why = str(error)
    missing = {str(lane): list(ranges) for lane, ranges in report.missing.items()}
    found: dict[str, Any] = {
        "batches": report.batches,
        "union": report.union_count,
        "once": report.is_exact,
        "read": read,
        "missing": missing,
        "problem": why,
    }
    if as_json:
        print(json.dumps(found))
    else:
        print(", ".join(f"{name}: {count} batches" for name, count in report.batches.items()))
        print(f"together: {report.union_count}")
        print(f"each batch once by reading {', '.join(read)}" if report.is_exact else why)
        for lane, ranges in missing.items():
            print_error(f"in no store: lane {lane}, numbers {ranges[:5]}")
    raise typer.Exit(0 if report.is_exact else 1)


@settings_command(app, "pipeline.sites.mirror:MirrorConfig")
def handover(
    given: OptionValues,
    source: Annotated[str, typer.Option("--from", help="NAME=KAFKA of the site whose topics are read.")],
) -> None:
    """Copy the batches in one site's Kafka to another site unchanged, until SIGTERM."""
    from artimon.cli import process_wiring as processes
    from pipeline.sites.mirror import MirrorConfig

    name, equals, kafka = source.partition("=")
    if not equals or not kafka or not name.isidentifier():
        raise typer.BadParameter(f"--from {source!r}: write NAME=HOST:PORT, such as paris=10.0.0.1:9092")
    processes.run_handover_process(given.make(MirrorConfig, name=name, kafka=kafka))
