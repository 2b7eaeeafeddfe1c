"""Interactive chart of an answer in a notebook: uPlot in a widget, with cursor, zoom and a legend that hides series."""

from __future__ import annotations

import math
from importlib import import_module
from importlib.resources import files
from typing import Any

from artimon.progress_bar import in_notebook
from query_dsl.results.matrix import Matrix
from query_dsl.results.plot import MAX_LINES
from query_dsl.results.result_cells import STRING

HEIGHT = 320
COLOURS = ("#1f6feb", "#d1570a", "#1a7f37", "#8250df", "#b42318", "#0a7f8c", "#9a6700", "#bf3989")
_RENDER = """
function draw({model, el}) {
  const data = model.get("data");
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const axis = {stroke: dark ? "#d0d7de" : "#24292f", grid: {stroke: dark ? "#30363d" : "#d8dee4", width: 1}};
  const series = data.series.map((one, i) => ({
    label: one.label, stroke: data.colours[i % data.colours.length], width: 1.5, spanGaps: false,
    dash: i < data.colours.length ? undefined : [6, 3],
  }));
  const box = document.createElement("div");
  box.setAttribute("role", "img");
  box.setAttribute("aria-label", data.title);
  el.append(box);
  const options = {
    title: data.title, width: Math.max(320, el.clientWidth || 800), height: data.height,
    tzDate: (s) => uPlot.tzDate(new Date(s * 1000), "UTC"), cursor: {drag: {x: true, y: false}},
    axes: [axis, {...axis, size: 70}], series: [{label: "UTC"}, ...series],
  };
  const chart = new uPlot(options, [data.times, ...data.series.map((one) => one.values)], box);
  const sized = new ResizeObserver(() => chart.setSize({width: Math.max(320, el.clientWidth), height: data.height}));
  sized.observe(el);
  return () => { sized.disconnect(); chart.destroy(); };
}
export default {render: draw};
"""


def show(matrix: Matrix) -> Any:
    """Return a widget in a notebook that has anywidget, else the axes of `Matrix.plot`."""
    if in_notebook():
        try:
            return make_widget(matrix)
        except ImportError:
            pass  # the extra `notebook` is not installed
    return matrix.plot()


def chart_data(matrix: Matrix) -> dict[str, Any]:
    """Return times in seconds, and numbers of each series: None where missing or not finite. Texts are left out."""
    rows = [i for i, kind in enumerate(matrix.types.tolist()) if kind != STRING]
    drawn = [{"label": matrix.series[i], "values": [_number(v) for v in matrix.tolist(i)]} for i in rows[:MAX_LINES]]
    left = [f"{len(rows) - MAX_LINES:,} more series are not drawn"] if len(rows) > MAX_LINES else []
    left += [f"{len(matrix) - len(rows):,} series of texts are left out"] if len(matrix) > len(rows) else []
    title = "; ".join([matrix.query or f"{len(matrix):,} series", *left])
    times = [ms / 1000 for ms in matrix.times]
    return {"times": times, "series": drawn, "title": title, "height": HEIGHT, "colours": COLOURS}


def _number(value: object) -> float | int | None:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float) and math.isfinite(value):
        return value
    return None


def make_widget(matrix: Matrix) -> Any:
    """Return a widget of the answer. Raises ImportError without anywidget."""
    anywidget: Any = import_module("anywidget")
    traitlets: Any = import_module("traitlets")
    vendor = files("artimon.api") / "static" / "vendor" / "uplot"
    members = {
        "_esm": (vendor / "uPlot.iife.min.js").read_text(encoding="utf-8") + _RENDER,
        "_css": (vendor / "uPlot.min.css").read_text(encoding="utf-8"),
        "data": traitlets.Dict(chart_data(matrix)).tag(sync=True),
    }
    return type("Chart", (anywidget.AnyWidget,), members)()
