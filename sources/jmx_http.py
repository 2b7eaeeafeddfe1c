"""Asks a bean server for its beans: GET, once for each domain that has rules."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from sources.http_client import Question, ask
from sources.jmx_target import JmxTarget

_JSON = "application/json"


async def ask_beans(target: JmxTarget, ip: str, queries: Sequence[str], limit: int) -> list[bytes]:
    """The body of each answer, `limit` bytes at most. PollError with the reason; the caller has the deadline."""
    paths = [target.path] if "?" in target.path else [f"{target.path}?qry={quote(q, safe='*:,=')}" for q in queries]
    return [(await ask(Question(target.address, path, _JSON), ip, target.port, limit)).body for path in paths]
