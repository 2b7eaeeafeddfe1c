"""Status of an alert for people: silences that hide it, an alert that mutes it, and who takes care of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from alerts.dispatch.acknowledgements import Acknowledgement, Acknowledgements
from alerts.dispatch.dispatcher import Dispatcher
from alerts.dispatch.silences import Silences
from alerts.state.notification import Notification

ACTIVE, SUPPRESSED = "active", "suppressed"


@dataclass(frozen=True, slots=True)
class AlertStatus:
    """Status at a time. `silenced_by`: identities of silences; `inhibited_by`: fingerprints of alerts."""

    silenced_by: tuple[str, ...] = ()
    inhibited_by: tuple[str, ...] = ()
    acknowledgement: Acknowledgement | None = None

    @property
    def state(self) -> str:
        """Return SUPPRESSED if messages leave the alert out."""
        return SUPPRESSED if self.silenced_by or self.inhibited_by else ACTIVE

    def acknowledged_json(self) -> dict[str, Any] | None:
        """Return the acknowledgement as values for JSON."""
        found = self.acknowledgement
        return None if found is None else {"author": found.author, "comment": found.comment, "until_ms": found.until_ms}


class AlertStatuses:
    """Status of each alert at `now_ms`."""

    def __init__(
        self, dispatcher: Dispatcher, silences: Silences, acknowledgements: Acknowledgements, now_ms: int
    ) -> None:
        self._silences, self._acknowledgements, self._now_ms = silences, acknowledgements, now_ms
        self._inhibitor = dispatcher.inhibitor()

    def of(self, alert: Notification) -> AlertStatus:
        labels = alert.labels_with_name
        muted_by = self._inhibitor.muted_by(labels)
        return AlertStatus(
            tuple(self._silences.hiding(labels, self._now_ms)),
            () if muted_by is None else (muted_by,),
            self._acknowledgements.of(alert, self._now_ms),
        )
