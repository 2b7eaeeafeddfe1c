"""Parts of a query that the source of the samples computes itself: windows of selectors, and their aggregations."""

from __future__ import annotations

from collections.abc import Sequence

from artimon.compute.cells import Floats
from artimon.compute.sample_windows import WINDOWED
from query_dsl.promql.evaluation_context import Context
from query_dsl.promql.label_sets import NAME
from query_dsl.promql.promql_values import VectorValue
from query_dsl.promql.pushed_windows import REDUCERS
from query_dsl.promql.sample_source import BucketSource, Reducer, SampleSource, WindowQuery
from query_dsl.promql.tree import Aggregation, Call, Node, Selector, without_parens

COUNTER_SUFFIXES = ("_total", "_sum", "_count", "_bucket")
MAX_PUSHED_K = 10_000
"""Greatest k of topk and bottomk that a store evaluates."""


def window_query(node: Node, context: Context) -> WindowQuery | None:
    """Return the windows and their function if `node` is a selector, or a function with a selector as its only
    argument."""
    node = without_parens(node)
    name, selector = "", node
    if isinstance(node, Call) and node.function in WINDOWED:
        name, selector = node.function, without_parens(node.args[0])
    if not isinstance(selector, Selector) or (not name and selector.range_ms):
        return None
    ends_ms = context.shifted(selector.offset_ms, selector.at)
    return WindowQuery(name, selector.matchers, ends_ms, selector.range_ms or context.look_back_ms)


def map_windows(node: Node, context: Context) -> VectorValue | None:
    """Let the source compute a selector, or a function of a selector; None if it cannot."""
    source, asked = context.source, window_query(node, context)
    found = source.map(asked) if isinstance(source, BucketSource) and asked is not None else None
    if found is not None and asked is not None:
        context.charge_cells(found.labels.count)
        inform_gauges(node, found.labels.texts(NAME), context)
    return found


def inform_gauges(node: Node, names: Sequence[str], context: Context) -> None:
    """Remark on metrics under rate or increase that might not be counters."""
    node = without_parens(node)
    if not isinstance(node, Call) or node.function not in ("rate", "increase"):
        return
    for metric in dict.fromkeys(names):
        if metric and not metric.endswith(COUNTER_SUFFIXES):
            text = "metric might not be a counter, name does not end in _total/_sum/_count/_bucket"
            context.inform(f'{text}: "{metric}"', context.argument(node, 0))


def push_down(node: Aggregation, param: Floats | None, context: Context) -> VectorValue | SampleSource | None:
    """Let the source aggregate; for topk and bottomk, return a source of the series among which they choose. None if
    the source cannot."""
    source, reducer, asked = context.source, _reducer(node, param), window_query(node.child, context)
    if reducer is None or asked is None or not isinstance(source, BucketSource):
        return None
    names = [one.value for one in asked.matchers if one.label == NAME and one.op == "="]
    if asked.function in ("rate", "increase") and not names:
        return None  # the remark on gauges names all metrics
    if reducer.name in ("topk", "bottomk"):
        return source.narrow(asked, reducer)
    found = source.reduce(asked, reducer)
    if found is not None:
        context.charge_cells(found.labels.count)
        if found.labels.count:
            inform_gauges(node.child, names[:1], context)
    return found


def _reducer(node: Aggregation, param: Floats | None) -> Reducer | None:
    """Return the aggregation with its argument; None if that changes from step to step or is unusual."""
    if node.function not in REDUCERS:
        return None
    args: tuple[tuple[str, float | str], ...] = ()
    if param is not None:
        value = float(param[0]) if len(param) and (param == param[0]).all() else -1.0
        if node.function == "quantile" and 0 <= value <= 1:
            args = (("q", value),)
        elif node.function != "quantile" and 1 <= value <= MAX_PUSHED_K:
            args = (("k", int(value)), ("rank", "each"))
        else:
            return None
    return Reducer(node.function, node.labels, node.without, args)
