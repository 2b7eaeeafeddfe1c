"""Command `artimon history`: raw samples from the table on HDFS, within their retention."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from artimon.cli.common import DataOption, HdfsOption, JsonOption, Panel, ZookeeperOption, locate_settings, print_error

PANEL = Panel.QUERY
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
    from artimon.cli.history_output import show_history, write_batches
    from artimon.progress_bar import ProgressBar
    from artimon.runtime.process_setup import limit_library_logs
    from query_dsl import QueryError
    from query_dsl.stores.history.engine import History

    if as_json + as_csv + (arrow is not None) > 1:
        raise typer.BadParameter("choose one of --json, --csv and --arrow")
    if stream and arrow is None:
        raise typer.BadParameter("--stream needs --arrow FILE")
    place = locate_settings(data)
    limit_library_logs()
    code = 1
    try:
        with History(hdfs or place.hdfs, zookeeper or place.zookeeper) as opened:
            if stream and arrow is not None:
                print_error(f"artimon: {write_batches(opened.batches(selector, start, end), arrow):,} samples")
                return
            with ProgressBar() as bar:
                answer = opened.read(selector, start, end, samples=limit, engine=engine, progress=bar)
        show_history(answer, "json" if as_json else "csv" if as_csv else "text", arrow)
        return
    except QueryError as problem:
        print_error(f"artimon: {problem}")
    except KeyboardInterrupt:
        print_error(f"artimon: interrupted; {'no new file is kept' if stream else 'nothing is printed'}")
        code = 130
    except OSError as problem:
        print_error(f"artimon: {arrow or 'standard output'}: {problem.strerror}")
    raise typer.Exit(code)
