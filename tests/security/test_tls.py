"""Certificates on both sides: who is let in, who is believed, and how they are replaced while everything runs."""

from __future__ import annotations

import itertools
import shutil
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import pytest

from bookkeeper.rpc import tls
from bookkeeper.rpc.framed_client import CallTimeoutError, ConnectionLostError
from bookkeeper.rpc.framed_server import FramedError
from bookkeeper.rpc.security import Security, SecurityConfigError, UnauthorizedError, security_from_settings
from bookkeeper.rpc.tls import Tls, TlsFiles
from tests.security.certificates import Authority, Pair
from tests.security.serving import caller, certificates, raw, serving
from tests.waiting import eventually

MiB = 1 << 20


@pytest.fixture(autouse=True)
def _look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "REFRESH_PERIOD_S", 0.0)


def test_calls_go_through_whatever_their_size(authority: Authority, server_pair: Pair, agent_pair: Pair) -> None:
    with serving(certificates(authority, server_pair), max_frame=16 * MiB) as server:
        with caller(server, certificates(authority, agent_pair)) as calls:
            assert calls.blob(0) == b""
            assert calls.blob(5 * MiB) == b"x" * 5 * MiB
            assert calls.length(b"y" * 9 * MiB) == 9 * MiB
            assert calls.connected
            sent = calls.begin_call("blob", 300_000)
            eventually(sent.receive_available, "the reply comes without waiting for it")
            assert len(sent.result()) == 300_000
        assert (server.accepted, server.unauthorized) == (1, 0)


@pytest.mark.parametrize("who", ["nobody", "stranger", "expired", "other_name"])
def test_who_is_not_let_in(who: str, authority: Authority, server_pair: Pair, agent_pair: Pair, tmp_path: Path) -> None:
    """Others are served meanwhile."""
    server_side = certificates(authority, server_pair, peers=("agent-*.artimon",))
    with serving(server_side) as server, caller(server, certificates(authority, agent_pair)) as good:
        good.nothing()
        with pytest.raises(FramedError):
            _bad_caller(who, authority, tmp_path, server)
        eventually(lambda: server.unauthorized == 1, "it is counted")
        good.nothing()
        assert server.accepted == 2, "the good one kept its connection"


def _bad_caller(who: str, authority: Authority, folder: Path, server: object) -> None:
    security: Security | None = None
    if who == "stranger":
        other = Authority(folder / "other")
        pair = other.sign("agent-1", "DNS:agent-1.artimon")
        security = certificates(authority, pair)
    elif who == "expired":
        security = certificates(authority, authority.sign("agent-old", "DNS:agent-old.artimon", expired=True))
    elif who == "other_name":
        security = certificates(authority, authority.sign("web-1", "DNS:web-1.shop"))
    with caller(server, security) as calls:  # type: ignore[arg-type]
        calls.nothing()


@pytest.mark.parametrize("what", ["wrong_ca", "wrong_name", "expired", "plain"])
def test_a_server_that_is_not_the_one_is_not_believed(
    what: str, authority: Authority, server_pair: Pair, agent_pair: Pair, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other")
    made: dict[str, Callable[[], Security | None]] = {
        "wrong_ca": lambda: certificates(other, other.sign("collector-1")),
        "wrong_name": lambda: certificates(authority, authority.sign("someone", "DNS:someone.else")),
        "expired": lambda: certificates(authority, authority.sign("collector-old", expired=True)),
        "plain": lambda: None,
    }
    with (
        serving(made[what]()) as server,
        caller(server, certificates(authority, agent_pair)) as calls,
        pytest.raises((UnauthorizedError, ConnectionLostError, CallTimeoutError)),
    ):
        calls.nothing()


def test_servers_may_be_known_by_a_common_name_instead_of_their_addresses(
    authority: Authority, agent_pair: Pair
) -> None:
    pair = authority.sign("collector-2", "DNS:collector.artimon")
    with serving(certificates(authority, pair)) as server:
        with (
            caller(server, certificates(authority, agent_pair)) as calls,
            pytest.raises(UnauthorizedError, match="127"),
        ):
            calls.nothing()
        with caller(server, certificates(authority, agent_pair, name="collector.artimon")) as calls:
            calls.nothing()


def test_a_revoked_certificate_is_out_at_once(authority: Authority, server_pair: Pair) -> None:
    """Also on the connection that it has."""
    pair = authority.sign("agent-9", "DNS:agent-9.artimon")
    with (
        serving(certificates(authority, server_pair, revoked=authority.crl())) as server,
        caller(server, certificates(authority, pair)) as calls,
    ):
        calls.nothing()
        authority.crl(pair)
        with pytest.raises(FramedError):
            calls.nothing()
        with pytest.raises(FramedError):
            calls.nothing()
        eventually(lambda: server.unauthorized == 2, "both are counted")


def test_certificates_are_replaced_without_a_restart(tmp_path: Path, authority: Authority, agent_pair: Pair) -> None:
    """Connections go on with the old one, new ones get the new one; a half-written file changes nothing."""
    used = Pair(str(tmp_path / "server.pem"), str(tmp_path / "server.key"))

    def use(pair: Pair) -> None:
        shutil.copy(pair.key, used.key)
        shutil.copy(pair.certificate, used.certificate)

    use(authority.sign("first"))
    with serving(certificates(authority, used)) as server:
        with caller(server, certificates(authority, agent_pair)) as calls:
            calls.nothing()
            Path(used.certificate).write_text("half of a certif")
            calls.nothing()
            assert shown(server.port, authority, agent_pair) == "first", "the former goes on"
            use(authority.sign("second"))
            calls.nothing()
            assert shown(server.port, authority, agent_pair) == "second"
        assert server.accepted == 3


def shown(port: int, authority: Authority, pair: Pair) -> str:
    """The common name in the certificate that a server shows."""
    context = ssl.create_default_context(cafile=authority.certificate)
    context.load_cert_chain(pair.certificate, pair.key)
    with (
        socket.create_connection(("127.0.0.1", port), 10) as sock,
        context.wrap_socket(sock, server_hostname="127.0.0.1") as wrapped,
    ):
        found = wrapped.getpeercert()
        assert found is not None
        return tls.names_of(found)[-1]


def test_a_slow_handshake_is_closed_at_its_deadline(authority: Authority, server_pair: Pair, agent_pair: Pair) -> None:
    """Trickled byte by byte, it does not live longer; nobody else waits for it."""
    server_side = certificates(authority, server_pair)
    with serving(server_side, handshake_timeout=0.5) as server, raw(server) as slow:
        began, ended = perf_counter(), threading.Event()

        def trickle() -> None:
            hello = bytes.fromhex("16030100c8010000c40303") + b"x" * 189
            try:
                for n in range(len(hello)):
                    slow.sendall(hello[n : n + 1])
                    if ended.wait(0.2):
                        return
            except OSError:
                ended.set()

        thread = threading.Thread(target=trickle)
        thread.start()
        with caller(server, certificates(authority, agent_pair)) as calls:
            calls.nothing()
            eventually(lambda: server.unauthorized == 1, "it is closed")
            assert perf_counter() - began < 15.0
            calls.nothing()
        ended.set()
        thread.join(60)


def test_a_client_does_not_wait_longer_than_it_was_told(authority: Authority, agent_pair: Pair) -> None:
    """For a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        from bookkeeper.rpc.framed_server import FramedClient
        from tests.security.serving import idl

        security = certificates(authority, agent_pair)
        calls = FramedClient(idl().Echo, "127.0.0.1", listener.getsockname()[1], 0.3, security=security)
        began = perf_counter()
        with pytest.raises(CallTimeoutError):
            calls.nothing()
        assert perf_counter() - began < 15.0


def test_a_change_to_certificates_needs_no_moment_at_which_all_restart(
    authority: Authority, server_pair: Pair, agent_pair: Pair
) -> None:
    """accept everywhere, then prefer, then require: at every step neighbours understand each other."""

    def works(server_mode: str | None, client_mode: str | None) -> bool:
        server_side = certificates(authority, server_pair, server_mode) if server_mode else None
        client_side = certificates(authority, agent_pair, client_mode) if client_mode else None
        with serving(server_side) as server, caller(server, client_side, 5.0) as calls:
            try:
                calls.nothing()
            except FramedError:
                return False
            return True

    steps = [None, "accept", "prefer", "require"]
    for one, other in itertools.pairwise(steps):
        assert works(one, other), (one, other)
        assert works(other, one), (other, one)
    assert not works("require", None)
    assert not works("require", "accept")


def test_settings(tmp_path: Path, authority: Authority, server_pair: Pair) -> None:
    assert security_from_settings({}) is None
    files = {
        "ARTIMON_TLS_CERT": server_pair.certificate,
        "ARTIMON_TLS_KEY": server_pair.key,
        "ARTIMON_TLS_CA": authority.certificate,
    }
    made = security_from_settings({**files, "ARTIMON_TLS_PEERS": "a*, b", "ARTIMON_SECURITY": "prefer"})
    assert made is not None
    assert made.tls is not None
    assert (made.mode, made.tls._files.peers) == ("prefer", ("a*", "b"))
    for bad, said in (
        ({"ARTIMON_TLS_CERT": "x"}, "ARTIMON_TLS_KEY"),
        ({**files, "ARTIMON_SECURITY": "maybe"}, "accept, prefer, require"),
        ({**files, "ARTIMON_TLS_KEY": str(tmp_path / "none")}, "none"),
        ({"ARTIMON_SECURITY": "require"}, "has no effect"),
    ):
        with pytest.raises(SecurityConfigError, match=said):
            security_from_settings(bad)


def test_a_certificate_that_ends_while_its_connection_lives(
    authority: Authority, server_pair: Pair, agent_pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        serving(certificates(authority, server_pair)) as server,
        caller(server, certificates(authority, agent_pair)) as calls,
    ):
        calls.nothing()
        monkeypatch.setattr(tls, "now_ms", lambda: 4_000_000_000_000)
        with pytest.raises(ConnectionLostError):
            calls.nothing()
        eventually(lambda: server.unauthorized == 1, "it is counted")


def test_the_key_must_fit_the_certificate(authority: Authority, server_pair: Pair, agent_pair: Pair) -> None:
    with pytest.raises(SecurityConfigError, match="belong together"):
        Tls(TlsFiles(server_pair.certificate, agent_pair.key, authority.certificate))
