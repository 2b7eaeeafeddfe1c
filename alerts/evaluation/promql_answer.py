"""Answer to a rule in PromQL: the series that its query has at the time of the evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from alerts.evaluation.rule_answer import STEP_MS, RuleAnswer
from alerts.state.rule import AcceptedAnswer, RecordingRule, Rule
from artimon.model.select import SelectError, Store
from artimon.runtime.settings import load
from query_dsl import QueryError
from query_dsl.promql import PromqlResult, Query, query_store
from query_dsl.promql.label_sets import NAME
from query_dsl.promql.promql_settings import PromqlSettings
from query_dsl.promql.store_samples import COARSE_RATES, NO_HISTORY, PARTIAL, SEVERAL_SAMPLES
from query_dsl.promql.tree import selectors
from query_dsl.results.result_cells import SeriesKey
from query_dsl.stores.engine_store import as_engine_store
from query_dsl.stores.levels import SETTLE_MS
from query_dsl.stores.query_limits import Limits, make_budget

SHORT_RANGE = (
    "memory holds the newest sample of each minute, too few for a range below two minutes: give the shards a finer"
    " level (--levels), or the engine a history"
)
NO_VECTOR = "the query gives a text or a range, not an instant vector"


@lru_cache(maxsize=1)
def promql_options() -> Mapping[str, Any]:
    """Return the settings of this process for `query_store`. Cached for the process."""
    return MappingProxyType(asdict(PromqlSettings.from_environment(load())))


def ask_promql(rule: Rule | RecordingRule, query: Query, store: Store, time_ms: int, limits: Limits) -> RuleAnswer:
    """Return the series of the query at `time_ms`; its errors become those of the rule."""
    budget = make_budget(limits, None)
    try:
        found = query_store(
            query,
            as_engine_store(store),
            time_ms + SETTLE_MS,
            end_ms=time_ms - rule.offset_ms,
            budget=budget,
            **promql_options(),
        )
    except QueryError as problem:
        return RuleAnswer(error=problem.message)
    except SelectError as problem:
        return RuleAnswer(error=str(problem))
    error, truncated = doubt_of(rule, query, found.warnings)
    return RuleAnswer(vector_of(found), error, truncated) if not error else RuleAnswer((), error, truncated)


def vector_of(found: PromqlResult) -> list[tuple[SeriesKey, float]]:
    """Return the series and values at the last time of an answer. Raises QueryError for a text and for a range."""
    if found.type == "string" or found.samples is not None:
        raise QueryError(NO_VECTOR)
    values, here = found.values[:, -1].tolist(), found.here[:, -1].tolist()
    keys = [SeriesKey(one.pop(NAME, ""), tuple(one.items())) for one in found.labels.dicts()]
    return [(key, value) for key, value, held in zip(keys, values, here, strict=True) if held]


def doubt_of(rule: Rule | RecordingRule, query: Query, warnings: tuple[str, ...]) -> tuple[str, bool]:
    """Return the reason why the answer is not judged ("" if it is), and whether memory does not hold its windows."""
    beyond = [one for one in warnings if NO_HISTORY in one]
    if beyond and not rule.accepts_partial:
        return f"the answer is truncated: {'; '.join(beyond)}", True
    partial = [one for one in warnings if one.startswith(PARTIAL) and one not in beyond]
    if partial:
        return f"the answer is incomplete: {'; '.join(partial)}", False
    coarse = [one for one in warnings if COARSE_RATES in one]
    if coarse and AcceptedAnswer.APPROXIMATE not in rule.accept:
        return f"the answer is truncated: {'; '.join(coarse)}", True
    if SEVERAL_SAMPLES in warnings and AcceptedAnswer.APPROXIMATE not in rule.accept and _has_short_range(query):
        return f"the answer is truncated: {SHORT_RANGE}", True
    return "", False


def _has_short_range(query: Query) -> bool:
    """True if memory may hold a single sample of a range, where its series have several samples a minute."""
    return any(0 < one.range_ms < 2 * STEP_MS for one in selectors(query.node))
