"""Charts of the last hours of alerts, for mails: the value of the rule's query for the series of the alert."""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np

from alerts.receivers.chart_image import MAX_BYTES, Chart, draw
from alerts.rules.rule_folder import ActiveRules
from alerts.state.alert import AlertChange
from alerts.state.notification import Notification
from alerts.state.rule import Labels, Rule, value_text
from artimon.compute.cells import STRING, Floats, as_floats
from artimon.model.clock import Clock
from artimon.model.grid import bucket_end
from artimon.model.select import SelectError, Store
from query_dsl import Expr, Matrix, QueryError
from query_dsl.evaluation.evaluator import prepare, require_matrix
from query_dsl.promql import Query, query_store
from query_dsl.promql.tree import Binary, Node, Number, without_parens
from query_dsl.results.result_cells import SeriesKey
from query_dsl.stores.engine_store import as_engine_store
from query_dsl.stores.levels import SETTLE_MS
from query_dsl.stores.query_limits import Limits, make_budget
from query_dsl.tree import nodes
from query_dsl.tree.times import format_duration

log = logging.getLogger(__name__)

MINUTE_MS = 60_000
SHOWN_MS = 3 * 3_600_000
FINE_MS = 3_600_000
"""Part of the range in steps of a minute, which memory holds; before it the steps are of five minutes."""
COARSE_MS = 300_000
CHART_LIMITS = Limits(seconds=2.0, series=2_000, memory_bytes=64 * 1024**2)
"""Limits of each query of a chart."""
MAX_SECONDS = 1.0
REST_S = 60.0
"""Time without charts after one took longer than MAX_SECONDS: letters do not wait for a slow store."""
MAX_KEPT = 64
_COMPARISONS = frozenset(("<", "<=", ">", ">=", "==", "!="))
Points = tuple[Floats, Floats]
"""Times in ms and values; NaN: no value."""


class AlertCharts:
    """Draws charts; for the thread that sends mails. A chart shows the time up to the change that a mail tells, so that
    a mail that is sent again has the same one while memory holds the same samples."""

    def __init__(self, store: Store, rules: Callable[[], ActiveRules | None], clock: Clock) -> None:
        """`rules`: returns the rules in force."""
        self._store, self._rules, self._clock = as_engine_store(store), rules, clock
        self._kept: OrderedDict[tuple[str, Labels, int], Chart | None] = OrderedDict()
        self._resting_until = float("-inf")

    def chart(self, told: Notification) -> Chart | None:
        active = self._rules()
        rule = None if active is None else active.rules.get(told.rule)
        end_ms = told.fired_ms if told.kind is AlertChange.FIRING else told.resolved_ms
        key = told.rule, told.labels, end_ms
        if key not in self._kept and rule is not None and self._clock.monotonic() >= self._resting_until:
            self._kept[key] = self._timed(rule, told.labels, bucket_end(end_ms, MINUTE_MS))
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return self._kept.get(key)

    def _timed(self, rule: Rule, labels: Labels, end_ms: int) -> Chart | None:
        began = self._clock.monotonic()
        try:
            return self._draw(rule, labels, end_ms)
        except (QueryError, SelectError) as problem:
            log.info("no chart of rule %s: %s", rule.name, problem)
        except Exception:  # a mail goes out without a chart
            log.exception("chart of rule %s", rule.name)
        finally:
            if self._clock.monotonic() - began > MAX_SECONDS:
                self._resting_until = self._clock.monotonic() + REST_S
        return None

    def _draw(self, rule: Rule, labels: Labels, end_ms: int) -> Chart | None:
        """Raises QueryError, SelectError."""
        threshold = None if rule.threshold is None else rule.threshold.operand
        if isinstance(threshold, str):
            return None
        query = rule.query
        if isinstance(query, Query):
            node, limit = _compared(query.node)
            found = self._promql(Query(query.text, node), rule, labels, end_ms)
            threshold = limit if threshold is None else threshold
        else:
            found = self._dsl(query, rule, labels, end_ms)
        if found is None or not np.isfinite(found[1]).any():
            return None
        limit = None if threshold is None or not math.isfinite(threshold) else float(threshold)
        png, values = draw(*found, limit), found[1][np.isfinite(found[1])]
        text = (
            f"last {format_duration(SHOWN_MS)}: {value_text(float(values.min()))} to {value_text(float(values.max()))}"
        )
        return Chart(png, text) if len(png) <= MAX_BYTES else None

    def _promql(self, query: Query, rule: Rule, labels: Labels, end_ms: int) -> Points | None:
        found = []
        for start_ms, until_ms, step_ms in (
            (end_ms - SHOWN_MS, end_ms - FINE_MS, COARSE_MS),
            (end_ms - FINE_MS + MINUTE_MS, end_ms, MINUTE_MS),
        ):
            answer = query_store(
                query, self._store, until_ms + SETTLE_MS, start_ms=start_ms, end_ms=until_ms, step_ms=step_ms,
                budget=make_budget(CHART_LIMITS, None),
            )  # fmt: skip
            if answer.type not in ("vector", "matrix", "scalar") or answer.samples is not None:
                return None
            found.append(_row_of(answer.to_matrix(), rule, labels))
        return _joined(found)

    def _dsl(self, query: Expr, rule: Rule, labels: Labels, end_ms: int) -> Points | None:
        node = query.node
        if isinstance(node, nodes.At | nodes.Range):
            node = node.child
        if any(isinstance(one, nodes.At | nodes.Range | nodes.Between) for one in nodes.walk(node)):
            return None
        found = []
        for length_ms, now_ms in ((SHOWN_MS - FINE_MS, end_ms - FINE_MS), (FINE_MS, end_ms)):
            asked = Expr(nodes.Range(node, length_ms), 1, query.text)
            budget = make_budget(CHART_LIMITS, None)
            matrix = require_matrix(prepare(asked, self._store, now_ms + SETTLE_MS, budget, True).answer())
            found.append(_row_of(matrix, rule, labels))
        return _joined(found)


def _compared(node: Node) -> tuple[Node, float | None]:
    """Return what a query compares with a number, and this number; the whole query if it compares nothing."""
    root = without_parens(node)
    if isinstance(root, Binary) and root.op in _COMPARISONS and not root.bool_modifier:
        right = without_parens(root.right)
        if isinstance(right, Number):
            return root.left, right.value
    return node, None


def _row_of(matrix: Matrix, rule: Rule, labels: Labels) -> Points | None:
    """Return the points of the series of an alert; None unless there is exactly one."""
    rows = [row for row, key in enumerate(matrix.keys) if _belongs(key, rule, labels)]
    if len(rows) != 1:
        return None
    types, cells, present = matrix.column
    if types[rows[0]] == STRING:
        return None
    values = as_floats(types[rows], np.ascontiguousarray(cells[rows]))[0]
    times = np.array(matrix.grid.ends(), np.float64)
    return times, np.where(present[rows[0]], values, np.nan)


def _belongs(key: SeriesKey, rule: Rule, labels: Labels) -> bool:
    """True if a series has the labels of an alert, without those that the rule sets."""
    own = rule.own_labels
    return sorted(one for one in key.labels if one[0] not in own) == [one for one in labels if one[0] not in own]


def _joined(found: Sequence[Points | None]) -> Points | None:
    parts = [one for one in found if one is not None]
    if not parts:
        return None
    return np.concatenate([times for times, _ in parts]), np.concatenate([values for _, values in parts])
