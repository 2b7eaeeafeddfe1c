"""The files that the how-to guides show are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from artimon.cli import app
from sources.scrape.discovery.scrape_config import read_prometheus_file
from sources.scrape.sources_file import read_sources
from tests.docs.test_architecture import ROOT

BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = [text for page in sorted((ROOT / "docs" / "howto").glob("*.md")) for text in BLOCK.findall(page.read_text())]


RULES, GRAFANA, PROMETHEUS = "rules:", "apiVersion:", "remote_read:"
"""First words of the files that are not files of sources."""


@pytest.mark.parametrize("text", [text for text in BLOCKS if not text.startswith((RULES, GRAFANA, PROMETHEUS))])
def test_files_of_sources_are_valid(text: str, tmp_path: Path) -> None:
    file = tmp_path / "sources.yaml"
    file.write_text(text)
    found = read_sources(file)
    assert found.pages or found.jmx


def test_the_data_source_of_grafana_is_that_of_the_examples() -> None:
    shown = [text for text in BLOCKS if text.startswith(GRAFANA)]
    assert shown == [(ROOT / "examples" / "grafana" / "artimon.yaml").read_text()]


@pytest.mark.parametrize("text", [text for text in BLOCKS if text.startswith(PROMETHEUS)])
def test_files_of_prometheus_have_a_job(text: str, tmp_path: Path) -> None:
    """The jobs are those that an agent reads from the same file."""
    file = tmp_path / "prometheus.yml"
    file.write_text(text)
    assert [one.job.name for one in read_prometheus_file(file)] == ["artimon"]


@pytest.mark.parametrize("text", [text for text in BLOCKS if text.startswith(RULES)])
def test_rule_files_are_valid(text: str, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(text)
    checked = CliRunner().invoke(app, ["rules", "check", str(file)])
    assert checked.exit_code == 0, checked.output
