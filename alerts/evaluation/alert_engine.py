"""Alert engine: evaluates every rule each minute on the newest settled bucket, and stores all results in one commit.

Threads: the engine's thread evaluates, `Sender` delivers, and other threads read `dispatcher`, which is replaced as a
whole, and change silences and acknowledgements. All other state belongs to the engine's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from alerts.dispatch.acknowledgements import Acknowledgement, Acknowledgements
from alerts.dispatch.alert_status import AlertStatuses
from alerts.dispatch.dispatcher import Dispatcher
from alerts.dispatch.foreign_alerts import RESOLVE_MS, AlertInbox
from alerts.dispatch.groups import Group
from alerts.dispatch.routes import Routing
from alerts.dispatch.routing_file import RoutingFile
from alerts.dispatch.silences import Silence, Silences
from alerts.evaluation.alert_view import NO_PAIR, AlertView
from alerts.evaluation.recordings import RecordedSeries, RecordingFile
from alerts.evaluation.rule_answer import STEP_MS
from alerts.evaluation.rule_evaluator import RuleEvaluator, RuleResult, end_orphaned_alerts, is_lagging
from alerts.evaluation.rule_history import RuleHistory
from alerts.evaluation.verdicts import AlertStep, RuleFailedError
from alerts.receivers.receiver_kind import Integration, receiver_kinds
from alerts.rules.rule_file import DEFAULT_RECEIVER
from alerts.rules.rule_folder import ActiveRules, RuleFolder
from alerts.state.alert import Alert, AlertChange, AlertPhase, RuleMemory
from alerts.state.alert_database import AlertDatabase, DispatchCommit, EngineState, EvaluationCommit
from alerts.state.notification import AlertLetter, Notification, fingerprint, notify, resolution_of, split_target
from alerts.state.rule import Labels, Rule
from alerts.templates.template_functions import NO_CONTEXT
from artimon.model.clock import Clock
from artimon.model.select import SelectError, Store
from artimon.runtime.config_file import MAX_PROBLEMS

log = logging.getLogger(__name__)

MAX_EVALUATION_S = 50.0
"""Time budget of an evaluation in seconds; beyond it the remaining rules wait for the next evaluation."""

AlertRow = tuple[str, Labels, Alert | None]


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """`default`: targets of rules that name no receiver; `page`: address of the page for links; `settle_ms`: delay from
    the end of a bucket until it counts as settled; `routing`: file of routes, in the form of Alertmanager."""

    id: str
    rules: Path
    default: tuple[str, ...]
    page: str = ""
    settle_ms: int = 15_000
    routing: Path | None = None
    recordings: Path | None = None
    """Folder of drop-in files for the results of recording rules."""


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """Results of the last evaluation, for figures and display."""

    time_ms: int = 0
    duration_ms: float = 0.0
    queries: int = 0
    rules: Mapping[str, int] | None = None
    alerts: Mapping[str, int] | None = None
    problems: tuple[str, ...] = ()
    failing: str = ""


class SharedRules(Protocol):
    """Rules of one evaluation that other engines evaluate."""

    @property
    def names(self) -> Collection[str]:
        """Names of the rules."""

    def results(self) -> Mapping[str, RuleResult]:
        """Wait for the results, within a limit, and return those that arrived."""


RequestShares = Callable[[ActiveRules, int], SharedRules]
"""Ask other engines to evaluate a part of the rules at a time."""


class AlertEngine:
    """Evaluates all rules when `evaluate_due` is called; nothing else changes the state."""

    def __init__(
        self,
        config: EngineConfig,
        store: Store,
        database: AlertDatabase,
        memory: EngineState,
        clock: Clock,
        *,
        newest_samples: Callable[[], Iterable[int]] = tuple,
        past: Store | None = None,
    ) -> None:
        """`past`: memory and history together, for rules that memory alone cannot answer."""
        self._config, self._store, self._database, self._clock = config, store, database, clock
        self._state, self._newest_samples = memory, newest_samples
        self._history = None if past is None else RuleHistory(past)
        self._folder = RuleFolder(config.rules, config.default, memory.files)
        self._active: ActiveRules | None = None
        self._context = NO_CONTEXT
        """Data of the templates of the running evaluation."""
        self.shares: RequestShares | None = None
        """Hands rules to other engines of a pair; None: this engine evaluates all."""
        self.inbox = AlertInbox()
        """Alerts from outside. It, silences and acknowledgements may be used by every thread."""
        self._routing_file = None if config.routing is None else RoutingFile(config.routing)
        self._recordings = None if config.recordings is None else RecordingFile(config.recordings)
        self._record_problems: tuple[str, ...] = ()
        self._shown: tuple[ActiveRules, Mapping[str, RuleResult]] = (ActiveRules(), {})
        """Rules and results of the last evaluation. Other threads read them while the next one runs."""
        self.api = ""
        """Address of the API of this engine, for the display."""
        self.evaluations = 0
        self.letters_made = 0
        """Letters created since the start."""
        self.result = EvaluationResult(memory.time_ms)
        self.load(memory)

    def load(self, memory: EngineState) -> None:
        """Replace the state by a stored one: at the start, and by what the leader of a pair has stored. Alerts from
        outside that were not stored are dropped: their senders send them again, to the leader."""
        self._state = memory
        self.inbox.take()
        dispatcher = restored_dispatcher(memory, self._clock.now_ms())
        if self._active is not None:
            dispatcher.routing = self._routing(self._active, dispatcher.routing)
        self._dispatcher = dispatcher
        silences = {id: Silence.from_json(data) for id, data in memory.silences.items()}
        self.silences = Silences(self._database.record, silences)
        acknowledged = {one: Acknowledgement(**data) for one, data in memory.acknowledgements.items()}
        self.acknowledgements = Acknowledgements(self._database.record, acknowledged)

    @property
    def dispatcher(self) -> Dispatcher:
        """Alerts and groups after the last commit. Callers do not change it."""
        return self._dispatcher

    @property
    def routing_text(self) -> str:
        """Text of the routing file in force; "" without one."""
        return self._routing_file.text if self._routing_file else ""

    @property
    def time_ms(self) -> int:
        """End of the newest bucket that this engine, or the leader of its pair, evaluated."""
        return self._state.time_ms

    @property
    def missed(self) -> int:
        """Minutes that were never evaluated since the database was created."""
        return self._state.missed

    # ---- schedule

    def due(self) -> int | None:
        """End of the bucket to evaluate now; None if it was evaluated.

        If the clock went back by more than two minutes, later evaluations are ignored."""
        newest = (self._clock.now_ms() - self._config.settle_ms) // STEP_MS * STEP_MS
        last = self._state.time_ms
        if last < newest or last - newest > 2 * STEP_MS:
            return newest
        return None

    def wait_s(self) -> float:
        """Seconds until the next evaluation is due, at most one."""
        next_ms = self._state.time_ms + STEP_MS + self._config.settle_ms
        return min(1.0, max(0.05, (next_ms - self._clock.now_ms()) / 1000))

    def evaluate_due(self) -> bool:
        """Evaluate if an evaluation is due, else make the messages that are due; False if nothing is due."""
        time_ms = self.due()
        if time_ms is None:
            return self.flush_due()
        self.evaluate(time_ms)
        return True

    # ---- evaluation

    def evaluate(self, time_ms: int) -> None:
        """Run one evaluation, from the rule files to the commit. Raises errors of the database before any change."""
        began = perf_counter()
        force = self.read_rules()
        memory = self._state
        missed = max(0, (time_ms - memory.time_ms) // STEP_MS - 1) if memory.time_ms else 0
        gone = end_orphaned_alerts(memory.known, force.rules, time_ms)
        evaluator = self._evaluator(force, time_ms, began)
        self._context = evaluator.context
        before = {name: known.alerts for name, known in memory.known.items() if name not in gone}
        waiting = self._waiting(force, memory.time_ms, time_ms)
        due = {name: rule for name, rule in force.rules.items() if name not in waiting}
        shared = self.shares(replace(force, rules=due), time_ms) if self.shares else None
        judged = {**waiting, **_evaluate_rules(evaluator, due, before, shared)}
        if self._history is not None:  # after all others, which a slow history must not delay
            self._history.retain([*force.rules.values(), *force.records])
            for name in [name for name, result in judged.items() if result.truncated]:
                judged[name] = evaluator.evaluate_rule(force.rules[name], before.get(name, {}), self._history)
        self._record(evaluator, force, memory.time_ms, time_ms)
        self._database.hook("evaluated")
        rows, alerts = self._rows(force, gone, judged)
        dispatcher = self._dispatcher.copy()
        dispatcher.routing = self._routing(force, dispatcher.routing)
        with self._from_outside() as others:
            dispatcher.end_expired(self._clock.now_ms())
            dispatcher.put([*alerts, *others], self._clock.now_ms())
            self._commit_evaluation(force, EvaluationCommit(time_ms, memory.missed + missed), rows, dispatcher)
        self._database.hook("committed")
        self.silences.purge(self._clock.now_ms())
        self.acknowledgements.purge(dispatcher.alerts, self._clock.now_ms())
        self._shown = force, judged
        self.evaluations += 1
        self._store_result(force, (perf_counter() - began) * 1000, evaluator.queries)

    def read_rules(self) -> ActiveRules:
        """Read changed rule files and return the rules in force."""
        self._active = self._folder.read(self._clock.now_ms())
        return self._active

    @property
    def active(self) -> ActiveRules | None:
        """Rules in force as last read; None before. Every thread may read it."""
        return self._active

    def evaluate_some(self, rules: Mapping[str, Rule], time_ms: int) -> dict[str, RuleResult]:
        """Evaluate rules for the leader of a pair on the state as last loaded. Changes nothing; for any thread."""
        known = self._state.known
        before = {
            name: known[name].alerts
            for name, rule in rules.items()
            if name in known and known[name].digest == rule.digest
        }
        return _evaluate_rules(self._evaluator(ActiveRules(rules), time_ms, perf_counter()), rules, before, None)

    def _evaluator(self, force: ActiveRules, time_ms: int, began: float) -> RuleEvaluator:
        lagging, in_time = self._lagging(time_ms), self._in_time(began)
        page = self._config.page
        return RuleEvaluator(self._store, force.rules.values(), time_ms, lagging, in_time, external_url=page)

    def _record(self, evaluator: RuleEvaluator, force: ActiveRules, before_ms: int, time_ms: int) -> None:
        """Evaluate the recording rules that are due and hand their results to the agent."""
        found: list[RecordedSeries] = []
        problems: list[str] = []
        due = [one for one in force.records if before_ms // one.interval_ms != time_ms // one.interval_ms]
        if due and self._recordings is None:
            problems.append(
                f"{len(due)} recording rules are not evaluated: give --recordings, a folder of drop-in files"
            )
        for rule in due if self._recordings is not None else ():
            try:
                found += evaluator.record(rule, self._history)
            except RuleFailedError as problem:
                problems.append(f"{rule.name}: {problem}")
        if self._recordings is not None and found:
            try:
                if dropped := self._recordings.write(time_ms, found):
                    problems.append(f"{dropped} recorded series were left out: there are too many")
            except OSError as error:
                problems.append(f"recorded series cannot be written: {error}")
        self._record_problems = tuple(problems[:MAX_PROBLEMS])

    def _waiting(self, force: ActiveRules, before_ms: int, time_ms: int) -> dict[str, RuleResult]:
        """Return the last results, without steps, of rules whose interval has not passed since the last evaluation."""
        (active, known) = self._shown
        return {
            name: replace(known[name], steps=(), truncated=False)
            for name, rule in force.rules.items()
            if before_ms // rule.interval_ms == time_ms // rule.interval_ms
            and name in known
            and active.rules[name].digest == rule.digest
        }

    def flush_due(self) -> bool:
        """Take the alerts of others, and make the messages of groups that are due between two evaluations; return False
        if there is no message."""
        now_ms = self._clock.now_ms()
        with self._from_outside() as others:
            if not others and self._dispatcher.next_ms() > now_ms:
                return False
            dispatcher = self._dispatcher.copy()
            if self._active is None:  # after a start, before the first evaluation: receivers are not known yet
                dispatcher.routing = self._routing(self.read_rules(), dispatcher.routing)
            dispatcher.put(others, now_ms)
            letters = self._flush(dispatcher, now_ms)
            self._database.commit(dispatch_commit(dispatcher, letters, now_ms))
        self._dispatcher = dispatcher
        self.letters_made += len(letters)
        return bool(letters)

    def _flush(self, dispatcher: Dispatcher, now_ms: int) -> list[AlertLetter]:
        return dispatcher.flush(now_ms, self.silences.hides, self.acknowledgements.of)

    @contextmanager
    def _from_outside(self) -> Iterator[list[Notification]]:
        """Take the alerts of the inbox; they stay in it if the block fails."""
        taken = self.inbox.take()
        try:
            yield taken
        except BaseException:
            self.inbox.give_back(taken)
            raise

    def _routing(self, force: ActiveRules, before: Routing) -> Routing:
        """Return the routing in force; the same object while it does not change."""
        new = routing_of(force)
        if self._routing_file is not None:
            new = self._routing_file.apply(new)
        return before if new == before else new

    def _in_time(self, began: float) -> Callable[[], bool]:
        return lambda: perf_counter() - began < MAX_EVALUATION_S

    def _lagging(self, time_ms: int) -> bool:
        try:
            return is_lagging(self._newest_samples(), time_ms)
        except SelectError:  # the rules report it themselves
            return False

    def _rows(
        self, force: ActiveRules, gone: Mapping[str, list[AlertStep]], judged: Mapping[str, RuleResult]
    ) -> tuple[list[AlertRow], list[Notification]]:
        """Return the alerts to write, and those that fire or have resolved. An alert that ends comes before one that
        begins."""
        rows: list[AlertRow] = []
        alerts: list[Notification] = []
        for name, steps in gone.items():
            rows += [self._row(name, None, one, alerts) for one in steps]
        for name, found in judged.items():
            rule = force.rules[name]
            rows += [self._row(name, rule, one, alerts, found.sample(one.labels)) for one in found.steps]
        return rows, alerts

    def _row(
        self,
        name: str,
        rule: Rule | None,
        one: AlertStep,
        alerts: list[Notification],
        sample: Mapping[str, str] | None = None,
    ) -> AlertRow:
        alert = one.alert
        if alert is not None and (one.change is not None or alert.phase is AlertPhase.FIRING):
            change = one.change or AlertChange.FIRING
            known = None if rule is not None else self._dispatcher.alerts.get(fingerprint(name, one.labels))
            if rule is not None:
                alerts.append(notify(rule, one.labels, alert, change, sample, self._context))
            elif known is not None:
                alerts.append(resolution_of(known, alert))
        return name, one.labels, alert

    def _commit_evaluation(
        self, force: ActiveRules, commit: EvaluationCommit, rows: list[AlertRow], dispatcher: Dispatcher
    ) -> None:
        """Commit to the database first, then update the memory."""
        memory, now_ms = self._state, self._clock.now_ms()
        letters = self._flush(dispatcher, now_ms)
        changed = [row for row in rows if self._differs(row)]
        digests = {name: rule.digest for name, rule in force.rules.items()}
        files = force.files if dict(force.files) != memory.files else None
        held = {name for name, _, alert in rows if alert is not None}
        needed = {name: digest for name, digest in digests.items() if name in held}
        evaluation = replace(commit, digests=needed, alerts=changed, files=files)
        self._database.commit(dispatch_commit(dispatcher, letters, now_ms), evaluation)
        self._dispatcher = dispatcher
        self.letters_made += len(letters)
        memory.time_ms, memory.missed, memory.files = commit.time_ms, commit.missed, dict(force.files)
        known = {name: dict(one.alerts) for name, one in memory.known.items()}
        for name, labels, alert in rows:
            if alert is None:
                known.get(name, {}).pop(labels, None)
            else:
                known.setdefault(name, {})[labels] = alert
        old = memory.known
        memory.known = {
            name: RuleMemory(digests.get(name) or old[name].digest, alerts) for name, alerts in known.items() if alerts
        }

    def _differs(self, row: AlertRow) -> bool:
        name, labels, alert = row
        known = self._state.known.get(name)
        return alert is None or known is None or known.alerts.get(labels) != alert

    # ---- publication

    def _store_result(self, force: ActiveRules, duration_ms: float, questions: int) -> None:
        memory, view = self._state, self.view()
        states = view.rule_counts()
        errors = sorted({judged.error for judged in view.results.values() if judged.error})
        self.result = EvaluationResult(
            memory.time_ms,
            duration_ms,
            questions,
            states,
            view.alert_counts(),
            (*force.problems, *self._record_problems, *(self._routing_file.problems if self._routing_file else ())),
            f"{states['error']} of {len(force.rules)} rules failed: {errors[0]:.300}" if errors else "",
        )

    def view(self) -> AlertView:
        """View of the current state."""
        config, memory, (active, results) = self._config, self._state, self._shown
        dispatched = self._dispatcher.alerts
        return AlertView(
            config.id, config.page, memory.time_ms, active, memory.known, dispatched, results, self.statuses(), self.api
        )

    def statuses(self) -> AlertStatuses:
        """Status of each alert now."""
        return AlertStatuses(self._dispatcher, self.silences, self.acknowledgements, self._clock.now_ms())

    def display(self, mail: Mapping[str, Any], pair: Mapping[str, Any] = NO_PAIR) -> bytes:
        """JSON for the znode. `pair`: role of this engine in its pair; rules and alerts are those of the leader."""
        return self.view().encode(mail, pair)


def _evaluate_rules(
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


def routing_of(force: ActiveRules) -> Routing:
    """Return the routing without a routing file: each receiver of the rules has its targets."""
    receivers = {
        name: tuple(Integration(target, max_alerts=max_alerts_of(target)) for target in targets)
        for name, targets in force.receivers.items()
    }
    return Routing(DEFAULT_RECEIVER, receivers)


def restored_dispatcher(memory: EngineState, now_ms: int) -> Dispatcher:
    """Return the dispatcher of a stored state. Alerts from outside, which could not be sent while the engine was down,
    get time to be sent again."""
    alerts = {one: Notification.from_json(data) for one, data in memory.dispatched.items()}
    for one, alert in alerts.items():
        if alert.expires_ms and alert.kind is AlertChange.FIRING:
            alerts[one] = replace(alert, expires_ms=max(alert.expires_ms, now_ms + RESOLVE_MS))
    groups = {id: Group.from_json(data) for id, data in memory.groups.items()}
    return Dispatcher(Routing(DEFAULT_RECEIVER), alerts, groups, dict(memory.told_before))


def dispatch_commit(dispatcher: Dispatcher, letters: list[AlertLetter], now_ms: int) -> DispatchCommit:
    """Return what changed in the dispatcher since the last commit."""
    changes = dispatcher.take_changes()
    return DispatchCommit(
        now_ms,
        letters,
        {one: alert and alert.to_json() for one, alert in changes.alerts.items()},
        {id: group and group.to_json() for id, group in changes.groups.items()},
        changes.history,
    )


def max_alerts_of(target: str) -> int:
    """Return the maximum number of alerts in a letter to a target; 0: no limit."""
    kind = receiver_kinds().get(split_target(target)[0])
    return kind.max_alerts if kind else 0
