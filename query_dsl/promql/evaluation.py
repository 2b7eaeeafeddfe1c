"""Evaluation of PromQL over raw samples: all steps of all series of a node at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from artimon.compute.cells import Bools, Floats, Ints
from artimon.model.select import Matcher
from query_dsl.promql import aggregations, range_functions, vector_operators
from query_dsl.promql.histograms import bucket_fraction, bucket_quantile, of_histograms
from query_dsl.promql.label_sets import NAME, LabelSets
from query_dsl.promql.promql_values import (
    ScalarValue,
    TextValue,
    Value,
    VectorValue,
    charge_cells,
    drop_names,
    empty_vector,
)
from query_dsl.promql.samples import SeriesSamples, Windows, make_windows, newest, no_samples
from query_dsl.promql.tree import (
    Aggregation,
    At,
    Binary,
    Call,
    Negation,
    Node,
    NotSupported,
    Number,
    Paren,
    PromqlError,
    Selector,
    Subquery,
    Text,
    without_parens,
)
from query_dsl.promql.vector_functions import (
    DATES,
    MATH,
    clamp,
    format_value,
    label_join,
    label_replace,
    round_to,
)
from query_dsl.stores.query_limits import QueryBudget

LOOK_BACK_MS = 300_000
DEFAULT_STEP_MS = 60_000
"""Step of subqueries without one."""
MAX_STEPS = 11_000
"""Limit of the points of a series, as in Prometheus."""
MAX_SUBQUERY_STEPS = 1_000_000
COUNTER_SUFFIXES = ("_total", "_sum", "_count", "_bucket")
NATIVE_ONLY = ("histogram_avg", "histogram_count", "histogram_sum", "histogram_stddev", "histogram_stdvar")
SORTS = ("sort", "sort_desc", "sort_by_label", "sort_by_label_desc")


class SampleSource(Protocol):
    """Source of raw samples."""

    def read(self, matchers: tuple[Matcher, ...], after_ms: int, until_ms: int) -> SeriesSamples:
        """Return the samples with time in (after_ms, until_ms] of the series that match."""
        ...


@dataclass(slots=True)
class Remarks:
    """Warnings and remarks for the reader, each once."""

    warnings: dict[str, None] = field(default_factory=dict)
    infos: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Context:
    """Steps of the evaluation. `start_ms` and `end_ms` are those of the whole query, for `@ start()` and `@ end()`."""

    source: SampleSource
    text: str
    times_ms: Ints
    start_ms: int
    end_ms: int
    instant: bool
    look_back_ms: int = LOOK_BACK_MS
    budget: QueryBudget = field(default_factory=QueryBudget)
    remarks: Remarks = field(default_factory=Remarks)

    @property
    def seconds(self) -> Floats:
        return self.times_ms / 1000

    def charge_cells(self, series: int) -> None:
        """Count the cells of a vector before it is made. Raises LimitExceeded."""
        charge_cells(self.budget, series, len(self.times_ms))

    def warn(self, message: str) -> None:
        self.remarks.warnings[f"PromQL warning: {message}"] = None

    def inform(self, message: str) -> None:
        self.remarks.infos[f"PromQL info: {message}"] = None

    def place(self, position: int) -> str:
        """Return "(line:column)" of a position of the text."""
        before = self.text[:position]
        return f"({before.count(chr(10)) + 1}:{position - before.rfind(chr(10))})"

    def shifted(self, offset_ms: int, at: At | None) -> Ints:
        """Return the time of the data at each step."""
        if at is None:
            return self.times_ms - offset_ms
        fixed = {"start": self.start_ms, "end": self.end_ms}.get(at.edge, at.time_ms)
        return np.full(len(self.times_ms), (fixed or 0) - offset_ms, np.int64)


def evaluate(node: Node, context: Context) -> Value:
    """Return the value of a whole query: names are dropped and equal series united."""
    found = _value(node, context)
    return drop_names(found) if isinstance(found, VectorValue) else found


def raw_range(node: Selector | Subquery, context: Context) -> SeriesSamples:
    """Return the samples of a range vector at the only step of the context."""
    windows = _windows(node, context)
    first, last = windows.first[:, 0], windows.last[:, 0]
    counts = last - first
    places = np.repeat(first - np.concatenate(([0], np.cumsum(counts)[:-1])), counts) + np.arange(counts.sum())
    found, kept = windows.samples, counts > 0
    offsets = np.concatenate(([0], np.cumsum(counts[kept])))
    labels = found.labels.take(kept)
    return SeriesSamples(labels, offsets, found.times_ms[places], found.values[places], found.dropped[kept])


def _value(node: Node, context: Context) -> Value:
    context.budget.check()
    match node:
        case Number(value):
            return ScalarValue(np.full(len(context.times_ms), value))
        case Text(text):
            return TextValue(text)
        case Paren(child):
            return _value(child, context)
        case Negation(child):
            return _negated(_value(child, context))
        case Selector():
            return _selected(node, context)[0]
        case Call():
            return _call(node, context)
        case Aggregation():
            return _aggregation(node, context)
        case Binary():
            return _binary(node, context)
    raise PromqlError("a range vector needs a function such as rate()", None, context.text)


def _negated(found: Value) -> Value:
    if isinstance(found, ScalarValue):
        return ScalarValue(-found.values)
    assert isinstance(found, VectorValue)
    return found.with_values(-found.values)


def _vector(node: Node, context: Context) -> VectorValue:
    found = _value(node, context)
    assert isinstance(found, VectorValue)
    return found


def _scalar(node: Node, context: Context) -> Floats:
    found = _value(node, context)
    assert isinstance(found, ScalarValue)
    return found.values


def _string(node: Node, context: Context) -> str:
    found = _value(node, context)
    assert isinstance(found, TextValue)
    return found.text


# --- selectors


def _read(context: Context, matchers: tuple[Matcher, ...], after_ms: int, until_ms: int) -> SeriesSamples:
    samples = context.source.read(matchers, after_ms, until_ms)
    context.budget.charge(samples.labels.count, samples.values.nbytes * 2, len(samples.values))
    return samples


def _selected(node: Selector, context: Context) -> tuple[VectorValue, Ints]:
    """Return the newest samples at each step, and their times."""
    times_ms = context.shifted(node.offset_ms, node.at)
    if not len(times_ms):
        return empty_vector(0), np.zeros((0, 0), np.int64)
    samples = _read(context, node.matchers, int(times_ms.min()) - context.look_back_ms, int(times_ms.max()))
    context.charge_cells(samples.labels.count)
    values, found_ms, here = newest(samples, times_ms, context.look_back_ms)
    return VectorValue(samples.labels, values, here, samples.dropped), found_ms


def _windows(node: Node, context: Context) -> Windows:
    """Return the windows of a range vector at each step."""
    node = without_parens(node)
    assert isinstance(node, Selector | Subquery)
    ends_ms = context.shifted(node.offset_ms, node.at)
    if not len(ends_ms):
        return make_windows(no_samples(), ends_ms, node.range_ms, context.budget.check)
    if isinstance(node, Selector):
        samples = _read(context, node.matchers, int(ends_ms.min()) - node.range_ms, int(ends_ms.max()))
    else:
        samples = _subquery(node, ends_ms, context)
    context.charge_cells(samples.labels.count)
    return make_windows(samples, ends_ms, node.range_ms, context.budget.check)


def _subquery(node: Subquery, ends_ms: Ints, context: Context) -> SeriesSamples:
    """Return the values of the child at multiples of the step as samples."""
    step_ms = node.step_ms or DEFAULT_STEP_MS
    first = (int(ends_ms.min()) - node.range_ms) // step_ms * step_ms + step_ms
    steps = (int(ends_ms.max()) - first) // step_ms + 1
    if steps > MAX_SUBQUERY_STEPS:
        raise PromqlError(
            f"the subquery has {steps:,} steps, at most {MAX_SUBQUERY_STEPS:,}: use a longer step or a shorter range",
            None,
            context.text,
        )
    times_ms = first + step_ms * np.arange(steps, dtype=np.int64)
    found = _vector(node.child, replace(context, times_ms=times_ms, instant=False)).present()
    context.budget.charge(found.labels.count, found.values.nbytes * 2, found.values.size)
    counts = found.here.sum(axis=1)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    _, places = np.nonzero(found.here)
    return SeriesSamples(found.labels, offsets, times_ms[places], found.values[found.here], found.dropped)


# --- calls


def _call(node: Call, context: Context) -> Value:
    name, args = node.function, node.args
    if name in NATIVE_ONLY:
        raise NotSupported(f"{name} needs native histograms, which are not supported", node.position, context.text)
    if name in range_functions.WINDOWED:
        windows = _windows(args[0], context)
        return _of_windows(name, windows, range_functions.WINDOWED[name](windows), context)
    if name in MATH:
        vector = _vector(args[0], context)
        with np.errstate(all="ignore"):
            return vector.with_values(MATH[name](vector.values))
    if name in DATES:
        vector = _vector(args[0], context) if args else _of_scalar(context.seconds)
        return vector.with_values(DATES[name](vector.values))
    if name in SORTS:
        return _sorted(node, context)
    return _FUNCTIONS[name](node, context)


def _of_scalar(values: Floats) -> VectorValue:
    """Return the vector of one series without labels."""
    return VectorValue(LabelSets(1, {}), values[None, :], np.ones((1, len(values)), np.bool_), np.zeros(1, np.bool_))


def _of_windows(name: str, windows: Windows, result: range_functions.Result, context: Context) -> VectorValue:
    """Return the results of a function of windows; the last and first samples keep their names."""
    values, here = result
    samples = windows.samples
    keeps = name in ("last_over_time", "first_over_time")
    dropped = samples.dropped if keeps else np.ones_like(samples.dropped)
    found = VectorValue(samples.labels, values, here, dropped).present()
    if name in ("rate", "increase"):
        for metric in dict.fromkeys(found.labels.texts(NAME)):
            if metric and not metric.endswith(COUNTER_SUFFIXES):
                context.inform(
                    f'metric might not be a counter, name does not end in _total/_sum/_count/_bucket: "{metric}"'
                )
    return found


def _sorted(node: Call, context: Context) -> VectorValue:
    vector = _vector(node.args[0], context)
    if not context.instant:
        context.warn(
            "sort is ineffective for range queries since results are always ordered by labels"
            f" {context.place(node.position)}"
        )
        return vector
    vector = vector.present()
    descending = node.function.endswith("_desc")
    if "label" in node.function:
        wanted = [_string(arg, context) for arg in node.args[1:]]
        texts = [vector.labels.texts(label) for label in wanted]
        rows = vector.labels.sort_order().tolist()
        order = sorted(
            rows[::-1] if descending else rows, key=lambda i: [_natural(t[i]) for t in texts], reverse=descending
        )
        return replace(vector.take(np.array(order, np.intp)), ordered=True)
    values = vector.values[:, 0]
    order_of = np.lexsort((-values if descending else values, np.isnan(values)))
    return replace(vector.take(order_of), ordered=True)


def _natural(text: str) -> list[tuple[int, int, str]]:
    """Return a key that orders numbers within texts by value."""
    parts: list[tuple[int, int, str]] = []
    digits = ""
    for char in [*text, ""]:
        if char.isdigit() and char.isascii():
            digits += char
            continue
        if digits:
            number = digits.lstrip("0")
            parts.append((0, len(number), number))
            digits = ""
        if char:
            parts.append((1, 0, char))
    return parts


def _timestamp(node: Call, context: Context) -> Value:
    inner = without_parens(node.args[0])
    if isinstance(inner, Selector):
        vector, found_ms = _selected(inner, context)
        return vector.with_values(found_ms / 1000)
    vector = _vector(inner, context)
    return vector.with_values(np.broadcast_to(context.seconds, vector.values.shape))


def _absent_labels(node: Node) -> LabelSets:
    """Return the labels of `absent`: those that the selector compares with `=` once."""
    node = without_parens(node)
    labels: dict[str, str] = {}
    if isinstance(node, Selector):
        names = [one.label for one in node.matchers]
        labels = {
            one.label: one.value
            for one in node.matchers
            if one.op == "=" and one.value and one.label != NAME and names.count(one.label) == 1
        }
    return LabelSets.from_dicts([labels])


def _absent(node: Call, context: Context) -> Value:
    if node.function == "absent":
        here = _vector(node.args[0], context).here
    else:
        here = _windows(node.args[0], context).counts > 0
    some: Bools = np.any(here, axis=0)
    values = np.ones((1, len(context.times_ms)))
    return VectorValue(_absent_labels(node.args[0]), values, ~some[None, :], np.zeros(1, np.bool_))


def _to_scalar(node: Call, context: Context) -> Value:
    vector = _vector(node.args[0], context)
    one = vector.here.sum(axis=0) == 1
    values = np.where(vector.here, vector.values, 0.0).sum(axis=0)
    return ScalarValue(np.where(one, values, np.nan))


def _round(node: Call, context: Context) -> Value:
    vector = _vector(node.args[0], context)
    nearest = _scalar(node.args[1], context) if len(node.args) > 1 else np.ones(len(context.times_ms))
    with np.errstate(all="ignore"):
        return vector.with_values(round_to(vector.values, nearest))


def _clamp(node: Call, context: Context) -> Value:
    vector = _vector(node.args[0], context)
    bounds = [_scalar(arg, context) for arg in node.args[1:]]
    low = bounds[0] if node.function != "clamp_max" else np.full(len(context.times_ms), -np.inf)
    high = bounds[-1] if node.function != "clamp_min" else np.full(len(context.times_ms), np.inf)
    with np.errstate(all="ignore"):
        return clamp(vector, low, high)


def _label_replace(node: Call, context: Context) -> Value:
    target, replacement, source, pattern = (_string(arg, context) for arg in node.args[1:])
    return label_replace(_vector(node.args[0], context).present(), target, replacement, source, pattern, context.budget)


def _label_join(node: Call, context: Context) -> Value:
    target, separator, *sources = (_string(arg, context) for arg in node.args[1:])
    return label_join(_vector(node.args[0], context).present(), target, separator, tuple(sources), context.budget)


def _check_quantile(q: Floats, node: Call | Aggregation, context: Context) -> None:
    for value in np.unique(q[~((q >= 0) & (q <= 1))]).tolist():
        text = format_value(value)
        context.warn(f"quantile value should be between 0 and 1, got {text} {context.place(node.position)}")


def _histogram_quantile(node: Call, context: Context) -> Value:
    q = _scalar(node.args[0], context)
    vector = _vector(node.args[1], context)
    _check_quantile(q, node, context)
    return of_histograms(
        vector,
        lambda le, counts, t: bucket_quantile(float(q[t]), le, counts),
        _histogram_warner(context),
        context.budget,
    )


def _histogram_fraction(node: Call, context: Context) -> Value:
    low, high = _scalar(node.args[0], context), _scalar(node.args[1], context)
    vector = _vector(node.args[2], context)
    return of_histograms(
        vector,
        lambda le, counts, t: bucket_fraction(float(low[t]), float(high[t]), le, counts),
        _histogram_warner(context),
        context.budget,
    )


def _histogram_warner(context: Context) -> Callable[[str, str], None]:
    def warn(what: str, metric: str) -> None:
        if what == "bucket":
            context.warn(f'bucket label "le" is missing or has a malformed value for metric name "{metric}"')
        else:
            context.inform(
                "input to histogram_quantile needed to be fixed for monotonicity (see"
                " https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile) for metric name"
                f' "{metric}"'
            )

    return warn


def _quantile_over_time(node: Call, context: Context) -> Value:
    q = _scalar(node.args[0], context)
    _check_quantile(q, node, context)
    windows = _windows(node.args[1], context)
    return _of_windows(node.function, windows, range_functions.quantile_over_time(windows, q), context)


def _predict_linear(node: Call, context: Context) -> Value:
    windows = _windows(node.args[0], context)
    found = range_functions.predict_linear(windows, _scalar(node.args[1], context), context.times_ms)
    return _of_windows(node.function, windows, found, context)


def _smoothing(node: Call, context: Context) -> Value:
    level, trend = _scalar(node.args[1], context), _scalar(node.args[2], context)
    for what, factor in (("smoothing", level), ("trend", trend)):
        if not ((factor > 0) & (factor < 1)).all():
            raise PromqlError(
                f"invalid {what} factor. Expected: 0 < {what[0]}f < 1, got: {factor[0]:f}", None, context.text
            )
    windows = _windows(node.args[0], context)
    return _of_windows(
        node.function, windows, range_functions.double_exponential_smoothing(windows, level, trend), context
    )


_FUNCTIONS: dict[str, Callable[[Call, Context], Value]] = {
    "time": lambda _, context: ScalarValue(context.seconds),
    "pi": lambda _, context: ScalarValue(np.full(len(context.times_ms), np.pi)),
    "vector": lambda node, context: _of_scalar(_scalar(node.args[0], context)),
    "scalar": _to_scalar,
    "timestamp": _timestamp,
    "absent": _absent,
    "absent_over_time": _absent,
    "round": _round,
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": _clamp,
    "label_replace": _label_replace,
    "label_join": _label_join,
    "histogram_quantile": _histogram_quantile,
    "histogram_fraction": _histogram_fraction,
    "quantile_over_time": _quantile_over_time,
    "predict_linear": _predict_linear,
    "double_exponential_smoothing": _smoothing,
}


# --- aggregations and operators


def _aggregation(node: Aggregation, context: Context) -> Value:
    name, where = node.function, (node.labels, node.without)
    if name == "count_values":
        assert node.param is not None
        vector, label = _vector(node.child, context), _string(node.param, context)
        return aggregations.count_values(vector, label, *where, context.budget)
    if node.param is None:
        return aggregations.aggregate(name, _vector(node.child, context), *where)
    param, vector = _scalar(node.param, context), _vector(node.child, context)
    if name == "quantile":
        _check_quantile(param, node, context)
        return aggregations.quantile(vector, param, *where, context.budget)
    found = aggregations.choose(name, vector, param, *where, context.budget)
    return found if context.instant else replace(found, ordered=False)


def _binary(node: Binary, context: Context) -> Value:
    op, left, right = node.op, _value(node.left, context), _value(node.right, context)
    if isinstance(left, ScalarValue) and isinstance(right, ScalarValue):
        return ScalarValue(vector_operators.compute(op, left.values, right.values))
    if isinstance(left, VectorValue) and isinstance(right, ScalarValue):
        return vector_operators.with_scalar(op, left, right.values, False, node.bool_modifier)
    if isinstance(left, ScalarValue) and isinstance(right, VectorValue):
        return vector_operators.with_scalar(op, right, left.values, True, node.bool_modifier)
    assert isinstance(left, VectorValue)
    assert isinstance(right, VectorValue)
    if op in vector_operators.SETS:
        return vector_operators.combine_sets(op, left, right, node.matching)
    return vector_operators.combine(op, left, right, node.matching, node.bool_modifier, context.budget)
