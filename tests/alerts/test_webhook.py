"""Webhooks: the body of Alertmanager's version 4, answers of the server, and addresses that are never shown whole."""

from __future__ import annotations

import logging

import pytest

from alerts.receivers.letter_sender import LetterSender
from alerts.receivers.receiver_kind import LetterDeferredError, LetterRefusedError
from alerts.receivers.webhook import RECEIVER, WebhookDelivery, is_url, payload
from alerts.state.alert import AlertChange
from alerts.state.notification import Message
from tests.alerts.mailboxes import free_port
from tests.alerts.test_message import NOW, group, hosts, note
from tests.alerts.webhook_server import webhook_server
from tests.alerts.worlds import World, rule_text

PAGE = "http://127.0.0.1:8780"


def test_the_body_has_the_keys_of_version_4() -> None:
    body = payload(group((*hosts(1), *hosts(1, AlertChange.RESOLVED)), 3), PAGE)
    alerts = body.pop("alerts")
    assert body == {
        "version": "4",
        "groupKey": '{}:{rack="r1"}',
        "truncatedAlerts": 3,
        "status": "firing",
        "receiver": "ops",
        "groupLabels": {"rack": "r1"},
        "commonLabels": {"alertname": "endpoint-down", "host": "h0", "rack": "r1"},
        "commonAnnotations": {"summary": "h0 is down", "value": "0"},
        "externalURL": PAGE,
    }
    assert [(one["status"], one["startsAt"], one["endsAt"]) for one in alerts] == [
        ("firing", "2027-01-15T08:00:00Z", "0001-01-01T00:00:00Z"),
        ("resolved", "2027-01-15T08:00:00Z", "2027-01-15T08:05:00Z"),
    ]
    assert alerts[0]["labels"]["alertname"] == "endpoint-down"
    assert alerts[0]["generatorURL"].startswith(f"{PAGE}/?q=fetch")
    assert alerts[0]["fingerprint"] == alerts[1]["fingerprint"]


@pytest.mark.parametrize(
    ("code", "raised"),
    [(500, LetterDeferredError), (429, LetterDeferredError), (404, LetterRefusedError), (302, LetterRefusedError)],
)
def test_answers_defer_or_refuse_a_message(code: int, raised: type[Exception]) -> None:
    message = Message.of_one(note())
    with webhook_server() as server:
        server.codes = [code]
        url = f"{server.address}/secret-path?token=hidden"
        with pytest.raises(raised, match=f"answers {code}") as failure:
            WebhookDelivery(PAGE).send(message, url, NOW)
        assert "secret" not in str(failure.value)
        assert "hidden" not in str(failure.value)
        WebhookDelivery(PAGE).send(message, url, NOW)
        assert [path for path, _ in server.bodies] == ["/secret-path?token=hidden"]


def test_a_server_that_is_away_defers_the_message() -> None:
    with pytest.raises(LetterDeferredError, match="refused"):
        WebhookDelivery(PAGE).send(Message.of_one(note()), f"http://127.0.0.1:{free_port()}/x", NOW)


@pytest.mark.parametrize(
    "text", ["ftp://a/b", "http://", "http:///x", "https://a:99999/x", "http://a b/", "a@b.c", "http://é/"]
)
def test_other_addresses_are_refused(text: str) -> None:
    assert not is_url(text)


def test_a_rule_calls_a_webhook_and_logs_hide_its_path(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with webhook_server() as server:
        server.codes = [503]
        world.to = (f"webhook:{server.address}/hidden",)
        world.write(rule_text())
        world.tick({"a": 0, "b": 0})
        sender = LetterSender(world.database, RECEIVER, None, PAGE, world.clock)
        sender.send_due()
        assert server.bodies == []
        world.clock.advance(20_000)
        sender.send_due()
        ((path, body),) = server.bodies
    assert path == "/hidden"
    assert [one["labels"]["host"] for one in body["alerts"]] == ["a", "b"]
    assert "/hidden" not in caplog.text
