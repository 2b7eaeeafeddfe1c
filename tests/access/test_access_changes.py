"""A changed access file: what counts at once, what ends sessions, and what an invalid file does."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from artimon.access.authenticator import RELOAD_S, Authenticator, open_access
from artimon.access.passwords import hash_password
from artimon.model.clock import ManualClock
from tests.access.asgi_client import ACCESS, HASH, PASSWORD, AsgiClient, asked
from tests.access.conftest import basic
from tests.api.serving import NOW
from tests.waiting import eventually

OTHER = str(hash_password("another long one", 4))


class Served:
    """The application with an access file on the disk."""

    def __init__(self, file: Path) -> None:
        self.file, self.clock = file, ManualClock(NOW)
        self._write(ACCESS)
        access = open_access(file, self.clock)
        assert access is not None
        self.access: Authenticator = access

    def change(self, text: str) -> None:
        """Replace the file and wait until it is read."""
        before = len(self.actions())
        self._write(text)
        self.clock.advance(int(RELOAD_S * 1000))
        self.access.credentials({}, "192.0.2.9")
        eventually(lambda: len(self.actions()) > before, "the file is read")

    def _write(self, text: str) -> None:
        fresh = self.file.with_suffix(".new")
        fresh.write_text(text)
        os.replace(fresh, self.file)

    def actions(self) -> list[str]:
        """Changes of the file that the audit log has."""
        log = self.file.parent / "audit.jsonl"
        lines = log.read_text().splitlines() if log.exists() else []
        return [found for line in lines if (found := json.loads(line)["action"]).startswith("access.")]


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path / "access.yaml")


@pytest.fixture
def client(served: Served) -> Iterator[AsgiClient]:
    with asked(served.access, clock=served.clock) as client:
        yield client


def whoami(client: AsgiClient) -> tuple[int, str]:
    answer = client.get("/api/whoami")
    return answer.status, answer.json.get("level", "") if answer.status == 200 else ""


def test_a_new_user_can_log_in_without_a_restart(served: Served, client: AsgiClient) -> None:
    assert client.get("/api/names", basic("nina", PASSWORD)).status == 401
    served.change(f"{ACCESS}\n".replace("tokens:", f"- name: nina\n  role: viewer\n  password: {HASH}\ntokens:"))
    assert client.get("/api/names", basic("nina", PASSWORD)).status == 200
    assert served.actions() == ["access.changed"]


def test_a_removed_user_is_refused_at_once_and_the_session_ends(served: Served, client: AsgiClient) -> None:
    client.log_in("eddie")
    program = basic("eddie", PASSWORD)
    other = client.other()
    assert other.get("/api/names", program).status == 200
    assert whoami(client)[0] == 200
    served.change(ACCESS.replace("name: eddie", "name: eduard"))
    assert whoami(client)[0] == 401
    assert other.get("/api/names", program).status == 401


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("role: editor\n  password", "role: viewer\n  password"),
        (f"role: editor\n  password: {HASH}", f"role: editor\n  password: {OTHER}"),
    ],
    ids=["role", "password"],
)
def test_another_role_or_password_ends_the_sessions_of_that_user_alone(
    served: Served, client: AsgiClient, before: str, after: str
) -> None:
    client.log_in("eddie")
    vera = client.other()
    vera.log_in("vera")
    served.change(ACCESS.replace(before, after, 1))
    assert whoami(client)[0] == 401
    assert whoami(vera)[0] == 200


def test_another_view_of_a_role_holds_for_the_next_request(served: Served, client: AsgiClient) -> None:
    program = basic("sam", PASSWORD)
    seen = client.get("/api/v1/label/route/values", program).json["data"]
    served.change(ACCESS.replace('route="/a"', 'route="/b"'))
    assert client.get("/api/v1/label/route/values", program).json["data"] != seen


def test_a_proxy_can_be_added_and_removed(served: Served) -> None:
    headers = {b"x-forwarded-user": b"pia", b"x-forwarded-groups": b"dev"}
    assert served.access.credentials(headers, "10.1.1.1").proxied is not None
    served.change(ACCESS.replace("10.0.0.0/8", "172.16.0.0/12"))
    assert served.access.credentials(headers, "10.1.1.1").proxied is None
    assert served.access.credentials(headers, "172.16.3.4").proxied is not None


@pytest.mark.parametrize("text", ["users: [", ACCESS.replace("role: admin", "role: emperor"), ""])
def test_an_invalid_file_changes_nothing_until_it_is_mended(served: Served, client: AsgiClient, text: str) -> None:
    client.log_in("ada")
    served.change(text)
    assert whoami(client)[0] == 200
    assert served.actions() == ["access.invalid"]
    served.change(ACCESS.replace("name: ada", "name: adam"))
    assert served.actions() == ["access.invalid", "access.changed"]
    assert whoami(client)[0] == 401


def test_what_needs_a_restart_is_logged_and_does_not_change(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    served.change(f"{ACCESS}url: https://other.example\n")
    assert served.access.access.url == ""
    assert "url: restart the process" in caplog.text


def test_an_unchanged_file_is_not_read_again(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Path) -> None:
        raise AssertionError

    monkeypatch.setattr("artimon.access.authenticator.read_access", fail)
    for _ in range(5):
        served.clock.advance(int(RELOAD_S * 1000))
        served.access.credentials({}, "192.0.2.9")
    assert served.actions() == []
