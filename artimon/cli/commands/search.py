"""Commands that search the series, show the kept mails and check rule files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from artimon.cli.common import (
    DataOption,
    HdfsOption,
    JsonOption,
    Panel,
    ZookeeperOption,
    exits,
    locate_settings,
    print_error,
    zookeeper_of_store,
)

PANEL = Panel.QUERY
app = typer.Typer()
rules_app = typer.Typer(no_args_is_help=True, help="Rule files of alerts.")
app.add_typer(rules_app, name="rules")


@app.command()
def find(
    selector: Annotated[str, typer.Argument(help="A selector, such as 'host.*' or 'http.requests{route=\"/\"}'.")],
    zookeeper: ZookeeperOption = None,
    data: DataOption = None,
    engine: Annotated[
        Literal["memory", "history", "auto"], typer.Option(help="Engine: the shards, the raw table, or both.")
    ] = "memory",
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of series.")] = 1000,
    as_json: JsonOption = False,
) -> None:
    """List the series that a selector matches."""
    from artimon.model.labels import canonical
    from artimon.model.select import SelectError
    from artimon.runtime.process_setup import set_up_libraries
    from artimon.runtime.text import printable
    from artimon.session import open_session
    from query_dsl import QueryError

    set_up_libraries()
    with exits(QueryError, SelectError), open_session(zookeeper_of_store(zookeeper, data), data) as session:
        found = session.find(selector, limit, engine=engine)
    for series in found:
        text = canonical(series.name, series.labels)
        kind = f"{series.type.name.lower()} {series.kind.name.lower()}"
        line = (
            json.dumps({"series": text, "kind": kind}, ensure_ascii=False) if as_json else f"{printable(text)}  {kind}"
        )
        print(line)
    if not found:
        print_error(f"artimon: no series matches {selector}")
        raise typer.Exit(1)


@app.command()
def mail(
    data: DataOption = None,
    lines: Annotated[int, typer.Option("-n", "--lines", min=1, help="Number of the newest mails to show.")] = 20,
    full: Annotated[bool, typer.Option(help="Print the text of each mail too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the mails kept by the stack's SMTP server, newest last."""
    from artimon.stack.mail_view import read_mails, show_mails
    from artimon.stack.mailbox import FOLDER

    folder = locate_settings(data).data / FOLDER
    mails = read_mails(folder, lines)
    if as_json:
        print(json.dumps([one.to_json(full=full) for one in mails], indent=1))
    elif mails:
        print(show_mails(mails, full=full))
    else:
        print_error(f"artimon: no mail is kept in {folder}")


@rules_app.command("check")
def rules_check(
    files: Annotated[list[Path], typer.Argument(help="Rule files; check those that belong together in one call.")],
    lint: Annotated[bool, typer.Option("--lint", help="Compare the queries with the series in memory, too.")] = False,
    zookeeper: ZookeeperOption = None,
    data: DataOption = None,
) -> None:
    """Print every error in rule files, with line and column, and warnings; exit 1 if there is an error."""
    from alerts.rules.rule_folder import examine_files
    from artimon.model.select import SelectError
    from artimon.session import open_session

    try:
        if lint:
            with exits(SelectError), open_session(zookeeper_of_store(zookeeper, data), data) as session:
                problems, warnings = examine_files(files, session.lint)
        else:
            problems, warnings = examine_files(files)
    except OSError as error:
        print_error(f"artimon: {error.filename}: {error.strerror}")
        raise typer.Exit(1) from None
    for text in [*map(str, problems), *warnings]:
        print_error(text)
    if problems:
        raise typer.Exit(1)
    print(f"{len(files)} {'files are' if len(files) > 1 else 'file is'} valid")


@rules_app.command("test")
def rules_test(
    files: Annotated[list[Path], typer.Argument(help="Files of unit tests, in the form of `promtool test rules`.")],
) -> None:
    """Run unit tests of rules; exit 1 if one fails."""
    from alerts.evaluation.unit_tests import run_unit_tests
    from alerts.rules.unit_test_file import read_unit_tests
    from artimon.runtime.config_file import ConfigFileError

    failed = False
    for file in files:
        print(f"Unit Testing:  {file}")
        try:
            failures = run_unit_tests(read_unit_tests(file), file.parent)
        except ConfigFileError as error:
            failures = [f"    {problem}" for problem in error.problems]
        except OSError as error:
            failures = [f"    {error.filename}: {error.strerror}"]
        print("\n".join(["  FAILED:", *failures]) if failures else "  SUCCESS", end="\n\n")
        failed = failed or bool(failures)
    if failed:
        raise typer.Exit(1)


@rules_app.command("replay")
def rules_replay(
    files: Annotated[list[Path], typer.Argument(help="Rule files that belong together.")],
    start: Annotated[str, typer.Option("--from", help="Start time: ISO 8601 (UTC), or such as now-30d.")] = "now-30d",
    end: Annotated[str, typer.Option("--to", help="End time.")] = "now",
    compare: Annotated[
        list[Path] | None, typer.Option(help="Rule file of another version, for the differences; may be repeated.")
    ] = None,
    routing: Annotated[Path | None, typer.Option(help="Routing file of the engine.")] = None,
    hdfs: HdfsOption = None,
    zookeeper: ZookeeperOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate rules over the history: firings, durations and messages. Exit codes: 0 answer, 1 error or a rule that
    the history cannot answer, 2 wrong usage, 130 interrupted."""
    from artimon.cli.replay_output import ReplayOptions, run_replay
    from artimon.runtime.process_setup import set_up_libraries

    set_up_libraries()
    place = locate_settings(data)
    options = ReplayOptions(files, compare or [], start, end, routing, hdfs or place.hdfs, zookeeper or place.zookeeper)
    raise typer.Exit(run_replay(options, as_json=as_json))


@rules_app.command("budget")
def rules_budget(
    files: Annotated[list[Path], typer.Argument(help="Rule files with service level objectives.")],
    at: Annotated[str | None, typer.Option(help="Instant: ISO 8601 (UTC), or such as now-1d.")] = None,
    zookeeper: ZookeeperOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print how much of the error budget of each objective is used; exit 1 for an error or without data."""
    from artimon.cli.budget_output import run_budget
    from artimon.runtime.process_setup import set_up_libraries
    from artimon.session import open_session

    set_up_libraries()
    with open_session(zookeeper_of_store(zookeeper, data), data) as session:
        code = run_budget(session, files, at, as_json=as_json)
    raise typer.Exit(code)
