"""Completeness of what rules read: missing points and silent hosts of the last half hour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from time import perf_counter

from alerts.evaluation.rule_answer import STEP_MS
from alerts.evaluation.rule_evaluator import RuleResult
from alerts.evaluation.shared_store import SharedStore
from alerts.state.rule import Rule
from artimon.model.grid import Grid
from artimon.model.select import Matcher, SelectError, SelectRequest, Store, TooManySeries
from query_dsl import Expr
from query_dsl.evaluation.fetches import fetches_of
from query_dsl.evaluation.host_acks import add_host_states
from query_dsl.promql.tree import selectors
from query_dsl.results.expected_points import Completeness, completeness_of

COLUMNS = 30
"""Buckets of a minute that are looked at."""
BUDGET_S = 0.03
"""Time in seconds after which an evaluation measures no further rule."""
EVERY_MS = 10 * STEP_MS
"""Time after which a rule without a change is measured again."""
MAX_SERIES = 10_000
"""A rule that selects more series is not measured."""

Selected = frozenset[tuple[Matcher, ...]]
"""Matchers of each selector of a query."""


@dataclass(frozen=True, slots=True)
class _Measure:
    digest: str
    time_ms: int
    found: Completeness | None


class RuleCompleteness:
    """Measures rules in turn, those that send a message first. Belongs to the engine's thread.

    Rules with equal selectors are measured once an evaluation."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._measures: dict[str, _Measure] = {}
        self._turn = 0

    def add(self, rules: Mapping[str, Rule], judged: dict[str, RuleResult], time_ms: int) -> None:
        """Measure some rules, and give each result the last completeness of its rule, if that lacks anything."""
        self._measure(rules, judged, time_ms)
        for name in [name for name, one in self._measures.items() if name not in rules or self._is_old(rules, name)]:
            del self._measures[name]
        for name, one in self._measures.items():
            if (result := judged.get(name)) is not None and result.completeness != one.found:
                judged[name] = replace(result, completeness=one.found)

    def _is_old(self, rules: Mapping[str, Rule], name: str) -> bool:
        return self._measures[name].digest != rules[name].digest

    def _measure(self, rules: Mapping[str, Rule], judged: Mapping[str, RuleResult], time_ms: int) -> None:
        began, store = perf_counter(), SharedStore(self._store)
        known: dict[Selected, Completeness | None] = {}
        for name in self._candidates(rules, judged, time_ms):
            selected = selectors_of(rules[name])
            try:
                if selected not in known:
                    known[selected] = _lacking(selected, store, time_ms)
            except TooManySeries:
                known[selected] = None
            except SelectError:
                return  # the rules report it themselves
            self._measures[name] = _Measure(rules[name].digest, time_ms, known[selected])
            if perf_counter() - began > BUDGET_S:
                return

    def _candidates(self, rules: Mapping[str, Rule], judged: Mapping[str, RuleResult], time_ms: int) -> Iterator[str]:
        """Yield rules that send a message, then those with alerts, then the others, from the one after the last."""
        having = [name for name, one in judged.items() if one.steps]
        changing = {name for name in having if any(step.change is not None for step in judged[name].steps)}
        yield from sorted(changing)
        yield from (name for name in having if name not in changing and self._is_due(name, time_ms))
        names = list(rules)
        for name in islice([*names, *names], self._turn, self._turn + len(names)):
            self._turn = (self._turn + 1) % len(names)
            if self._is_due(name, time_ms):
                yield name

    def _is_due(self, name: str, time_ms: int) -> bool:
        found = self._measures.get(name)
        return found is None or time_ms - found.time_ms >= EVERY_MS


def selectors_of(rule: Rule) -> Selected:
    """Return the selectors of newest data in the query of a rule; those with an offset are left out."""
    query = rule.query
    if isinstance(query, Expr):
        return frozenset(node.selector.matchers for node, offset_ms in fetches_of(query.node) if not offset_ms)
    return frozenset(one.matchers for one in selectors(query.node) if not one.offset_ms and one.at is None)


def _lacking(selected: Selected, store: Store, time_ms: int) -> Completeness | None:
    """Return the completeness of selectors; None if nothing is missing or too much is selected. Raises SelectError."""
    grid = Grid(time_ms // STEP_MS * STEP_MS, STEP_MS, COLUMNS)
    requests = [SelectRequest(matchers, grid, ("count",), MAX_SERIES) for matchers in sorted(selected, key=repr)]
    found = completeness_of([(store.select(one), 0) for one in requests])
    return add_host_states(found, store, time_ms) if found.is_lacking else None
