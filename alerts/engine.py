"""The engine: each minute, on the newest settled bucket, every rule; then all that follows of it in one commit.

Threads: this one decides, `Sender` mails, and whoever runs the engine reads `snapshot`, which is replaced whole. All
other state belongs to the engine's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from alerts.database import Commit, Database, Memory, _nothing
from alerts.display import encode_display, json_value
from alerts.evaluation import STEP_MS, Evaluator, Judged, Known, is_lagging, leave, phases
from alerts.message import Writer
from alerts.notification import Letter, fingerprint, letters, notify, resolved_of
from alerts.rule import Labels, Rule
from alerts.rulebook import InForce, RuleBook
from alerts.state import Alert, Change, Phase
from alerts.verdicts import Step
from artimon.model.clock import Clock
from artimon.model.select import SelectError, Store

log = logging.getLogger(__name__)

BUDGET_S = 50.0
"""An evaluation that takes longer leaves the remaining rules for the next one."""

Row = tuple[str, Labels, Alert | None, tuple[Letter, ...]]


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """`default`: addresses of rules that name no receiver; `settle_ms` after its end a bucket counts as settled."""

    id: str
    rules: Path
    default: tuple[str, ...]
    writer: Writer
    settle_ms: int = 15_000


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the last evaluation left, for figures and display."""

    time_ms: int = 0
    duration_ms: float = 0.0
    questions: int = 0
    rules: Mapping[str, int] | None = None
    alerts: Mapping[str, int] | None = None
    problems: tuple[str, ...] = ()
    failing: str = ""


class Engine:
    """`evaluate_due` does what is due; nothing else changes the state."""

    def __init__(
        self,
        config: EngineConfig,
        store: Store,
        database: Database,
        memory: Memory,
        clock: Clock,
        *,
        newest_samples: Callable[[], Iterable[int]] = tuple,
        hook: Callable[[str], None] = _nothing,
    ) -> None:
        self._config, self._store, self._database, self._clock = config, store, database, clock
        self._memory, self._newest_samples, self._hook = memory, newest_samples, hook
        self._book = RuleBook(config.rules, config.default, memory.files)
        self._force = InForce()
        self._judged: dict[str, Judged] = {}
        self.evaluations = 0
        self.made = 0
        """Letters made since the start."""
        self.snapshot = Snapshot(memory.time_ms)

    @property
    def missed(self) -> int:
        """Minutes that were never evaluated, since the state began."""
        return self._memory.missed

    # ---- when

    def due(self) -> int | None:
        """The end of the bucket to evaluate now, None if that was done.

        Where the clock went back by more than two minutes the memory of later evaluations does not count."""
        newest = (self._clock.now_ms() - self._config.settle_ms) // STEP_MS * STEP_MS
        last = self._memory.time_ms
        if last < newest or last - newest > 2 * STEP_MS:
            return newest
        return None

    def wait_s(self) -> float:
        """Seconds until the next evaluation is due, at most one."""
        next_ms = self._memory.time_ms + STEP_MS + self._config.settle_ms
        return min(1.0, max(0.05, (next_ms - self._clock.now_ms()) / 1000))

    def evaluate_due(self) -> bool:
        """Evaluate if it is time; whether it was."""
        time_ms = self.due()
        if time_ms is None:
            return False
        self.evaluate(time_ms)
        return True

    # ---- what

    def evaluate(self, time_ms: int) -> None:
        """One evaluation, from the rule files to the commit. Raises what the database raises; then nothing happened."""
        began = perf_counter()
        self._force = force = self._book.read(self._clock.now_ms())
        memory = self._memory
        missed = max(0, (time_ms - memory.time_ms) // STEP_MS - 1) if memory.time_ms else 0
        gone = leave(memory.known, force.rules, time_ms)
        evaluator = Evaluator(self._store, force.rules.values(), time_ms, self._lagging(time_ms), self._in_time(began))
        judged = {}
        for name, rule in force.rules.items():
            known = memory.known.get(name)
            before = known.alerts if known is not None and name not in gone else {}
            judged[name] = evaluator.judge(rule, before)
        self._hook("evaluated")
        rows, told = self._rows(gone, judged)
        self._commit(time_ms, memory.missed + missed, rows, told)
        self._hook("committed")
        self._judged = judged
        self.evaluations += 1
        self._take_snapshot((perf_counter() - began) * 1000, evaluator.questions)

    def _in_time(self, began: float) -> Callable[[], bool]:
        return lambda: perf_counter() - began < BUDGET_S

    def _lagging(self, time_ms: int) -> bool:
        try:
            return is_lagging(self._newest_samples(), time_ms)
        except SelectError:  # the rules will say so themselves
            return False

    def _rows(self, gone: Mapping[str, list[Step]], judged: Mapping[str, Judged]) -> tuple[list[Row], list[Letter]]:
        """Alerts to write, and the letters about them; ends of old alerts before new ones."""
        rows: list[Row] = []
        told: list[Letter] = []
        for name, steps in gone.items():
            rows += [self._row(name, None, one, told) for one in steps]
        for name, found in judged.items():
            rule = self._force.rules[name]
            rows += [self._row(name, rule, one, told) for one in found.steps]
        return rows, told

    def _row(self, name: str, rule: Rule | None, one: Step, told: list[Letter]) -> Row:
        before = self._memory.told.get((name, one.labels), ())
        if one.change is Change.FIRING and rule is not None and one.alert is not None:
            before = tuple(letters(notify(rule, one.labels, one.alert, Change.FIRING), self._force.addresses(rule)))
            told += before
        elif one.change is Change.RESOLVED and one.alert is not None:
            # those who were told that it fires are told that it ends, whoever the receivers are by now
            for letter in before:
                ended = (
                    notify(rule, one.labels, one.alert, Change.RESOLVED)
                    if rule is not None
                    else resolved_of(letter.notification, one.alert)
                )
                told.append(Letter(ended, letter.address))
        kept = one.alert is not None and one.alert.phase in (Phase.FIRING, Phase.RESOLVED)
        return name, one.labels, one.alert, before if kept else ()

    def _commit(self, time_ms: int, missed: int, rows: list[Row], told: list[Letter]) -> None:
        """To disk first, then to memory."""
        memory, force = self._memory, self._force
        changed = [row for row in rows if self._differs(row)]
        digests = {name: rule.digest for name, rule in force.rules.items()}
        files = force.files if dict(force.files) != memory.files else None
        held = {name for name, _, alert, _ in rows if alert is not None}
        needed = {name: digest for name, digest in digests.items() if name in held}
        self._database.commit(Commit(time_ms, missed, needed, changed, told, files))
        self.made += len(told)
        memory.time_ms, memory.missed, memory.files = time_ms, missed, dict(force.files)
        known = {name: dict(one.alerts) for name, one in memory.known.items()}
        for name, labels, alert, letters_of in rows:
            if alert is None:
                known.get(name, {}).pop(labels, None)
                memory.told.pop((name, labels), None)
            else:
                known.setdefault(name, {})[labels] = alert
                memory.told[name, labels] = letters_of
        old = memory.known
        memory.known = {
            name: Known(digests.get(name) or old[name].digest, alerts) for name, alerts in known.items() if alerts
        }

    def _differs(self, row: Row) -> bool:
        name, labels, alert, told = row
        known = self._memory.known.get(name)
        return alert is None or known is None or known.alerts.get(labels) != alert or bool(told)

    # ---- telling

    def _take_snapshot(self, duration_ms: float, questions: int) -> None:
        force, memory = self._force, self._memory
        states = {"inactive": 0, "pending": 0, "firing": 0, "error": 0}
        for name in force.rules:
            states[self._rule_state(name)] += 1
        counts = phases(alert for known in memory.known.values() for alert in known.alerts.values())
        errors = sorted({judged.error for judged in self._judged.values() if judged.error})
        self.snapshot = Snapshot(
            memory.time_ms,
            duration_ms,
            questions,
            states,
            {phase.value: counts[phase] for phase in (Phase.PENDING, Phase.FIRING)},
            force.problems,
            f"{states['error']} of {len(force.rules)} rules have no answer: {errors[0]:.300}" if errors else "",
        )

    def _rule_state(self, name: str) -> str:
        if self._judged[name].error:
            return "error"
        known = self._memory.known.get(name)
        found = phases(known.alerts.values()) if known else {}
        return "firing" if found.get(Phase.FIRING) else "pending" if found.get(Phase.PENDING) else "inactive"

    def display(self, mail: Mapping[str, Any]) -> bytes:
        """The JSON of the znode: what fires first, then errors, then what is pending; the rest by name."""
        rank = {"firing": 0, "error": 1, "pending": 2, "inactive": 3}
        names = sorted(self._force.rules, key=lambda name: (rank[self._rule_state(name)], name))
        head = {
            "id": self._config.id,
            "time_ms": self._memory.time_ms,
            "mail": mail,
            "problems": list(self._force.problems),
        }
        return encode_display(head, map(self._shown_rule, names), self._shown_alerts())

    def _shown_rule(self, name: str) -> dict[str, Any]:
        rule, judged = self._force.rules[name], self._judged[name]
        return {
            "name": name,
            "file": rule.file,
            "line": rule.line,
            "expr": rule.expr[:2000],
            "threshold": rule.threshold.text,
            "for_ms": rule.hold_ms,
            "state": self._rule_state(name),
            "error": judged.error[:500],
            "duration_ms": round(judged.duration_ms, 3),
            "receivers": list(rule.receivers),
        }

    def _shown_alerts(self) -> list[dict[str, Any]]:
        order = {Phase.FIRING: 0, Phase.PENDING: 1, Phase.RESOLVED: 2}
        found = [
            (order[alert.phase], -max(alert.fired_ms, alert.since_ms), name, labels, alert)
            for name, known in self._memory.known.items()
            for labels, alert in known.alerts.items()
            if alert.phase in order
        ]
        found.sort(key=lambda one: one[:4])
        return [self._shown_alert(name, labels, alert) for _, _, name, labels, alert in found[:20_000]]

    def _shown_alert(self, name: str, labels: Labels, alert: Alert) -> dict[str, Any]:
        rule = self._force.rules.get(name)
        told = self._memory.told.get((name, labels), ())
        first = told[0].notification if told else None
        summary = rule.text(labels, alert.value) if rule else first.summary if first else ""
        return {
            "rule": name,
            "id": fingerprint(name, labels),
            "labels": dict(labels),
            "state": alert.phase.value,
            "since_ms": alert.since_ms,
            "fired_ms": alert.fired_ms,
            "resolved_ms": alert.resolved_ms,
            "value": json_value(alert.value),
            "reason": alert.reason,
            "summary": summary,
            "link": self._config.writer.link_to(rule.expr if rule else first.expr if first else ""),
        }
