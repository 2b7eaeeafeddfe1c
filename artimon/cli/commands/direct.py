"""Commands for the files of collectors that write to HDFS themselves (docs/direct.md)."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from artimon.cli.common import JsonOption, Panel, exits, print_error

PANEL = Panel.OPERATE
app = typer.Typer()
direct = typer.Typer(help="Files of batches that collectors wrote without Kafka.", no_args_is_help=True)
app.add_typer(direct, name="direct")

FolderArgument = Annotated[str, typer.Argument(help="hdfs://HOST:PORT/folder or file:///folder.")]


def _reader(folder: str) -> Any:
    from pipeline.collector.hdfs.folder_reader import FolderReader
    from pipeline.rolling_files.file_store import open_store

    try:
        return FolderReader(open_store(folder))
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None


@direct.command()
def verify(folder: FolderArgument, as_json: JsonOption = False) -> None:
    """Read all files and count their distinct batches and damaged places; exit 1 if anything is damaged."""
    reader = _reader(folder)
    for _ in _or_exit(reader.batches()):
        pass
    report = reader.report
    figures = {
        "files": report.files,
        "open_files": report.open_files,
        "batches": report.batches,
        "samples": report.samples,
        "bytes": report.bytes,
        "repeats": report.repeats,
        "lanes": report.lanes.to_json(),
        "damaged": report.damaged,
    }
    if as_json:
        print(json.dumps(figures))
    else:
        names = ("files", "batches", "samples", "bytes", "repeats")
        print(", ".join(f"{figures[name]} {name}" for name in names))
        for text in report.damaged:
            print_error(f"damaged: {text}")
    raise typer.Exit(1 if report.damaged else 0)


@direct.command()
def read(
    folder: FolderArgument,
    limit: Annotated[int, typer.Option(min=0, help="Rows at most; 0: all.")] = 0,
) -> None:
    """Print the rows as JSON lines: source, series, time, birth, value; each batch once."""
    reader = _reader(folder)
    names = {info.text for block in reader.blocks().values() for info in block.series}
    texts = _by_fingerprint(names)
    left = limit or -1
    for header, samples in _or_exit(reader.samples()):
        for series, time_ms, birth_ms, value in samples.rows():
            if not left:
                return
            left -= 1
            name = texts.get(series, f"{series:016x}")
            row = {"source": header.source, "series": name, "time": time_ms, "birth": birth_ms, "value": value}
            print(json.dumps(row))


def _by_fingerprint(names: set[str]) -> dict[int, str]:
    from artimon.model.fingerprint import fingerprint

    return {fingerprint(name): name for name in names}


def _or_exit(found: Any) -> Any:
    """Yield from `found`; an unreadable store prints one line and exits with 1."""
    from pipeline.rolling_files.file_store import StoreError

    with exits(StoreError):
        yield from found
