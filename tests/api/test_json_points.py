"""Points of an answer have the same bytes with and without a compiler, and are the numbers that Prometheus writes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from artimon.api import json_points
from artimon.api.json_points import number, seconds, write_points
from artimon.compute.cells import Bools, Floats
from tests.seeds import fixed_and_drawn

EDGES = (0.0, -0.0, 5.0, -12.0, 1e9, 1e-5, 1e-7, 1e16, 1e21, 123456789.25, 5e-324, 1.5, np.nan, np.inf, -np.inf)


def without_compiler(heads: list[bytes], times_ms: list[int], values: Floats, here: Bools, tail: bytes) -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_points, "kernels", lambda: None)
        return write_points(heads, times_ms, values, here, tail)


def meant(heads: list[bytes], times_ms: list[int], values: Floats, here: Bools, tail: bytes) -> bytes:
    """Write the points one by one."""
    rows = []
    for head, row, shown in zip(heads, values.tolist(), here.tolist(), strict=True):
        points = [
            f'[{seconds(time)},"{number(value)}"]'
            for time, value, is_there in zip(times_ms, row, shown, strict=True)
            if is_there
        ]
        rows.append(head + ",".join(points).encode() + tail)
    return b"".join(rows)


@pytest.mark.parametrize("seed", fixed_and_drawn([3], "points of answers"))
def test_both_forms_write_each_point(seed: int) -> None:
    random = np.random.default_rng(seed)
    for series, times, missing, odd in ((1, 1, 0.0, 0.0), (3, 60, 0.0, 0.0), (40, 7, 0.3, 0.1), (5, 3, 1.0, 0.5)):
        values = np.where(random.random((series, times)) < 0.5, random.random((series, times)), 10.0 * series)
        values = np.where(random.random(values.shape) < odd, random.choice(EDGES, values.shape), values)
        here = random.random(values.shape) >= missing
        heads = [f'{{"metric":{{"i":"ü{i}"}},"values":['.encode() for i in range(series)]
        times_ms = [1_800_000_000_000 + 60_000 * i + (500 if odd else 0) for i in range(times)]
        given = heads, times_ms, np.asfortranarray(values), np.asfortranarray(here), b"]}"
        assert write_points(*given) == without_compiler(*given) == meant(*given)


def test_edges_of_numbers_and_empty_answers() -> None:
    values = np.array([EDGES])
    here, times_ms = np.ones(values.shape, np.bool_), [1000 * i for i in range(len(EDGES))]
    text = write_points([b"["], times_ms, values, here, b"]")
    assert [value for _, value in json.loads(text)][:8] == [
        "0", "-0", "5", "-12", "1000000000", "0.00001", "1e-07", "10000000000000000",
    ]  # fmt: skip
    assert write_points([], times_ms, values[:0], here[:0], b"]}") == b""
    assert write_points([b"a", b"b"], [], np.zeros((2, 0)), np.zeros((2, 0), np.bool_), b"]}") == b"a]}b]}"
