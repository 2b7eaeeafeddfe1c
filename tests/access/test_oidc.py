"""Login by a real OpenID provider, ID tokens that Grafana forwards, and forged ones."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from authlib.integrations.requests_client import OAuth2Session
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from artimon.access.authenticator import Authenticator
from artimon.access.oidc import RETRY_S
from artimon.model.clock import SYSTEM_CLOCK, ManualClock
from tests.access.asgi_client import AsgiClient, asked, opened
from tests.access.oidc_provider import CLIENT, GRAFANA, OTHER, PASSWORD, REDIRECT, SECRET

ACCESS = """
url: https://artimon.example.org
oidc:
  issuer: {issuer}
  client_id: artimon
  client_secret_file: secret
  roles: {{ops: editor, guests: viewer}}
  audiences: [grafana]
audit: {{file: audit.jsonl}}
"""


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The provider, a process of its own."""
    folder = tmp_path_factory.mktemp("provider")
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "tests.access.oidc_provider", str(folder)]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def access(issuer: str, tmp_path_factory: pytest.TempPathFactory) -> Authenticator:
    folder = tmp_path_factory.mktemp("access")
    (folder / "secret").write_text(SECRET)
    (folder / "secret").chmod(0o600)
    return opened(ACCESS.format(issuer=issuer), folder, SYSTEM_CLOCK)


@pytest.fixture(scope="module")
def server(access: Authenticator) -> Iterator[AsgiClient]:
    with asked(access) as found:
        yield found


@pytest.fixture
def client(server: AsgiClient) -> AsgiClient:
    return server.other()


def consent(url: str, user: str) -> str:
    """Log in at the provider as a browser does; return the address to which it sends the browser back."""
    with requests.Session() as browser:
        page = browser.get(url, timeout=10)
        assert "password" in page.text, page.text
        form = {"username": user, "password": PASSWORD, "next": parse_qs(urlsplit(page.url).query)["next"][0]}
        form["csrfmiddlewaretoken"] = str(browser.cookies["csrftoken"])
        answer = browser.post(page.url, form, allow_redirects=False, timeout=10)
        while answer.status_code == 302 and not answer.headers["location"].startswith(REDIRECT):
            place = answer.headers["location"]
            base = "{0.scheme}://{0.netloc}".format(urlsplit(url))
            answer = browser.get(base + place if place.startswith("/") else place, allow_redirects=False, timeout=10)
        assert answer.status_code == 302, answer.text
        return str(answer.headers["location"])


def begin(client: AsgiClient, target: str = "/") -> str:
    answer = client.get("/login/oidc", next=target)
    assert answer.status == 303, answer.text
    return answer.headers["location"]


def finish(client: AsgiClient, back: str) -> Any:
    parts = urlsplit(back)
    return client.get(f"{parts.path}?{parts.query}")


def token_of(issuer: str, user: str, client_id: str) -> str:
    """An ID token as Grafana gets one, by a flow of its own."""
    with OAuth2Session(
        client_id, SECRET, redirect_uri=REDIRECT, scope="openid", code_challenge_method="S256"
    ) as session:
        verifier = "v" * 64
        url, _ = session.create_authorization_url(f"{issuer}/authorize/", code_verifier=verifier)
        code = parse_qs(urlsplit(consent(url, user)).query)["code"][0]
        found = session.fetch_token(f"{issuer}/token/", code=code, code_verifier=verifier)
    return str(found["id_token"])


@pytest.fixture(scope="module")
def forwarded(issuer: str) -> str:
    return token_of(issuer, "olga", GRAFANA)


def test_a_user_logs_in_with_the_role_of_a_group(client: AsgiClient, issuer: str) -> None:
    assert "Log in by OpenID Connect" in client.get("/login").text
    url = begin(client, "/?q=1")
    assert url.startswith(issuer)
    sent = parse_qs(urlsplit(url).query)
    assert sent["code_challenge_method"] == ["S256"]
    assert {"state", "nonce", "code_challenge"} <= set(sent)
    answer = finish(client, consent(url, "olga"))
    assert (answer.status, answer.headers["location"]) == (303, "/?q=1")
    told = client.get("/api/whoami").json
    assert (told["user"], told["role"], told["method"]) == ("olga", "editor", "oidc")


def test_a_user_without_a_mapped_group_has_no_role(client: AsgiClient) -> None:
    answer = finish(client, consent(begin(client), "greg"))
    assert answer.status == 403
    assert "no role for the groups" in answer.text
    assert client.get("/api/whoami").status == 401


def test_a_code_works_once_and_in_the_browser_that_began(client: AsgiClient) -> None:
    back = consent(begin(client), "guest")
    victim = client.other()
    assert finish(victim, back).status == 401  # login CSRF: the attacker's code in another browser
    url = begin(client)
    back = consent(url, "guest")
    assert finish(client, back).status == 303
    assert finish(client, back).status == 401
    begin(client)
    state = parse_qs(urlsplit(begin(client)).query)["state"][0]
    assert client.get("/login/oidc/callback", state=state, error="access_denied").status == 401
    assert "access_denied" not in client.get("/login/oidc/callback", state=state).text


def test_what_the_provider_says_is_escaped(client: AsgiClient) -> None:
    state = parse_qs(urlsplit(begin(client)).query)["state"][0]
    answer = client.get("/login/oidc/callback", state=state, error="<script>alert(1)</script>")
    assert answer.status == 401
    assert "<script" not in answer.text


def test_a_wrong_code_is_refused(client: AsgiClient) -> None:
    state = parse_qs(urlsplit(begin(client)).query)["state"][0]
    assert client.get("/login/oidc/callback", state=state, code="guessed").status == 401


def test_an_attacker_holds_up_no_other_user(client: AsgiClient) -> None:
    attacker = client.other("203.0.113.1")
    statuses = []
    for _ in range(12):
        state = parse_qs(urlsplit(begin(attacker)).query)["state"][0]
        statuses.append(attacker.get("/login/oidc/callback", state=state, code="guessed").status)
    assert statuses == [401] * 10 + [429] * 2
    other = client.other("203.0.113.2")
    assert finish(other, consent(begin(other), "olga")).status == 303


def test_grafana_forwards_the_identity_of_its_user(client: AsgiClient, forwarded: str) -> None:
    told = client.get("/api/whoami", {"x-id-token": forwarded, "authorization": "Bearer opaque"}).json
    assert (told["user"], told["role"]) == ("olga", "editor")
    assert client.get("/api/whoami", {"authorization": f"Bearer {forwarded}"}).json["user"] == "olga"


def test_a_token_for_another_program_is_refused(client: AsgiClient, issuer: str) -> None:
    token = token_of(issuer, "olga", OTHER)
    assert client.get("/api/whoami", {"x-id-token": token}).status == 401


def part(claims: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")


def test_forged_tokens_are_refused(client: AsgiClient, forwarded: str, access: Authenticator) -> None:
    head, body, signature = forwarded.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    assert claims["aud"] == GRAFANA
    other_key, secret = RSAKey.generate_key(2048), OctKey.import_key(SECRET)
    kid = json.loads(base64.urlsafe_b64decode(head + "=="))["kid"]
    assert access.oidc is not None
    public = OctKey.import_key(json.dumps(access.oidc._described()[1].as_dict()["keys"][0]))
    forged = {
        "changed": f"{head}.{part({**claims, 'groups': ['ops'], 'preferred_username': 'root'})}.{signature}",
        "none": f"{part({'alg': 'none'})}.{body}.",
        "other key": jwt.encode({"alg": "RS256", "kid": kid}, claims, other_key),
        "unknown key": jwt.encode({"alg": "RS256", "kid": "x"}, claims, other_key),
        "client secret": jwt.encode({"alg": "HS256", "kid": kid}, claims, secret),
        "public key as secret": jwt.encode({"alg": "HS256", "kid": kid}, claims, public),
        "cut": forwarded[:-10],
        "empty": "..",
        "long": "a." + "b" * 20_000 + ".c",
    }
    for name, text in forged.items():
        answer = client.other(f"192.0.2.{len(name)}").get("/api/whoami", {"x-id-token": text})
        assert answer.status == 401, name
    assert client.get("/api/whoami", {"x-id-token": forwarded}).status == 200


def test_an_expired_token_is_refused(access: Authenticator, forwarded: str, tmp_path: Path) -> None:
    late = ManualClock(SYSTEM_CLOCK.now_ms() + 40 * 3_600_000)
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "secret").chmod(0o600)
    assert access.access.oidc is not None
    verifier = opened(ACCESS.format(issuer=access.access.oidc.issuer), tmp_path, late)
    with asked(verifier, clock=late) as client:
        assert client.get("/api/whoami", {"x-id-token": forwarded}).status == 401


def test_forged_tokens_do_not_make_us_ask_the_provider_each_time(
    access: Authenticator, monkeypatch: pytest.MonkeyPatch
) -> None:
    oidc = access.oidc
    assert oidc is not None
    reads, real = [], oidc._read

    def counted() -> Any:
        reads.append(1)
        return real()

    monkeypatch.setattr(oidc, "_read", counted)
    text = jwt.encode({"alg": "RS256", "kid": "x"}, {"iss": "x"}, RSAKey.generate_key(2048))
    for _ in range(20):
        with pytest.raises(Exception, match="not valid"):
            oidc.verify_forwarded(text, "")
    assert len(reads) <= 1
    assert RETRY_S >= 10


def test_a_provider_that_is_gone_is_told(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "secret").chmod(0o600)
    with asked(opened(ACCESS.format(issuer="http://127.0.0.1:1"), tmp_path)) as client:
        answer = client.get("/login/oidc")
        assert answer.status == 503
        assert "the OpenID provider cannot be asked" in answer.text
        assert client.get("/login").status == 200


assert CLIENT == "artimon"
