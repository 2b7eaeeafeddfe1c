"""Functions of a window, each from the samples in it. Times in seconds where they are multiplied or divided by."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

from tests.query_dsl.plainly.quantiles import quantile
from tests.query_dsl.plainly.things import Cell, Sample, exact, is_nan, number

NAN = float("nan")


@dataclass(frozen=True)
class Span:
    """The window (start, end] of one series: samples by bucket (empty buckets are left out), oldest first.

    `before`: newest sample at or before `start`, whatever its age. `history`: every sample until `end`.
    `computed`: the values are not samples, but results (one a bucket, at its end)."""

    start: int
    end: int
    buckets: list[list[Sample]]
    before: Sample | None
    type: str
    kind: str
    gap: int
    args: Mapping[str, Any]
    ended: int = 0
    computed: bool = False
    history: list[Sample] = field(default_factory=list)

    def samples(self) -> list[Sample]:
        return [s for bucket in self.buckets for s in bucket]

    def lasts(self) -> list[Sample]:
        """The newest sample of each bucket."""
        return [bucket[-1] for bucket in self.buckets]

    def floats(self) -> list[float]:
        return [number(s.value) for s in self.lasts()]

    def numbers(self) -> list[Any]:
        """Newest values of the buckets, whole numbers as such: nothing is rounded before it is subtracted."""
        return self.floats() if self.type == "DOUBLE" else [Fraction(int(s.value)) for s in self.lasts()]

    def recent(self) -> Sample | None:
        """The predecessor: the newest sample before the window, at most `gap` before it."""
        return self.before if self.before and self.before.time >= self.start - self.gap else None


class Kindof(NamedTuple):
    """`run` of a function; the type of its result: that of the series ("same"), INTEGER unless it is DOUBLE ("exact"),
    or a fixed one; whether it takes STRING."""

    run: Callable[[Span], Cell]
    gives: str
    texts: bool = False


def last(w: Span) -> Cell:
    if not w.buckets or 0 < w.ended <= w.end:
        return None
    return w.lasts()[-1].value


def first(w: Span) -> Cell:
    """Buckets know one value of the oldest bucket: its newest."""
    return w.buckets[0][-1].value if w.buckets else None


def _least(w: Span, choose: Callable[[list[Any]], Any]) -> Cell:
    values = [s.value for s in w.samples()]
    if not values:
        return None
    if w.type == "DOUBLE":
        return NAN if any(is_nan(v) for v in values) else float(choose([number(v) for v in values]))
    return int(choose([int(v) for v in values]))


def least(w: Span) -> Cell:
    return _least(w, min)


def most(w: Span) -> Cell:
    return _least(w, max)


def adding(values: list[float]) -> float:
    """A sum of floats that follows IEEE where they are not finite."""
    return math.fsum(values) if all(map(math.isfinite, values)) else sum(values)


def total(w: Span) -> Cell:
    values = [s.value for s in w.samples()]
    return adding([number(v) for v in values]) if w.type == "DOUBLE" else float(sum(int(v) for v in values))


def mean(w: Span) -> Cell:
    samples = w.samples()
    return number(total(w) or 0.0) / len(samples) if samples else None


def count(w: Span) -> Cell:
    return len(w.samples())


# --- differences ---


def _growth(w: Span, timed: bool = False) -> tuple[float | int | None, int]:
    """(growth, milliseconds from the first predecessor used to the last sample): newest value less the one to begin
    with, and what births in between hide. `timed`: both are needed."""
    samples = w.samples()
    if not samples:
        return None, 0
    begin, since = _begin(w, samples[0])
    if begin is not None:
        return samples[-1].value - begin + _lost(samples), samples[-1].time - since
    if len(samples) == 1:
        return None, 0
    begin, since = _first_known(w, least=not timed)
    return samples[-1].value - begin + _lost(samples), samples[-1].time - since


def _begin(w: Span, x: Sample) -> tuple[Any, int]:
    """(value before the first sample, since when); None where it has no predecessor and no birth that may count."""
    older = w.recent()
    if older and older.birth == x.birth:
        return older.value, older.time
    followed = w.before is None or w.before.birth != x.birth
    born = x.birth >= w.start - w.gap
    if followed and not w.computed and (older or born):
        return 0, older.time if older and not w.start - w.gap <= x.birth <= w.start else x.birth
    return None, 0


def _first_known(w: Span, births: bool = True, least: bool = True) -> tuple[Any, int]:
    """(value, time) that is known of the first life in the first bucket: its least value (whose time nobody knows) if
    it is a counter and the only one there, else its last."""
    bucket = w.buckets[0]
    if births and bucket[0].birth != bucket[-1].birth:
        bucket = [s for s in bucket if s.birth == bucket[0].birth]
    elif least and w.kind == "COUNTER" and bucket[0].birth == bucket[-1].birth and not w.computed:
        values: list[Any] = [s.value for s in bucket]
        return min(values), bucket[-1].time
    return bucket[-1].value, bucket[-1].time


def _lost(samples: list[Sample]) -> Any:
    """Sum of the last values of lives that another life follows."""
    return sum(older.value for older, newer in pairwise(samples) if older.birth != newer.birth)


def increase(w: Span) -> Cell:
    return _of_type(w, _growth(w)[0])


def _of_type(w: Span, growth: float | int | None) -> Cell:
    if growth is None:
        return None
    return float(growth) if w.type == "DOUBLE" else int(growth)  # beyond int64: see `widened`


def widened(kind: str, values: list[Cell]) -> tuple[str, list[Cell]]:
    """(type, values) of a series: DOUBLE if int64 does not hold one of its integers."""
    if kind != "INTEGER" or all(v is None or exact(int(v)) is not None for v in values):
        return kind, values
    return "DOUBLE", [None if v is None else float(v) for v in values]


def rate(w: Span) -> Cell:
    growth, took = _growth(w, timed=True)
    return float(growth) / (took / 1000) if growth is not None and took > 0 else None


def delta(w: Span) -> Cell:
    """Newest value less the predecessor; births do not matter."""
    samples, older = w.samples(), w.recent()
    if not samples or (older is None and len(samples) == 1):
        return None
    begin: Any = older.value if older else _first_known(w, births=False)[0]
    return _of_type(w, samples[-1].value - begin)


def irate(w: Span) -> Cell:
    if len(w.buckets) < 2:
        return None
    older, newer = w.lasts()[-2:]
    if newer.time <= older.time:
        return None
    anew = older.birth != newer.birth
    growth: Any = newer.value if anew else newer.value - older.value  # type: ignore[operator]
    return float(growth) / ((newer.time - older.time) / 1000)


def changes(w: Span) -> Cell:
    values = [s.value for s in w.lasts()]
    return sum(a != b and not (is_nan(a) and is_nan(b)) for a, b in pairwise(values)) if values else None


def resets(w: Span) -> Cell:
    samples = w.samples()
    if not samples:
        return None
    before = w.recent()
    if w.computed:
        chain = ([before] if before else []) + samples
        return sum(b.value < a.value for a, b in pairwise(chain))  # type: ignore[operator]
    return sum(_follows(w, birth) for birth in {s.birth for s in samples})


def _follows(w: Span, birth: int) -> bool:
    """True if a life begins in the window, soon after a sample of the series."""
    begin = next(s.time for s in w.history if s.birth == birth)
    older = [s.time for s in w.history if s.time < begin]
    return begin > w.start and bool(older) and older[-1] >= begin - w.gap


# --- statistics of the newest values of the buckets ---


def middle(values: list[Any]) -> Any:
    return NAN if any(map(is_nan, values)) else statistics.median(values)


def center_of(values: list[Any]) -> Any:
    return sum(values) / len(values) if isinstance(values[0], Fraction) else adding(values) / len(values)


def spread(values: list[Any], ddof: int) -> float | None:
    """Two-pass variance, None under ddof + 1 values."""
    if len(values) <= ddof:
        return None
    center = center_of(values)
    squares = [(v - center) * (v - center) for v in values]  # `**` raises where a float overflows
    return float(center_of(squares) * len(values) / (len(values) - ddof))


def var(w: Span) -> Cell:
    return spread(w.numbers(), w.args["ddof"])


def sd(w: Span) -> Cell:
    found = spread(w.numbers(), w.args["ddof"])
    return None if found is None else math.sqrt(found)


def quantile_over(w: Span) -> Cell:
    return float(quantile(w.numbers(), w.args["q"], w.args["method"])) if w.buckets else None


def median(w: Span) -> Cell:
    return float(middle(w.numbers())) if w.buckets else None


def deviation_of(values: list[Any]) -> float:
    center = middle(values)
    return float(middle([abs(v - center) for v in values]))


def mad(w: Span) -> Cell:
    return deviation_of(w.numbers()) if w.buckets else None


def ieee(a: float, b: float) -> float:
    if b != 0 or math.isnan(a):
        return a / b if b != 0 else NAN
    return NAN if a == 0 else math.copysign(math.inf, a) * math.copysign(1.0, b)


def zscore(w: Span) -> Cell:
    values = w.numbers()
    if len(values) < 2:
        return None
    if w.args["robust"]:
        return ieee(0.6745 * float(values[-1] - middle(values)), deviation_of(values))
    found = spread(values, w.args["ddof"])
    return None if found is None else ieee(float(values[-1] - center_of(values)), math.sqrt(found))


def ewma(w: Span) -> Cell:
    values = w.floats()
    if not values:
        return None
    s = values[0]
    for x in values[1:]:
        s = w.args["alpha"] * x + (1 - w.args["alpha"]) * s
    return s


def holt(w: Span) -> Cell:
    values, alpha, beta = w.floats(), w.args["alpha"], w.args["beta"]
    if len(values) < 2:
        return None
    level, trend = values[0], values[1] - values[0]
    for x in values[1:]:
        before = level
        level = alpha * x + (1 - alpha) * (level + trend)
        trend = beta * (level - before) + (1 - beta) * trend
    return level


def _line(w: Span) -> tuple[float, float, float] | None:
    """(slope a second, mean of the values, mean of the times in seconds after the first) of the least-squares line."""
    points = w.lasts()
    times = [(s.time - points[0].time) / 1000 for s in points]
    if len(points) < 2 or times[-1] == 0:
        return None
    t0, values = math.fsum(times) / len(times), w.numbers()
    v0 = center_of(values)
    across = adding([(t - t0) * float(v - v0) for t, v in zip(times, values, strict=True)])
    return across / math.fsum((t - t0) ** 2 for t in times), float(v0), t0


def derivative(w: Span) -> Cell:
    line = _line(w)
    return line[0] if line else None


def predict_linear(w: Span) -> Cell:
    line = _line(w)
    if line is None:
        return None
    slope, v0, t0 = line
    return float(v0 + slope * ((w.args["t"] + w.args["horizon"] - w.lasts()[0].time) / 1000 - t0))


def _time_of(w: Span, choose: Callable[[Any], Any]) -> Cell:
    """Time of the newest of the chosen values; NaN only where there is nothing else."""
    points = [s for s in w.lasts() if not is_nan(s.value)] or w.lasts()
    if not points:
        return None
    values = [s.value for s in points]
    wanted = values[-1] if is_nan(values[-1]) else choose(values)
    return max(s.time for s in points if s.value == wanted or is_nan(wanted))


def since_change(w: Span) -> Cell:
    values = w.lasts()
    found = [b.time for a, b in pairwise(values) if a.value != b.value and not (is_nan(a.value) and is_nan(b.value))]
    return (w.args["t"] - found[-1]) / 1000 if found else None


def longest_streak(w: Span) -> Cell:
    """Seconds of the longest run of true buckets, each `step` wide."""
    best, run, before, step = 0, 0, 0, w.args["step"]
    for s in w.lasts():
        number = -(-s.time // step)
        true = not is_nan(s.value) and bool(s.value)
        run = 0 if not true else run + 1 if number == before + 1 else 1
        best, before = max(best, run), number
    return best * step / 1000 if w.buckets else None


WINDOWS: dict[str, Kindof] = {
    "last": Kindof(last, "same", True),
    "first": Kindof(first, "same", True),
    "min": Kindof(least, "exact"),
    "max": Kindof(most, "exact"),
    "sum": Kindof(total, "DOUBLE"),
    "mean": Kindof(mean, "DOUBLE"),
    "count": Kindof(count, "INTEGER", True),
    "increase": Kindof(increase, "exact"),
    "delta": Kindof(delta, "exact"),
    "rate": Kindof(rate, "DOUBLE"),
    "irate": Kindof(irate, "DOUBLE"),
    "changes": Kindof(changes, "INTEGER", True),
    "resets": Kindof(resets, "INTEGER"),
    "time_of_max": Kindof(lambda w: _time_of(w, max), "INTEGER"),
    "time_of_min": Kindof(lambda w: _time_of(w, min), "INTEGER"),
    "since_change": Kindof(since_change, "DOUBLE", True),
    "longest_streak": Kindof(longest_streak, "DOUBLE"),
    "quantile": Kindof(quantile_over, "DOUBLE"),
    "median": Kindof(median, "DOUBLE"),
    "sd": Kindof(sd, "DOUBLE"),
    "var": Kindof(var, "DOUBLE"),
    "mad": Kindof(mad, "DOUBLE"),
    "zscore": Kindof(zscore, "DOUBLE"),
    "ewma": Kindof(ewma, "DOUBLE"),
    "holt": Kindof(holt, "DOUBLE"),
    "derivative": Kindof(derivative, "DOUBLE"),
    "predict_linear": Kindof(predict_linear, "DOUBLE"),
}
LOOKS_BACK = frozenset({"increase", "delta", "rate", "resets"})
GRID_ONLY = frozenset({"time_of_max", "time_of_min", "longest_streak"})
DEFAULTS: dict[str, dict[str, Any]] = {
    "quantile": {"method": "linear"},
    "sd": {"ddof": 1},
    "var": {"ddof": 1},
    "zscore": {"robust": False, "ddof": 1},
}
