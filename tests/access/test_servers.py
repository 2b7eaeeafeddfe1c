"""Real servers: HTTP with TLS and a renewed certificate, the service Matrix with tokens and certificates."""

from __future__ import annotations

import http.client
import os
import shutil
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from artimon.access.authenticator import Authenticator
from artimon.access.principal import Area
from artimon.api.api_server import ApiServer
from artimon.api.app import make_app
from artimon.api.matrix_service import MatrixServer, idl
from artimon.model.clock import ManualClock
from artimon.runtime.settings import SettingsError
from bookkeeper.rpc.framed_server import FramedClient
from bookkeeper.rpc.security import Security
from bookkeeper.rpc.tls import Tls, TlsFiles, names_of
from tests.access.asgi_client import ACCESS, opened
from tests.access.conftest import basic
from tests.api.serving import NOW, STATUS, small_store
from tests.security.certificates import Authority, Pair

QUERY = "fetch('http.requests')"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates") / "ca")


def get(port: int, path: str, authority: Authority, headers: dict[str, str]) -> tuple[int, bytes]:
    context = ssl.create_default_context(cafile=authority.certificate)
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_https_with_a_login_and_a_certificate_that_is_renewed(authority: Authority, tmp_path: Path) -> None:
    first, second = authority.sign("first"), authority.sign("second")
    for pair in (first,):
        shutil.copy(pair.certificate, tmp_path / "api.pem")
        shutil.copy(pair.key, tmp_path / "api.key")
    access = opened(f"tls: {{certificate: api.pem, key: api.key}}\n{ACCESS}", tmp_path)
    app = make_app(small_store(), lambda _: STATUS, ManualClock(NOW), access=access)
    server = ApiServer(app, host="0.0.0.0")
    server.start()
    try:
        assert get(server.port, "/api/names", authority, {})[0] == 401
        assert get(server.port, "/api/names", authority, basic("vera"))[0] == 200
        with pytest.raises((OSError, http.client.HTTPException)):
            without_tls(server.port)
        assert common_name(server.port, authority) == "first"
        shutil.copy(second.certificate, tmp_path / "api.pem")
        shutil.copy(second.key, tmp_path / "api.key")
        os.utime(tmp_path / "api.pem", (1, 1))
        server.host = "127.0.0.1"  # the health check asks itself
        assert server.problem() == ""
        assert common_name(server.port, authority) == "second"
        (tmp_path / "api.pem").write_text("half a certificate")
        assert server.problem() == ""
        assert common_name(server.port, authority) == "second"
    finally:
        server.stop()
    with pytest.raises(SettingsError, match="PEM files that belong together"):
        ApiServer(app, host="0.0.0.0")


def without_tls(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/api/health")
        connection.getresponse()
    finally:
        connection.close()


def common_name(port: int, authority: Authority) -> str:
    context = ssl.create_default_context(cafile=authority.certificate)
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context)
    connection.connect()
    try:
        return names_of(connection.sock.getpeercert())[-1]
    finally:
        connection.close()


@contextmanager
def matrix(access: Authenticator, security: Security | None = None) -> Iterator[int]:
    """The service over the small store; the executor runs in the server of HTTP."""
    app = make_app(small_store(), lambda _: STATUS, ManualClock(NOW), access=access)
    server, matrices = ApiServer(app), MatrixServer(app.state.desk, access=access, security=security)
    server.start()
    try:
        matrices.start()
        yield matrices.port
    finally:
        matrices.stop()
        server.stop()


def refused(thrift: Any, method: str, *given: object) -> str:
    with pytest.raises(idl().Refused) as caught:
        thrift.call(method, *given)
    return str(caught.value.reason)


def test_the_service_matrix_knows_the_tokens(access: Authenticator) -> None:
    assert access.tokens is not None
    record, text = access.tokens.create("perl", "shop", NOW)
    _, other = access.tokens.create("alerts", "viewer", NOW, scopes=[])
    with matrix(access) as port, FramedClient(idl().Matrix, "127.0.0.1", port, 20) as thrift:
        assert refused(thrift, "query", QUERY, 0) == "unauthorized"
        assert refused(thrift, "fetch", "http.requests", {}, 600_000) == "unauthorized"
        assert refused(thrift, "authenticate", "artimon_000000000000_" + "A" * 43) == "unauthorized"
        assert refused(thrift, "query", QUERY, 0) == "unauthorized"
        thrift.call("authenticate", text)
        assert [row.labels for row in thrift.call("query", QUERY, 0).rows] == [{"route": "/a"}]
        assert len(thrift.call("fetch", "http.requests", {}, 600_000).rows) == 1
        with FramedClient(idl().Matrix, "127.0.0.1", port, 20) as second:
            assert refused(second, "query", QUERY, 0) == "unauthorized"  # another connection
            second.call("authenticate", other)
            assert len(second.call("query", QUERY, 0).rows) == 2
        access.tokens.revoke(record.id)
        assert refused(thrift, "query", QUERY, 0) == "unauthorized"


def test_a_token_without_the_scope_of_data_is_refused(access: Authenticator) -> None:
    assert access.tokens is not None
    _, text = access.tokens.create("alerts", "viewer", NOW, scopes=[Area.ALERTS])
    with matrix(access) as port, FramedClient(idl().Matrix, "127.0.0.1", port, 20) as thrift:
        thrift.call("authenticate", text)
        assert refused(thrift, "query", QUERY, 0) == "forbidden"


def test_a_certificate_names_a_user(authority: Authority, tmp_path: Path) -> None:
    server, perl, unknown = authority.sign("server"), authority.sign("perl-client"), authority.sign("unknown-client")
    text = ACCESS.replace("- name: sam\n", "- name: sam\n  certificates: [perl-client]\n")
    access = opened(text, tmp_path)

    def security(pair: Pair) -> Security:
        return Security(Tls(TlsFiles(pair.certificate, pair.key, authority.certificate)))

    with matrix(access, security(server)) as port:
        with FramedClient(idl().Matrix, "127.0.0.1", port, 20, security=security(perl)) as thrift:
            assert [row.labels for row in thrift.call("query", QUERY, 0).rows] == [{"route": "/a"}]
        with FramedClient(idl().Matrix, "127.0.0.1", port, 20, security=security(unknown)) as thrift:
            assert refused(thrift, "query", QUERY, 0) == "unauthorized"
        with pytest.raises(OSError), FramedClient(idl().Matrix, "127.0.0.1", port, 5) as thrift:
            thrift.call("query", QUERY, 0)
