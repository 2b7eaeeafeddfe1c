"""The shop of the examples is killed, and the mail about it awaited; it is started again, and so is the second mail."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from artimon.model.clock import Clock
from artimon.model.grid import Grid, bucket_end
from artimon.model.select import NAME, Matcher, SelectRequest
from artimon.stack.mail_view import Mail, read_mails, show_mails
from artimon.stack.mailbox import FOLDER
from artimon.stack.stack import Stack
from scripts.proof.counts import MINUTE_MS
from varstore.cluster.varstore_client import StoreUnavailable, VarstoreClient

SHOP = "shop"
FOUND_S = 120.0
"""How long the shop's series may take to be in memory."""
FAILING_MINUTES = 3
"""Minutes in which a request of the shop fails, as good as always; answers.py asks for their share."""
MAIL_S = 330.0
"""Two polls, the bucket's end, the rule's `for` and the next evaluation, with room for a busy machine."""
MAILS_READ = 200
_KINDS = ("FIRING", "RESOLVED")


@dataclass(frozen=True, slots=True)
class Incident:
    """Outcome: the mails of each kind about the shop, `problem` "" when there is one of each."""

    mails: tuple[Mail, ...]
    problem: str


class Drill:
    """Runs the incident on a stack that has the parts `shop`, `alerts` and `mail`. `say` is told each step."""

    def __init__(self, stack: Stack, stop: threading.Event, clock: Clock, say: Callable[[str], None]) -> None:
        self._stack, self._stop, self._clock, self._say = stack, stop, clock, say
        self._began_ms = clock.now_ms()  # mails of earlier runs on the same folder do not count

    def run(self) -> Incident:
        """Every step has its deadline; the shop runs again in the end, whatever happened."""
        if not self._until(self._shop_is_known, FOUND_S):
            return self._end(f"no series of the shop came within {FOUND_S:.0f} s")
        self._until(self._shop_has_failed, (FAILING_MINUTES + 1) * MINUTE_MS / 1000)
        self._say("drill: killing the shop; the mail about it takes two to four minutes")
        self._stack.kill_part(SHOP)
        fired = self._until(lambda: self._count("FIRING") > 0, MAIL_S)
        told = "the mail that it is down is there" if fired else "there is no mail"
        self._say(f"{told}; starting the shop again; the mail that it is back takes one to three")
        self._stack.start_part(SHOP)
        if not fired:
            return self._end(f"no mail said within {MAIL_S:.0f} s that the shop is down")
        if not self._until(lambda: self._count("RESOLVED") > 0, MAIL_S):
            return self._end(f"no mail said within {MAIL_S:.0f} s that the shop is back")
        self._say("the mail that it is back is there")
        return self._end("")

    def _end(self, problem: str) -> Incident:
        mails = tuple(mail for kind in _KINDS for mail in self._about_shop(kind))
        counts = {kind: self._count(kind) for kind in _KINDS}
        if not problem and set(counts.values()) != {1}:
            problem = f"one mail of each kind was due, there are {counts}"
        return Incident(mails, problem)

    def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        deadline = self._clock.monotonic() + seconds
        while not (good := condition()) and self._clock.monotonic() < deadline:
            if self._clock.wait(self._stop, 1.0):
                return False
        return good

    def _shop_is_known(self) -> bool:
        """Return True if the memory store has `artimon.endpoint.up` of the shop, which the alert rule reads."""
        matchers = (Matcher(NAME, "=", "artimon.endpoint.up"), Matcher("context", "=", SHOP))
        try:
            with VarstoreClient(self._stack.zookeeper) as store:
                return bool(store.find(matchers, 1))
        except StoreUnavailable:
            return False

    def _shop_has_failed(self) -> bool:
        """Return True if the memory store has a failed request of the shop, in a whole minute since the begin: only
        those are proven, and a shop that is killed at once may have had none."""
        matchers = (Matcher(NAME, "=", "shop.requests"), Matcher("status", "=~", "5.."))
        end_ms = bucket_end(self._began_ms, MINUTE_MS) + FAILING_MINUTES * MINUTE_MS
        request = SelectRequest(matchers, Grid(end_ms, MINUTE_MS, FAILING_MINUTES), ("count",))
        try:
            with VarstoreClient(self._stack.zookeeper) as store:
                return bool(store.select(request).statistics["count"].any())
        except StoreUnavailable:
            return False

    def _about_shop(self, kind: str) -> list[Mail]:
        mails = read_mails(self._stack.data / FOLDER, MAILS_READ)
        fresh = [mail for mail in mails if mail.time_ms >= self._began_ms]
        return [mail for mail in fresh if mail.subject.startswith(f"[{kind}]") and f": {SHOP} " in mail.subject]

    def _count(self, kind: str) -> int:
        return len(self._about_shop(kind))


def report_incident(incident: Incident) -> bool:
    """Print the mails, whole; True if all was as it should be."""
    print("mails about the shop")
    print(show_mails(list(incident.mails), full=True) if incident.mails else "none")
    print(f"one mail that it is down, one that it is back: {'right' if not incident.problem else incident.problem}")
    return not incident.problem
