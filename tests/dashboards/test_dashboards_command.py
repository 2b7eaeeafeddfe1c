"""The commands: check, import, export."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from artimon.cli.commands.dashboards import app
from artimon.dashboards.dashboard_file import read_dashboard

GRAFANA = '{"title": "G", "panels": [{"type": "stat", "title": "Up", "targets": [{"expr": "up"}]}, {"type": "news"}]}'


def test_files_are_checked_imported_and_exported(tmp_path: Path) -> None:
    source, made, back = tmp_path / "g.json", tmp_path / "made.yaml", tmp_path / "back.json"
    source.write_text(GRAFANA)
    found = CliRunner().invoke(app, ["dashboards", "import", str(source), "-o", str(made)])
    assert found.exit_code == 0
    assert "not converted: panel '': the type 'news' is not supported" in found.output
    assert read_dashboard(made.read_text(), "made.yaml").panels[0].queries[0].q == "up"
    assert CliRunner().invoke(app, ["dashboards", "export", str(made), "-o", str(back)]).exit_code == 0
    assert '"expr": "up"' in back.read_text()
    checked = CliRunner().invoke(app, ["dashboards", "check", str(made)])
    assert (checked.exit_code, checked.output) == (0, f"{made}: good, 1 panels\n")


def test_a_problem_is_told_with_its_place(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("titel: x\n")
    found = CliRunner().invoke(app, ["dashboards", "check", str(bad), str(tmp_path / "none.yaml")])
    assert found.exit_code == 1
    assert f"{bad}:1:1: titel: unknown key; did you mean title?" in found.output
    assert "No such file" in found.output
    assert CliRunner().invoke(app, ["dashboards", "import", str(bad)]).exit_code == 2
    assert CliRunner().invoke(app, ["dashboards", "export", str(bad)]).exit_code == 1
