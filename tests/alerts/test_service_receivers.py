"""Receivers by apprise and another Alertmanager: what arrives, secrets that are neither stored nor shown, services
that fail or hang."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from alerts.dispatch.routes import Routing
from alerts.dispatch.routing_file import parse_routing
from alerts.receivers import apprise_services
from alerts.receivers.alertmanager import AlertmanagerDelivery
from alerts.receivers.apprise_services import AppriseDelivery, expand_secrets, shown_address
from alerts.receivers.receiver_kind import LetterDeferredError, LetterRefusedError
from alerts.state.alert import AlertChange
from alerts.state.notification import Message
from artimon.model.clock import SYSTEM_CLOCK
from tests.alerts.mailboxes import crooked, free_port
from tests.alerts.test_alertmanager import alertmanager
from tests.alerts.test_message import NOW, group, hosts, note
from tests.alerts.webhook_server import webhook_server
from tests.waiting import eventually

PAGE = "http://127.0.0.1:8780"
FILE = "route: {{receiver: ops}}\nreceivers: [{{name: ops, {0}: [{{{1}}}]}}]\n"


def test_a_message_by_apprise_has_title_and_text() -> None:
    with webhook_server() as server:
        AppriseDelivery(PAGE).send(group(hosts(2), 0), f"json://127.0.0.1:{server.port}/hook", NOW)
        ((path, body),) = server.bodies
    assert path == "/hook"
    assert body["title"].startswith("[FIRING] endpoint-down: 2 firing")
    assert "h0 is down" in body["message"]
    assert body["type"] == "failure"


def test_a_service_that_refuses_is_tried_again() -> None:
    with webhook_server() as server:
        server.codes = [500]
        address = f"json://127.0.0.1:{server.port}/hidden"
        with pytest.raises(LetterDeferredError) as failure:
            AppriseDelivery(PAGE).send(Message.of_one(note()), address, NOW)
        assert "hidden" not in str(failure.value)
        AppriseDelivery(PAGE).send(Message.of_one(note()), address, NOW)
        assert len(server.bodies) == 1


def test_a_service_that_hangs_is_left_after_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apprise_services, "MAX_HANGING", 1)
    over = threading.Event()

    def hang(_: socket.socket) -> None:
        over.wait(60)

    with crooked(hang) as address:
        for told in ("no answer within", "1 messages hang"):
            began = time.monotonic()
            with pytest.raises(LetterDeferredError, match=told):
                AppriseDelivery(PAGE, 0.3).send(Message.of_one(note()), f"json://{address}/hook", NOW)
            assert time.monotonic() - began < 30
        over.set()


def test_an_address_that_apprise_does_not_accept_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "url"
    secret.write_text("nowhere://hidden")
    with pytest.raises(LetterRefusedError) as failure:
        AppriseDelivery(PAGE).send(Message.of_one(note()), f"{{file:{secret}}}", NOW)
    assert "hidden" not in str(failure.value)


def test_secrets_come_from_files_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "token"
    secret.write_text(" a/b c\n")
    monkeypatch.setenv("ARTIMON_TEST_TOKEN", "d@e")
    assert expand_secrets(f"tgram://{{file:{secret}}}/{{env:ARTIMON_TEST_TOKEN}}") == "tgram://a%2Fb%20c/d%40e"
    assert expand_secrets(f"{{file:{secret}}}") == "a/b c"
    for missing in (f"{{file:{tmp_path / 'none'}}}", "{env:ARTIMON_TEST_NONE}"):
        with pytest.raises(LetterDeferredError):
            expand_secrets(missing)


def test_addresses_are_shown_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    assert shown_address("slack://hidden/hidden") == "slack://…"
    assert shown_address("{file:/etc/key}") == "{file:/etc/key}"
    with caplog.at_level(logging.DEBUG), webhook_server() as server:
        server.codes = [500]
        with pytest.raises(LetterDeferredError):
            AppriseDelivery(PAGE).send(Message.of_one(note()), f"json://u:hidden@127.0.0.1:{server.port}/x", NOW)
    assert "hidden" not in caplog.text


@pytest.mark.parametrize(
    ("key", "settings", "target"),
    [
        ("slack_configs", "api_url_file: /etc/slack, text: x", "{file:/etc/slack}"),
        (
            "discord_configs",
            "webhook_url: 'https://discord.com/api/webhooks/4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js'",
            "https://discord.com/api/webhooks/4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js",
        ),
        ("telegram_configs", "bot_token_file: /etc/bot, chat_id: -100123", "tgram://{file:/etc/bot}/-100123"),
        ("pagerduty_configs", "routing_key: 8b799edf6f984d3a", "pagerduty://8b799edf6f984d3a@none"),
        ("opsgenie_configs", "api_key_file: /etc/ops", "opsgenie://{file:/etc/ops}"),
        ("pushover_configs", "user_key_file: /etc/u, token_file: /etc/t", "pover://{file:/etc/u}@{file:/etc/t}"),
        ("apprise_configs", "url_env: PAGER_URL", "{env:PAGER_URL}"),
        ("apprise_configs", "url: 'json://127.0.0.1/x'", "json://127.0.0.1/x"),
    ],
)
def test_services_of_alertmanager_are_addresses_of_apprise(key: str, settings: str, target: str) -> None:
    routing, _ = parse_routing(FILE.format(key, settings), "am.yml", Routing(""))
    (found,) = routing.receivers["ops"]
    assert found.target == f"apprise:{target}"


def alerts_of(address: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"http://{address}/api/v2/alerts", timeout=10) as answer:
        found: list[dict[str, Any]] = json.loads(answer.read())
    return found


@pytest.mark.programs
@pytest.mark.timeout(120)
def test_another_alertmanager_shows_what_fires_until_it_resolves(tmp_path: Path) -> None:
    now_ms = SYSTEM_CLOCK.now_ms()
    firing = [note(labels=(("host", f"h{n}"),), since_ms=now_ms, fired_ms=now_ms) for n in range(3)]
    ended = [
        note(AlertChange.RESOLVED, labels=one.labels, since_ms=now_ms, fired_ms=now_ms, resolved_ms=now_ms + 1)
        for one in firing
    ]
    config = json.dumps({"route": {"receiver": "none"}, "receivers": [{"name": "none"}]})
    with alertmanager(config, tmp_path) as address:
        delivery, url = AlertmanagerDelivery(PAGE), f"http://{address}/"
        for _ in range(2):  # sent again after a lost answer
            delivery.send(group(tuple(firing), 0), url, now_ms)
        eventually(lambda: len(alerts_of(address)) == 3)
        found = alerts_of(address)
        assert {one["labels"]["host"] for one in found} == {"h0", "h1", "h2"}
        assert found[0]["annotations"]["summary"] == "shop on a is down"
        delivery.send(group(tuple(ended), 0), url, now_ms + 1)
        eventually(lambda: not alerts_of(address))


@pytest.mark.programs
def test_an_alertmanager_that_is_away_is_tried_again() -> None:
    with pytest.raises(LetterDeferredError):
        AlertmanagerDelivery(PAGE).send(Message.of_one(note()), f"http://127.0.0.1:{free_port()}", NOW)
