"""Ports: the wished one if free, else the next; two stacks never choose the same."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from artimon.stack.port_leases import MAX_TRIES, PortLeases, is_free
from artimon.stack.stack_errors import NoFreePortError


@pytest.fixture
def base() -> int:
    """A port away from the session's servers and below those that the kernel gives to clients' connections."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return 12_000 + int(probe.getsockname()[1]) % 8_000


def test_a_taken_port_is_passed_over(tmp_path: Path, base: int) -> None:
    leases = PortLeases(tmp_path)
    first = leases.lease(base)
    leases.release()
    with socket.socket() as server:
        server.bind(("127.0.0.1", first))
        server.listen()
        assert not is_free(first)
        assert PortLeases(tmp_path).lease(first) > first
    assert PortLeases(tmp_path).lease(first) == first


def test_two_stacks_never_choose_the_same(tmp_path: Path, base: int) -> None:
    one, other = PortLeases(tmp_path), PortLeases(tmp_path)
    chosen = [leases.lease(base) for leases in (one, other, one, other)]
    assert len(set(chosen)) == 4
    one.release()
    assert other.lease(base) == chosen[0]


def test_no_port_left_is_an_error_that_names_them(tmp_path: Path) -> None:
    with pytest.raises(NoFreePortError, match=rf"65536\.\.{65535 + MAX_TRIES}"):
        PortLeases(tmp_path).lease(65536)
