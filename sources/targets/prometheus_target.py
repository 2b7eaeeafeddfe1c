"""Prometheus page that an agent polls: address, labels and request settings."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from artimon.model.labels import LabelError, validate_labels
from sources.base.source_errors import TargetError
from sources.state.relabel import RelabelRule
from sources.targets.credentials import CredentialFiles
from sources.targets.http_target import HttpTarget, join_host_port

_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:\-]{0,99}")
_PRINTABLE = re.compile(r"[\x21-\x7e]{1,2000}")
_HOST = re.compile(r"[A-Za-z0-9_.:\-]{1,253}")
PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class ScrapeJob:
    """Common settings of the targets of a job."""

    name: str
    scheme: str = "http"
    path: str = "/metrics"
    labels: Mapping[str, str] = field(default_factory=dict)
    honor_labels: bool = False
    proxy: bool = False
    """True if the page shows counts of other processes: a series that appears later may have counted before."""
    access: CredentialFiles = field(default_factory=CredentialFiles)
    max_bytes: int = 16 << 20
    max_series: int = 50_000
    deadline_s: float | None = None
    period_ms: int | None = None
    """None: the period of all polls."""
    rules: tuple[RelabelRule, ...] = ()


@dataclass(frozen=True, slots=True)
class PrometheusTarget(HttpTarget):
    """One page. `instance` is unique within its job."""

    kind = "prometheus"
    job: ScrapeJob
    host: str
    port: int
    path: str
    scheme: str
    instance: str
    own_labels: Mapping[str, str] = field(default_factory=dict)
    twin: str = ""
    """Distinguishes targets of a job with the same instance; "" if there is one."""

    @property
    def identity(self) -> list[str]:
        return [self.job.name, self.instance + self.twin, self.url]

    @property
    def labels(self) -> Mapping[str, str]:
        given = {"context": self.job.name, **self.job.labels, **self.own_labels}
        return {**given, "job": given.get("job") or self.job.name, "instance": self.instance}

    def source(self, host: str) -> str:  # noqa: ARG002  # the instance already names the host
        return f"prometheus/{_escaped(self.job.name)}/{_escaped(self.instance)}{self.twin}"

    def __str__(self) -> str:
        return f"{self.job.name}/{self.instance} at {self.url}"


def parse_address(job: ScrapeJob, text: str, labels: Mapping[str, str]) -> PrometheusTarget:
    """Parse `HOST:PORT` or a URL, with labels as in the files of Prometheus: `__scheme__` and `__metrics_path__` are
    used, `instance` is the label, other names that begin with `__` are removed. Raises TargetError.

    >>> parse_address(ScrapeJob("node"), "[::1]:9100", {}).url
    'http://[::1]:9100/metrics'
    """
    shown = redact_url(text)
    scheme, path = labels.get("__scheme__", job.scheme), labels.get("__metrics_path__", job.path)
    url = text if "://" in text else f"{scheme}://{text}{path}"
    if not _PRINTABLE.fullmatch(url):
        raise TargetError(f"target {shown!r:.200}: want HOST:PORT, or a URL, in printable ASCII")
    try:
        parts = urlsplit(url)
        port = PORTS.get(parts.scheme, 0) if parts.port is None else parts.port
    except ValueError as error:
        raise TargetError(f"target {shown!r:.200}: {error}") from error
    if parts.scheme not in PORTS or not parts.hostname or parts.username is not None or parts.fragment:
        raise TargetError(
            f"target {shown!r:.200}: want HOST:PORT, or http(s)://HOST:PORT/path, without user or fragment"
        )
    own = {label: value for label, value in labels.items() if not label.startswith("__") and value}
    host = parts.hostname
    instance = own.pop("instance", join_host_port(host, port))
    path = (parts.path or job.path) + (f"?{parts.query}" if parts.query else "")
    made = PrometheusTarget(job, host, port, path, parts.scheme, instance, own)
    _validate(made, shown)
    return made


def redact_url(url: str) -> str:
    """Return the URL without user and password."""
    return re.sub(r"^([a-z]+://)?[^/@]*@", r"\1…@", url)


def _validate(made: PrometheusTarget, shown: str) -> None:
    try:
        validate_labels(made.labels)
    except LabelError as error:
        raise TargetError(f"target {shown!r:.200}: {error}") from error
    if not _HOST.fullmatch(made.host):
        raise TargetError(f"target {shown!r:.200}: {made.host!r:.80} is not the name of a host")
    if ":" in made.host:
        try:
            ipaddress.IPv6Address(made.host)
        except ValueError as error:
            raise TargetError(f"target {shown!r:.200}: {error}") from error
    if not made.instance.isprintable():
        raise TargetError(f"target {shown!r:.200}: instance {made.instance!r:.80}: without control characters")


def _escaped(name: str) -> str:
    """Return a name without the separator of the names of sources."""
    return name.replace("/", "%2F")


def check_job_name(name: str) -> str:
    """Return a valid job name, which is part of names of sources. Raises TargetError."""
    if not _WORD.fullmatch(name):
        raise TargetError(f"job {name!r:.80}: begin with a letter, a digit or _, then use those and . : - only")
    return name
