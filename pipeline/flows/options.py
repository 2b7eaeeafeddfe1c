"""Options of components: what every set shares, and sets that several components reuse."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Options(BaseModel):
    """Base of all option sets: a name that is not known is an error, and nothing changes once it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Server(Options):
    """Options of what listens. `host` 127.0.0.1 unless told otherwise; `port` 0 is any that is free."""

    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65_535)
    connections: int = Field(default=64, ge=1, le=10_000)
    idle_s: float = Field(default=300.0, gt=0)


class FramedOptions(Server):
    """Options of what answers framed Thrift. `request_s`: the time that one call may take; `held_bytes`: of all calls
    together."""

    held_bytes: int = Field(default=32 * 1024 * 1024, ge=1024 * 1024)
    request_s: float = Field(default=30.0, gt=0, le=300)
