"""Command `artimon history`: raw samples from the table on HDFS, within their retention; imports."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import typer

from artimon.cli.clusters import DefaultListGroup
from artimon.cli.common import (
    DataOption,
    HdfsOption,
    JsonOption,
    Panel,
    ZookeeperOption,
    as_usage_error,
    exits,
    locate_settings,
    print_error,
)

PANEL = Panel.QUERY
app = typer.Typer()


class _ReadGroup(DefaultListGroup):
    default_command = "read"


history_app = typer.Typer(
    cls=_ReadGroup, help="Samples from the raw table on HDFS: read, import, export, delete, relabel."
)
app.add_typer(history_app, name="history")
SelectorArgument = Annotated[str, typer.Argument(help="A selector, such as 'rack.temp{rack=\"r1\"}'.")]
StartOption = Annotated[str, typer.Option("--from", help="Start time, exclusive: ISO 8601 (UTC), or such as now-6h.")]
EndOption = Annotated[str, typer.Option("--to", help="End time, inclusive.")]


@history_app.command("read")
def history(
    selector: SelectorArgument,
    start: StartOption,
    end: EndOption = "now",
    hdfs: HdfsOption = None,
    zookeeper: ZookeeperOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    arrow: Annotated[Path | None, typer.Option(help="Write an Arrow IPC stream to this file, - for stdout.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Fail if there are more samples. Default: what fits into memory.")
    ] = None,
    engine: Annotated[Literal["auto", "local", "spark"], typer.Option(help="Engine that reads the files.")] = "auto",
    stream: Annotated[bool, typer.Option(help="With --arrow: any number of samples, file by file.")] = False,
) -> None:
    """Print samples from the raw table on HDFS, as they were collected. `artimon history SELECTOR` is the same."""
    from artimon.cli.history_output import show_history, write_arrow, write_batches
    from artimon.progress_bar import ProgressBar
    from artimon.runtime.process_setup import set_up_libraries
    from query_dsl import QueryError
    from query_dsl.stores.history.engine import History

    if as_json + as_csv + (arrow is not None) > 1:
        raise typer.BadParameter("choose one of --json, --csv and --arrow")
    if stream and arrow is None:
        raise typer.BadParameter("--stream needs --arrow FILE")
    place = locate_settings(data)
    set_up_libraries()
    code = 1
    try:
        with History(hdfs or place.hdfs, zookeeper or place.zookeeper) as opened:
            if stream and arrow is not None:
                print_error(
                    f"artimon: {write_batches(opened.batches(selector, start, end), arrow, write_arrow):,} samples"
                )
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


@history_app.command("import")
def import_files(
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE...", help="Files; .gz is decompressed.")] = None,
    form: Annotated[
        Literal["dump", "openmetrics", "victoriametrics", "csv", "parquet", "arrow"] | None,
        typer.Option("--format", help="Format; by default as the name of the file ends."),
    ] = None,
    mapping: Annotated[
        Path | None, typer.Option(help="YAML file: columns of CSV, Parquet and Arrow, and their meaning.")
    ] = None,
    source: Annotated[str, typer.Option(help="Source of the samples, where the file names none.")] = "import",
    keep: Annotated[str, typer.Option(help="Retention class.")] = "default",
    jobs: Annotated[int, typer.Option(min=1, max=64, help="Files at a time.")] = 1,
    remote_read: Annotated[
        str, typer.Option(metavar="URL", help="Read from a server instead: http://HOST:PORT/api/v1/read.")
    ] = "",
    select: Annotated[str, typer.Option(help="With --remote-read: a selector.")] = "",
    start: Annotated[str, typer.Option("--from", help="With --remote-read: start time, exclusive.")] = "",
    end: Annotated[str, typer.Option("--to", help="With --remote-read: end time, inclusive.")] = "",
    window: Annotated[str, typer.Option(help="With --remote-read: time of one request.")] = "1h",
    token_file: Annotated[Path | None, typer.Option(help="With --remote-read: file with a bearer token.")] = None,
    hdfs: HdfsOption = None,
    data: DataOption = None,
) -> None:
    """Import samples of any age, each file once: repeat it after any failure."""
    from artimon.cli.history_import import ImportJob, RemoteJob, import_all, read_mapping
    from artimon.runtime.config_file import ConfigFileError
    from artimon.runtime.process_setup import set_up_libraries
    from query_dsl import QueryError

    if bool(files) == bool(remote_read) or bool(remote_read) != bool(select and start and end):
        raise typer.BadParameter("give files, or --remote-read with --select, --from and --to")
    place = locate_settings(data)
    set_up_libraries()
    try:
        found = read_mapping(mapping) if mapping else None
        at: dict[str, Any] = {"source": source, "keep": keep, "hdfs": hdfs or place.hdfs, "data": place.data}
        todo: list[ImportJob | RemoteJob] = [ImportJob.of(file, form, found, **at) for file in files or ()]
        if remote_read:
            todo.append(RemoteJob.of(remote_read, select, start, end, window, token_file, **at))
    except (ConfigFileError, QueryError, OSError) as problem:
        print_error(f"artimon: {problem}")
        raise typer.Exit(2) from None
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None
    raise typer.Exit(0 if import_all(todo, jobs) else 1)


@history_app.command("export")
def export(
    selector: SelectorArgument,
    start: StartOption,
    end: EndOption = "now",
    output: Annotated[Path, typer.Option("--output", "-o", help="File, - for stdout.")] = Path("-"),
    form: Annotated[
        Literal["parquet", "arrow", "csv", "openmetrics"] | None,
        typer.Option("--format", help="Format; by default as the name of the file ends."),
    ] = None,
    series: Annotated[
        int | None, typer.Option(min=1, help="Fail if there are more series. Default: what fits into memory.")
    ] = None,
    hdfs: HdfsOption = None,
    zookeeper: ZookeeperOption = None,
    data: DataOption = None,
) -> None:
    """Write samples to a file that can be imported again: any number, in little memory."""
    from artimon.cli.history_export import EXPORT_FORMATS, export_samples
    from artimon.runtime.process_setup import set_up_libraries
    from query_dsl import QueryError
    from query_dsl.stores.history.engine import History

    wanted = form or {".om": "openmetrics"}.get(output.suffix, output.suffix[1:])
    if wanted not in EXPORT_FORMATS:
        raise typer.BadParameter(f"give --format: one of {', '.join(EXPORT_FORMATS)}")
    place = locate_settings(data)
    set_up_libraries()
    code = 1
    try:
        with History(hdfs or place.hdfs, zookeeper or place.zookeeper) as opened:
            described = opened.described(selector, start, end, series=series)
            batches = opened.batches(selector, start, end, series=series, described=True)
            for note in export_samples(batches, described, output, wanted, place.data):
                print_error(f"artimon: {note}")
        return
    except QueryError as problem:
        print_error(f"artimon: {problem}")
    except KeyboardInterrupt:
        print_error("artimon: interrupted; no new file is kept")
        code = 130
    except OSError as problem:
        print_error(f"artimon: {output}: {problem.strerror or problem}")
    raise typer.Exit(code)


@history_app.command("series")
def series(
    selector: SelectorArgument,
    start: Annotated[str, typer.Option("--from", help="Start time.")] = "1970-01-01T00:00:00Z",
    end: EndOption = "now",
    most: Annotated[
        int | None,
        typer.Option("--series", min=1, help="Fail if more series match at any time. Default: what fits into memory."),
    ] = None,
    hdfs: HdfsOption = None,
    zookeeper: ZookeeperOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the series of the past that match, with the times between which they were announced."""
    from artimon.cli.history_output import show_series
    from artimon.runtime.process_setup import set_up_libraries
    from query_dsl import QueryError
    from query_dsl.stores.history.engine import History

    place = locate_settings(data)
    set_up_libraries()
    with exits(QueryError), History(hdfs or place.hdfs, zookeeper or place.zookeeper) as opened:
        show_series(opened.living(selector, start, end, series=most), as_json)


@history_app.command("views")
def views(
    dialect: Annotated[Literal["duckdb", "spark", "trino"], typer.Argument(help="Program that runs the statements.")],
    hdfs: HdfsOption = None,
    data: DataOption = None,
) -> None:
    """Print SQL that makes views of the samples and roll-ups with names and labels, for other programs."""
    from artimon.rawtable.sql_views import views_script

    print(views_script(dialect, hdfs or locate_settings(data).hdfs), end="")


@history_app.command("delete")
def delete(
    selector: Annotated[str, typer.Argument(help="A selector of what is deleted.")] = "",
    start: Annotated[str, typer.Option("--from", help="Start time, exclusive.")] = "",
    end: EndOption = "now",
    confirm: Annotated[str, typer.Option(metavar="TOKEN", help="Delete what the dry run that printed it told.")] = "",
    verify: Annotated[int | None, typer.Option(min=0, help="Prove the deletion that ended at this version.")] = None,
    audit: Annotated[Path | None, typer.Option(help="Audit log; by default audit.log in the data folder.")] = None,
    hdfs: HdfsOption = None,
    data: DataOption = None,
) -> None:
    """Delete samples from HDFS for ever: a dry run first, then again with its token."""
    from artimon.cli import history_deletion as deletion
    from artimon.rawtable.schema import TableError
    from artimon.runtime.process_setup import set_up_libraries
    from pipeline.compaction.sorted_runs import RunError
    from query_dsl import QueryError

    if (verify is None) != bool(selector and start):
        raise typer.BadParameter("give SELECTOR and --from, or --verify VERSION")
    place = locate_settings(data)
    set_up_libraries()
    with exits(QueryError, TableError, RunError, OSError):
        if verify is not None:
            raise typer.Exit(0 if deletion.verify(hdfs or place.hdfs, verify) else 1)
        token = as_usage_error(deletion.DeletionToken.parse, confirm) if confirm else None
        times = (token.after_ms, token.until_ms) if token else (start, end)
        chosen = deletion.SelectedDeletion(hdfs or place.hdfs, selector, *times)
        if token is None:
            deletion.show_plan(*chosen.plan(), chosen.found)
            return
        log = audit or place.data / "audit.log"
        told = {"from_ms": token.after_ms, "to_ms": token.until_ms, "token": confirm}
        deletion.audit(log, "history.delete", selector, **told)
        result = chosen.confirm(token)
        deletion.audit(log, "history.deleted", selector, **told, version=result.version, samples=result.samples)
        deletion.show_result(result)


@history_app.command("relabel")
def relabel(
    selector: Annotated[str, typer.Argument(help="A selector of what gets other labels.")] = "",
    rules: Annotated[
        Path | None, typer.Option(metavar="FILE", help="YAML file with `relabel:`, as in the file of sources.")
    ] = None,
    start: Annotated[str, typer.Option("--from", help="Start time, exclusive.")] = "",
    end: EndOption = "now",
    confirm: Annotated[str, typer.Option(metavar="TOKEN", help="Do what the dry run that printed it told.")] = "",
    verify: Annotated[int | None, typer.Option(min=0, help="Prove the relabel that ended at this version.")] = None,
    audit: Annotated[Path | None, typer.Option(help="Audit log; by default audit.log in the data folder.")] = None,
    hdfs: HdfsOption = None,
    data: DataOption = None,
) -> None:
    """Give samples on HDFS other names and labels: a dry run first, then again with its token."""
    from artimon.cli import history_deletion as deletion
    from artimon.cli import history_relabel as relabels
    from artimon.rawtable.schema import TableError
    from artimon.runtime.config_file import ConfigFileError
    from artimon.runtime.process_setup import set_up_libraries
    from pipeline.compaction.sorted_runs import RunError
    from query_dsl import QueryError

    if (verify is None) != bool(selector and start and rules):
        raise typer.BadParameter("give SELECTOR, --rules and --from, or --verify VERSION")
    place = locate_settings(data)
    set_up_libraries()
    where = hdfs or place.hdfs
    with exits(ConfigFileError, QueryError, TableError, RunError, OSError):
        if verify is not None or rules is None:
            raise typer.Exit(0 if deletion.verify(where, verify or 0) else 1)
        found = relabels.read_rules(rules)
        token = as_usage_error(deletion.DeletionToken.parse, confirm) if confirm else None
        with TemporaryDirectory(prefix="relabel-", dir=_made(place.data)) as folder:
            if token is None:
                chosen = relabels.SelectedRelabel(where, selector, start, end, found, Path(folder) / "rows")
                relabels.show_plan(*chosen.plan(), chosen)
                return
            log = audit or place.data / "audit.log"
            told = {"from_ms": token.after_ms, "to_ms": token.until_ms, "token": confirm, "rules": rules.read_text()}
            deletion.audit(log, "history.relabel", selector, **told)
            result = relabels.resume(where, token, Path(folder) / "rows")
            if result is None:
                times = token.after_ms, token.until_ms
                chosen = relabels.SelectedRelabel(where, selector, *times, found, Path(folder) / "rows")
                result = chosen.confirm(token)
        deletion.audit(log, "history.relabelled", selector, **told, version=result.version, samples=result.samples)
        relabels.show_result(result)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
