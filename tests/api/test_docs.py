"""docs/api.md says what there is: every route, every limit with its default, and examples that run."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import pytest

from artimon.api.api_limits import ApiLimits, MiB
from artimon.api.matrix_service import idl
from artimon.runtime.http.http_limits import KiB
from tests.api.serving import served, small_app
from tests.api.test_matrix import cached_shard

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text()
UNITS = {"KiB": KiB, "MiB": MiB, "s": 1}


def defaults() -> dict[str, float]:
    """Names and numbers of the table of limits."""
    found: dict[str, float] = {}
    rows = [row.split("|")[1:3] for row in PAGE.partition("## Limits")[2].splitlines() if row.startswith("| `")]
    for names, values in rows:
        numbers = [
            float(number.replace(",", "")) * UNITS.get(unit, 1)
            for number, unit in re.findall(r"([\d,]*\d)(?: (KiB|MiB|s))?", values)
        ]
        words = re.findall(r"`(\w+)`", names)
        numbers *= len(words) if len(numbers) == 1 else 1
        found |= dict(zip(words, numbers, strict=True))
    return found


def test_every_limit_is_in_the_table_with_its_default() -> None:
    assert defaults() == asdict(ApiLimits())


@pytest.mark.parametrize("path", sorted(small_app().openapi()["paths"]))
def test_every_route_is_told(path: str) -> None:
    assert f"{path}`" in PAGE
    assert f"$ARTIMON_API{path}" in PAGE


def test_every_call_and_reason_of_thrift_is_told() -> None:
    for method in idl().Matrix.thrift_services:
        assert f"`{method}(" in PAGE
    for reason in re.findall(
        r'"(\w+)"', (ROOT / "artimon/api/matrix.thrift").read_text().partition("For a program")[2]
    ):
        assert f"`{reason}`" in PAGE


def test_the_python_example_of_thrift_runs(capsys: pytest.CaptureFixture[str]) -> None:
    example = next(text for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "thriftpy2" in text)
    with served(cached_shard()) as client:
        text = example.replace("8781", str(client.thrift_port)).replace('"artimon/', f'"{ROOT}/artimon/')
        exec(compile(text, "docs/api.md", "exec"), {})
    told = capsys.readouterr().out
    assert told.count("\n") == 5
    assert 'memcached.items{dc="jb",host="a"}' in told
