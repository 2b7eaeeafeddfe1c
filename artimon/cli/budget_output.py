"""Command `artimon rules budget`: the error budgets of service level objectives, as a table or JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from alerts.rules.rule_file import read_objectives
from alerts.rules.slo_file import SLO, SloSection
from artimon.cli.common import print_error
from artimon.model.labels import canonical
from artimon.model.select import SelectError
from artimon.runtime.config_file import ConfigFileError, read_config_text
from artimon.runtime.text import printable
from query_dsl import QueryError
from query_dsl.evaluation.query_runner import QueryRunner
from query_dsl.tree.times import format_duration

BURN_WINDOW_MS = 3_600_000
"""Window of the present burn rate."""


@dataclass(frozen=True, slots=True)
class ErrorBudget:
    """Budget of an objective for one set of labels. Ratios are fractions of 1, None without requests."""

    objective: str
    labels: dict[str, str]
    target: float
    window: str
    errors: float | None
    """Fraction of requests that failed in the window."""
    used: float | None
    """Fraction of the budget that is used; above 1 the objective is missed."""
    burn: float | None
    """Speed of the last hour: at 1 the budget lasts for exactly one window."""


def run_budget(runner: QueryRunner, files: Sequence[Path], at: str | None, *, as_json: bool = False) -> int:
    """Print the budgets; return the exit code: 1 for an error or no objective."""
    try:
        objectives = [one for file in files for one in read_objectives(read_config_text(file, str(file)), str(file))]
        found = [budget for one in objectives for budget in error_budgets(runner, one, at)]
    except (QueryError, SelectError, ConfigFileError) as problem:
        print_error(f"artimon: {problem}")
        return 1
    except OSError as problem:
        print_error(f"artimon: {problem.filename}: {problem.strerror}")
        return 1
    if as_json:
        print(json.dumps([asdict(one) for one in found], indent=1))
    else:
        print("\n".join(map(_line, found)))
    known = {one.objective for one in found}
    missing = [one.name for one in objectives if one.name not in known]
    for name in missing:
        print_error(f"artimon: {name}: no requests were recorded: the alert engine records them, see docs/alerts.md")
    if not objectives:
        print_error("artimon: the files have no objective: write one under slos:, see docs/alerts.md")
    return 1 if missing or not objectives else 0


def error_budgets(runner: QueryRunner, objective: SloSection, at: str | None = None) -> Iterator[ErrorBudget]:
    """Yield the budgets of an objective, one for each set of labels of its series. Raises QueryError, SelectError."""
    window = _ratios(runner, objective, objective.window_ms, at)
    hour = _ratios(runner, objective, BURN_WINDOW_MS, at)
    for labels, errors in window.items():
        recent = hour.get(labels)
        yield ErrorBudget(
            objective.name,
            dict(labels),
            objective.objective,
            format_duration(objective.window_ms),
            errors,
            None if errors is None else errors / objective.budget,
            None if recent is None else recent / objective.budget,
        )


def _ratios(
    runner: QueryRunner, objective: SloSection, window_ms: int, at: str | None
) -> dict[tuple[tuple[str, str], ...], float | None]:
    """Return the fraction of failed requests by labels."""
    answer = runner.promql(objective.error_ratio(window_ms), at)
    found: dict[tuple[tuple[str, str], ...], float | None] = {}
    for labels, _time, value in answer.points():
        own = tuple(sorted((name, text) for name, text in labels.items() if name != SLO))
        found[own] = None if value is None or math.isnan(float(value)) else float(value)
    return found


def _line(budget: ErrorBudget) -> str:
    name = printable(canonical(budget.objective, budget.labels))
    if budget.errors is None or budget.used is None:
        return f"{name}  {budget.target:g} % in {budget.window}: no requests"
    burn = "" if budget.burn is None else f", burn rate of the last hour {budget.burn:.3g}"
    good = f"{100 * (1 - budget.errors):.6g} % of {budget.target:g} %"
    return f"{name}  {good} in {budget.window}, {100 * budget.used:.1f} % of the error budget used{burn}"
