"""Options of components: the base class, and sets that several components reuse."""

from __future__ import annotations

import os
from collections.abc import Iterable

from pydantic import Field

from artimon.runtime.config_model import Section


class Options(Section):
    """Base of all option sets."""


class NoOptions(Options):
    """Options of a component that has none."""


class ServerOptions(Options):
    """Options of a server. `host`: 127.0.0.1 by default; `port` 0: any free port."""

    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65_535)
    connections: int = Field(default=64, ge=1, le=10_000)
    idle_s: float = Field(default=300.0, gt=0)


class FramedOptions(ServerOptions):
    """Options of a framed Thrift server. `request_s`: timeout of one call in seconds; `held_bytes`: limit of the bytes
    of all calls together."""

    held_bytes: int = Field(default=32 * 1024 * 1024, ge=1024 * 1024)
    request_s: float = Field(default=30.0, gt=0, le=300)


def is_below(path: str, folders: Iterable[str]) -> bool:
    """True if the real path, with links resolved, is one of the folders or below one; also without any folders."""
    allowed = list(folders)
    real = os.path.realpath(path)
    return not allowed or any(os.path.commonpath((real, one)) == one for one in map(os.path.realpath, allowed))
