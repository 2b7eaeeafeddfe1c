"""A bean server that an agent polls: `CONTEXT=http://HOST:PORT/jmx`, or CONTEXT/INSTANCE where a host has several."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from sources.errors import TargetError
from sources.target import joined

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,99}")
_PRINTABLE = re.compile(r"[\x21-\x7e]{1,2000}")
_WANTED = "write CONTEXT=http://HOST:PORT/jmx, or CONTEXT/INSTANCE=…"


@dataclass(frozen=True, slots=True)
class JmxTarget:
    """Where the beans of one process are, and the labels `context` and `instance` of its variables."""

    context: str
    host: str
    """Name or address, IPv6 without brackets."""
    port: int
    path: str = "/jmx"
    """With a `?`, it is asked as it stands; without one, for each domain that has rules."""
    instance: str = "0"

    rule_sets: tuple[str, ...] = ("jvm", "hdfs", "hbase")
    """Shipped mapping rules that are used beside those of the agent."""

    @property
    def kind(self) -> str:
        return "jmx"

    @property
    def identity(self) -> list[str]:
        return [self.context, self.instance, self.url]

    @property
    def labels(self) -> Mapping[str, str]:
        return {"context": self.context, "instance": self.instance}

    def source(self, host: str) -> str:
        return f"jmx/{self.context}/{host}/{self.instance}"

    @property
    def address(self) -> str:
        return joined(self.host, self.port)

    @property
    def url(self) -> str:
        return f"http://{self.address}{self.path}"

    def __str__(self) -> str:
        return f"{self.context}/{self.instance} at {self.url}"


def parse_target(text: str) -> JmxTarget:
    """Raises TargetError.

    >>> parse_target("hdfs-namenode=http://127.0.0.1:9870/jmx").url
    'http://127.0.0.1:9870/jmx'
    """
    name, equals, url = text.partition("=")
    context, slash, instance = name.partition("/")
    if not equals or not _WORD.fullmatch(context) or (slash and not _WORD.fullmatch(instance)):
        raise TargetError(f"{text!r:.200}: {_WANTED}")
    if not _PRINTABLE.fullmatch(url):
        raise TargetError(f"{text!r:.200}: the URL has other than printable ASCII; {_WANTED}")
    try:
        parts = urlsplit(url)
        port = parts.port or 80
    except ValueError as error:
        raise TargetError(f"{text!r:.200}: {error}") from error
    if parts.scheme != "http" or not parts.hostname or parts.username is not None or parts.fragment:
        raise TargetError(f"{text!r:.200}: plain http, without user or fragment; {_WANTED}")
    path = (parts.path or "/jmx") + (f"?{parts.query}" if parts.query else "")
    return JmxTarget(context, parts.hostname, port, path, instance or "0")
