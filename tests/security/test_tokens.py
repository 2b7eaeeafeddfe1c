"""A shared token: proven by both sides, never sent, replaced while everything runs."""

from __future__ import annotations

import itertools
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from thriftpy2.thrift import TApplicationException

from bookkeeper.rpc import tokens as module
from bookkeeper.rpc.framed_client import ConnectionLostError
from bookkeeper.rpc.framed_server import FramedClient, FramedError, encode_call
from bookkeeper.rpc.security import Security, SecurityConfigError, UnauthorizedError
from bookkeeper.rpc.tokens import ServerHello, Tokens
from tests.security.certificates import Authority, Pair
from tests.security.serving import caller, certificates, idl, raw, serving, tokens, write_tokens
from tests.waiting import eventually

ONE, TWO = "the first token of this test", "the second token of this test"


@pytest.fixture(autouse=True)
def _look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFRESH_PERIOD_S", 0.0)


def test_who_knows_the_token_is_let_in_and_nobody_else(tmp_path: Path) -> None:
    with serving(tokens(tmp_path / "server", ONE, TWO)) as server:
        for number, token in enumerate((ONE, TWO)):
            with caller(server, tokens(tmp_path / f"client{number}", token)) as calls:
                calls.nothing()
                assert calls.blob(100_000) == b"x" * 100_000
        wrong = caller(server, tokens(tmp_path / "wrong", "some other token"))
        with wrong as calls, pytest.raises(UnauthorizedError, match="refuses our token"):
            calls.nothing()
        with caller(server, None) as calls, pytest.raises(TApplicationException, match="ARTIMON_TOKENS"):
            calls.nothing()
        eventually(lambda: server.unauthorized == 2, "both are counted")


def test_a_server_that_does_not_know_it_is_not_believed(tmp_path: Path) -> None:
    client_side = tokens(tmp_path / "client", ONE)
    unaware = pytest.raises(UnauthorizedError, match="does not use tokens")
    with serving(None) as server, caller(server, client_side) as calls, unaware:
        calls.nothing()
    liar = Security(tokens=Tokens(str(tmp_path / "client")))
    liar.server_hello = lambda: _Liar(Tokens(str(tmp_path / "client")))  # type: ignore[method-assign]
    stranger = pytest.raises(UnauthorizedError, match="not one of ours")
    with serving(liar) as server, caller(server, client_side) as calls, stranger:
        calls.nothing()


class _Liar(ServerHello):
    """Takes anybody, and cannot prove anything."""

    def _token(self, proof: bytes) -> bytes:
        return b"whatever it is, I take it"


def test_the_token_does_not_travel_and_what_does_is_good_for_one_connection(tmp_path: Path) -> None:
    """A recorded hello cannot be replayed."""
    heard: list[bytes] = []
    with serving(tokens(tmp_path / "server", ONE)) as server, socket.create_server(("127.0.0.1", 0)) as listener:

        def listen() -> None:
            peer, _ = listener.accept()
            with peer, raw(server) as onward:
                for _ in range(3):
                    heard.append(peer.recv(65536))
                    onward.sendall(heard[-1])
                    answer = onward.recv(65536)
                    heard.append(answer)
                    peer.sendall(answer)

        thread = threading.Thread(target=listen)
        thread.start()
        client_side = tokens(tmp_path / "client", ONE)
        FramedClient(idl().Echo, "127.0.0.1", listener.getsockname()[1], security=client_side).nothing()
        thread.join(60)
        assert len(heard) == 6
        assert not any(ONE.encode() in piece for piece in heard)
        with raw(server) as replay:
            replay.sendall(heard[0])
            replay.recv(65536)
            replay.sendall(heard[2])
            assert b"this server does not have it" in replay.recv(65536)
            assert replay.recv(1) == b""


def test_a_revoked_token_is_out_at_once_and_a_new_one_in(tmp_path: Path) -> None:
    path = tmp_path / "server"
    with serving(tokens(path, ONE)) as server:
        with caller(server, tokens(tmp_path / "one", ONE)) as calls:
            calls.nothing()
            write_tokens(path, TWO, ONE)
            with pytest.raises(ConnectionLostError):
                calls.nothing()  # tokens changed: every connection must be made again
            calls.nothing()
            write_tokens(path, TWO)
            with pytest.raises(FramedError):
                calls.nothing()
            with pytest.raises(UnauthorizedError):
                calls.nothing()
        with caller(server, tokens(tmp_path / "two", TWO)) as calls:
            calls.nothing()


def test_before_it_is_proven_only_small_frames_are_read_and_not_for_long(tmp_path: Path) -> None:
    with serving(tokens(tmp_path / "server", ONE), handshake_timeout=0.3) as server:
        with raw(server) as sock:
            sock.sendall(encode_call(idl().Echo, "length", (b"x" * 10_000,), 1))
            with suppress(ConnectionResetError):
                assert sock.recv(1) == b""
        with raw(server) as sock:
            assert sock.recv(1) == b"", "it said nothing"
        with caller(server, tokens(tmp_path / "client", ONE)) as calls:
            calls.nothing()


def test_tokens_and_certificates_together(
    tmp_path: Path, authority: Authority, server_pair: Pair, agent_pair: Pair
) -> None:
    def both(pair: Pair, name: str, token: str) -> Security:
        return Security(certificates(authority, pair).tls, tokens(tmp_path / name, token).tokens)

    with serving(both(server_pair, "server", ONE)) as server:
        with caller(server, both(agent_pair, "client", ONE)) as calls:
            assert calls.blob(200_000) == b"x" * 200_000
        with caller(server, both(agent_pair, "wrong", TWO)) as calls, pytest.raises(UnauthorizedError):
            calls.nothing()
        with caller(server, certificates(authority, agent_pair)) as calls, pytest.raises(TApplicationException):
            calls.nothing()


def test_a_change_to_tokens_needs_no_moment_at_which_all_restart(tmp_path: Path) -> None:
    def works(server_mode: str | None, client_mode: str | None) -> bool:
        server_side = tokens(tmp_path / "server", ONE, mode=server_mode) if server_mode else None
        client_side = tokens(tmp_path / "client", ONE, mode=client_mode) if client_mode else None
        with serving(server_side) as server, caller(server, client_side, 5.0) as calls:
            try:
                calls.nothing()
            except (FramedError, TApplicationException):
                return False
            return True

    steps = [None, "accept", "prefer", "require"]
    for one, other in itertools.pairwise(steps):
        assert works(one, other), (one, other)
        assert works(other, one), (other, one)
    assert not works("require", None)


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        pytest.param("short", 0o600, "at least 16", id="short"),
        pytest.param("# nothing\n", 0o600, "at least 16", id="empty"),
        pytest.param(ONE, 0o644, "chmod 640", id="open_to_others"),
    ],
)
def test_files_that_are_not_used(tmp_path: Path, text: str, mode: int, said: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    path.chmod(mode)
    with pytest.raises(SecurityConfigError, match=said):
        Tokens(str(path))
    with pytest.raises(SecurityConfigError):
        Tokens(str(tmp_path / "missing"))
