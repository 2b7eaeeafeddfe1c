"""Window functions computed by shards equal those computed by the evaluator."""

from __future__ import annotations

from typing import Any

import pytest

from artimon.model.values import Kind
from query_dsl import Matrix
from tests.query_dsl.pushing import Together
from tests.query_dsl.test_pushdown import MINUTE, T, Told, fed_shards, same

CALLS = [
    "'quantile', '5m', 0.9, method='hazen'", "'median', '5m'", "'sd', '3m', ddof=0", "'var', '5m'", "'mad', '5m'",
    "'zscore', '5m', robust=True", "'ewma', '4m', 0.3", "'holt', '4m', 0.5, 0.2", "'derivative', '5m'",
    "'predict_linear', '3m', '10m', after='2m'", "'irate', '5m'", "'changes', '5m'", "'resets', '10m', max_gap='2m'",
]  # fmt: skip


def sampled(i: int, value: type) -> Told:
    """40 minutes, a sample every 50 s, with pauses and restarts."""
    out: list[Any] = []
    birth = T - 3_600_000
    for k in range(48):
        time = T - 40 * MINUTE + 50_000 * k + 1_000 * i
        if (k + i) % 11 == 10:
            continue
        if (k + i) % 13 == 12:
            birth = time - 2_000
        out.append((time, birth, value((k * (i + 3)) % 17 - (4 if value is float else 0))))
    return Told(f"m{i % 2}", (("host", f"h{i}"), ("rack", f"r{i % 3}")), Kind.COUNTER, tuple(out), "s", i)


@pytest.fixture(scope="module")
def both_shards() -> Together:
    return fed_shards([sampled(i, float if i % 3 else int) for i in range(7)], 2)


@pytest.mark.parametrize("call", CALLS)
def test_the_same_as_from_buckets(call: str, both_shards: Together) -> None:
    before = both_shards.pushed
    for reducer in ("sum", "max"):  # two minutes earlier, so that windows of `after` are settled
        text = f"fetch('m0').map({call}).{reducer}(by=['rack']).offset('2m').range('15m')"
        found = same(text, both_shards)
        assert isinstance(found, Matrix)
        assert found.present.any()
    assert both_shards.pushed == before + 2
    assert not both_shards.refused


def test_invalid_arguments_are_refused_by_shards_too(both_shards: Together) -> None:
    assert "at most 1" in str(same("fetch('m0').map('quantile', '5m', 2).sum(by=[]).range('15m')", both_shards))
