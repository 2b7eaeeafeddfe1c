"""Access files: every error with its place, and what a good one says; and the refusal to listen without protection."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from artimon.access.access_file import Access, build_access, read_access
from artimon.access.authenticator import open_access
from artimon.access.principal import LIMITED, Level
from artimon.api.api_limits import HARD_FACTORS, ApiLimits
from artimon.api.api_server import ApiServer
from artimon.api.app import make_app
from artimon.api.matrix_service import MatrixServer
from artimon.model.clock import ManualClock
from artimon.runtime.config_file import ConfigFileError, parse_config
from artimon.runtime.exposure import UnprotectedError
from artimon.runtime.settings import SettingsError
from tests.access.asgi_client import ACCESS, HASH, opened
from tests.api.serving import NOW, STATUS, small_store


def parse(text: str, folder: Path) -> Access:
    return build_access(parse_config(text, "access.yaml"), folder)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "access.yaml:1:1: no login is possible"),
        ("foo: 1", "access.yaml:1:1: foo: unknown key"),
        (
            "users:\n- name: a\n  role: viwer\n  password: x",
            "access.yaml:3:9: users[0].role: unknown role",
        ),
        ("users:\n- name: a\n  role: viewer\n  password: hunter2", "access.yaml:4:13: users[0].password: not a hash"),
        ("users:\n- name: a\n  role: viewer", "access.yaml:2:3: users[0]: write a password"),
        (f"users:\n- {{name: 'a:b', role: viewer, password: '{HASH}'}}", "a name with a password has no colon"),
        (f"users:\n- &a {{name: a, role: viewer, password: '{HASH}'}}", "anchors and aliases"),
        ("tokens: t\nroles:\n- name: r", "access.yaml:3:3: roles[0].level: missing: write viewer, editor or admin"),
        ("tokens: t\nroles:\n- {name: r, level: boss}", "roles[0].level: 'boss': write viewer or editor or admin"),
        ("tokens: t\nroles:\n- name: r\n  level: viewer\n  sees: '{a=~\"(\"}'", "access.yaml:5:14: roles[0].sees"),
        ("tokens: t\nroles:\n- name: r\n  level: viewer\n  sees: '{a=b'", "access.yaml:5:"),
        ("tokens: t\nroles:\n- {name: r, level: viewer, limits: {seris: 1}}", "unknown limit; did you mean series?"),
        ("tokens: t\nroles:\n- {name: r, level: viewer, limits: {series: -1}}", "write a number greater than 0"),
        ("tokens: t\nroles:\n- {name: r, level: viewer}\n- {name: r, level: viewer}", "r is defined a second time"),
        ("proxy: {addresses: [nowhere]}", "proxy.addresses[0]: 'nowhere': write an address or a network"),
        ("proxy: {addresses: []}", "proxy.addresses: is empty"),
        ("proxy: {addresses: [10.0.0.1], user_header: 'a b'}", "write the name of a header"),
        ("proxy: {addresses: [10.0.0.1], roles: {dev: wizard}}", "proxy.roles.dev: unknown role"),
        ("url: ftp://a\ntokens: t", "access.yaml:1:6: url: 'ftp://a': write an address"),
        ("oidc: {issuer: 'https://a', client_id: a, client_secret_file: s}", "oidc needs url"),
        ("url: https://a\noidc: {issuer: 'http://8.8.8.8', client_id: a, client_secret_file: s}", "with https"),
        ("url: https://a\noidc: {issuer: 'https://a', client_id: a, client_secret_file: none}", "client_secret_file"),
        ("tokens: t\nsessions: {length: soon}", "sessions.length"),
        ("tokens: t\naudit: {file: a, files: 0}", "audit.files"),
    ],
)
def test_errors_tell_place_and_remedy(text: str, error: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigFileError) as caught:
        parse(text, tmp_path)
    assert error in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_paths_are_relative_to_the_file_and_roles_may_be_replaced(tmp_path: Path) -> None:
    file = tmp_path / "access.yaml"
    file.write_text("tokens: t.json\nroles:\n- {name: viewer, level: viewer, queries: 2, sees: 'shop.*'}\n")
    found = read_access(file)
    assert found.tokens == tmp_path / "t.json"
    assert (found.roles["viewer"].queries, found.roles["viewer"].sees[0].op) == (2, "prefix")
    assert found.roles["admin"].level is Level.ADMIN


def test_a_user_may_have_limits_of_its_own(tmp_path: Path) -> None:
    text = f"users:\n- {{name: a, role: viewer, password: '{HASH}', limits: {{series: 5}}, queries: 1}}"
    user = parse(text, tmp_path).users["a"]
    assert (user.role.name, user.role.limits, user.role.queries) == ("viewer", {"series": 5.0}, 1)


def test_the_limits_of_roles_are_those_with_a_soft_and_a_hard_value() -> None:
    assert set(LIMITED) == set(HARD_FACTORS)
    assert set(LIMITED) <= {one.name for one in fields(ApiLimits)}


def test_an_error_of_the_file_is_one_of_the_settings(tmp_path: Path) -> None:
    assert open_access(None) is None
    with pytest.raises(SettingsError, match="cannot be read"):
        open_access(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "it has no login: give --access FILE"),
        (ACCESS, "would be sent in clear: write tls"),
        (f"url: http://m.example.org\n{ACCESS}", "would be sent in clear"),
        (f"url: https://m.example.org\n{ACCESS}", None),
    ],
)
def test_the_api_listens_beyond_loopback_with_login_and_tls_only(text: str, says: str | None, tmp_path: Path) -> None:
    access = opened(text, tmp_path) if text else None
    app = make_app(small_store(), lambda _: STATUS, ManualClock(NOW), access=access)
    if says is None:
        assert ApiServer(app, host="0.0.0.0").warnings == []
    else:
        with pytest.raises(UnprotectedError, match=says):
            ApiServer(app, host="0.0.0.0")
        assert ApiServer(app, host="0.0.0.0", insecure=True).warnings
    assert ApiServer(app).warnings == []


def test_the_service_matrix_listens_beyond_loopback_with_certificates_only(tmp_path: Path) -> None:
    access = opened(f"url: https://m.example.org\n{ACCESS}", tmp_path)
    app = make_app(small_store(), lambda _: STATUS, ManualClock(NOW), access=access)
    with pytest.raises(UnprotectedError, match="ARTIMON_TLS_CERT"):
        MatrixServer(app.state.desk, "0.0.0.0", access=access)
    assert MatrixServer(app.state.desk, access=access).warnings == []
