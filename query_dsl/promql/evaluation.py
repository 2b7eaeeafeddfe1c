"""Evaluation of PromQL over raw samples: all steps of all series of a node at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from artimon.compute import sample_windows
from artimon.compute.cells import Bools, Floats, Ints
from artimon.compute.packed_samples import Windows, make_windows, newest
from artimon.model.select import Matcher
from query_dsl.promql import aggregations, vector_operators
from query_dsl.promql.evaluation_context import DEFAULT_STEP_MS, MAX_SUBQUERY_STEPS, Context
from query_dsl.promql.histograms import OfStep, bucket_fraction, bucket_quantile, of_histograms
from query_dsl.promql.label_sets import NAME, LabelSets
from query_dsl.promql.promql_values import (
    ScalarValue,
    TextValue,
    Value,
    VectorValue,
    drop_names,
    empty_vector,
)
from query_dsl.promql.pushed_nodes import inform_gauges, map_windows, push_down
from query_dsl.promql.samples import SeriesSamples, no_samples
from query_dsl.promql.tree import (
    Aggregation,
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

NATIVE_ONLY = ("histogram_avg", "histogram_count", "histogram_sum", "histogram_stddev", "histogram_stdvar")
SORTS = ("sort", "sort_desc", "sort_by_label", "sort_by_label_desc")


def evaluate(node: Node, context: Context) -> Value:
    """Return the value of a whole query: names are dropped and equal series united."""
    found = _value(node, context)
    return drop_names(found) if isinstance(found, VectorValue) else found


def raw_range(node: Selector | Subquery, context: Context) -> SeriesSamples:
    """Return the samples of a range vector at the only step of the context."""
    samples, windows = _windows(node, context)
    first, last = windows.first[:, 0], windows.last[:, 0]
    counts = last - first
    places = np.repeat(first - np.concatenate(([0], np.cumsum(counts)[:-1])), counts) + np.arange(counts.sum())
    found, kept = windows.samples, counts > 0
    offsets = np.concatenate(([0], np.cumsum(counts[kept])))
    labels = samples.labels.take(kept)
    return SeriesSamples(offsets, found.times_ms[places], found.values[places], labels, samples.dropped[kept])


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
            return map_windows(node, context) or _selected(node, context)[0]
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


def _windows(node: Node, context: Context) -> tuple[SeriesSamples, Windows]:
    """Return the series of a range vector, and its windows at each step."""
    node = without_parens(node)
    assert isinstance(node, Selector | Subquery)
    ends_ms = context.shifted(node.offset_ms, node.at)
    if not len(ends_ms):
        return no_samples(), make_windows(no_samples(), ends_ms, node.range_ms, context.budget.check)
    if isinstance(node, Selector):
        samples = _read(context, node.matchers, int(ends_ms.min()) - node.range_ms, int(ends_ms.max()))
    else:
        samples = _subquery(node, ends_ms, context)
    context.charge_cells(samples.labels.count)
    return samples, make_windows(samples, ends_ms, node.range_ms, context.budget.check)


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
    return SeriesSamples(offsets, times_ms[places], found.values[found.here], found.labels, found.dropped)


# --- calls


def _call(node: Call, context: Context) -> Value:
    name, args = node.function, node.args
    if name in NATIVE_ONLY:
        raise NotSupported(f"{name} needs native histograms, which are not supported", node.position, context.text)
    if name in sample_windows.WINDOWED:
        return map_windows(node, context) or _of_windows(node, args[0], sample_windows.WINDOWED[name], context)
    if name in MATH:
        vector = _vector(args[0], context)
        with np.errstate(all="ignore"):
            return vector.with_values(MATH[name](vector.values))
    if name in DATES:
        vector = _vector(args[0], context) if args else _of_scalar(context.seconds)
        return vector.with_values(DATES[name](vector.values))
    if name in SORTS:
        return _sorted(node, context)
    if name not in _FUNCTIONS:
        raise NotSupported(f"{name} is not supported", node.position, context.text)
    return _FUNCTIONS[name](node, context)


def _of_scalar(values: Floats) -> VectorValue:
    """Return the vector of one series without labels."""
    return VectorValue(LabelSets(1, {}), values[None, :], np.ones((1, len(values)), np.bool_), np.zeros(1, np.bool_))


def _of_windows(
    node: Call, arg: Node, function: Callable[[Windows], sample_windows.Result], context: Context
) -> VectorValue:
    """Return the results of a function of windows; the last and first samples keep their names."""
    samples, windows = _windows(arg, context)
    name = node.function
    values, here = function(windows)
    keeps = name in ("last_over_time", "first_over_time")
    dropped = samples.dropped if keeps else np.ones_like(samples.dropped)
    found = VectorValue(samples.labels, values, here, dropped).present()
    inform_gauges(node, found.labels.texts(NAME), context)
    return found


def _sorted(node: Call, context: Context) -> VectorValue:
    vector = _vector(node.args[0], context)
    if not context.instant:
        context.warn("sort is ineffective for range queries since results are always ordered by labels", node.position)
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
    """Return the labels of `absent`: those that the selector compares with `=`, unless another matcher of the same
    label follows."""
    node = without_parens(node)
    labels: dict[str, str] = {}
    equal = {NAME}
    for one in node.matchers if isinstance(node, Selector) else ():
        if one.op == "=" and one.label not in equal:
            equal.add(one.label)
            labels[one.label] = one.value
        else:
            labels.pop(one.label, None)
    return LabelSets.from_dicts([{label: value for label, value in labels.items() if value}])


def _absent(node: Call, context: Context) -> Value:
    if node.function == "absent":
        here = _vector(node.args[0], context).here
    else:
        here = _windows(node.args[0], context)[1].counts > 0
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
        context.warn(f"quantile value should be between 0 and 1, got {format_value(value)}", context.argument(node, 0))


def _histogram_quantile(node: Call, context: Context) -> Value:
    q = _scalar(node.args[0], context)
    _check_quantile(q, node, context)
    return _of_histograms(node, lambda le, counts, t: bucket_quantile(float(q[t]), le, counts), context)


def _histogram_fraction(node: Call, context: Context) -> Value:
    low, high = _scalar(node.args[0], context), _scalar(node.args[1], context)
    return _of_histograms(
        node, lambda le, counts, t: (bucket_fraction(float(low[t]), float(high[t]), le, counts), None), context
    )


def _of_histograms(node: Call, of_step: OfStep, context: Context) -> VectorValue:
    """Apply a function to the histograms of the last argument, and report invalid buckets."""
    position = context.argument(node, len(node.args) - 1)
    found, problems = of_histograms(_vector(node.args[-1], context), of_step, context.budget)
    for metric, le in problems.bad_bounds:
        context.warn(f'bucket label "le" is missing or has a malformed value of "{le}"{_for_metric(metric)}', position)
    for metric, falls in problems.falls.items():
        context.inform(
            "input to histogram_quantile needed to be fixed for monotonicity (see"
            " https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)"
            f"{_for_metric(metric)}, {falls.text(context.times_ms)}",
            position,
        )
    return found


def _for_metric(name: str) -> str:
    return f' for metric name "{name}"' if name else ""


def _quantile_over_time(node: Call, context: Context) -> Value:
    q = _scalar(node.args[0], context)
    _check_quantile(q, node, context)
    return _of_windows(node, node.args[1], partial(sample_windows.quantile_over_time, q=q), context)


def _predict_linear(node: Call, context: Context) -> Value:
    seconds = _scalar(node.args[1], context)
    predict = partial(sample_windows.predict_linear, seconds=seconds, now_ms=context.times_ms)
    return _of_windows(node, node.args[0], predict, context)


def _smoothing(node: Call, context: Context) -> Value:
    level, trend = _scalar(node.args[1], context), _scalar(node.args[2], context)
    for what, factor in (("smoothing", level), ("trend", trend)):
        if not ((factor > 0) & (factor < 1)).all():
            raise PromqlError(
                f"invalid {what} factor. Expected: 0 < {what[0]}f < 1, got: {factor[0]:f}", None, context.text
            )
    smooth = partial(sample_windows.double_exponential_smoothing, level=level, trend=trend)
    return _of_windows(node, node.args[0], smooth, context)


def _constant(ms: int, context: Context) -> ScalarValue:
    """Return a time or duration in seconds, at each step."""
    return ScalarValue(np.full(len(context.times_ms), ms / 1000))


_FUNCTIONS: dict[str, Callable[[Call, Context], Value]] = {
    "time": lambda _, context: ScalarValue(context.seconds),
    "pi": lambda _, context: ScalarValue(np.full(len(context.times_ms), np.pi)),
    "step": lambda _, context: _constant(context.step_ms, context),
    "range": lambda _, context: _constant(context.end_ms - context.start_ms, context),
    "start": lambda _, context: _constant(context.start_ms, context),
    "end": lambda _, context: _constant(context.end_ms, context),
    "min_of": lambda node, context: ScalarValue(np.minimum(*(_scalar(arg, context) for arg in node.args))),
    "max_of": lambda node, context: ScalarValue(np.maximum(*(_scalar(arg, context) for arg in node.args))),
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
    param = None if node.param is None else _scalar(node.param, context)
    if param is not None and name == "quantile":
        _check_quantile(param, node, context)
    pushed = push_down(node, param, context)
    if isinstance(pushed, VectorValue):
        return pushed
    vector = _vector(node.child, context if pushed is None else replace(context, source=pushed))
    if param is None:
        return aggregations.aggregate(name, vector, *where)
    if name == "quantile":
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
