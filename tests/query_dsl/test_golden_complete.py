"""No function without its golden rows: the ten cases of each, or a reason why one of them cannot be."""

from __future__ import annotations

import pytest

from query_dsl.functions.tables import TABLES
from tests.query_dsl.test_golden import CASES

WANTED = (
    "empty", "one point", "NA inside", "NaN", "reset", "integer beyond 2^53", "STRING", "BOOLEAN", "min_count",
    "coarse level",
)  # fmt: skip
EXCEPTIONS: dict[tuple[str, str], str] = {}
"""(function or family, case) -> why there is none."""
NAMES = sorted({name for table in TABLES.values() for name in table})


@pytest.mark.parametrize("name", NAMES)
def test_every_function_has_its_golden_rows(name: str) -> None:
    said = {case.name for _, case in CASES}
    families = [family for family, table in TABLES.items() if name in table]
    missing = [
        wanted
        for wanted in WANTED
        if f"{name}: {wanted}" not in said and not any((key, wanted) in EXCEPTIONS for key in (name, *families))
    ]
    assert not missing, f"{name} ({', '.join(families)}): {missing}"


def test_exceptions_are_needed_and_have_a_reason() -> None:
    said = {case.name for _, case in CASES}
    for (name, wanted), reason in EXCEPTIONS.items():
        assert wanted in WANTED
        assert reason.endswith(".")
        assert name in TABLES or f"{name}: {wanted}" not in said, (name, wanted)
