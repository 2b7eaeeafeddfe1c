"""Exposure rule for sources that listen."""

from __future__ import annotations

from typing import Any

from artimon.runtime.exposure import PROVE, Unprotected, require_protection
from artimon.runtime.settings import security
from pipeline.flows.context import INSECURE, Context
from pipeline.flows.options import FramedOptions, Server
from pipeline.flows.spi import FlowError

NO_LOGIN = "this kind of source has no login: listen on 127.0.0.1"


def check_source(options: Any, context: Context) -> list[str]:
    """Check the address of a source before it is built. Only the agent's command line can set `--insecure`, since a
    flow may come from ZooKeeper. Returns warnings. Raises FlowError."""
    if not isinstance(options, Server):
        return []
    framed = isinstance(options, FramedOptions)
    asks, remedy = (security(), PROVE) if framed else (None, NO_LOGIN)
    insecure = bool(context.shared.get(INSECURE))
    try:
        return require_protection(
            f"the source of flow {context.flow}", options.host, asks, insecure=insecure, remedy=remedy
        )
    except Unprotected as problem:
        raise FlowError(str(problem)) from None
