"""Commands for files of dashboards: check, import from Grafana, export to Grafana."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from artimon.cli.common import Panel

PANEL = Panel.OPERATE
group = typer.Typer(no_args_is_help=True, help="Check, import and export files of dashboards.")
app = typer.Typer()
app.add_typer(group, name="dashboards")
OutputOption = Annotated[Path | None, typer.Option("--output", "-o", help="File to write. Default: standard output.")]


@group.command()
def check(files: Annotated[list[Path], typer.Argument(help="Files of dashboards in YAML.")]) -> None:
    """Check files of dashboards with all their queries; exit code 1 if one has a problem."""
    from artimon.dashboards.dashboard_file import check_name, read_dashboard
    from artimon.runtime.config_file import ConfigFileError, read_config_text

    failed = 0
    for file in files:
        try:
            check_name(file.stem)
            found = read_dashboard(read_config_text(file), str(file))
            print(f"{file}: good, {len(found.panels)} panels")
        except ConfigFileError as problem:
            print(problem, file=sys.stderr)
            failed += 1
        except (OSError, ValueError) as problem:
            print(f"{file}: {getattr(problem, 'strerror', None) or problem}", file=sys.stderr)
            failed += 1
    if failed:
        raise typer.Exit(1)


@group.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="Dashboard of Grafana in JSON.")], output: OutputOption = None
) -> None:
    """Convert a dashboard of Grafana to YAML; what could not be converted is listed."""
    from artimon.dashboards.grafana_import import import_grafana

    try:
        found = import_grafana(_read(file))
    except ValueError as problem:
        raise typer.BadParameter(f"{file}: {problem}") from None
    _write(found.text, found.problems, output)


@group.command()
def export(
    file: Annotated[Path, typer.Argument(help="File of a dashboard in YAML.")], output: OutputOption = None
) -> None:
    """Convert a dashboard to the JSON of Grafana; queries that are not in PromQL are listed."""
    from artimon.dashboards.dashboard_file import read_dashboard
    from artimon.dashboards.grafana_export import export_grafana
    from artimon.runtime.config_file import ConfigFileError

    try:
        found = export_grafana(read_dashboard(_read(file), str(file)))
    except ConfigFileError as problem:
        print(problem, file=sys.stderr)
        raise typer.Exit(1) from None
    _write(found.text, found.problems, output)


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise typer.BadParameter(f"{file} cannot be read: {problem}") from None


def _write(text: str, problems: list[str], output: Path | None) -> None:
    for one in problems:
        print(f"not converted: {one}", file=sys.stderr)
    if output is None:
        print(text, end="" if text.endswith("\n") else "\n")
        return
    try:
        output.write_text(text, "utf-8")
    except OSError as problem:
        raise typer.BadParameter(f"{output} cannot be written: {problem.strerror}") from None
    print(f"{output}: {len(problems)} things not converted")
