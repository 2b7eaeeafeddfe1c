"""Explanation of a selector that matches no series, from the names, labels and values of a store."""

from __future__ import annotations

from collections.abc import Sequence

from artimon.model.select import NAME, Matcher
from query_dsl.stores.engine_store import EngineStore
from query_dsl.tree.query_errors import similar_hint
from query_dsl.tree.selector import Selector, matcher_text, series_text
from query_dsl.tree.times import format_time

SHOWN_VALUES = 5
"""Number of label values that an error lists if none is similar."""
_NOT_NAMED = {"=": "no variable is named {value!r:.40}", "prefix": "no variable's name begins with {value!r:.40}"}


def explain_empty(selector: Selector, store: EngineStore, end_ms: int) -> str:
    """Explain an empty selection: a matcher that selects nothing alone, with similar values, or the combination.
    `end_ms`: end of the range of the query."""
    for matcher in selector.matchers:
        if not store.find((matcher,), 1):
            return f"{selector} selects nothing: {_explain_matcher(matcher, store)}"
    for i in range(2, len(selector.matchers) + 1):
        if not store.find(selector.matchers[:i], 1):
            first, last = ", ".join(map(matcher_text, selector.matchers[: i - 1])), selector.matchers[i - 1]
            return f"{selector} selects nothing: series fit {first}, but none of them {matcher_text(last)}"
    return f"{selector} selects nothing now{_history_hint(selector, store, end_ms)}"


def newest_known_ms(selector: Selector, store: EngineStore, end_ms: int) -> int:
    """Time of the newest sample of matching series that the store remembers, up to `end_ms`; 0: none."""
    return max(store.newest(selector.matchers, end_ms).values(), default=0)


def unknown_label(label: str, labels: Sequence[str]) -> str:
    """Return the message about a label that is none of `labels`."""
    return f"no series has the label {label!r:.80}{similar_hint(label, labels) or _first_values(labels)}"


def _history_hint(selector: Selector, store: EngineStore, end_ms: int) -> str:
    """Hint at matching series that only the history knows: one of them, and the newest sample time of all."""
    found = store.find(selector.matchers, 2) if store.has_history else []
    if not found:
        return ""
    shown = series_text(found[0].name, dict(found[0].labels))
    newest = newest_known_ms(selector, store, end_ms)
    seen = f", whose newest sample is of {format_time(newest)}" if newest else ""
    of = shown if len(found) == 1 else f"such series as {shown}"
    return f': only the history knows {of}{seen}; ask for that time, or with engine="history"'


def _explain_matcher(matcher: Matcher, store: EngineStore) -> str:
    if matcher.label == NAME:
        known = store.names()
        what = _NOT_NAMED.get(matcher.op, "no name fits {text}").format(value=matcher.value, text=matcher_text(matcher))
        hint = (
            similar_hint(matcher.value, known) or similar_hint(matcher.value.rstrip("."), known) or _first_values(known)
        )
        return what + (hint or "; there are no variables at all")
    labels = store.label_values(None)
    if matcher.label not in labels:
        return unknown_label(matcher.label, labels)
    values = store.label_values(matcher.label)
    return f"no series fits {matcher_text(matcher)}{similar_hint(matcher.value, values) or _first_values(values)}"


def _first_values(values: Sequence[str]) -> str:
    """List the first SHOWN_VALUES values and count the others."""
    if not values:
        return ""
    rest = f" and {len(values) - SHOWN_VALUES:,} more" if len(values) > SHOWN_VALUES else ""
    return f"; there are: {', '.join(values[:SHOWN_VALUES])}{rest}"
