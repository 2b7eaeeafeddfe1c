"""Charts draw the values of the matrix, keep gaps, and read no text as a formula."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib
import numpy as np
import pytest

from artimon.model.values import Value
from query_dsl import Matrix, evaluate, parse
from query_dsl.results.plot import MAX_LINES, MAX_WORDS, PlotError
from query_dsl.stores.levels import SETTLE_MS
from tests.query_dsl.plain_store import PlainStore

STEP = 60_000
START = 1_795_000_020_000 // STEP * STEP


@pytest.fixture(autouse=True)
def agg() -> Iterator[None]:
    """Draw without a screen, and forget the figures."""
    matplotlib.use("agg")
    from matplotlib import pyplot

    yield
    pyplot.close("all")


def matrix(*series: tuple[dict[str, str], Sequence[Value | None]], name: str = "v", partial: bool = False) -> Matrix:
    """Series of values a minute apart, None where missing."""
    store = PlainStore(partial=partial)
    for labels, values in series:
        store.add(name, labels, [(START + (i + 1) * STEP, v) for i, v in enumerate(values) if v is not None])
    n = len(series[0][1])
    query = parse(f"fetch('{name}').between({START}, {START + n * STEP})")
    return evaluate(query, store, START + n * STEP + SETTLE_MS).with_query(str(query))


def drawn(axes: Any) -> None:
    """Lay out and draw everything; a wrong formula fails only then."""
    axes.figure.canvas.draw()


def texts(axes: Any) -> list[str]:
    """Texts of the legend."""
    return [text.get_text().strip() for text in axes.get_legend().get_texts()]


def test_lines_have_the_values_and_gaps_for_what_is_missing() -> None:
    found = matrix(({"r": "a"}, [1.5, None, 2.5, 3.5]), ({"r": "b"}, [7.0, math.nan, math.inf, 8.0]))
    axes = found.plot()
    drawn(axes)
    first, second = axes.get_lines()
    assert np.array_equal(first.get_ydata(), [1.5, math.nan, 2.5, 3.5], equal_nan=True)
    assert np.array_equal(second.get_ydata(), [7, math.nan, math.nan, 8], equal_nan=True)
    assert first.get_xdata().astype("datetime64[ms]").astype(int).tolist() == found.times
    assert first.get_markevery() == [0]  # a point between gaps is still seen
    assert texts(axes) == ['r="a"', 'r="b"']
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("v", "time (UTC)")
    assert axes.get_title(loc="left") == found.query


def test_the_time_axis_is_utc() -> None:
    axes = matrix(({}, [1] * 30)).plot()
    drawn(axes)
    ticks = [text.get_text() for text in axes.get_xticklabels()]
    hour = np.datetime64(START, "ms").astype("datetime64[h]").astype(object).hour
    assert any(tick.startswith((f"{hour:02}:", f"{hour + 1:02}:")) for tick in ticks), ticks


def test_plot_draws_on_given_axes_with_given_style() -> None:
    from matplotlib import pyplot

    _, axes = pyplot.subplots()
    assert matrix(({}, [1, 2])).plot(axes, title="mine", legend=0, color="red", marker="") is axes
    assert axes.get_title(loc="left") == "mine"
    assert axes.get_legend() is None
    assert axes.get_lines()[0].get_color() == "red"


def test_booleans_are_steps_between_words() -> None:
    axes = matrix(({"r": "a"}, [True, False, None, True])).plot()
    drawn(axes)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["false", "true"]
    assert axes.get_lines()[0].get_drawstyle() == "steps-pre"
    assert np.array_equal(axes.get_lines()[0].get_ydata(), [1, 0, math.nan, 1], equal_nan=True)


def test_texts_have_an_axis_of_words() -> None:
    axes = matrix(({"r": "a"}, ["up", None, "down", "$x_{$"])).plot()
    drawn(axes)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["$x_{$", "down", "up"]
    assert np.array_equal(axes.get_lines()[0].get_ydata(), [2, math.nan, 1, 0], equal_nan=True)


def test_texts_beside_numbers_are_left_out_and_said() -> None:
    axes = matrix(({"r": "a"}, ["up", "down"]), ({"r": "b"}, [1, 2])).plot()
    assert len(axes.get_lines()) == 1
    assert "1 STRING series left out" in axes.get_title(loc="left")
    assert texts(axes) == ['r="b"']


def test_too_many_words_are_refused() -> None:
    with pytest.raises(PlotError, match="use the table"):
        matrix(({}, [str(i) for i in range(MAX_WORDS + 1)])).plot()


def test_many_series_are_cut_and_it_is_said() -> None:
    axes = matrix(*(({"i": f"{i:03}"}, [float(i), 1.0]) for i in range(MAX_LINES + 5))).plot(legend=3)
    assert len(axes.get_lines()) == MAX_LINES
    assert texts(axes) == ['i="000"', 'i="001"', 'i="002"', f"… and {MAX_LINES - 3} more"]
    assert f"{MAX_LINES} of {MAX_LINES + 5} series shown" in axes.get_title(loc="left")


def test_no_text_is_a_formula_and_no_label_is_hidden() -> None:
    found = matrix(({"_x": "$\\frac{1$"}, [1, 2]), ({"_x": "\x1b[2J" + "y" * 500}, [2, 3]))
    axes = found.plot(title="$\\bad{$")
    drawn(axes)
    second, first = texts(axes)
    assert first == '_x="$\\frac{1$"'
    assert second.startswith('_x="\\x1b[2J')
    assert len(second) <= 80


def test_nothing_and_partial_are_said() -> None:
    one = matrix(({}, [1, 2]), partial=True)
    assert "partial" in one.plot().get_title(loc="left")
    nothing = Matrix((), one.grid, type(one.column)(one.types[:0], one.cells[:0], one.present[:0]))
    axes = nothing.plot()
    drawn(axes)
    assert axes.get_title(loc="left") == "no series"


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(PlotError, match=r"install artimon\[notebook\]"):
        matrix(({}, [1])).plot()
