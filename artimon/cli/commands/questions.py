"""Commands that search the series, show the kept mails and check rule files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from artimon.cli.common import (
    DataOption,
    JsonOption,
    Panel,
    ZookeeperOption,
    asked_store,
    located,
)

PANEL = Panel.ASK
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
    from artimon import questions
    from artimon.session import Found, open_session

    place = asked_store(zookeeper, data)

    def look(selector: str) -> Found:
        with open_session(place, data) as session:
            return session.find(selector, limit, engine=engine)

    raise typer.Exit(questions.find(selector, look, as_json=as_json))


@app.command()
def mail(
    data: DataOption = None,
    lines: Annotated[int, typer.Option("-n", "--lines", min=1, help="Number of the newest mails to show.")] = 20,
    full: Annotated[bool, typer.Option(help="Print the text of each mail too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the mails kept by the stack's SMTP server, newest last."""
    from artimon import questions

    raise typer.Exit(questions.mail(located(data).data, count=lines, as_json=as_json, full=full))


@rules_app.command("check")
def rules_check(
    files: Annotated[list[Path], typer.Argument(help="Rule files; check those that belong together in one call.")],
) -> None:
    """Print every error in rule files, with line and column; exit 1 if there is one."""
    from artimon import questions

    raise typer.Exit(questions.check_rules(files))
