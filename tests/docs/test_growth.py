"""Models of growth: they find what the points were made from, and plots have every point."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import growth
from benchmarks.suite.results import Record

MACHINE: Record = {"name": "machine", "commit": "c0ffee", "dirty": False, "form": "usual"}
CASES = np.array([(series, shards) for series in (1e4, 1e5, 1e6) for shards in (1, 2, 4)])


def records(figure: str, values: growth.Floats) -> list[Record]:
    return [
        {"name": f"varstore.scale.{figure}@{series:.0f}x{shards:.0f}", "value": float(value)}
        for (series, shards), value in zip(CASES, values, strict=True)
    ]


def every_record() -> list[Record]:
    series, shards = CASES.T
    made = {
        "feed": 1e6 + 0 * series,
        "cpu": 0.4 + 0 * series,
        "memory": 700 + 2e8 * shards / series,
        "rack": series / 1e5,
    }
    costs: list[Record] = [{"name": f"pipeline.executors@{n}", "value": 1.5} for n in (1, 2)]
    return [*costs, *(one for figure, values in made.items() for one in records(figure, values))]


def test_a_model_finds_the_coefficients_and_goes_on_to_sizes_that_were_not_measured() -> None:
    series, shards = CASES.T
    model = growth.fit(series, shards, 700 + 2e8 * shards / series, ("1", "n/S"))
    assert model.factors == pytest.approx((700, 2e8))
    assert model.error < 1e-6
    assert model.at(np.array([8e6]), np.array([16.0])) == pytest.approx([1_100])


def test_no_coefficient_is_negative() -> None:
    """Else a figure that falls with the shards would be below zero at 16 of them."""
    series, shards = CASES.T
    model = growth.fit(series, shards, 10.0 - shards, ("1", "n"))
    assert min(model.factors) >= 0
    assert model.error > 0.1
    assert (model.at(np.array([1e4]), np.array([16.0])) > 0).all()


def test_a_rate_is_fitted_by_its_inverse() -> None:
    series, shards = CASES.T
    rate = 1 / (1e-6 + 1e-3 * shards / series)
    model = growth.fit(series, shards, rate, ("1", "n/S"), inverse=True)
    assert model.at(series, shards) == pytest.approx(rate)
    assert model.text() == "1 / (1e-06 + 0.001 n/S); error ≤ 0%"


def test_every_figure_has_a_plot_and_runs_without_change_give_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("".join(json.dumps(one) + "\n" for one in (MACHINE, *every_record())))
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        assert growth.main([str(tmp_path / "results"), str(tmp_path / folder)]) == 0
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert names == {f"growth_{name}.svg" for name in ("feed", "cpu", "memory", "rack", "executors")}
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_too_few_points_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "results").write_text(json.dumps(MACHINE) + "\n")
    assert growth.main([str(tmp_path / "results"), str(tmp_path)]) == 2
    assert "a model needs three" in capsys.readouterr().err
