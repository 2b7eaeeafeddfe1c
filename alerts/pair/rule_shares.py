"""Shares of the rules: the leader asks the other engines of its pair to evaluate a part, on their copies of the state.

Nothing but the leader stores results, so a wrong, late or missing answer costs time only: the leader evaluates those
rules itself.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import asdict, dataclass, field
from typing import Any

from alerts.api.handlers import SHARES_PATH
from alerts.evaluation.alert_engine import AlertEngine
from alerts.evaluation.rule_evaluator import RuleResult
from alerts.evaluation.verdicts import AlertStep
from alerts.pair.engine_lease import EngineAddress
from alerts.rules.rule_folder import ActiveRules
from alerts.state.alert import Alert, AlertChange
from alerts.state.operations import OperationError
from alerts.state.rule import Labels, Rule
from artimon.model.clock import Clock
from artimon.runtime.http.engine_client import EngineClient, EngineError
from query_dsl.results.result_cells import SeriesKey
from sources.base.rendezvous import assigned_agent

log = logging.getLogger(__name__)

ANSWER_S = 25.0
"""Time in seconds after which the leader evaluates the rules of another engine itself."""
STATE_S = 5.0
"""Time in seconds that an engine waits for the state on which the leader evaluates."""
MIN_SHARED_RULES = 200
"""Number of rules below which the leader evaluates all itself: asking costs more."""


def rules_of(engine: str, engines: Iterable[str], rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """Return the rules that an engine evaluates. Rules with equal queries have one engine."""
    names = tuple(engines)
    owners: dict[str, str] = {}
    for rule in rules.values():
        if rule.expr not in owners:
            owners[rule.expr] = assigned_agent(rule.expr, names)
    return {name: rule for name, rule in rules.items() if owners[rule.expr] == engine}


def rules_digest(active: ActiveRules) -> str:
    """Return the hash of all rule files in force."""
    return hashlib.sha256(json.dumps(sorted(active.files.items())).encode()).hexdigest()[:32]


def encode_results(results: Mapping[str, RuleResult]) -> dict[str, Any]:
    """Convert to values for JSON."""
    return {
        name: {
            "steps": [[one.labels, one.alert and asdict(one.alert), one.change] for one in found.steps],
            "error": found.error,
            "duration_ms": found.duration_ms,
            "truncated": found.truncated,
            "series": [[labels, key.name, key.labels] for labels, key in found.series.items()],
        }
        for name, found in results.items()
    }


def decode_results(data: Mapping[str, Any]) -> dict[str, RuleResult]:
    """Inverse of `encode_results`. Raises ValueError, TypeError, KeyError."""
    return {
        str(name): RuleResult(
            [_step(*one) for one in found["steps"]],
            str(found["error"]),
            float(found["duration_ms"]),
            bool(found["truncated"]),
            {_pairs(labels): SeriesKey(str(name), _pairs(own)) for labels, name, own in found["series"]},
        )
        for name, found in data.items()
    }


def _pairs(labels: Any) -> Labels:
    return tuple((str(name), str(value)) for name, value in labels)


def _step(labels: Any, alert: Any, change: Any) -> AlertStep:
    known = None if alert is None else Alert.from_json(alert)
    return AlertStep(_pairs(labels), known, None if change is None else AlertChange(change))


@dataclass(frozen=True, slots=True)
class PendingShares:
    """Rules that other engines evaluate now."""

    names: Collection[str]
    answers: Mapping[Future[dict[str, RuleResult]], str]
    """Answers with the engines that give them."""
    problems: dict[str, str] = field(default_factory=dict)

    def results(self) -> dict[str, RuleResult]:
        """Return what arrived in time."""
        found: dict[str, RuleResult] = {}
        wait_for(self.answers, ANSWER_S)
        for answer, engine in self.answers.items():
            try:
                found |= answer.result(0)
                self.problems.pop(engine, None)
            except (TimeoutError, EngineError, ValueError, TypeError, KeyError) as error:
                self.problems[engine] = f"engine {engine} does not evaluate its share of the rules: {error}"
                log.warning("%s", self.problems[engine])
        return {name: one for name, one in found.items() if name in self.names}


class RuleShares:
    """Asks other engines, and answers them. `offset` returns the position of the journal that this engine has loaded.

    `engines` returns the engines that run. `_evaluating` lets one share be evaluated at a time."""

    def __init__(
        self,
        engine: AlertEngine,
        id: str,
        engines: Callable[[], Iterable[EngineAddress]],
        offset: Callable[[], int],
        clock: Clock,
        token: str = "",
    ) -> None:
        self._engine, self._id, self._engines, self._offset = engine, id, engines, offset
        self._clock, self._token = clock, token
        self._evaluating = threading.Lock()
        self._pool = ThreadPoolExecutor(8, "alert shares")
        self._digest: tuple[ActiveRules | None, str] = (None, "")
        self.problems: dict[str, str] = {}
        """Engines that did not answer, with the reason."""

    # ---- the leader

    def request(self, active: ActiveRules, time_ms: int) -> PendingShares:
        """Ask every other engine to evaluate its share at a time."""
        others = [one for one in self._engines() if one.id != self._id]
        self.problems = {id: text for id, text in self.problems.items() if any(one.id == id for one in others)}
        if not others or len(active.rules) < MIN_SHARED_RULES:
            return PendingShares((), {})
        names = sorted({self._id, *(one.id for one in others)})
        mine = rules_of(self._id, names, active.rules)
        asked = {"time_ms": time_ms, "engines": names, "rules": self._digest_of(active), "offset": self._offset()}
        answers = {self._pool.submit(self._ask, one, asked): one.id for one in others}
        return PendingShares(active.rules.keys() - mine.keys(), answers, self.problems)

    def _ask(self, engine: EngineAddress, asked: Mapping[str, Any]) -> dict[str, RuleResult]:
        client = EngineClient(engine.api, self._id, self._token, ANSWER_S)
        return decode_results(client.ask("POST", SHARES_PATH, asked))

    # ---- the others

    def answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Evaluate the share of this engine, on the state that the leader has. Raises OperationError."""
        active = self._engine.active
        if active is None or self._digest_of(active) != asked.get("rules"):
            raise OperationError(f"the rule files of {self._id} are not those of the leader", 409)
        deadline = self._clock.monotonic() + STATE_S
        pause = threading.Event()
        while self._offset() < int(asked["offset"]):
            if self._clock.monotonic() > deadline:
                raise OperationError(f"{self._id} does not have the state of the leader yet", 503)
            self._clock.wait(pause, 0.05)
        with self._evaluating:
            each_minute = {name: rule for name, rule in active.rules.items() if not rule.is_prompt}
            mine = rules_of(self._id, [str(one) for one in asked["engines"]], each_minute)
            return encode_results(self._engine.evaluate_some(mine, int(asked["time_ms"])))

    def _digest_of(self, active: ActiveRules) -> str:
        known = self._digest
        if known[0] is None or known[0].files != active.files:
            self._digest = known = active, rules_digest(active)
        return known[1]

    def close(self) -> None:
        """Stop asking other engines."""
        self._pool.shutdown(wait=False, cancel_futures=True)
