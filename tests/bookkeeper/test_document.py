"""docs/bookkeeper.md: its examples run, its query reads what they count, and it names every reason of a refusal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import bookkeeper
from bookkeeper.runtime import process_settings as settings
from bookkeeper.variables.canonical import canonical
from query_dsl import offline
from tests.bookkeeper.books import replaced
from tests.bookkeeper.polling import REPOSITORY

TEXT = (REPOSITORY / "docs" / "bookkeeper.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
FOLDER = Path(bookkeeper.__file__).parent


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_examples_run(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they stand there; nothing is refused, and something is counted."""
    monkeypatch.setenv("ARTIMON_DROPIN", str(tmp_path))
    with replaced(strict=True) as book:
        exec(compile(EXAMPLES[number], f"example {number}", "exec"), {})
        assert book.collect()
        assert book.refusals() == {}


def test_the_query_reads_the_histogram() -> None:
    """The text of the page, over what its example counts."""
    (query,) = re.findall(r"^fetch\(.*histogram_quantile.*$", TEXT, re.MULTILINE)
    with replaced() as book:
        for _ in range(100):
            bookkeeper.timer("page.seconds", {"page": "start"}).observe(0.3)
        series: dict[str, Any] = {
            canonical(entry.name, entry.labels): [(0, 0), (60_000, int(entry.value))]
            for entry in book.collect()
            if entry.name == "page.seconds.bucket"
        }
    found = offline(series, kinds=dict.fromkeys(series, "counter")).query(query, at=120_000).tolist(0)
    numbers = [value for value in found if isinstance(value, float) and value == value]
    assert numbers
    assert all(0.25 < value <= 0.5 for value in numbers)


def test_every_reason_is_named() -> None:
    """In the table, and nothing else is."""
    code = "\n".join(path.read_text() for path in FOLDER.rglob("*.py"))
    reasons = set(re.findall(r'VariableRefused\(\s*"(\w+)"', code))
    section = TEXT[TEXT.index("## Refused calls") : TEXT.index("## Read variables in the process")]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert {reason for row in rows for reason in re.findall(r"`(\w+)`", row)} == reasons


def test_every_setting_is_named() -> None:
    """Each variable of the environment that the settings read stands in the page, or where it sends one."""
    names = set(re.findall(r'"(ARTIMON_[A-Z_]+)"', Path(settings.__file__).read_text()))
    others = {"ARTIMON_SECURE_POLLS", "ARTIMON_ZOOKEEPER_AUTH", "ARTIMON_"}
    assert {name for name in names - others if f"`{name}`" not in TEXT} == set()
