"""Command `artimon history`: raw samples from the table on HDFS, within their retention."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from artimon.cli.common import DataOption, HdfsOption, JsonOption, Panel, ZookeeperOption, located

PANEL = Panel.ASK
app = typer.Typer()


@app.command()
def history(
    selector: Annotated[str, typer.Argument(help="A selector, such as 'rack.temp{rack=\"r1\"}'.")],
    start: Annotated[str, typer.Option("--from", help="Start time, exclusive: ISO 8601 (UTC), or such as now-6h.")],
    end: Annotated[str, typer.Option("--to", help="End time, inclusive.")] = "now",
    hdfs: HdfsOption = None,
    zookeeper: ZookeeperOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    arrow: Annotated[Path | None, typer.Option(help="Write an Arrow IPC stream to this file, - for stdout.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Fail if there are more samples.")] = 1_000_000,
    engine: Annotated[Literal["auto", "local", "spark"], typer.Option(help="Engine that reads the files.")] = "auto",
    stream: Annotated[bool, typer.Option(help="With --arrow: any number of samples, file by file.")] = False,
) -> None:
    """Print samples from the raw table on HDFS, as they were collected."""
    from artimon import questions

    if as_json + as_csv + (arrow is not None) > 1:
        raise typer.BadParameter("choose one of --json, --csv and --arrow")
    if stream and arrow is None:
        raise typer.BadParameter("--stream needs --arrow FILE")
    place = located(data)
    where = hdfs or place.hdfs, zookeeper or place.zookeeper
    form: Literal["json", "csv", "text"] = "json" if as_json else "csv" if as_csv else "text"
    if stream and arrow is not None:
        raise typer.Exit(questions.history_stream(selector, start, end, where=where, arrow=arrow))
    done = questions.history(selector, start, end, where=where, form=form, arrow=arrow, limit=limit, engine=engine)
    raise typer.Exit(done)
