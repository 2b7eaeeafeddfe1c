"""Webhook receiver: posts messages as JSON in the form of Alertmanager's webhooks, version 4."""

from __future__ import annotations

import http.client
import json
import ssl
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar
from urllib.parse import SplitResult, urlsplit

from alerts.receivers.receiver_kind import (
    Integration,
    IntegrationSection,
    LetterDeferredError,
    LetterDelivery,
    LetterRefusedError,
    ReceiverKind,
)
from alerts.state.alert import AlertChange
from alerts.state.notification import Message, Notification, link_of, target_of
from artimon.runtime.config_model import parsed
from artimon.runtime.deadline import shut_down_after
from query_dsl.tree.times import format_time

TIMEOUT_S = 10.0
"""Timeout of a whole request, in seconds, however slowly the server answers."""
MAX_ANSWER_BYTES = 4_096
MAX_URL = 2_000
ID_HEADER = "Idempotency-Key"
"""Header with the identity of the message: the same if it is sent again because an answer was lost."""
NEVER = "0001-01-01T00:00:00Z"
"""End of an alert that fires."""


def is_url(text: str) -> bool:
    """True for an absolute address of HTTP or HTTPS in plain ASCII."""
    try:
        parts = urlsplit(text)
        _port = parts.port
    except ValueError:
        return False
    plain = text.isascii() and text.isprintable() and " " not in text and len(text) <= MAX_URL
    return plain and parts.scheme in ("http", "https") and bool(parts.hostname)


def payload(message: Message, page: str) -> dict[str, Any]:
    """Return the body of the request. `page`: address of the page for links."""
    alerts = [alert_json(one, page) for one in message.alerts]
    return {
        "version": "4",
        "groupKey": message.group_key,
        "truncatedAlerts": message.truncated,
        "status": message.status.value,
        "receiver": message.receiver,
        "groupLabels": dict(message.group_labels),
        "commonLabels": _common([one["labels"] for one in alerts]),
        "commonAnnotations": _common([one["annotations"] for one in alerts]),
        "externalURL": page,
        "alerts": alerts,
    }


def alert_json(told: Notification, page: str) -> dict[str, Any]:
    """Return an alert in the form of Alertmanager."""
    resolved = told.kind is AlertChange.RESOLVED
    return {
        "status": told.kind.value,
        "labels": told.labels_with_name,
        "annotations": {name: text for name, text in told.shown_annotations.items() if text},
        "startsAt": format_time(told.fired_ms),
        "endsAt": format_time(told.resolved_ms) if resolved else NEVER,
        "generatorURL": link_of(told, page),
        "fingerprint": told.thread[:16],
    }


def _common(maps: Sequence[dict[str, str]]) -> dict[str, str]:
    shared = dict(maps[0]) if maps else {}
    for one in maps:
        shared = {name: value for name, value in shared.items() if one.get(name) == value}
    return shared


@dataclass(frozen=True, slots=True)
class WebhookDelivery:
    """Sends messages, each in a connection of its own. `page`: address of the page for links."""

    page: str

    def send(self, message: Message, address: str, now_ms: int) -> None:
        """Return once the server has accepted the message; else raise LetterDeferredError or LetterRefusedError."""
        del now_ms
        post_json(address, payload(message, self.page), message.id)


def post_json(address: str, content: Any, id: str) -> None:
    """Return once the server has accepted the content of a message; else raise LetterDeferredError or
    LetterRefusedError."""
    body = json.dumps(content, ensure_ascii=True).encode()
    try:
        status, reason = _post(urlsplit(address), body, id)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise LetterDeferredError(f"{shown_url(address)}: {type(error).__name__}: {error}") from error
    if 200 <= status < 300:
        return
    text = f"{shown_url(address)} answers {status} {reason}"
    temporary = status >= 500 or status in (408, 425, 429)
    raise (LetterDeferredError if temporary else LetterRefusedError)(text)


def _post(parts: SplitResult, body: bytes, id: str) -> tuple[int, str]:
    host, target = parts.hostname or "", parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(host, parts.port, timeout=TIMEOUT_S, context=context)
    else:
        connection = http.client.HTTPConnection(host, parts.port, timeout=TIMEOUT_S)
    try:
        with shut_down_after(TIMEOUT_S, lambda: connection.sock):
            headers = {"Content-Type": "application/json", "User-Agent": "artimon", ID_HEADER: id}
            connection.request("POST", target, body, headers)
            answer = connection.getresponse()
            answer.read(MAX_ANSWER_BYTES)
            return answer.status, answer.reason[:100]
    finally:
        connection.close()


def shown_url(address: str) -> str:
    """Return an address without path, query and user, which may hold secrets."""
    parts = urlsplit(address)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}/…"


def parse_url(text: str) -> str:
    """Return an address of HTTP or HTTPS. Raises ValueError."""
    if not is_url(text):
        raise ValueError("this is not a URL: write https://host/path in plain ASCII")
    return text


class WebhookSection(IntegrationSection):
    """Address of a webhook."""

    url: Annotated[str, parsed(parse_url, blank=False)]
    max_alerts: int = 0

    def build(self) -> list[Integration]:
        return [Integration(target_of(WebhookReceiver.name, self.url), self.send_resolved, self.max_alerts)]


class UrlReceiver(ReceiverKind[None]):
    """Base of the kinds whose addresses are URLs of servers that take JSON."""

    noun = "URL"
    default = None

    def accepts(self, address: str) -> bool:
        return is_url(address)

    def shown(self, address: str) -> str:
        """Return the address without what may be secret."""
        return shown_url(address)

    @contextmanager
    def connect(self, settings: None, page: str) -> Iterator[LetterDelivery]:
        """Return the delivery; each message opens a connection of its own, because servers differ."""
        del settings
        yield self.delivery(page)

    @abstractmethod
    def delivery(self, page: str) -> LetterDelivery:
        """Return a delivery. `page`: address of the page for links."""


class WebhookReceiver(UrlReceiver):
    """Receiver kind for webhooks."""

    name = "webhook"
    example = "https://host/path"
    summary = "one POST of JSON, in the form of Alertmanager's webhooks (version 4); see below"
    sections: ClassVar[Mapping[str, type[IntegrationSection]]] = {"webhook_configs": WebhookSection}

    def delivery(self, page: str) -> WebhookDelivery:
        return WebhookDelivery(page)


RECEIVER = WebhookReceiver()
