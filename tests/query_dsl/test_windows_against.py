"""Window functions agree with numpy, scipy, pandas and statsmodels on the values of each window."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

from artimon.compute.quantiles import METHODS
from tests.query_dsl.window_rows import STEP, random_rows, values
from tests.seeds import drawn

Plain = Callable[[np.ndarray[Any, Any], np.ndarray[Any, Any]], float | None]
"""(values, their columns) of one window -> what is expected; the window's last column is `width` - 1."""


@cache
def peer(name: str) -> Any:
    """Import a library when a test asks for it: no other worker needs these large ones."""
    return pytest.importorskip(name)


def compare(name: str, width: int, plain: Plain, tolerance: float = 1e-9, **args: Any) -> None:
    rows = random_rows(width) + random_rows(drawn(f"windows {width}"))
    got = values(name, rows, width, **args)
    seen = 0
    for row, out in zip(rows, got, strict=True):
        for start, value in enumerate(out):
            window = row[start : start + width]
            here = [i for i, v in enumerate(window) if v is not None]
            expect = plain(np.array([window[i] for i in here], float), np.array(here))
            if expect is None:
                assert value is None
            else:
                seen += 1
                assert value is not None
                assert math.isclose(value, expect, rel_tol=tolerance, abs_tol=1e-7), (name, window, value, expect)
    assert seen > 50


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("q", [0, 0.1, 0.25, 0.5, 2 / 3, 0.9, 1])
def test_quantile(method: Any, q: float) -> None:
    compare("quantile", 8, lambda x, _: float(np.quantile(x, q, method=method)) if len(x) else None, q=q, method=method)


@pytest.mark.parametrize("method", METHODS)
def test_quantile_at_every_place(method: Any) -> None:
    """Ties, and places that lie exactly on a value, for every number of values up to nine."""
    for n in range(1, 10):
        row = [float(v) for v in range(n)]
        for k in range(4 * n + 1):
            q = k / (4 * n)
            expect = float(np.quantile(row, q, method=method))
            assert values("quantile", [row], n, q=q, method=method) == [[expect]], (n, q)


def test_median() -> None:
    compare("median", 7, lambda x, _: float(np.median(x)) if len(x) else None)


@pytest.mark.parametrize("ddof", [0, 1, 2])
def test_variance(ddof: int) -> None:
    compare("var", 9, lambda x, _: float(np.var(x, ddof=ddof)) if len(x) > ddof else None, ddof=ddof)
    compare("sd", 9, lambda x, _: float(np.std(x, ddof=ddof)) if len(x) > ddof else None, ddof=ddof)


def test_sd_as_pandas() -> None:
    rows = random_rows(3)
    got = values("sd", rows, 6)
    for row, out in zip(rows, got, strict=True):
        expect = pd.Series(row, dtype=float).rolling(6, min_periods=2).std().to_numpy()[5:]
        mine = np.array([math.nan if v is None else v for v in out])
        np.testing.assert_allclose(mine, expect, rtol=1e-6)


def test_median_deviation() -> None:
    compare("mad", 9, lambda x, _: float(peer("scipy.stats").median_abs_deviation(x)) if len(x) else None)


def test_zscore() -> None:
    compare("zscore", 9, lambda x, _: float(peer("scipy.stats").zscore(x, ddof=1)[-1]) if len(x) > 1 else None)


def test_robust_zscore() -> None:
    def plain(x: np.ndarray[Any, Any], _at: object) -> float | None:
        mad = peer("scipy.stats").median_abs_deviation
        return 0.6745 * float(x[-1] - np.median(x)) / mad(x) if len(x) > 1 else None

    compare("zscore", 9, plain, robust=True)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
def test_ewma_equals_pandas(alpha: float) -> None:
    def plain(x: np.ndarray[Any, Any], _at: object) -> float | None:
        return float(pd.Series(x).ewm(alpha=alpha, adjust=False).mean().iloc[-1]) if len(x) else None

    compare("ewma", 10, plain, alpha=alpha)


def test_holt_equals_statsmodels() -> None:
    def plain(x: np.ndarray[Any, Any], _at: object) -> float | None:
        if len(x) < 3:  # statsmodels takes no series of one value after the two that begin it
            return float(x[1]) if len(x) == 2 else None
        model = peer("statsmodels.tsa.holtwinters").Holt(
            x[1:], initialization_method="known", initial_level=x[0], initial_trend=x[1] - x[0]
        )  # fmt: skip
        return float(model.fit(smoothing_level=0.4, smoothing_trend=0.3, optimized=False).level[-1])

    compare("holt", 8, plain, alpha=0.4, beta=0.3)


def test_derivative() -> None:
    def plain(x: np.ndarray[Any, Any], at: np.ndarray[Any, Any]) -> float | None:
        return float(peer("scipy.stats").linregress(at * STEP / 1000, x).slope) if len(x) > 1 else None

    compare("derivative", 10, plain)


def test_predict_linear() -> None:
    def plain(x: np.ndarray[Any, Any], at: np.ndarray[Any, Any]) -> float | None:
        if len(x) < 2:
            return None
        line = peer("scipy.stats").linregress(at * STEP / 1000, x)
        return float(line.intercept + line.slope * (9 * STEP + 30_000) / 1000)

    compare("predict_linear", 10, plain, horizon=30_000)
