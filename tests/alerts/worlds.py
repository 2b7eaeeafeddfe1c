"""An engine minute by minute over a plain store: the test says what each minute holds, and restarts it at will."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from alerts.evaluation.alert_engine import AlertEngine, EngineConfig
from alerts.evaluation.feed_status import FeedStatus, PollCount
from alerts.receivers.letter_sender import LetterSender
from alerts.receivers.mail import RECEIVER, load_settings
from alerts.state.alert_database import AlertDatabase, open_database
from alerts.state.notification import AlertLetter, Notification
from artimon.model.clock import ManualClock
from artimon.model.select import Store
from artimon.model.values import Value
from tests.query_dsl.plain_store import PlainSeries, PlainStore, Sample

MINUTE = 60_000
START = 1_800_000_000_000
RULE = """
rules:
  - name: down
    expr: fetch('up')
    threshold: "< 1"
    for: {hold}
    missing: {missing}
    labels: {{severity: page}}
    summary: "{{host}} is {{value}}"
"""


def rule_text(hold: str = "0s", missing: str = "resolve") -> str:
    """The usual rule."""
    return RULE.format(hold=hold, missing=missing)


@dataclass
class World:
    """`tick` moves a minute on, puts the given values into the bucket that ends there, and evaluates it."""

    folder: Path
    store: PlainStore = field(default_factory=PlainStore)
    newest: list[int] = field(default_factory=list)
    applied: int = 0
    polls: tuple[PollCount, ...] = ()
    hook: Callable[[str], None] = lambda _step: None
    to: tuple[str, ...] = ("ops@example.org",)
    past: Store | None = None

    def __post_init__(self) -> None:
        self.rules = self.folder / "rules"
        self.rules.mkdir()
        self.clock = ManualClock(START + 15_000)
        self.time = START
        self._database: AlertDatabase | None = None
        self._told: dict[tuple[str, str], tuple[str, int]] = {}
        self.damage = ""
        self.page = "http://127.0.0.1:8780"
        self.routing: Path | None = None
        self.recordings: Path | None = None
        self.external_labels: dict[str, str] = {}

    @property
    def engine(self) -> AlertEngine:
        if self._database is None:
            self.start()
        return self._engine

    @property
    def database(self) -> AlertDatabase:
        assert self.engine
        assert self._database is not None
        return self._database

    def start(self) -> None:
        """As after a start of the process."""
        self.close()
        self._database, memory, self.damage = open_database(self.folder / "data", self.clock.now_ms(), self.hook)
        config = EngineConfig(
            "test", self.rules, self.to, self.page, routing=self.routing, recordings=self.recordings,
            external_labels=self.external_labels,
        )  # fmt: skip
        self._engine = AlertEngine(
            config, self.store, self._database, memory, self.clock, feeds=self.read_feeds, past=self.past
        )

    def read_feeds(self) -> list[FeedStatus]:
        """The shards: each has a newest sample."""
        return [FeedStatus(newest, self.applied, self.polls) for newest in self.newest]

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
        self._database = None

    def write(self, text: str, name: str = "rules.yaml") -> None:
        """A rule file."""
        (self.rules / name).write_text(text)

    def put(self, values: Mapping[str, Value], name: str = "up", label: str = "host") -> None:
        """One sample a series, 10 s before the end of the current bucket."""
        for value_label, value in values.items():
            labels = {label: value_label}
            found = [s for s in self.store.series if s.name == name and s.labels == labels]
            if not found:
                self.store.add(name, labels, [(self.time - 10_000, value)])
            else:
                found[0].samples.append(Sample(self.time - 10_000, value))

    def series(self, host: str, name: str = "up") -> PlainSeries:
        return next(s for s in self.store.series if s.name == name and s.labels.get("host") == host)

    def tick(self, values: Mapping[str, Value] | None = None, minutes: int = 1) -> None:
        """Minutes pass, all but the last without evaluation."""
        self.time += minutes * MINUTE
        self.clock.advance(minutes * MINUTE)
        self.put(values or {})
        assert self.engine.evaluate_due()

    def letters(self) -> list[AlertLetter]:
        """All that waits in the outbox."""
        return [waiting.letter for waiting in self.database.due_letters(2**60, 10_000)]

    def notes(self) -> list[Notification]:
        """Alerts of all that waits in the outbox."""
        return [alert for letter in self.letters() for alert in letter.message.alerts]

    def changes(self) -> list[Notification]:
        """What the waiting letters tell that their targets do not know yet; the letters count as sent. Each letter
        tells something new."""
        out: list[Notification] = []
        while due := self.database.due_letters(2**60, 1000):
            for waiting in due:
                new = [one for one in waiting.letter.message.alerts if self._is_new(waiting.letter.target, one)]
                assert new, waiting.letter
                out += new
                self.database.sent(waiting.seq)
        return out

    def _is_new(self, target: str, note: Notification) -> bool:
        state = note.kind, note.fired_ms
        before, self._told[target, note.thread] = self._told.get((target, note.thread)), state
        return before != state

    def told(self) -> list[str]:
        """Every change that letters tell, as KIND host, in order."""
        return [f"{one.kind} {dict(one.labels).get('host', '')}".strip() for one in self.changes()]

    def states(self) -> dict[str, str]:
        """host -> state of its alert."""
        return {shown["labels"].get("host", ""): shown["state"] for shown in self.engine.view().alerts()}

    def error(self, name: str = "down") -> str:
        return self.engine.view().results[name].error

    def sender(self, address: str) -> LetterSender:
        """A sender whose rounds the test makes."""
        settings = load_settings(address, "artimon@example.org")
        return LetterSender(self.database, RECEIVER, settings, self.page, self.clock)
