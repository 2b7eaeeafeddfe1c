"""Requests of one shard to another: its snapshot of virtual shards, part by part, and its status."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

from thriftpy2.thrift import TException

from artimon.model.vshards import to_hex
from artimon.runtime.settings import security
from bookkeeper.rpc.framed_server import FramedClient, FramedError
from varstore.cluster.cluster_directory import ShardAddress
from varstore.shard.shard_service import idl

PART_TIMEOUT_S = 30.0
MAX_PART = 128 << 20


class PeerError(RuntimeError):
    """The other shard did not send its whole snapshot, or did not answer. The text says which and why."""


def fetch_status(place: ShardAddress, timeout_s: float) -> dict[str, Any]:
    """Return `Shard.status` of another process. Raises PeerFailed."""
    try:
        with FramedClient(idl().Shard, place.host, place.port, timeout_s, security=security()) as client:
            found: dict[str, Any] = json.loads(client.call("status"))
            return found
    except (OSError, FramedError, TException, ValueError) as error:
        raise PeerError(f"shard {place.id} at {place.host}:{place.port} does not answer: {error!r}") from error


def fetch_snapshot(place: ShardAddress, vshards: int) -> Generator[bytes, None, None]:
    """Yield the parts of its snapshot of these virtual shards (mask), until closed. Raises PeerFailed."""
    try:
        peer = FramedClient(
            idl().Shard, place.host, place.port, PART_TIMEOUT_S, max_frame=MAX_PART, security=security()
        )
        with peer as client:
            yield from _parts(client, vshards)
    except idl().ShardError as error:
        raise PeerError(f"shard {place.id} refuses to send its snapshot: {error.message}") from error
    except (OSError, FramedError, TException, ValueError, KeyError) as error:
        raise PeerError(f"shard {place.id} did not send its snapshot: {error!r}") from error


def _parts(client: FramedClient, vshards: int) -> Generator[bytes, None, None]:
    image = json.loads(client.call("export_begin", to_hex(vshards)))["id"]
    try:
        part = 0
        while data := client.call("export_next", image, part):
            yield data
            part += 1
    finally:
        client.call("export_end", image)
