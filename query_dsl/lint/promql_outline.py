"""Outline of a query in PromQL. The parser tells no places of selectors: they are found by their names in the text."""

from __future__ import annotations

import re
from dataclasses import replace

from query_dsl.lint.outline import Grouped, Joined, Other, Part, Selection, Windowed, combined, selections
from query_dsl.promql import tree
from query_dsl.promql.similar_names import similar_matchers
from query_dsl.tree.nodes import LabelMatching, Span

_COUNTERS = frozenset(("rate", "irate", "increase", "resets"))
_PAIRS = frozenset(
    ("rate", "irate", "increase", "delta", "idelta", "deriv", "predict_linear", "double_exponential_smoothing")
)
"""Functions that need two samples in a window."""
_ABSENCE = ("absent", "absent_over_time")
_WITHOUT_VALUES = ("timestamp", "scalar", "vector")
_NEW_LABELS = ("label_replace", "label_join", "scalar", "vector")
_MEMBERS = ("topk", "bottomk", "limitk", "count_values")
_SET_OPERATORS = ("and", "unless")
_COMPARISONS = ("==", "!=", ">", "<", ">=", "<=")


def outline(query: tree.Query, similar_names: bool = False) -> Part:
    """Return the outline of a query. `similar_names`: a name finds those that differ in dots and underscores only."""
    return _Builder(query.text, similar_names).part(query.node)


class _Builder:
    """Builds an outline; `at` is the end of the last selector in the text."""

    def __init__(self, text: str, similar_names: bool) -> None:
        self.text, self.similar_names, self.at = text, similar_names, 0

    def part(self, node: tree.Node) -> Part:
        match node:
            case tree.Selector():
                return self.selection(node)
            case tree.Paren(child) | tree.Negation(child):
                return Other((self.part(child),), keeps_labels=True)
            case tree.Subquery(child=child, offset_ms=offset_ms):
                return Other((self.part(child),), True, reads_raw=offset_ms != 0)
            case tree.Call():
                return self.call(node)
            case tree.Aggregation():
                return self.aggregation(node)
            case tree.Binary():
                return self.binary(node)
        return Other()

    def selection(self, node: tree.Selector) -> Part:
        found = Selection(node.matchers, self.place(node))
        if self.similar_names:
            found = replace(found, matchers=similar_matchers(node.matchers), as_written=node.matchers)
        return Other((found,), True, reads_raw=True) if node.offset_ms else found

    def place(self, node: tree.Selector) -> Span | None:
        """Find the name of a selector behind the one before, or the label of its first matcher."""
        named = [one for one in node.matchers if (one.label, one.op) == ("__name__", "=")]
        word = named[0].value if named else node.matchers[0].label if node.matchers else ""
        found = re.compile(rf"(?<![\w:]){re.escape(word)}(?![\w:])").search(self.text, self.at) if word else None
        if found is None:
            return None
        self.at = found.end()
        return found.start(), len(word)

    def call(self, node: tree.Call) -> Part:
        name = node.function
        if name in _ABSENCE:
            return Other()
        parts = [self.part(one) for one in node.args]
        for argument, part in zip(node.args, parts, strict=True):
            if tree.value_type(argument) == "matrix":
                selector = tree.without_parens(argument)
                width_ms = selector.range_ms if isinstance(selector, tree.Selector) else None
                span = (node.position, len(name))
                return Windowed(part, name, width_ms, name in _COUNTERS, 1 + (name in _PAIRS), span)
        if name == "histogram_quantile":
            return Grouped(parts[-1], name, None, ("le",), span=(node.position, len(name)))
        vectors = [
            part for one, part in zip(node.args, parts, strict=True) if tree.value_type(one) not in ("scalar", "string")
        ]
        return Other(tuple(vectors), name not in _NEW_LABELS, reads_raw=name in _WITHOUT_VALUES)

    def aggregation(self, node: tree.Aggregation) -> Part:
        name, labels = node.function, node.labels
        by, without = (None, labels) if node.without else (labels, None)
        return Grouped(self.part(node.child), name, by, without, name in _MEMBERS, (node.position, len(name)))

    def binary(self, node: tree.Binary) -> Part:
        left, right = self.part(node.left), self.part(node.right)
        if node.op == "or" or "scalar" in (tree.value_type(node.left), tree.value_type(node.right)):
            return combined(left, right)
        how = node.matching
        match = LabelMatching(on=how.labels) if how.on else LabelMatching(ignoring=how.labels)
        if how.group == "left":
            match = replace(match, group_left=how.include)
        elif how.group == "right":
            match = replace(match, group_right=how.include)
        filters = node.op in _SET_OPERATORS
        keeps_all = not filters and node.op not in _COMPARISONS
        return Joined(node.op, left, right, match, filters, keeps_all, _span_of(left, right))


def _span_of(left: Part, right: Part) -> Span | None:
    """Return the place from the first selector to the last one."""
    spans = [one.span for side in (left, right) for one in selections(side) if one.span is not None]
    if not spans:
        return None
    start = min(first for first, _ in spans)
    return start, max(first + length for first, length in spans) - start
