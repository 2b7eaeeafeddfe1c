"""The ways to log in: form and session, password, token, header of a proxy; and what forged ones get."""

from __future__ import annotations

import base64
import json
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from artimon.access.authenticator import MAX_REMEMBERED, REMEMBERED_S, Authenticator
from artimon.access.failed_logins import ADDRESS_FAILURES, USER_FAILURES, FailedLogins, network_of
from artimon.access.passwords import PasswordHashError, hash_password, parse_password_hash
from artimon.access.principal import Area, Level, LoginMethod, Principal, Role
from artimon.access.route_rules import AccessError
from artimon.access.token_file import TokenFile, TokenFileError
from artimon.api.login_routes import local_path
from artimon.api.sessions import MAX_USER_SESSIONS, SessionStore
from artimon.model.clock import ManualClock
from tests.access.asgi_client import ACCESS, HASH, PASSWORD, AsgiClient, asked, opened
from tests.access.conftest import basic
from tests.api.serving import NOW

OWN = {"origin": "http://127.0.0.1"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def timed(tmp_path: Path, clock: ManualClock) -> Iterator[tuple[AsgiClient, Authenticator]]:
    access = opened(ACCESS, tmp_path, clock)
    with asked(access, clock=clock) as client:
        yield client, access


# ---- form and session


def test_a_session_begins_with_the_form_and_ends_with_the_logout(client: AsgiClient) -> None:
    page = client.get("/login", next="/?q=1")
    assert page.status == 200
    assert "<script" not in page.text
    assert " style=" not in page.text
    assert "script" not in page.headers["content-security-policy"]
    answer = client.post("/login", OWN, user="vera", password=PASSWORD, next="/?q=1")
    assert (answer.status, answer.headers["location"]) == (303, "/?q=1")
    cookie = answer.cookies[0].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert client.get("/api/whoami").json["user"] == "vera"
    stolen = dict(client.cookies)
    assert client.post("/logout", OWN).status == 303
    client.cookies |= stolen
    assert client.get("/api/whoami").status == 401


def test_cookies_are_secure_behind_tls(tmp_path: Path) -> None:
    with asked(opened(f"url: https://m.example.org\n{ACCESS}", tmp_path)) as client:
        answer = client.post("/login", {"origin": "https://m.example.org"}, user="vera", password=PASSWORD)
        assert answer.cookies[0].startswith("__Host-artimon-session=")
        assert "; secure" in answer.cookies[0].lower()


def test_sessions_expire(timed: tuple[AsgiClient, Authenticator], clock: ManualClock) -> None:
    client, _ = timed
    client.log_in("vera")
    for _ in range(11):
        clock.advance(59 * 60_000)
        assert client.get("/api/whoami").status == 200
    clock.advance(90 * 60_000)  # idle, and twelve hours since the login
    assert client.get("/api/whoami").status == 401


def test_memory_of_sessions_is_bounded(clock: ManualClock) -> None:
    store = SessionStore(clock, 3600, 3600, most=200)
    role = Role("viewer", Level.VIEWER)
    first = store.begin(Principal("first", role, LoginMethod.PASSWORD), None)
    for _ in range(1_000):
        store.begin(Principal("greedy", role, LoginMethod.PASSWORD), None)
        assert len(store) <= MAX_USER_SESSIONS + 1
    assert store.find(first, "", lambda _: None) is not None
    for at in range(1_000):
        store.begin(Principal(f"user {at}", role, LoginMethod.PASSWORD), None)
    assert len(store) == 200
    assert store.find(first, "", lambda _: None) is None


def test_a_form_of_another_site_does_not_log_in(client: AsgiClient) -> None:
    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}):
        answer = client.post("/login", headers, user="vera", password=PASSWORD)
        assert answer.status == 403
        assert answer.cookies == ()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site", "origin": "http://127.0.0.1"}, 403),
        ({}, 403),
        ({"origin": "http://127.0.0.1"}, 404),
        ({"sec-fetch-site": "same-origin", "origin": "http://inner:80"}, 404),
    ],
)
def test_a_session_changes_things_from_its_own_page_only(
    client: AsgiClient, headers: dict[str, str], status: int
) -> None:
    client.log_in("ada")
    assert client.send("DELETE", "/api/queries/x", headers=headers).status == status


def test_a_password_that_a_browser_attaches_needs_the_origin_too(client: AsgiClient) -> None:
    foreign = {**basic("ada"), "origin": "https://evil.example"}
    assert client.send("DELETE", "/api/queries/x", headers=foreign).status == 403
    assert client.send("DELETE", "/api/queries/x", headers=basic("ada")).status == 404


@pytest.mark.parametrize(
    ("target", "there"),
    [
        ("/?q=1#chart", "/?q=1#chart"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example", "/"),
        ("javascript:alert(1)", "/"),
        ("/a\r\nset-cookie: a=b", "/"),
        ("", "/"),
        ("/" + "a" * 9_000, "/"),
    ],
)
def test_a_login_leads_to_this_server_only(target: str, there: str) -> None:
    assert local_path(target) == there


def test_what_a_user_writes_is_escaped_in_the_form(client: AsgiClient) -> None:
    answer = client.post("/login", OWN, user='"><script>alert(1)</script>', password="x", next='/"><script>')
    assert answer.status == 401
    assert "<script" not in answer.text
    assert "&lt;script&gt;" in answer.text
    assert "<script" not in client.get("/login", next='/"><script>alert(1)</script>').text


# ---- passwords


def test_hashes_of_passwords() -> None:
    made = hash_password(PASSWORD, 4)
    assert parse_password_hash(str(made)) == made
    assert made.matches(PASSWORD)
    assert not made.matches(PASSWORD + "x")
    assert hash_password(PASSWORD, 4) != made
    for bad in ("short", "x" * 2_000):
        with pytest.raises(ValueError, match="a password has at"):
            hash_password(bad)
    for text in ("", PASSWORD, "scrypt:99:8:1:AAAA:AAAA", "scrypt:15:8:3:AA:!!", "scrypt:20:32:16:AAAAAAAAAAA=:AAAA"):
        with pytest.raises(PasswordHashError) as caught:
            parse_password_hash(text)
        assert not text or text not in str(caught.value)


def test_a_wrong_password_and_an_unknown_user_look_the_same(client: AsgiClient) -> None:
    first, second = client.get("/api/names", basic("vera", "x")), client.get("/api/names", basic("nobody", "x"))
    assert (first.status, first.body) == (second.status, second.body)
    assert first.status == 401


@pytest.mark.parametrize(
    "header",
    [
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"vera").decode(),
        "Basic " + base64.b64encode(b"\xff:\xff").decode(),
        "Digest username=vera",
        "Bearer",
        "Bearer a.b.c",
        "Bearer artimon_000000000000_" + "A" * 43,
        "bearer " + "x" * 5_000,
    ],
)
def test_forged_headers_are_refused(client: AsgiClient, header: str) -> None:
    answer = client.get("/api/names", {"authorization": header})
    assert answer.status == 401
    assert client.get("/api/names", basic("vera")).status == 200


def test_a_verified_password_is_remembered_for_a_minute_in_bounded_memory(
    timed: tuple[AsgiClient, Authenticator], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, access = timed
    hashed, real = [], access.by_password

    def counted(name: str, password: str, address: str) -> Principal:
        hashed.append(name)
        return real(name, password, address)

    monkeypatch.setattr(access, "by_password", counted)
    for _ in range(3):
        assert client.get("/api/names", basic("vera")).status == 200
    assert len(hashed) == 1
    clock.advance(int(REMEMBERED_S * 1000))
    assert client.get("/api/names", basic("vera")).status == 200
    assert len(hashed) == 2
    for at in range(2 * MAX_REMEMBERED):
        access._remember(str(at).encode(), "vera")
    assert len(access._remembered) == MAX_REMEMBERED


def test_a_dashboard_sends_one_password_with_many_requests(client: AsgiClient, access: Authenticator) -> None:
    with ThreadPoolExecutor(30) as threads:
        answers = list(threads.map(lambda _: client.other().get("/api/whoami", basic("vera")), range(30)))
    assert {one.status for one in answers} == {200}
    assert {one.json["user"] for one in answers} == {"vera"}
    assert access.failures.refused == 0


def test_ten_thousand_logins_a_minute_are_refused_before_they_cost_anything(
    timed: tuple[AsgiClient, Authenticator], clock: ManualClock
) -> None:
    client, access = timed
    hashed, statuses = 0, Counter[int]()
    for at in range(10_000):
        clock.advance(6)
        try:
            access.failures.begin(f"192.0.2.{at % 4}", f"user {at % 50}")
            hashed += 1
        except AccessError as problem:
            statuses[problem.status] += 1
    assert hashed <= 2 * 4 * ADDRESS_FAILURES
    assert statuses == {429: 10_000 - hashed}
    assert len(access.failures) <= 54
    answer = client.other("192.0.2.1").get("/api/names", basic("vera"))
    assert answer.status == 429
    assert int(answer.headers["retry-after"]) > 0
    assert client.other("192.0.2.77").get("/api/names", basic("vera")).status == 200
    clock.advance(60_000)
    assert client.other("192.0.2.1").get("/api/names", basic("vera")).status == 200


def test_a_user_is_guessed_slowly_from_many_addresses(clock: ManualClock) -> None:
    failures, tried = FailedLogins(clock, keys=100), 0
    for at in range(1_000):
        try:
            failures.begin(f"198.51.{at // 250}.{at % 250}", "vera")
            tried += 1
        except AccessError:
            pass
    assert tried == USER_FAILURES
    assert len(failures) <= 100


def test_memory_of_failures_is_bounded_for_any_number_of_addresses(clock: ManualClock) -> None:
    failures = FailedLogins(clock, keys=1_000)
    for at in range(5_000):
        failures.begin(f"2001:db8:{at:x}::1", f"{at}")
    assert len(failures) == 1_000
    assert network_of("2001:db8::1") == network_of("2001:db8::ffff:1")


def test_the_sessions_of_others_go_on_during_an_attack(timed: tuple[AsgiClient, Authenticator]) -> None:
    client, _ = timed
    client.log_in("vera")
    for _ in range(3 * USER_FAILURES):
        client.other().get("/api/names", basic("vera", "wrong"))
    assert client.get("/api/names").status == 200


# ---- tokens


def test_a_token_has_role_scopes_and_expiry(timed: tuple[AsgiClient, Authenticator], clock: ManualClock) -> None:
    client, access = timed
    tokens = access.tokens
    assert tokens is not None
    _, text = tokens.create("grafana", "viewer", NOW, scopes=[Area.QUERY], expires_ms=NOW + 1_000)
    bearer = {"authorization": f"Bearer {text}"}
    assert client.get("/api/names", bearer).status == 200
    assert client.get("/api/names", {"x-artimon-token": text}).status == 200
    refused = client.get("/api/alerts", bearer)
    assert refused.status == 403
    assert "scope" in refused.text
    assert client.get("/api/whoami", bearer).json["user"] == "token:grafana"
    clock.advance(1_000)
    assert client.get("/api/names", bearer).status == 401


def test_a_revocation_works_at_once_in_another_process(timed: tuple[AsgiClient, Authenticator]) -> None:
    client, access = timed
    assert access.access.tokens is not None
    command = TokenFile(access.access.tokens)
    record, text = command.create("ci", "editor", NOW)
    other, other_text = command.create("ci", "editor", NOW)
    assert client.get("/api/names", {"authorization": f"Bearer {text}"}).status == 200
    command.revoke(record.id)
    assert client.get("/api/names", {"authorization": f"Bearer {text}"}).status == 401
    assert client.get("/api/names", {"authorization": f"Bearer {other_text}"}).status == 200
    with pytest.raises(TokenFileError, match="no token"):
        command.revoke(record.id)
    assert [one.id for one in command.records()] == [other.id]


def test_a_file_of_tokens_has_no_secret_and_belongs_to_its_user(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    tokens = TokenFile(path)
    record, text = tokens.create("a", "viewer", NOW)
    assert path.stat().st_mode & 0o777 == 0o600
    assert text.rsplit("_", 1)[1] not in path.read_text()
    for forged in (
        text[:-1] + ("A" if text[-1] != "A" else "B"),
        text + "A",
        text.upper(),
        "",
        "artimon__",
        record.digest,
    ):
        assert tokens.verify(forged, NOW) is None
    os.chmod(path, 0o644)
    with pytest.raises(TokenFileError, match="chmod 600"):
        TokenFile(path)


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"tokens": [{"id": 1}]}', '{"tokens": [1]}', "[" * 100_000])
def test_a_damaged_file_admits_nobody(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "tokens.json"
    tokens = TokenFile(path)
    _, text = tokens.create("a", "viewer", NOW)
    whole = path.read_bytes()
    path.write_text(damage)
    assert tokens.verify(text, NOW) is None
    assert "not a file of tokens" in tokens.problem
    path.write_bytes(whole)
    assert tokens.verify(text, NOW) is not None


def test_a_token_of_a_role_that_is_gone_admits_nobody(client: AsgiClient, access: Authenticator) -> None:
    assert access.tokens is not None
    _, text = access.tokens.create("a", "wizard", NOW)
    assert client.get("/api/names", {"authorization": f"Bearer {text}"}).status == 401


# ---- proxies


def test_headers_count_from_a_trusted_proxy_only(client: AsgiClient) -> None:
    headers = {"x-forwarded-user": "paul", "x-forwarded-groups": "ops, dev"}
    assert client.get("/api/whoami", headers).status == 401
    behind = client.other("10.1.2.3")
    told = behind.get("/api/whoami", headers).json
    assert (told["user"], told["role"], told["method"]) == ("paul", "editor", "proxy")
    assert behind.get("/api/whoami", {**headers, "x-forwarded-groups": "ops"}).status == 403
    assert behind.get("/api/whoami").status == 401


def test_the_address_of_a_client_is_that_before_the_trusted_proxies(access: Authenticator) -> None:
    headers = {b"x-forwarded-for": b"203.0.113.9, 198.51.100.1, 10.0.0.7"}
    assert access.credentials(headers, "10.1.2.3").address == "198.51.100.1"
    assert access.credentials(headers, "192.0.2.1").address == "192.0.2.1"
    assert access.credentials({}, "::ffff:10.1.2.3").address == "::ffff:10.1.2.3"


# ---- the audit log


def test_the_audit_log_rotates_and_tells_logins(tmp_path: Path) -> None:
    text = ACCESS.replace("{file: audit.jsonl}", "{file: audit.jsonl, size: 1000, files: 2}")
    with asked(opened(text, tmp_path)) as client:
        for _ in range(20):
            client.cookies.clear()
            client.log_in("vera")
    files = sorted(tmp_path.glob("audit.jsonl*"))
    assert [one.name for one in files] == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2"]
    lines = [json.loads(line) for one in files for line in one.read_text().splitlines()]
    assert {one["action"] for one in lines} == {"login"}
    assert all(one.stat().st_size <= 1000 for one in files)
    assert PASSWORD not in "".join(one.read_text() for one in files)
    assert HASH not in "".join(one.read_text() for one in files)
