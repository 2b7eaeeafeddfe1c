"""The files that the how-to guides show are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from artimon.cli import app
from sources.scrape.sources_file import read_sources
from tests.docs.test_architecture import ROOT

BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = [text for page in sorted((ROOT / "docs" / "howto").glob("*.md")) for text in BLOCK.findall(page.read_text())]
OTHER_FILES = ("rules:", "apiVersion:", "remote_read:")
"""First keys of rule files, and of files of Grafana and Prometheus."""


@pytest.mark.parametrize("text", [text for text in BLOCKS if not text.startswith(OTHER_FILES)])
def test_files_of_sources_are_valid(text: str, tmp_path: Path) -> None:
    file = tmp_path / "sources.yaml"
    file.write_text(text)
    found = read_sources(file)
    assert found.pages or found.jmx


@pytest.mark.parametrize("text", [text for text in BLOCKS if text.startswith("rules:")])
def test_rule_files_are_valid(text: str, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(text)
    checked = CliRunner().invoke(app, ["rules", "check", str(file)])
    assert checked.exit_code == 0, checked.output
