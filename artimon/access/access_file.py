"""Access file: users, roles, tokens, OpenID Connect, trusted proxies, sessions and the audit log. docs/access.md."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field
from pydantic_core import InitErrorDetails

from artimon.access.audit_log import AuditSettings
from artimon.access.passwords import PasswordHash, parse_password_hash
from artimon.access.principal import LIMITED, Level, Role
from artimon.model.select import Matcher
from artimon.runtime.config_file import ConfigFile, read_config
from artimon.runtime.config_model import Section, Text, choice, fault, parsed, repeated
from artimon.runtime.exposure import is_loopback
from artimon.runtime.settings import SettingsError, read_secret
from artimon.runtime.text import did_you_mean, parse_duration, parse_size
from query_dsl.tree.selector import parse_selector
from varstore.index.matchers import compile_matcher

LEVELS: Mapping[str, Level] = {level.name.lower(): level for level in Level}
MAX_ENTRIES = 10_000
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")


@dataclass(frozen=True, slots=True)
class User:
    """User with a password, or with certificates of these names."""

    name: str
    role: Role
    password: PasswordHash | None = field(default=None, repr=False)
    certificates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RoleChoice:
    """Role by groups: that of the first mapped group which a user has, else `default`, None to refuse."""

    groups: tuple[tuple[str, Role], ...] = ()
    default: Role | None = None

    def choose(self, groups: frozenset[str]) -> Role | None:
        """Return the role of a user with these groups."""
        return next((role for group, role in self.groups if group in groups), self.default)


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """Client of an OpenID provider. `audiences`: client ids whose ID tokens programs may forward to us, such as
    Grafana's; ours is always accepted."""

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    roles: RoleChoice
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    user_claim: str = "preferred_username"
    groups_claim: str = "groups"
    audiences: tuple[str, ...] = ()
    ca: Path | None = None
    name: str = "OpenID Connect"

    @property
    def accepted_audiences(self) -> frozenset[str]:
        """Audiences of accepted ID tokens."""
        return frozenset((self.client_id, *self.audiences))


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """Proxies whose headers name the user."""

    networks: tuple[Network, ...]
    user_header: str
    groups_header: str
    roles: RoleChoice

    def trusts(self, address: str) -> bool:
        """Return True if requests from this address come from a proxy."""
        try:
            found = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped:
            found = found.ipv4_mapped
        return any(found in network for network in self.networks)


@dataclass(frozen=True, slots=True)
class Access:
    """Content of an access file. `url`: address of the page for browsers, "" for that of the request."""

    roles: Mapping[str, Role]
    users: Mapping[str, User]
    url: str = ""
    certificate: Path | None = None
    key: Path | None = None
    tokens: Path | None = None
    oidc: OidcSettings | None = None
    proxy: ProxySettings | None = None
    session_ms: int = 12 * 3_600_000
    idle_ms: int = 3_600_000
    audit: AuditSettings = field(default_factory=AuditSettings)

    @property
    def is_encrypted(self) -> bool:
        """True if credentials reach this process by TLS, or a proxy that ends it."""
        return self.certificate is not None or self.url.startswith("https://")


def _matchers(text: str) -> tuple[Matcher, ...]:
    found = parse_selector(text, of_all=False).matchers
    for one in found:
        compile_matcher(one)
    return tuple(found)


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise ValueError(f"{text!r:.80}: write an address or a network, such as 10.0.0.0/8") from None


def _url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"{text!r:.200}: write an address such as https://metrics.example.org")
    return text.rstrip("/")


def _issuer(text: str) -> str:
    parts = urlsplit(_url(text))
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ValueError(f"{text!r:.200}: write an address with https, because the provider proves who users are")
    return text


def _header(text: str) -> str:
    if not _HEADER.fullmatch(text):
        raise ValueError(f"{text!r:.80}: write the name of a header, such as X-Forwarded-User")
    return text.lower()


def _number(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= 1 << 40:
        raise ValueError(f"{text!r:.80}: write a number greater than 0")
    return found


Words = Annotated[tuple[Text, ...], Field(max_length=MAX_ENTRIES)]
Limits = dict[str, Annotated[float, parsed(_number)]]


class _LimitedSection(Section):
    """Section with limits of queries."""

    limits: Limits = Field(default_factory=dict)
    hard_limits: Limits = Field(default_factory=dict)
    queries: Annotated[int, Field(ge=0, le=1_000, description="concurrent queries of one user")] = 0

    @classmethod
    def contradictions(cls, data: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
        for kind in ("limits", "hard_limits"):
            given = data.get(kind)
            for name in given if isinstance(given, Mapping) else ():
                if name not in LIMITED:
                    yield fault(f"unknown limit{did_you_mean(str(name), LIMITED)}", kind, str(name), of_key=True)

    def limit(self, role: Role) -> Role:
        """Return the role with these limits in place of its own."""
        return replace(
            role,
            limits={**role.limits, **self.limits},
            hard_limits={**role.hard_limits, **self.hard_limits},
            queries=self.queries or role.queries,
        )


class _RoleSection(_LimitedSection):
    name: Text
    level: Annotated[Level, choice(LEVELS)] = Field(description="write viewer, editor or admin")
    sees: Annotated[tuple[Matcher, ...], parsed(_matchers)] = ()

    def build(self) -> Role:
        return self.limit(Role(self.name, self.level, self.sees))


class _UserSection(_LimitedSection):
    name: Text
    role: Text = Field(description="write the name of a role, such as viewer")
    password: Annotated[PasswordHash | None, parsed(parse_password_hash)] = None
    certificates: Words = ()

    @classmethod
    def contradictions(cls, data: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
        yield from super().contradictions(data)
        if not (data.get("password") or data.get("certificates")):
            yield fault("write a password (`artimon tokens password`), or certificates")
        if ":" in str(data.get("name", "")):
            yield fault("a name with a password has no colon", "name")


class _RolesSection(Section):
    roles: dict[str, Text] = Field(default_factory=dict)
    default_role: Text | None = None

    def choice(self, known: Mapping[str, Role]) -> RoleChoice:
        """Return the roles of groups."""
        pairs = tuple((group, known[role]) for group, role in self.roles.items())
        return RoleChoice(pairs, known[self.default_role] if self.default_role else None)


class _OidcSection(_RolesSection):
    issuer: Annotated[str, parsed(_issuer)] = Field(description="write the address of the provider")
    client_id: Text = Field(description="write the id under which the provider knows this API")
    client_secret_file: Text = Field(description="write the path of a file with the secret")
    scopes: Words = ("openid", "profile", "email")
    user_claim: Text = "preferred_username"
    groups_claim: Text = "groups"
    audiences: Words = ()
    ca: Text | None = None
    name: Text = "OpenID Connect"


class _ProxySection(_RolesSection):
    addresses: Annotated[tuple[Annotated[Network, parsed(_network)], ...], Field(min_length=1, max_length=MAX_ENTRIES)]
    user_header: Annotated[str, parsed(_header)] = "x-forwarded-user"
    groups_header: Annotated[str, parsed(_header)] = "x-forwarded-groups"


class _TlsSection(Section):
    certificate: Text = Field(description="write the path of a PEM file with the certificate and its chain")
    key: Text = Field(description="write the path of the PEM file with its key")


class _SessionSection(Section):
    length: Annotated[int, parsed(parse_duration)] = 12 * 3_600_000
    idle: Annotated[int, parsed(parse_duration)] = 3_600_000


class _AuditSection(Section):
    file: Text = Field(description="write the path of the log")
    size: Annotated[int, parsed(parse_size)] = 16 << 20
    files: Annotated[int, Field(ge=1, le=100)] = 5
    query: Annotated[int, parsed(parse_duration)] = 5_000


class AccessSection(Section):
    """Whole file."""

    url: Annotated[str, parsed(_url)] = ""
    tls: _TlsSection | None = None
    roles: Annotated[tuple[_RoleSection, ...], Field(max_length=1_000)] = ()
    users: Annotated[tuple[_UserSection, ...], Field(max_length=MAX_ENTRIES)] = ()
    tokens: Text | None = None
    oidc: _OidcSection | None = None
    proxy: _ProxySection | None = None
    sessions: _SessionSection = _SessionSection()
    audit: _AuditSection | None = None

    @classmethod
    def contradictions(cls, data: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
        """Yield unknown and repeated names. A role of the file may replace `viewer`, `editor` or `admin`."""
        names: dict[str, list[tuple[str, tuple[str | int, ...]]]] = {"roles": [], "users": []}
        for kind, found in names.items():
            for at, one in enumerate(_list(data.get(kind))):
                if isinstance(one, Mapping) and isinstance(one.get("name"), str):
                    found.append((one["name"], (kind, at, "name")))
            yield from repeated(found)
        known = [*LEVELS, *(name for name, _ in names["roles"])]
        for role, path in _named_roles(data):
            if isinstance(role, str) and role not in known:
                yield fault(f"unknown role{did_you_mean(role, known)}", *path)
        if data.get("oidc") and not data.get("url"):
            yield fault("oidc needs url, the address to which the provider sends browsers back", "oidc")
        if not any(data.get(way) for way in ("users", "tokens", "oidc", "proxy")):
            yield fault("no login is possible: write users, tokens, oidc or proxy")


def _list(given: Any) -> list[Any]:
    return given if isinstance(given, list) else []


def _named_roles(data: Mapping[str, Any]) -> Iterator[tuple[Any, tuple[str | int, ...]]]:
    """Yield the roles that users and groups have, with their paths."""
    for at, user in enumerate(_list(data.get("users"))):
        if isinstance(user, Mapping) and "role" in user:
            yield user["role"], ("users", at, "role")
    for way in ("oidc", "proxy"):
        section = data.get(way)
        if isinstance(section, Mapping):
            groups = section.get("roles")
            if isinstance(groups, Mapping):
                yield from ((role, (way, "roles", group)) for group, role in groups.items())
            if "default_role" in section:
                yield section["default_role"], (way, "default_role")


def read_access(file: Path) -> Access:
    """Read an access file; paths in it are relative to its folder. Raises ConfigFileError."""
    return build_access(read_config(file), file.parent)


def build_access(config: ConfigFile, folder: Path) -> Access:
    """Return the content. Raises ConfigFileError."""
    found = config.validate(AccessSection)
    roles = {name: Role(name, level) for name, level in LEVELS.items()}
    roles |= {one.name: one.build() for one in found.roles}
    users = {
        one.name: User(one.name, one.limit(roles[one.role]), one.password, one.certificates) for one in found.users
    }
    audit = found.audit
    return Access(
        roles,
        users,
        found.url,
        folder / found.tls.certificate if found.tls else None,
        folder / found.tls.key if found.tls else None,
        folder / found.tokens if found.tokens else None,
        _oidc(config, found.oidc, roles, folder) if found.oidc else None,
        _proxy(found.proxy, roles) if found.proxy else None,
        found.sessions.length,
        found.sessions.idle,
        AuditSettings(folder / audit.file, audit.size, audit.files, audit.query) if audit else AuditSettings(),
    )


def _oidc(config: ConfigFile, found: _OidcSection, roles: Mapping[str, Role], folder: Path) -> OidcSettings:
    try:
        secret = read_secret("client_secret_file", str(folder / found.client_secret_file))
    except SettingsError as problem:
        raise config.error(str(problem), "oidc", "client_secret_file") from None
    return OidcSettings(
        found.issuer,
        found.client_id,
        secret,
        found.choice(roles),
        tuple(dict.fromkeys(("openid", *found.scopes))),
        found.user_claim,
        found.groups_claim,
        found.audiences,
        folder / found.ca if found.ca else None,
        found.name,
    )


def _proxy(found: _ProxySection, roles: Mapping[str, Role]) -> ProxySettings:
    return ProxySettings(found.addresses, found.user_header, found.groups_header, found.choice(roles))
