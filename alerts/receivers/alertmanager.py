"""Receiver for another Alertmanager: posts the alerts of a message to its API v2, which routes them on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from alerts.receivers.receiver_kind import Integration, IntegrationSection
from alerts.receivers.webhook import UrlReceiver, alert_json, parse_url, post_json
from alerts.state.alert import AlertChange
from alerts.state.notification import Message, target_of
from artimon.runtime.config_model import parsed
from query_dsl.tree.times import format_time

PATH = "/api/v2/alerts"
MAX_ALERTS = 1_000
"""Alerts of a request."""
FIRES_MS = 7 * 86_400_000
"""Time for which Alertmanager shows an alert without news: messages come at changes and at `repeat_interval` only."""


def posted(message: Message, page: str, now_ms: int) -> list[dict[str, Any]]:
    """Return the alerts of the requests. `page`: address of the page for links."""
    return [_posted(alert_json(one, page), one.kind, now_ms) for one in message.alerts]


def _posted(alert: dict[str, Any], kind: AlertChange, now_ms: int) -> dict[str, Any]:
    kept = {key: alert[key] for key in ("labels", "annotations", "startsAt", "endsAt", "generatorURL")}
    return kept if kind is AlertChange.RESOLVED else {**kept, "endsAt": format_time(now_ms + FIRES_MS)}


@dataclass(frozen=True, slots=True)
class AlertmanagerDelivery:
    """Sends messages, each in a connection of its own. `page`: address of the page for links."""

    page: str

    def send(self, message: Message, address: str, now_ms: int) -> None:
        """Return once the server has accepted the alerts; else raise LetterDeferredError or LetterRefusedError. An
        alert that is sent again replaces itself."""
        alerts = posted(message, self.page, now_ms)
        for first in range(0, len(alerts), MAX_ALERTS):
            post_json(address.rstrip("/") + PATH, alerts[first : first + MAX_ALERTS], message.id)


class AlertmanagerSection(IntegrationSection):
    """Address of an Alertmanager, without the path of its API."""

    url: Annotated[str, parsed(parse_url, blank=False)]

    def build(self) -> list[Integration]:
        return [Integration(target_of(AlertmanagerReceiver.name, self.url), self.send_resolved)]


class AlertmanagerReceiver(UrlReceiver):
    """Receiver kind for Alertmanager."""

    name = "alertmanager"
    example = "http://host:9093"
    summary = "one POST to `/api/v2/alerts` of an Alertmanager, which groups and routes the alerts again; see below"
    sections: ClassVar[Mapping[str, type[IntegrationSection]]] = {"alertmanager_configs": AlertmanagerSection}

    def delivery(self, page: str) -> AlertmanagerDelivery:
        return AlertmanagerDelivery(page)


RECEIVER = AlertmanagerReceiver()
