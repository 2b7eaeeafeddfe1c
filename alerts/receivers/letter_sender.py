"""Delivers letters from the outbox to their receivers, in order for each alert and target, until sent or refused.

A letter is marked as sent after the server has accepted it. A crash between the two sends it again with the same
identity; only this window can duplicate a letter.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from alerts.receivers.receiver_kind import (
    LetterDeferredError,
    LetterDelivery,
    LetterRefusedError,
    ReceiverKind,
    ServerUnreachableError,
    receiver_kinds,
)
from alerts.state.alert_database import AlertDatabase, DueLetter
from alerts.state.notification import split_target
from alerts.state.row_changes import NotLeadingError
from artimon.model.clock import Clock

log = logging.getLogger(__name__)

IDLE_WAIT_S = 5.0
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
FIRST_LATER_S, LONGEST_LATER_S = 10.0, 900.0
MAX_LETTER_AGE_MS = 3 * 86_400_000
"""Age of a letter (3 days) at which a temporary refusal becomes final. A failed connection never ends a letter."""
BATCH_LETTERS = 50
GRANT_S, GRANTS = 4.0, 3
"""Age in seconds at which the proof that this engine leads is renewed before a letter is sent, and attempts to get a
younger one. An engine that was stopped in between has lost the lease."""
FLOOD_LETTERS, FLOOD_WINDOW_MS = 5, 300_000
"""Maximum number of letters that a target gets within the window (5 min); waiting ones are then merged into one."""


@dataclass(slots=True)
class SenderFigures:
    """Counts since the start."""

    sent: int = 0
    failed: int = 0
    problem: str = ""


def always() -> bool:
    """Default of `may_send`: this engine is alone."""
    return True


class LetterSender:
    """Delivers letters to receivers of one kind, in a separate thread. `wake` signals new letters."""

    def __init__(
        self,
        database: AlertDatabase,
        kind: ReceiverKind[Any],
        settings: Any,
        page: str,
        clock: Clock,
        may_send: Callable[[], bool] = always,
    ) -> None:
        self._database, self._kind, self._clock, self._may_send = database, kind, clock, may_send
        self._settings, self._page = settings, page
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._failures = 0
        self.figures = SenderFigures()
        self._thread = threading.Thread(target=self._run, name=f"alerts by {kind.name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Signal that there may be new letters."""
        self._wake.set()

    def end(self) -> None:
        """Request the end after the current letter; waiting letters stay in the outbox."""
        self._stop.set()
        self._wake.set()

    def stop(self, timeout_s: float = 12.0) -> None:
        """Call `end` and wait for the thread."""
        self.end()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            try:
                more, wait_s = self.send_due()
            except Exception as error:  # a defect must not end the thread: the letters would wait forever
                log.exception("sending alerts by %s", self._kind.name)
                self.figures.problem = f"{type(error).__name__}: {error}"
                more, wait_s = False, LONGEST_WAIT_S
            if wait_s:
                self._stop.wait(wait_s)
            elif not more:
                self._wake.wait(IDLE_WAIT_S)

    def send_due(self) -> tuple[bool, float]:
        """Send due letters, at most a batch. Returns True if there may be more, and the back-off in seconds."""
        if not self._may_send():
            return False, 0.0
        try:
            return self._send_batch()
        except NotLeadingError as problem:
            log.info("letters by %s wait: %s", self._kind.name, problem)
            return False, FIRST_WAIT_S

    def _send_batch(self) -> tuple[bool, float]:
        now_ms = self._clock.now_ms()
        self._database.merge_floods(now_ms, FLOOD_LETTERS - 1, FLOOD_WINDOW_MS)
        due = self._allowed(self._database.due_letters(now_ms, BATCH_LETTERS, self._kind.name), now_ms)
        if not due:
            return False, 0.0
        try:
            with self._kind.connect(self._settings, self._page) as delivery:
                for waiting in due:
                    if self._stop.is_set():
                        return False, 0.0
                    self._send_one(delivery, waiting)
        except ServerUnreachableError as problem:
            self._failures += 1
            wait_s = min(FIRST_WAIT_S * 2 ** min(self._failures - 1, 10), LONGEST_WAIT_S)
            if str(problem) != self.figures.problem:
                log.warning("letters by %s wait: %s", self._kind.name, problem)
            self.figures.problem = str(problem)
            return True, wait_s
        self._failures, self.figures.problem = 0, ""
        return True, 0.0

    def _allowed(self, due: list[DueLetter], now_ms: int) -> list[DueLetter]:
        """Return the letters within the rate limits of their targets; postpone the others until the limits allow
        them."""
        allowed: list[DueLetter] = []
        room: dict[str, int] = {}
        for waiting in due:
            target = waiting.letter.target
            sent = self._database.sent_since(target, now_ms - FLOOD_WINDOW_MS)
            left = room.setdefault(target, FLOOD_LETTERS - len(sent))
            if left > 0:
                room[target] = left - 1
                allowed.append(waiting)
            elif sent:
                self._database.hold(waiting.seq, sent[-min(FLOOD_LETTERS, len(sent))] + FLOOD_WINDOW_MS)
        return allowed

    def _send_one(self, delivery: LetterDelivery, waiting: DueLetter) -> None:
        letter, now_ms = waiting.letter, self._clock.now_ms()
        if not self._begin(waiting):
            return
        try:
            self._database.hook("sending")
            delivery.send(letter.message, split_target(letter.target)[1], now_ms)
        except LetterDeferredError as problem:
            self._postpone(waiting, str(problem), FIRST_LATER_S)
        except LetterRefusedError as problem:
            self._give_up(waiting, str(problem))
        except ServerUnreachableError as problem:
            # other letters go first next time: this letter may be the one that breaks the server
            self._postpone(waiting, str(problem), FIRST_WAIT_S)
            raise
        except (ValueError, LookupError, UnicodeError, TypeError) as problem:
            self._give_up(waiting, f"the {self._kind.name} cannot be written: {type(problem).__name__}: {problem}")
        else:
            self._database.hook("accepted")
            self._database.sent(waiting.seq, now_ms)
            self._database.hook("marked")
            self.figures.sent += 1
            self._failures = 0

    def _begin(self, waiting: DueLetter) -> bool:
        """Note the attempt; False if the letter no longer waits. Raises NotLeadingError: the leader then sends
        the letter, with the same identity.

        A proof that took long, because the journal is slow or this process was stopped, may be outdated. The last one
        counts in any case, or a slow journal would hold up the letter for ever."""
        for _ in range(GRANTS):
            began = self._clock.monotonic()
            if not self._database.begin(waiting.seq):
                return False
            if self._clock.monotonic() - began < GRANT_S:
                break
        return True

    def _postpone(self, waiting: DueLetter, problem: str, first_s: float) -> None:
        now_ms = self._clock.now_ms()
        if now_ms - waiting.made_ms > MAX_LETTER_AGE_MS:
            self._give_up(waiting, f"put off for {MAX_LETTER_AGE_MS // 86_400_000} days: {problem}")
            return
        wait_s = min(first_s * 2 ** min(waiting.attempts, 20), LONGEST_LATER_S)
        self._database.postpone(waiting.seq, now_ms + int(wait_s * 1000), problem)
        address = self._kind.shown(split_target(waiting.letter.target)[1])
        log.info("%s for %s waits: %s", self._kind.name, address, problem)

    def _give_up(self, waiting: DueLetter, problem: str) -> None:
        log.error("%s about %s is not sent: %s", self._kind.name, waiting.letter.message.group_key, problem)
        self._database.failed(waiting.seq, problem)
        self.figures.failed += 1


class LetterSenders:
    """One sender for each kind of receiver. `settings`: by kind; a kind without an entry uses its default."""

    def __init__(
        self,
        database: AlertDatabase,
        settings: Mapping[str, Any],
        page: str,
        clock: Clock,
        may_send: Callable[[], bool] = always,
    ) -> None:
        self._all = [
            LetterSender(database, kind, settings.get(name, kind.default), page, clock, may_send)
            for name, kind in receiver_kinds().items()
        ]

    def start(self) -> None:
        for one in self._all:
            one.start()

    def wake(self) -> None:
        """Signal that there may be new letters."""
        for one in self._all:
            one.wake()

    def stop(self, timeout_s: float) -> None:
        """End after the current letters; waiting letters stay in the outbox."""
        for one in self._all:
            one.end()
        for one in self._all:
            one.stop(timeout_s)

    @property
    def figures(self) -> SenderFigures:
        """Counts of all senders, summed over the kinds of receivers."""
        all_ = [one.figures for one in self._all]
        problems = "; ".join(dict.fromkeys(one.problem for one in all_ if one.problem))
        return SenderFigures(sum(one.sent for one in all_), sum(one.failed for one in all_), problems)
