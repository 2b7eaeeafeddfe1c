"""The page for readers says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from query_dsl import parse
from query_dsl.reference import renewed

PAGE = Path(__file__).parents[2] / "docs" / "query.md"


def test_the_tables_are_those_of_the_registries() -> None:
    """If this fails: python -m query_dsl.reference docs/query.md"""
    assert renewed(PAGE.read_text()) == PAGE.read_text()


def test_the_examples_parse() -> None:
    blocks = re.findall(r"```\n(.*?)```", PAGE.read_text(), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) >= 5
    for line in lines:
        assert parse(str(parse(line))).equals(parse(line))
