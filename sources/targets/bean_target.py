"""Bean server that an agent polls: a `/jmx` page, or a Jolokia agent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from sources.base.source_errors import TargetError
from sources.targets.credentials import CredentialFiles
from sources.targets.http_target import HttpTarget

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,99}")
_PRINTABLE = re.compile(r"[\x21-\x7e]{1,2000}")
_WANTED = "write CONTEXT=http://HOST:PORT/jmx, or CONTEXT/INSTANCE=…"


@dataclass(frozen=True, slots=True)
class BeanTarget(HttpTarget):
    """Address of the beans of one process, and the labels `context` and `instance` of its variables."""

    context: str
    host: str
    """Name or address, IPv6 without brackets."""
    port: int
    path: str = "/"
    instance: str = "0"
    rule_sets: tuple[str, ...] = ()
    """Shipped mapping rules used in addition to those of the agent."""

    @property
    def identity(self) -> list[str]:
        return [self.context, self.instance, self.url]

    @property
    def labels(self) -> Mapping[str, str]:
        return {"context": self.context, "instance": self.instance}

    def source(self, host: str) -> str:
        """Return a name that does not depend on the protocol, so that series stay when it changes."""
        return f"jmx/{self.context}/{host}/{self.instance}"

    def __str__(self) -> str:
        return f"{self.context}/{self.instance} at {self.url}"


@dataclass(frozen=True, slots=True)
class JmxTarget(BeanTarget):
    """Hadoop `/jmx` page."""

    kind = "jmx"
    scheme = "http"
    path: str = "/jmx"
    """A path with `?` is requested unchanged; else there is one query for each domain that has rules."""
    rule_sets: tuple[str, ...] = ("jvm", "hdfs", "hbase")


@dataclass(frozen=True, slots=True)
class JolokiaTarget(BeanTarget):
    """Jolokia agent."""

    kind = "jolokia"
    path: str = "/jolokia"
    rule_sets: tuple[str, ...] = ("jvm", "kafka", "zookeeper", "spark", "hbase", "hdfs")
    scheme: str = "http"
    access: CredentialFiles = field(default_factory=CredentialFiles)
    bulk: bool = True
    """True for one POST of all requests; False for one GET each, as some servers allow only GET."""


def parse_target(text: str) -> JmxTarget:
    """Parse `CONTEXT=http://HOST:PORT/jmx`, or `CONTEXT/INSTANCE=…` if a host has several. Raises TargetError.

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
