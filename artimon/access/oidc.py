"""Client of an OpenID provider: authorization code flow with PKCE, and verification of ID tokens."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import requests
from authlib.common.errors import AuthlibBaseError
from authlib.common.security import generate_token
from authlib.integrations.requests_client import OAuth2Session
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from artimon.access.access_file import OidcSettings
from artimon.access.principal import LoginMethod, LoginRequest, Principal
from artimon.access.route_rules import AccessError
from artimon.model.clock import Clock
from artimon.runtime.exposure import is_loopback

ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signatures with public keys only: with HS256 everybody who knows the client secret could sign."""
TIMEOUT_S = 5.0
MAX_BYTES = 1 << 20
MAX_TOKEN = 16_384
KEEP_S = 3_600.0
"""Age at which the description and the keys of the provider are read again."""
RETRY_S = 30.0
"""Minimum pause between two reads because of unknown keys: a token with an unknown key needs no secret."""
LEEWAY_S = 60
"""Difference of clocks, seconds."""


class OidcProvider:
    """Provider. Methods block for at most some seconds. Thread-safe."""

    def __init__(self, settings: OidcSettings, clock: Clock) -> None:
        self.settings, self._clock = settings, clock
        self._lock = threading.Lock()
        self._metadata: Mapping[str, Any] = {}
        self._keys = KeySet([])
        self._read_at: float | None = None

    def begin(self, redirect: str) -> LoginRequest:
        """Begin a login. Raises AccessError."""
        metadata, verifier, nonce = self._described()[0], generate_token(64), generate_token(32)
        with self._session(redirect) as session:
            url, state = session.create_authorization_url(
                metadata["authorization_endpoint"], nonce=nonce, code_verifier=verifier
            )
        return LoginRequest(url, state, nonce, verifier)

    def finish(self, begun: LoginRequest, code: str, redirect: str, address: str) -> Principal:
        """Exchange the code for an ID token and return its user. Raises AccessError."""
        metadata = self._described()[0]
        try:
            with self._session(redirect) as session:
                found = session.fetch_token(
                    metadata["token_endpoint"], code=code, code_verifier=begun.verifier, timeout=TIMEOUT_S
                )
        except AuthlibBaseError as error:
            raise AccessError(401, f"the provider refuses the login: {error}") from None
        except (requests.RequestException, ValueError) as error:
            raise _unavailable(error) from error
        text = found.get("id_token") if isinstance(found, Mapping) else None
        if not isinstance(text, str):
            raise AccessError(401, "the provider sent no ID token")
        claims = self._verify(text, begun.nonce)
        if claims.get("aud") not in (self.settings.client_id, [self.settings.client_id]):
            raise AccessError(401, "the ID token is for another program")
        return self._principal(claims, address)

    def verify_forwarded(self, text: str, address: str) -> Principal:
        """Return the user of an ID token that a program forwards. Raises AccessError."""
        return self._principal(self._verify(text), address)

    def _verify(self, text: str, nonce: str = "") -> Mapping[str, Any]:
        if len(text) > MAX_TOKEN:
            raise AccessError(401, "the ID token is too long")
        metadata, keys = self._described()
        try:
            try:
                token = jwt.decode(text, keys, algorithms=ALGORITHMS)
            except (JoseError, ValueError):
                metadata, keys = self._described(newer_than_s=RETRY_S)  # the provider may have new keys
                token = jwt.decode(text, keys, algorithms=ALGORITHMS)
            options = {
                "iss": {"essential": True, "value": metadata["issuer"]},
                "aud": {"essential": True, "values": sorted(self.settings.accepted_audiences)},
            }
            claims = CodeIDToken(token.claims, token.header, options, {"nonce": nonce} if nonce else {})
            claims.validate(now=self._clock.now_ms() // 1000, leeway=LEEWAY_S)
        except (JoseError, AuthlibBaseError, ValueError, TypeError, KeyError) as error:
            raise AccessError(401, f"the ID token is not valid: {type(error).__name__}") from None
        return dict(token.claims)

    def _principal(self, claims: Mapping[str, Any], address: str) -> Principal:
        user = claims.get(self.settings.user_claim) or claims.get("email") or claims.get("sub")
        given = claims.get(self.settings.groups_claim)
        groups = [given] if isinstance(given, str) else given if isinstance(given, list) else []
        role = self.settings.roles.choose(frozenset(str(one) for one in groups))
        if not isinstance(user, str) or not user:
            raise AccessError(401, "the ID token names no user")
        if role is None:
            raise AccessError(403, "no role for the groups of this user: ask the administrator of Artimon")
        return Principal(user[:200], role, LoginMethod.OIDC, address=address)

    def _session(self, redirect: str) -> OAuth2Session:
        session = OAuth2Session(
            self.settings.client_id,
            self.settings.client_secret,
            redirect_uri=redirect,
            scope=" ".join(self.settings.scopes),
            code_challenge_method="S256",
        )
        session.verify = str(self.settings.ca) if self.settings.ca else True
        return session

    def _described(self, newer_than_s: float = KEEP_S) -> tuple[Mapping[str, Any], KeySet]:
        """Return the description and the keys of the provider, at most that old. Raises AccessError 503."""
        with self._lock:
            now = self._clock.monotonic()
            if self._read_at is None or now - self._read_at >= newer_than_s:
                try:
                    self._metadata, self._keys = self._read()
                except (requests.RequestException, JoseError, ValueError, KeyError, TypeError) as error:
                    if self._read_at is None:
                        raise _unavailable(error) from error
                self._read_at = now
            return self._metadata, self._keys

    def _read(self) -> tuple[Mapping[str, Any], KeySet]:
        issuer = self.settings.issuer
        found = self._get(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if str(found["issuer"]).rstrip("/") != issuer.rstrip("/"):
            raise ValueError(f"it names itself {found['issuer']!r:.200}")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            parts = urlsplit(str(found[name]))
            if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
                raise ValueError(f"{name} is not https")
        return found, KeySet.import_key_set(self._get(str(found["jwks_uri"])))

    def _get(self, url: str) -> Any:
        with self._session("") as session:
            answer = session.get(url, withhold_token=True, timeout=TIMEOUT_S, stream=True, allow_redirects=False)
            if answer.status_code != 200:
                raise ValueError(f"{url}: status {answer.status_code}")
            return json.loads(answer.raw.read(MAX_BYTES, decode_content=True))


def _unavailable(error: Exception) -> AccessError:
    return AccessError(503, f"the OpenID provider cannot be asked: {type(error).__name__}: {error}")
