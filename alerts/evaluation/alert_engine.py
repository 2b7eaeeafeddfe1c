"""Alert engine: evaluates every rule each minute on the newest complete bucket, and stores all results in one commit.
Rules with an interval below a minute are evaluated on the newest samples, between these evaluations.

Threads: the engine's thread evaluates, `Sender` delivers, and other threads read `dispatcher`, which is replaced as a
whole, and change silences and acknowledgements. All other state belongs to the engine's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from alerts.dispatch.acknowledgements import Acknowledgement, Acknowledgements
from alerts.dispatch.alert_status import AlertStatuses
from alerts.dispatch.dispatcher import Dispatcher
from alerts.dispatch.foreign_alerts import AlertInbox
from alerts.dispatch.routes import Routing
from alerts.dispatch.routing_file import RoutingFile
from alerts.dispatch.silences import Silence, Silences
from alerts.evaluation.alert_view import NO_PAIR, AlertView
from alerts.evaluation.dispatch_state import dispatch_commit, restored_dispatcher, routing_of
from alerts.evaluation.feed_status import FeedStatus, hold_minute, late_text
from alerts.evaluation.prompt_schedule import PromptSchedule
from alerts.evaluation.recorder import Recorder
from alerts.evaluation.rule_answer import STEP_MS
from alerts.evaluation.rule_completeness import RuleCompleteness
from alerts.evaluation.rule_evaluator import RuleEvaluator, RulePlan, RuleResult, end_orphaned_alerts, is_lagging
from alerts.evaluation.rule_history import RuleHistory
from alerts.evaluation.shared_rules import RequestShares, evaluate_rules, waiting_results
from alerts.evaluation.verdicts import AlertStep
from alerts.rules.rule_folder import ActiveRules, RuleFolder
from alerts.state.alert import Alert, AlertChange, AlertPhase, RuleMemory
from alerts.state.alert_database import AlertDatabase, EngineState, EvaluationCommit
from alerts.state.notification import AlertLetter, Notification, fingerprint, notify, resolution_of
from alerts.state.recorded_lines import keep_recorded, with_known
from alerts.state.rule import Labels, Rule
from alerts.templates.template_functions import NO_CONTEXT
from artimon.model.clock import Clock
from artimon.model.select import SelectError, Store

log = logging.getLogger(__name__)

LOOK_S = 0.2
"""Pause in seconds between looks at the shards while their samples are waited for."""
MAX_EVALUATION_S = 50.0
"""Time budget of an evaluation in seconds; beyond it the remaining rules wait for the next evaluation."""

AlertRow = tuple[str, Labels, Alert | None]


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """`default`: targets of rules that name no receiver; `page`: address of the page for links; `settle_ms`: time for
    which late samples of a minute are waited for; `routing`: file of routes, in the form of Alertmanager."""

    id: str
    rules: Path
    default: tuple[str, ...]
    page: str = ""
    settle_ms: int = 15_000
    routing: Path | None = None
    recordings: Path | None = None
    """Folder of drop-in files for the results of recording rules."""
    external_labels: Mapping[str, str] = field(default_factory=dict)
    """`$externalLabels` of templates."""


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
    delay_ms: int = 0
    """Time from the end of the bucket to its evaluation."""
    late: str = ""
    """Sources whose samples the evaluation did not wait for any longer; "" without one."""


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
        feeds: Callable[[], Sequence[FeedStatus]] = tuple,
        past: Store | None = None,
    ) -> None:
        """`feeds`: states of the shards; it may raise SelectError. `past`: memory and history together, for rules that
        memory alone cannot answer."""
        self._config, self._store, self._database, self._clock = config, store, database, clock
        self._state, self._read_feeds = memory, feeds
        self._feeds: Sequence[FeedStatus] = ()
        """States of the shards as read last."""
        self._prompt = PromptSchedule()
        self._history = None if past is None else RuleHistory(past)
        self._folder = RuleFolder(config.rules, config.default, memory.files)
        self._active: ActiveRules | None = None
        self._plan: tuple[ActiveRules, RulePlan] | None = None
        """Rules, and what their queries share."""
        self._context = NO_CONTEXT
        """Data of the templates of the running evaluation."""
        self.shares: RequestShares | None = None
        """Hands rules to other engines of a pair; None: this engine evaluates all."""
        self.inbox = AlertInbox()
        """Alerts from outside. It, silences and acknowledgements may be used by every thread."""
        self._routing_file = None if config.routing is None else RoutingFile(config.routing)
        self._recorder = Recorder(config.recordings)
        self._completeness = RuleCompleteness(store)
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
        self._recorder.write(memory.recorded)

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
        """End of the bucket to evaluate now: one that the shards hold, or that ended `settle_ms` ago; None if it was
        evaluated.

        If the clock went back by more than two minutes, later evaluations are ignored."""
        now_ms, last = self._clock.now_ms(), self._state.time_ms
        newest, settled = now_ms // STEP_MS * STEP_MS, (now_ms - self._config.settle_ms) // STEP_MS * STEP_MS
        if last < settled or last - newest > 2 * STEP_MS:
            return settled
        if last < newest and hold_minute(self._look_at_shards(), newest):
            return newest
        return None

    def due_intervals(self) -> frozenset[int]:
        """Return the intervals below a minute whose rules are to be evaluated now."""
        active, now_ms = self._active or self.read_rules(), self._clock.now_ms()
        if not self._prompt.may_begin(active.prompt_intervals, now_ms):
            return frozenset()
        self._look_at_shards()
        return self._prompt.due(active.prompt_intervals, now_ms, self._applied())

    def wait_s(self) -> float:
        """Seconds until the next look at what is due, at most one."""
        left_s = (self._state.time_ms + STEP_MS - self._clock.now_ms()) / 1000
        soon = left_s <= 0 or (self._active is not None and bool(self._active.prompt_intervals))
        return min(LOOK_S if soon else 1.0, max(0.05, left_s) if left_s > 0 else LOOK_S)

    def evaluate_due(self) -> bool:
        """Evaluate if an evaluation is due, else make the messages that are due; False if nothing changed."""
        time_ms = self.due()
        if time_ms is not None:
            self.evaluate(time_ms)
            return True
        if intervals := self.due_intervals():
            return self.evaluate_promptly(intervals)
        return self.flush_due()

    def _look_at_shards(self) -> Sequence[FeedStatus]:
        """Read the states of the shards; () if they do not answer."""
        try:
            self._feeds = self._read_feeds()
        except SelectError:  # the rules report it themselves
            self._feeds = ()
        return self._feeds

    def _applied(self) -> int:
        return sum(feed.applied for feed in self._feeds)

    # ---- evaluation

    def evaluate(self, time_ms: int) -> None:
        """Run one evaluation, from the rule files to the commit. Raises errors of the database before any change."""
        began, delay_ms = perf_counter(), self._clock.now_ms() - time_ms
        force = self.read_rules()
        memory = self._state
        missed = max(0, (time_ms - memory.time_ms) // STEP_MS - 1) if memory.time_ms else 0
        gone = end_orphaned_alerts(memory.known, force.rules, max(time_ms, self._prompt.last_ms))
        lagging, late = self._lagging(time_ms)
        evaluator = self._evaluator(force, time_ms, lagging)
        self._context = evaluator.context
        before = {name: known.alerts for name, known in memory.known.items() if name not in gone}
        waiting = waiting_results(force, self._shown, memory.time_ms, time_ms)
        due = {name: rule for name, rule in force.rules.items() if name not in waiting}
        shared = self.shares(replace(force, rules=due), time_ms) if self.shares else None
        judged = {**waiting, **evaluate_rules(evaluator, due, before, shared)}
        if self._history is not None:
            self._history.retain([*force.rules.values(), *force.records])
        self._judge_by_history(evaluator, force, judged, before)
        self._completeness.add(force.rules, judged, time_ms)
        records = [one for one in force.records if not one.is_prompt and one.is_due(memory.time_ms, time_ms)]
        recorded = self._recorder.record(evaluator, force.records, records, time_ms, self._history)
        self._database.hook("evaluated")
        self._conclude(force, gone, judged, EvaluationCommit(time_ms, memory.missed + missed, recorded=recorded))
        self._database.hook("committed")
        self._recorder.write(memory.recorded)
        self.silences.purge(self._clock.now_ms())
        self.acknowledgements.purge(self._dispatcher.alerts, self._clock.now_ms())
        self._shown = force, judged
        self.evaluations += 1
        self._store_result(force, (perf_counter() - began) * 1000, evaluator.queries)
        self.result = replace(self.result, delay_ms=max(0, delay_ms), late=late)
        if late:
            log.info("evaluated %d ms after the end of the minute: %s", delay_ms, late)

    def evaluate_promptly(self, intervals: Collection[int]) -> bool:
        """Evaluate the rules with these intervals, below a minute, on the newest samples. Return True if an alert or a
        group changed. Raises errors of the database before any change."""
        began, time_ms, memory = perf_counter(), self._clock.now_ms() // 1000 * 1000, self._state
        force = self._active or self.read_rules()
        due = {name: rule for name, rule in force.rules.items() if rule.interval_ms in intervals}
        known = {name: memory.known[name] for name in due if name in memory.known}
        changed = {name for name, one in known.items() if one.digest != due[name].digest}
        due = {name: rule for name, rule in due.items() if name not in changed}  # their alerts end with the minute
        before = {name: one.alerts for name, one in known.items()}
        lagging = is_lagging((feed.newest_ms for feed in self._feeds), time_ms)
        evaluator = self._evaluator(force, time_ms, lagging)
        evaluator.read_newest()
        self._context = evaluator.context
        judged = evaluate_rules(evaluator, due, before, None)
        self._judge_by_history(evaluator, force, judged, before)
        records = [one for one in force.records if one.is_prompt and one.is_due(self._prompt.last_ms, time_ms)]
        recorded = self._recorder.record(evaluator, force.records, records, time_ms, self._history) if records else None
        letters = self.letters_made
        is_stored = self._conclude(
            force, {}, judged, EvaluationCommit(memory.time_ms, memory.missed, recorded=recorded)
        )
        self._recorder.write(memory.recorded)
        shown = self._shown[1]
        self._shown = force, {name: judged.get(name) or shown.get(name, RuleResult()) for name in force.rules}
        last = self.result
        took_ms = (perf_counter() - began) * 1000
        self._prompt.note(intervals, time_ms, self._applied(), took_ms)
        self._store_result(force, last.duration_ms, last.queries)
        self.result = replace(self.result, delay_ms=last.delay_ms, late=last.late)
        return is_stored and (letters != self.letters_made or last.alerts != self.result.alerts)

    def _judge_by_history(
        self,
        evaluator: RuleEvaluator,
        force: ActiveRules,
        judged: dict[str, RuleResult],
        before: Mapping[str, Mapping[Labels, Alert]],
    ) -> None:
        """Evaluate the rules that memory cannot answer, after all others, which a slow history must not delay."""
        if self._history is not None:
            for name in [name for name, result in judged.items() if result.truncated]:
                judged[name] = evaluator.evaluate_rule(force.rules[name], before.get(name, {}), self._history)

    def _conclude(
        self,
        force: ActiveRules,
        gone: Mapping[str, list[AlertStep]],
        judged: Mapping[str, RuleResult],
        commit: EvaluationCommit,
    ) -> bool:
        """Dispatch the results of an evaluation and store everything; return False if there is nothing to store."""
        rows, alerts = self._rows(force, gone, judged)
        dispatcher = self._dispatcher.copy()
        dispatcher.routing = self._routing(force, dispatcher.routing)
        with self._from_outside() as others:
            dispatcher.end_expired(self._clock.now_ms())
            dispatcher.put([*alerts, *others], self._clock.now_ms())
            return self._commit_evaluation(force, commit, rows, dispatcher)

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
        lagging, _ = self._lagging(time_ms)
        evaluator = self._evaluator(self._active or ActiveRules(rules), time_ms, lagging)
        return evaluate_rules(evaluator, rules, before, None)

    def _evaluator(self, force: ActiveRules, time_ms: int, lagging: bool) -> RuleEvaluator:
        """Return an evaluator whose time limit begins now, once the files are read: many new rules take minutes."""
        config, plan = self._config, self._plan
        if plan is None or plan[0] is not force:
            self._plan = plan = force, RulePlan.of(force.rules.values())
        until = perf_counter() + MAX_EVALUATION_S
        return RuleEvaluator(
            self._store, plan[1], time_ms, lagging, lambda: perf_counter() < until,
            external_labels=config.external_labels, external_url=config.page,
        )  # fmt: skip

    def flush_due(self) -> bool:
        """Take the alerts of others, and make the messages of groups that are due between two evaluations; return False
        if there is no message."""
        now_ms = self._clock.now_ms()
        with self._from_outside() as others:
            if not others and self._dispatcher.next_ms() > now_ms:
                return False
            dispatcher = self._dispatcher.copy()
            # after a start, before the first evaluation, receivers are not known yet
            dispatcher.routing = self._routing(self._active or self.read_rules(), dispatcher.routing)
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

    def _lagging(self, time_ms: int) -> tuple[bool, str]:
        """Return whether a shard lacks the bucket, and the text that names late sources."""
        feeds = self._look_at_shards()
        return is_lagging((feed.newest_ms for feed in feeds), time_ms), late_text(feeds, time_ms)

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
            lack = "" if found.completeness is None else str(found.completeness)
            rows += [self._row(name, rule, one, alerts, found.sample(one.labels), lack) for one in found.steps]
        return rows, alerts

    def _row(
        self,
        name: str,
        rule: Rule | None,
        one: AlertStep,
        alerts: list[Notification],
        sample: Mapping[str, str] | None = None,
        completeness: str = "",
    ) -> AlertRow:
        alert = one.alert
        if alert is not None and (one.change is not None or alert.phase is AlertPhase.FIRING):
            change = one.change or AlertChange.FIRING
            known = None if rule is not None else self._dispatcher.alerts.get(fingerprint(name, one.labels))
            if rule is not None:
                alerts.append(notify(rule, one.labels, alert, change, sample, self._context, completeness))
            elif known is not None:
                alerts.append(resolution_of(known, alert))
        return name, one.labels, alert

    def _commit_evaluation(
        self, force: ActiveRules, commit: EvaluationCommit, rows: list[AlertRow], dispatcher: Dispatcher
    ) -> bool:
        """Commit to the database first, then update the memory. Return False, and store nothing, if nothing changed and
        no minute was evaluated."""
        memory, now_ms = self._state, self._clock.now_ms()
        letters = self._flush(dispatcher, now_ms)
        changed = [row for row in rows if self._differs(row)]
        digests = {name: rule.digest for name, rule in force.rules.items()}
        files = force.files if dict(force.files) != memory.files else None
        held = {name for name, _, alert in rows if alert is not None}
        needed = {name: digest for name, digest in digests.items() if name in held}
        recorded = commit.recorded and with_known(memory.recorded, commit.recorded)
        evaluation = replace(commit, digests=needed, alerts=changed, files=files, recorded=recorded)
        dispatched = dispatch_commit(dispatcher, letters, now_ms)
        if not (changed or files or recorded) and commit.time_ms == memory.time_ms and dispatched.is_empty:
            return False
        self._database.commit(dispatched, evaluation)
        self._dispatcher = dispatcher
        self.letters_made += len(letters)
        memory.time_ms, memory.missed, memory.files = commit.time_ms, commit.missed, dict(force.files)
        if recorded is not None:
            memory.recorded = keep_recorded(memory.recorded, recorded)
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
        return True

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
            (*force.problems, *self._recorder.problems, *(self._routing_file.problems if self._routing_file else ())),
            f"{states['error']} of {len(force.rules)} rules failed: {errors[0]:.300}" if errors else "",
        )

    def view(self) -> AlertView:
        """View of the current state."""
        config, memory, (active, results) = self._config, self._state, self._shown
        dispatched = self._dispatcher.alerts
        return AlertView(
            config.id, config.page, memory.time_ms, active, memory.known, dispatched, results, self.statuses(),
            self.api, self._recorder.results,
        )  # fmt: skip

    def statuses(self) -> AlertStatuses:
        """Status of each alert now."""
        return AlertStatuses(self._dispatcher, self.silences, self.acknowledgements, self._clock.now_ms())

    def display(self, mail: Mapping[str, Any], pair: Mapping[str, Any] = NO_PAIR) -> bytes:
        """JSON for the znode. `pair`: role of this engine in its pair; rules and alerts are those of the leader."""
        return self.view().encode(mail, pair)
