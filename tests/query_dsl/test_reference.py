"""The generated page of functions equals the registries."""

from __future__ import annotations

from pathlib import Path

from query_dsl import parse
from scripts.reference import renewed

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "query.md"
FUNCTIONS = DOCS / "functions.md"


def test_the_tables_are_those_of_the_registries() -> None:
    """If this fails: python -m scripts.reference docs/functions.md"""
    assert renewed(FUNCTIONS.read_text()) == FUNCTIONS.read_text()


def test_the_examples_parse() -> None:
    blocks = [block for block in PAGE.read_text().split("```")[1::2] if block.startswith("\n")]
    lines = [line for block in blocks for line in block.split("\n") if line]
    assert len(lines) >= 5
    for line in lines:
        assert parse(str(parse(line))).equals(parse(line))
