"""Command `artimon query`."""

from __future__ import annotations

import re
import sys
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from artimon.cli.common import DataOption, JsonOption, Panel, ZookeeperOption, zookeeper_of_store

PANEL = Panel.QUERY
app = typer.Typer()
_SECONDS = re.compile(r"\d+(\.\d+)?(ms|s|m|min|h)?")
_DEFAULT = "10s"


class WatchCommand(TyperCommand):
    """Command whose option --watch has an optional value: the next word, only if it is a duration."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        joined: list[str] = []
        words = iter(enumerate(args))
        for i, word in words:
            if word != "--watch" or i >= end:
                joined.append(word)
            elif i + 1 < end and _SECONDS.fullmatch(args[i + 1]):
                joined.append(f"--watch={next(words)[1]}")
            else:
                joined.append(f"--watch={_DEFAULT}")
        return super().parse_args(ctx, joined)


def _every(text: str | None) -> str | None:
    """Reject an invalid duration, or one shorter than 1 s, as a usage error."""
    if text is not None and _seconds(text) < 1:
        raise typer.BadParameter(f"{text} is too short: at least 1s")
    return text


def _seconds(text: str) -> float:
    from artimon.runtime.text import parse_duration

    try:
        return parse_duration(text if not text[-1:].isdigit() else f"{text}s") / 1000
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None


@app.command(cls=WatchCommand)
def query(
    text: Annotated[str, typer.Argument(help="The query, such as \"fetch('host.cpu.ms').rate()\".")],
    zookeeper: ZookeeperOption = None,
    data: DataOption = None,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, one line per value.")] = False,
    at: Annotated[str | None, typer.Option(help="Evaluation time: ISO 8601 (UTC), or such as now-1h.")] = None,
    engine: Annotated[
        Literal["auto", "memory", "history"], typer.Option(help="Engine: the shards, the raw table, or both.")
    ] = "auto",
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Run the query and print its plan, engine, level with the reason, and reads, instead of the answer.",
        ),
    ] = False,
    lint: Annotated[
        bool,
        typer.Option("--lint", help="Print what is probably wrong in the query, instead of the answer; exit 1 if any."),
    ] = False,
    watch: Annotated[
        str | None,
        typer.Option(metavar="[SECONDS]", callback=_every, help="Repeat the query (every 10 s) until Ctrl-C."),
    ] = None,
    partial_windows: Annotated[
        bool,
        typer.Option("--partial-windows", help="Answer windows that memory does not hold whole; else they are NA."),
    ] = False,
    promql: Annotated[bool, typer.Option("--promql", help="The query is PromQL.")] = False,
    start: Annotated[
        str | None, typer.Option(help="With --promql: first time of a range query, such as now-1h.")
    ] = None,
    step: Annotated[str, typer.Option(help="With --start: step of the range query.")] = "1m",
    exact_increase: Annotated[
        bool | None,
        typer.Option(
            "--exact-increase/--no-exact-increase",
            help="With --promql: increase and rate count from the starts of processes (ARTIMON_PROMQL_EXACT_INCREASE).",
        ),
    ] = None,
    to_dsl: Annotated[
        bool,
        typer.Option("--to-dsl", help="With --promql: print the query in our language instead of the answer."),
    ] = False,
    series: Annotated[int, typer.Option(min=1, help="Maximum number of lines in the table.")] = 40,
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Charts and names in ASCII.")] = False,
) -> None:
    """Query the memory shards, the history, or both. Exit codes: 0 answer, 1 error, 2 wrong usage, 130 interrupted."""
    if as_json and as_csv:
        raise typer.BadParameter("choose one of --json and --csv")
    if explain and (as_csv or watch is not None):
        raise typer.BadParameter("--explain cannot be combined with --csv or --watch")
    if lint and (as_csv or explain or watch is not None):
        raise typer.BadParameter("--lint cannot be combined with --csv, --explain or --watch")
    if promql and (explain or partial_windows):
        raise typer.BadParameter("--promql cannot be combined with --explain or --partial-windows")
    if start is not None and not promql:
        raise typer.BadParameter("--start needs --promql: use .range() or .between() in the query")
    if exact_increase is not None and not promql:
        raise typer.BadParameter("--exact-increase needs --promql: .increase() and .rate() are exact")
    if to_dsl:
        if not promql:
            raise typer.BadParameter("--to-dsl needs --promql: the query is in our language already")
        raise typer.Exit(_print_dsl(text))
    raise typer.Exit(
        _run_query(
            zookeeper_of_store(zookeeper, data),
            text,
            format="json" if as_json else "csv" if as_csv else "text",
            data=data,
            at=at,
            engine=engine,
            explain=explain,
            lint=lint,
            every_s=None if watch is None else _seconds(watch),
            partial_windows=partial_windows,
            promql=promql,
            start=start,
            step=step,
            exact_increase=exact_increase,
            series=series,
            ascii_only=ascii_only,
        )
    )


def _print_dsl(text: str) -> int:
    from query_dsl.promql import PromqlError
    from query_dsl.promql import to_dsl as translate

    try:
        print(translate(text))
    except PromqlError as problem:
        print(f"artimon: {problem}", file=sys.stderr)
        return 1
    return 0


def _run_query(where: str, text: str, *, data: object, **shown: object) -> int:
    from artimon.cli.query_output import QueryOptions, run_query, supports_unicode
    from artimon.model.select import SelectError
    from artimon.runtime.process_setup import set_up_libraries
    from artimon.session import open_session

    set_up_libraries()
    shown["ascii_only"] = shown["ascii_only"] or not supports_unicode(sys.stdout)
    try:
        session = open_session(where, data)  # type: ignore[arg-type]
    except SelectError as problem:
        print(f"artimon: {problem}", file=sys.stderr)
        return 1
    with session:
        return run_query(session, QueryOptions(text, **shown))  # type: ignore[arg-type]
