"""Credentials of a request to an principal: password, token, forwarded ID token, header of a proxy, certificate."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from artimon.access.access_file import Access, OidcSettings, User, read_access
from artimon.access.audit_log import AuditLog
from artimon.access.failed_logins import FailedLogins
from artimon.access.passwords import DUMMY
from artimon.access.principal import LoginMethod, Principal
from artimon.access.route_rules import AccessError
from artimon.access.token_file import TokenFile, TokenFileError
from artimon.model.clock import SYSTEM_CLOCK, Clock
from artimon.runtime.config_file import ConfigFileError
from artimon.runtime.settings import SettingsError
from bookkeeper.rpc.tls import FileStamp, file_stamp

if TYPE_CHECKING:
    from artimon.access.oidc import OidcProvider

log = logging.getLogger(__name__)
TOKEN_HEADER = "x-artimon-token"  # noqa: S105 - a name
ID_TOKEN_HEADER = "x-id-token"  # noqa: S105 - a name
REMEMBERED_S = 60.0
"""Time for which a verified password need not be hashed again."""
MAX_REMEMBERED = 1_000
RELOAD_S = 2.0
"""Pause between two checks of the access file."""
FIXED = ("url", "certificate", "key", "session_ms", "idle_ms", "audit")
"""Fields of the access file that count from the start of the process."""
Deferred = Callable[[], Principal]
"""Verification that takes long: runs in a thread. Raises AccessError."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Headers of a request that concern its user. `address`: of the client, behind proxies; `proxied`: user and groups
    by a trusted proxy."""

    address: str = ""
    authorization: str = ""
    token: str = ""
    id_token: str = ""
    proxied: tuple[str, frozenset[str]] | None = None


class Authenticator:
    """Verifier of credentials. Thread-safe; memory is bounded. A changed `file` is read within seconds, in a thread; an
    invalid one changes nothing."""

    def __init__(self, access: Access, audit: AuditLog, clock: Clock = SYSTEM_CLOCK, file: Path | None = None) -> None:
        """Raises TokenFileError."""
        self.audit, self._clock = audit, clock
        self.failures = FailedLogins(clock)
        self._lock = threading.Lock()
        self._hashing = threading.RLock()
        """Held while a password is hashed: a flood of logins takes one core and 32 MiB, not all."""
        self._remembered: OrderedDict[bytes, tuple[str, float]] = OrderedDict()
        self._file, self._stamp = file, None if file is None else _stamp(file)
        self._next_check, self._reading = 0.0, threading.Lock()
        self.tokens: TokenFile | None = None
        self.oidc: OidcProvider | None = None
        self._use(access)

    def _use(self, access: Access) -> None:
        """Verify by this content from now on. Raises TokenFileError."""
        tokens, oidc = self.tokens, self.oidc
        if tokens is None or tokens.path != access.tokens:
            tokens = None if access.tokens is None else TokenFile(access.tokens)
        if oidc is None or oidc.settings != access.oidc:
            oidc = None if access.oidc is None else _provider(access.oidc, self._clock)
        self.access, self.tokens, self.oidc = access, tokens, oidc
        proxy = access.proxy
        self._trusts = lru_cache(MAX_REMEMBERED)(proxy.trusts) if proxy else None
        """Test of addresses for proxies, remembered because parsing one takes longer than all other checks."""
        self._certificates = {name: user for user in access.users.values() for name in user.certificates}
        self._key = secrets.token_bytes(32)  # no password that was verified by the content before is recalled

    def _refresh(self) -> None:
        """Read the file in a thread if it has changed. Checked once in RELOAD_S."""
        now = self._clock.monotonic()
        if self._file is None or now < self._next_check:
            return
        self._next_check = now + RELOAD_S
        if _stamp(self._file) != self._stamp and self._reading.acquire(blocking=False):
            threading.Thread(target=self._read_again, args=(self._file,), name="access-file", daemon=True).start()

    def _read_again(self, file: Path) -> None:
        stamp = _stamp(file)
        try:
            access = read_access(file)
            fixed = {name: getattr(self.access, name) for name in FIXED}
            changed = [name for name in FIXED if getattr(access, name) != fixed[name]]
            self._use(replace(access, **fixed))
        except (ConfigFileError, TokenFileError, OSError) as problem:
            log.error("the access file is invalid, the content before stays in force: %s", problem)
            self.audit.write("access.invalid", file=str(file))
        else:
            if changed:
                log.warning("%s: %s: restart the process to use the change", file, ", ".join(changed))
            self.audit.write("access.changed", file=str(file))
        finally:
            self._stamp = stamp
            self._reading.release()

    def proof_of(self, principal: Principal, access: Access | None = None) -> object:
        """Return the entry of the access file that admits the user of a session. A session whose entry has changed
        is over: another password, another role, or a provider with other groups. `access`: the content by which a login
        was verified, which may have changed since; None: the present one."""
        by = access or self.access
        if principal.method is LoginMethod.PASSWORD:
            return by.users.get(principal.user)
        return by.oidc if principal.method is LoginMethod.OIDC else None

    def credentials(self, headers: Mapping[bytes, bytes], peer: str) -> Credentials:
        """Return what a request presents; headers of proxies count only from a configured address."""
        self._refresh()

        def text(name: str) -> str:
            return headers.get(name.encode(), b"").decode("latin-1")

        proxy, trusts, address, proxied = self.access.proxy, self._trusts, peer, None
        if proxy is not None and trusts is not None and trusts(peer):
            hops = [one.strip()[:100] for one in text("x-forwarded-for").split(",") if one.strip()]
            address = next((one for one in reversed(hops) if not trusts(one)), peer)
            if user := text(proxy.user_header).strip():
                groups = frozenset(one.strip() for one in text(proxy.groups_header).split(",")) - {""}
                proxied = user[:200], groups
        return Credentials(address, text("authorization"), text(TOKEN_HEADER), text(ID_TOKEN_HEADER), proxied)

    def identify(self, given: Credentials) -> Principal | Deferred | None:
        """Return the principal; a function, if the verification takes long; None without credentials. Raises
        AccessError."""
        if given.proxied is not None:
            return self._by_proxy(*given.proxied, given.address)
        if given.token:
            return self.by_token(given.token, given.address)
        if given.id_token and self.oidc is not None:
            return self._by_id_token(given.id_token, given.address)
        scheme, _, value = given.authorization.partition(" ")
        match scheme.lower():
            case "":
                return None
            case "bearer" if value.count(".") == 2 and self.oidc is not None:
                return self._by_id_token(value, given.address)
            case "bearer":
                return self.by_token(value, given.address)
            case "basic":
                return self._by_basic(value, given.address)
        raise AccessError(401, f"the scheme {scheme!r:.40} of the header Authorization is not known: Basic or Bearer")

    def by_token(self, text: str, address: str) -> Principal:
        """Return the principal of a token. Raises AccessError."""
        self._refresh()
        found = None if self.tokens is None else self.tokens.verify(text.strip(), self._clock.now_ms())
        role = None if found is None else self.access.roles.get(found.role)
        if found is None or role is None:
            self.failures.begin(address, "by token")
            self.audit.write("login.failed", method=LoginMethod.TOKEN, address=address)
            raise AccessError(
                401, "the token is unknown, revoked or expired: `artimon tokens list` shows the valid ones"
            )
        scopes = frozenset(found.scopes) if found.scopes else None
        return Principal(f"token:{found.name}", role, LoginMethod.TOKEN, scopes, address)

    def by_certificate(self, names: Iterable[str], address: str) -> Principal | None:
        """Return the principal of a verified certificate of a client; None if it belongs to no user."""
        self._refresh()
        user = next((self._certificates[name] for name in names if name in self._certificates), None)
        return None if user is None else Principal(user.name, user.role, LoginMethod.CERTIFICATE, address=address)

    def by_password(self, name: str, password: str, address: str) -> Principal:
        """Verify a password, for about 0.2 s. Raises AccessError: 401, or 429 after too many failures."""
        self.failures.begin(address, name)
        user = self.access.users.get(name)
        known = user.password if user is not None and user.password is not None else None
        with self._hashing:
            good = (known or DUMMY).matches(password)
        if user is None or known is None or not good:
            self.audit.write("login.failed", user=name[:200], method=LoginMethod.PASSWORD, address=address)
            raise AccessError(401, "wrong user or password")
        self.failures.succeeded(address, name)
        return _of_user(user, address)

    def _by_basic(self, value: str, address: str) -> Principal | Deferred:
        mark = hmac.digest(self._key, value.encode("latin-1", "replace"), hashlib.sha256)
        name = self._recall(mark)
        if name is not None and (user := self.access.users.get(name)):
            return _of_user(user, address, from_browser=True)
        try:
            user_name, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            colon = ""
        if not colon:
            raise AccessError(401, "the header Authorization is not valid: send Basic and base64 of user:password")

        def verify() -> Principal:
            with self._hashing:  # of many requests at once, as of a dashboard, the first verifies for all
                if self._recall(mark) is None:
                    self._remember(mark, self.by_password(user_name, password, address).user)
            user = self.access.users.get(user_name)
            if user is None:
                raise AccessError(401, "wrong user or password")  # the file has changed meanwhile
            return _of_user(user, address, from_browser=True)

        return verify

    def _by_id_token(self, text: str, address: str) -> Deferred:
        def verify() -> Principal:
            if self.oidc is None:
                raise AccessError(401, "no OpenID provider is configured")
            try:
                return self.oidc.verify_forwarded(text, address)
            except AccessError as problem:
                if problem.status == 401:
                    self.failures.begin(address, "by ID token")
                    self.audit.write("login.failed", method=LoginMethod.OIDC, address=address)
                raise

        return verify

    def _by_proxy(self, user: str, groups: frozenset[str], address: str) -> Principal:
        proxy = self.access.proxy
        role = None if proxy is None else proxy.roles.choose(groups)
        if role is None:
            raise AccessError(403, "no role for the groups that the proxy names")
        return Principal(user, role, LoginMethod.PROXY, address=address, from_browser=True)

    def _recall(self, mark: bytes) -> str | None:
        with self._lock:
            name, until = self._remembered.get(mark, (None, 0.0))
            return name if self._clock.monotonic() < until else None

    def _remember(self, mark: bytes, name: str) -> None:
        with self._lock:
            self._remembered[mark] = name, self._clock.monotonic() + REMEMBERED_S
            self._remembered.move_to_end(mark)
            while len(self._remembered) > MAX_REMEMBERED:
                self._remembered.popitem(last=False)


def _of_user(user: User, address: str, *, from_browser: bool = False) -> Principal:
    return Principal(user.name, user.role, LoginMethod.PASSWORD, address=address, from_browser=from_browser)


def _provider(settings: OidcSettings, clock: Clock) -> OidcProvider:
    """Return the client of an OpenID provider. Its libraries take a fifth of a second, and few installations need
    them."""
    from artimon.access.oidc import OidcProvider

    return OidcProvider(settings, clock)


def _stamp(file: Path) -> FileStamp | None:
    try:
        return file_stamp(str(file))
    except OSError:
        return None


def open_access(file: Path | None, clock: Clock = SYSTEM_CLOCK) -> Authenticator | None:
    """Return the verifier of an access file; None without one. Raises SettingsError."""
    if file is None:
        return None
    try:
        access = read_access(file)
        return Authenticator(access, AuditLog(access.audit, clock), clock, file)
    except (ConfigFileError, TokenFileError) as problem:
        raise SettingsError(str(problem)) from problem
