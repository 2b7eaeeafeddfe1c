"""Evaluation of rules of which other engines of a pair evaluate a part."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Protocol

from alerts.evaluation.rule_evaluator import RuleEvaluator, RuleResult
from alerts.rules.rule_folder import ActiveRules
from alerts.state.alert import Alert
from alerts.state.rule import Labels, Rule


class SharedRules(Protocol):
    """Rules of one evaluation that other engines evaluate."""

    @property
    def names(self) -> Collection[str]:
        """Names of the rules."""

    def results(self) -> Mapping[str, RuleResult]:
        """Wait for the results, within a limit, and return those that arrived."""


RequestShares = Callable[[ActiveRules, int], SharedRules]
"""Ask other engines to evaluate a part of the rules at a time."""


def evaluate_rules(
    evaluator: RuleEvaluator,
    rules: Mapping[str, Rule],
    before: Mapping[str, Mapping[Labels, Alert]],
    shared: SharedRules | None,
) -> dict[str, RuleResult]:
    """Evaluate rules, in their order. Those of other engines come last, unless these answered."""
    theirs = shared.names if shared else ()
    judged = {
        name: evaluator.evaluate_rule(rule, before.get(name, {})) for name, rule in rules.items() if name not in theirs
    }
    if shared is not None:
        judged |= shared.results()
    return {
        name: judged.get(name) or evaluator.evaluate_rule(rule, before.get(name, {})) for name, rule in rules.items()
    }


def waiting_results(
    force: ActiveRules, shown: tuple[ActiveRules, Mapping[str, RuleResult]], before_ms: int, time_ms: int
) -> dict[str, RuleResult]:
    """Return the last results, without steps, of rules whose interval has not passed since the last evaluation, and of
    those with an interval below a minute. `shown`: rules and results of the last evaluation."""
    active, known = shown
    return {
        name: replace(known.get(name, RuleResult()), steps=(), truncated=False)
        for name, rule in force.rules.items()
        if rule.is_prompt
        or (
            before_ms // rule.interval_ms == time_ms // rule.interval_ms
            and name in known
            and active.rules[name].digest == rule.digest
        )
    }
