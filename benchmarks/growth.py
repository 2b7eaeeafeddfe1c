"""Plots of growth: measured points, and a model fitted to them for the sizes that this machine does not hold.

artimon bench growth docs/benchmarks.jsonl docs/pictures

A model is a sum of terms with coefficients that are not negative; its relative errors are least. The plots show it as
lines, measured points as dots, points of the model at sizes that were not measured as circles, and print its greatest
relative error. Executors of Spark have dots alone.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from benchmarks.suite.results import Record, ResultsError, failed, read

Floats = npt.NDArray[np.float64]
Term = Callable[[Floats, Floats], Floats]
SERIES = np.geomspace(10_000, 8_000_000, 60)
SIZES = np.array([1e4, 1e5, 1e6, 4e6, 8e6])
SHARDS = (1, 2, 4, 8, 16)
WITHIN = 0.2
"""Aim of the cost of a sample: this share around its mean, whatever the size."""
EXECUTOR_LINE = re.compile(r"pipeline\.executors@(\d+)")
SHARD_LINE = re.compile(r"varstore\.scale\.(\w+)@(\d+)x(\d+)")
TERMS: Mapping[str, Term] = {
    "1": lambda series, shards: np.ones_like(series),  # noqa: ARG005
    "n": lambda series, shards: shards,  # noqa: ARG005
    "S": lambda series, shards: series,  # noqa: ARG005
    "1/S": lambda series, shards: 1 / series,  # noqa: ARG005
    "n/S": lambda series, shards: shards / series,
}
"""Terms of models, of S series and n processes."""


@dataclass(frozen=True, slots=True)
class Plot:
    """Growth of one figure. `terms`: those of its model; `inverse`: the model is that of 1 / figure."""

    figure: str
    title: str
    unit: str
    terms: tuple[str, ...]
    inverse: bool = False


PLOTS = (
    Plot("feed", "Samples fed to the shards", "samples/s", ("1", "1/S", "n/S"), inverse=True),
    Plot("cpu", "Work of the shards", "core-µs a sample", ("1", "1/S", "n/S")),
    Plot("memory", "Resident memory of the shards", "bytes a series", ("1", "n/S")),
    Plot("rack", "Mean by rack of a tenth of the series", "ms", ("1", "n", "S")),
)


@dataclass(frozen=True, slots=True)
class Model:
    """Coefficients of terms; `error` is the greatest relative error at the measured points."""

    terms: tuple[str, ...]
    factors: tuple[float, ...]
    inverse: bool
    error: float

    def at(self, series: Floats, processes: Floats) -> Floats:
        """Return the figure for S series and n processes."""
        total = sum(
            (factor * TERMS[term](series, processes) for term, factor in zip(self.terms, self.factors, strict=True)),
            start=np.zeros_like(series),
        )
        return 1 / total if self.inverse else total

    def text(self) -> str:
        """Return the formula and the greatest error."""
        words = [f"{factor:.3g}" + (f" {term}" if term != "1" else "") for term, factor in self._used()]
        formula = " + ".join(words)
        return f"{f'1 / ({formula})' if self.inverse else formula}; error ≤ {self.error:.0%}"

    def _used(self) -> list[tuple[str, float]]:
        return [pair for pair in zip(self.terms, self.factors, strict=True) if pair[1] > 0]


def fit(series: Floats, processes: Floats, values: Floats, terms: tuple[str, ...], inverse: bool = False) -> Model:
    """Return the model with the least squares of relative errors. No coefficient is negative: each subset of the terms
    is fitted freely, and the best one without a negative coefficient is taken."""
    wanted = 1 / values if inverse else values
    columns = np.stack([TERMS[term](series, processes) / wanted for term in terms], axis=1)
    best, least = np.zeros(len(terms)), np.inf
    for size in range(1, len(terms) + 1):
        for chosen in itertools.combinations(range(len(terms)), size):
            found, *_ = np.linalg.lstsq(columns[:, chosen], np.ones(len(values)), rcond=None)
            left = float(np.square(columns[:, chosen] @ found - 1).sum())
            if (found >= 0).all() and left < least:
                best, least = np.zeros(len(terms)), left
                best[list(chosen)] = found
    model = Model(terms, tuple(map(float, best)), inverse, 0.0)
    error = np.abs(model.at(series, processes) / values - 1).max()
    return Model(terms, model.factors, inverse, float(error))


def shard_points(records: Sequence[Record], figure: str) -> tuple[Floats, Floats, Floats]:
    """Return series, shards and values of the measured cases without replicas. Raises ResultsError if there are fewer
    than three."""
    found = [(SHARD_LINE.fullmatch(one["name"]), one) for one in records if not failed(one)]
    rows = [(int(m[2]), int(m[3]), float(one["value"])) for m, one in found if m and m[1] == figure]
    if len(rows) < 3:
        raise ResultsError(f"varstore.scale.{figure}: {len(rows)} cases were measured, a model needs three")
    series, shards, values = np.array(rows, float).T
    return series, shards, values


def draw_shards(records: Sequence[Record], plot: Plot) -> tuple[Figure, str]:
    """Return the plot of a figure of the shards, and its model as text."""
    series, shards, values = shard_points(records, plot.figure)
    model = fit(series, shards, values, plot.terms, plot.inverse)
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot(xscale="log", yscale="log", title=plot.title, xlabel="series (S)", ylabel=plot.unit)
    for place, number in enumerate(SHARDS):
        here = shards == number
        axes.plot(SERIES, model.at(SERIES, np.full_like(SERIES, number)), "--", color=f"C{place}", linewidth=1)
        label = f"{number} shards" if here.any() else f"{number} shards, model alone"
        axes.plot(series[here], values[here], "o", color=f"C{place}", label=label)
        open_ = SIZES[~np.isin(SIZES, series[here])]
        axes.plot(open_, model.at(open_, np.full_like(open_, number)), "o", color=f"C{place}", fillstyle="none")
    title = f"n shards: {model.text()}\ndots: measured; circles: model"
    axes.legend(title=title, fontsize="small", title_fontsize="small")
    axes.grid(alpha=0.3)
    return figure, model.text()


def draw_executors(records: Sequence[Record]) -> tuple[Figure, str] | None:
    """Return the plot of the cost of a sample by number of executors, and the costs as text; None without a point."""
    found = [(EXECUTOR_LINE.fullmatch(one["name"]), one) for one in records if not failed(one)]
    rows = sorted((int(m[1]), float(one["value"])) for m, one in found if m)
    if not rows:
        return None
    count, cost = np.array(rows).T
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot(title="Work of Spark and shards", xlabel="executors", ylabel="core-µs a sample")
    axes.plot(count, cost, "o")
    middle = float(cost.mean())
    axes.axhspan((1 - WITHIN) * middle, (1 + WITHIN) * middle, alpha=0.15, label=f"mean ± {WITHIN:.0%}")
    axes.set_ylim(bottom=0)
    axes.set_xticks(count)
    axes.legend(fontsize="small")
    return figure, ", ".join(f"{value:.3g} with {number:.0f}" for number, value in rows)


def draw_all(records: Sequence[Record], folder: Path) -> list[str]:
    """Write every plot; return a line for each."""
    mpl.rcParams.update({"svg.hashsalt": "artimon", "svg.fonttype": "path"})
    told = []
    for plot in PLOTS:
        figure, text = draw_shards(records, plot)
        told.append(_save(figure, folder / f"growth_{plot.figure}.svg", text))
    if drawn := draw_executors(records):
        told.append(_save(drawn[0], folder / "growth_executors.svg", drawn[1]))
    return told


def _save(figure: Figure, path: Path, text: str) -> str:
    figure.savefig(path, metadata={"Date": None})
    return f"{path.name}: {text}"


def main(args: Sequence[str]) -> int:
    """Run the command line; the module describes it."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="artimon bench growth", description=__doc__, formatter_class=form)
    parser.add_argument("file", type=Path, help="results of `artimon bench all --json FILE`")
    parser.add_argument("folder", type=Path, help="folder of the plots")
    options = parser.parse_args(args)
    try:
        for text in draw_all(read(options.file), options.folder):
            print(text)
    except (OSError, ResultsError) as error:
        print(f"artimon bench growth: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
