"""Reads `scrape_configs` as Prometheus writes them. What is not supported is left out and named with its position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo
from pydantic_core import InitErrorDetails

from artimon.model.labels import validate_labels
from artimon.runtime.config_file import ConfigFile, read_config
from artimon.runtime.config_model import (
    Conversion,
    Section,
    Steps,
    Text,
    built,
    choice,
    fault,
    parsed,
    repeated,
    split_unsupported,
    with_path,
)
from artimon.runtime.config_model import raise_faults as raise_all
from sources.scrape.config_sections import File, RelabelRuleList, Size, Truth
from sources.scrape.discovery.consul_discovery import ConsulConfig
from sources.scrape.discovery.discovery import DiscoveryConfig
from sources.scrape.discovery.dns_discovery import DnsConfig, RecordType
from sources.scrape.discovery.http_discovery import HttpConfig
from sources.scrape.discovery.http_endpoint import with_access
from sources.scrape.discovery.kubernetes_discovery import NEEDED, KubernetesConfig
from sources.scrape.discovery.prometheus_duration import parse_prometheus_duration
from sources.scrape.discovery.scrape_job import MAX_TARGETS, DiscoveryJob
from sources.scrape.discovery.static_and_files import FileConfig, StaticConfig
from sources.scrape.discovery.target_group import ADDRESS, DiscoveredGroup
from sources.targets.credentials import CredentialFiles
from sources.targets.prometheus_target import ScrapeJob

_OWN_FILES = "write the secret into a file, named by {}"
UNSUPPORTED: Mapping[str, str] = {
    **dict.fromkeys(("follow_redirects", "enable_http2", "honor_timestamps"), "has no effect here"),
    **dict.fromkeys(("proxy_url", "no_proxy", "proxy_from_environment", "proxy_connect_header", "oauth2", "sigv4"), ""),
    **dict.fromkeys(("label_limit", "label_name_length_limit", "label_value_length_limit"), "the limits are ours"),
    **dict.fromkeys(("scrape_classic_histograms", "scrape_protocols", "track_timestamps_staleness"), ""),
    **dict.fromkeys(("keep_dropped_targets", "enable_compression", "native_histogram_bucket_limit"), ""),
    **dict.fromkeys(("insecure_skip_verify", "min_version", "max_version"), "the certificate is always checked"),
    **dict.fromkeys(("ca", "cert", "key"), "write it into a file, named by `…_file:`"),
    "password": _OWN_FILES.format("`password_file:`"),
    "credentials": _OWN_FILES.format("`credentials_file:`"),
    "bearer_token": _OWN_FILES.format("`bearer_token_file:`"),
    "token": _OWN_FILES.format("`authorization: {credentials_file: …}`"),
    "kubeconfig_file": "use `api_server:`, `tls_config:` and `authorization:`",
}
"""Settings of a job of Prometheus that this program leaves out, and the remedy."""
_KINDS = ("static", "file", "http", "dns", "consul", "kubernetes")
_OUTER = frozenset({"rule_files", "alerting", "remote_write", "remote_read", "storage", "tracing", "external_labels",
                    "scrape_config_files", "query_log_file", "evaluation_interval"})  # fmt: skip
_FREE = frozenset({"labels", "params", "node_meta"})
"""Mappings whose keys are those of the user."""
Duration = Annotated[int, parsed(parse_prometheus_duration)]
_INTERVAL_MS, _TIMEOUT_MS = 60_000, 10_000


def _nonzero(given: Any, info: ValidationInfo) -> Any:
    """Return a limit, None for 0: unlimited."""
    del info
    if not str(given).isdigit():
        raise ValueError(f"{given!r:.80}: write a whole number")
    return int(given) or None


Limit = Annotated[int | None, Conversion(_nonzero)]


def _pattern(text: str, info: ValidationInfo) -> Path:
    path = Path((info.context or {}).get("folder", "."), text)
    if "*" in str(path.parent) or path.suffix not in (".json", ".yml", ".yaml"):
        raise ValueError(f"{text!r:.200}: want a path that ends with .json, .yml or .yaml; * only in its last part")
    return path


class TlsSection(Section):
    ca_file: File | None = None
    cert_file: File | None = None
    key_file: File | None = None
    server_name: str = ""


class BasicAuthSection(Section):
    username: str = ""
    password_file: File | None = None


class AuthorizationSection(Section):
    type: Annotated[str, choice({"Bearer": "Bearer", "bearer": "Bearer"})] = "Bearer"
    credentials_file: File | None = None


class HttpSection(Section):
    """Settings of Prometheus' HTTP clients."""

    basic_auth: BasicAuthSection = BasicAuthSection()
    authorization: AuthorizationSection = AuthorizationSection()
    bearer_token_file: File | None = None
    tls_config: TlsSection = TlsSection()

    @property
    def access(self) -> CredentialFiles:
        tls, basic = self.tls_config, self.basic_auth
        return CredentialFiles(
            tls.ca_file,
            tls.cert_file,
            tls.key_file,
            tls.server_name,
            self.authorization.credentials_file or self.bearer_token_file,
            basic.username,
            basic.password_file,
        )


class StaticSection(Section):
    targets: tuple[str, ...] = ()
    labels: dict[str, str] = Field(default_factory=dict)

    def build(self) -> DiscoveredGroup:
        return DiscoveredGroup(tuple({ADDRESS: one} for one in self.targets), self.labels)


class FileSection(Section):
    files: tuple[Annotated[str, AfterValidator(_pattern)], ...]
    refresh_interval: Duration = 300_000

    def build(self) -> DiscoveryConfig:
        return FileConfig(tuple(Path(one) for one in self.files))


class HttpListSection(HttpSection):
    url: Text
    refresh_interval: Duration = 60_000

    def build(self) -> DiscoveryConfig:
        with with_path("url"):
            server = with_access(self.url, self.access)
        return HttpConfig(self.url, server, self.refresh_interval / 1000)


class DnsSection(Section):
    names: Annotated[tuple[Text, ...], Field(min_length=1, max_length=1_000)]
    type: Annotated[RecordType, choice({"SRV": "SRV", "A": "A", "AAAA": "AAAA", "MX": "MX"})] = "SRV"
    port: Annotated[int, Field(ge=0, le=65_535)] = 0
    refresh_interval: Duration = 30_000

    def build(self) -> DiscoveryConfig:
        if self.type != "SRV" and not self.port:
            raise ValueError(f"records of type {self.type} need a `port:`")
        return DnsConfig(self.names, self.type, self.port, self.refresh_interval / 1000)


class ConsulSection(HttpSection):
    server: Text = "localhost:8500"
    scheme: Annotated[str, choice({"http": "http", "https": "https"})] = "http"
    datacenter: str = ""
    namespace: str = ""
    partition: str = ""
    tag_separator: str = ","
    services: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    node_meta: dict[str, str] = Field(default_factory=dict)
    allow_stale: Truth = True
    refresh_interval: Duration = 30_000

    def build(self) -> DiscoveryConfig:
        with with_path("server"):
            server = with_access(f"{self.scheme}://{self.server}", self.access)
        same = {"datacenter", "namespace", "partition", "tag_separator", "services", "tags", "node_meta", "allow_stale"}
        return ConsulConfig(server, refresh_s=self.refresh_interval / 1000, **self.model_dump(include=same))


class NamespacesSection(Section):
    names: tuple[Text, ...] = ()
    own_namespace: Truth = False


class SelectorSection(Section):
    role: Annotated[str, choice({name: name for name in NEEDED})]
    label: str = ""
    field: str = ""


class AttachSection(Section):
    node: Truth = False


class KubernetesSection(HttpSection):
    role: Annotated[str, choice({name: name for name in NEEDED})]
    api_server: str = ""
    namespaces: NamespacesSection = NamespacesSection()
    selectors: tuple[SelectorSection, ...] = ()
    attach_metadata: AttachSection = AttachSection()

    def build(self) -> DiscoveryConfig:
        with with_path("api_server"):
            server = with_access(self.api_server.rstrip("/"), self.access) if self.api_server else None
        raise_all(repeated((f"a selector of {one.role}", ("selectors", at)) for at, one in enumerate(self.selectors)))
        selectors = {one.role: {"labelSelector": one.label, "fieldSelector": one.field} for one in self.selectors}
        return KubernetesConfig(
            self.role,
            server,
            self.namespaces.names,
            self.namespaces.own_namespace,
            selectors,
            self.attach_metadata.node,
        )


class ScrapeSection(HttpSection):
    """One of `scrape_configs`. `agents:` is ours: the names of the agents that share the targets."""

    job_name: Text
    honor_labels: Truth = False
    scrape_interval: Duration | None = None
    scrape_timeout: Duration | None = None
    metrics_path: str = "/metrics"
    scheme: Annotated[Literal["http", "https"], choice({"http": "http", "https": "https"})] = "http"
    params: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    body_size_limit: Size | None = None
    sample_limit: Limit = None
    target_limit: Limit = None
    static_configs: tuple[StaticSection, ...] = ()
    file_sd_configs: tuple[Annotated[DiscoveryConfig, built(FileSection)], ...] = ()
    http_sd_configs: tuple[Annotated[DiscoveryConfig, built(HttpListSection)], ...] = ()
    dns_sd_configs: tuple[Annotated[DiscoveryConfig, built(DnsSection)], ...] = ()
    consul_sd_configs: tuple[Annotated[DiscoveryConfig, built(ConsulSection)], ...] = ()
    kubernetes_sd_configs: tuple[Annotated[DiscoveryConfig, built(KubernetesSection)], ...] = ()
    relabel_configs: RelabelRuleList = ()
    metric_relabel_configs: RelabelRuleList = ()
    agents: tuple[Text, ...] = ()

    @classmethod
    def contradictions(cls, data: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
        for at, group in enumerate(data.get("static_configs") or ()):
            try:
                validate_labels({k: v for k, v in (group.get("labels") or {}).items() if not k.startswith("__")})
            except (ValueError, AttributeError) as error:
                yield fault(str(error), "static_configs", at, "labels")

    def build(self, interval_ms: int = _INTERVAL_MS, timeout_ms: int = _TIMEOUT_MS) -> DiscoveryJob:
        """Return the job; the times are the defaults of the file."""
        interval_ms = self.scrape_interval or interval_ms
        timeout_ms = self.scrape_timeout or min(timeout_ms, interval_ms)
        if timeout_ms > interval_ms:
            raise ValueError("`scrape_timeout:` is longer than `scrape_interval:`")
        name, limits = self.job_name, ScrapeJob(self.job_name)
        job = ScrapeJob(
            name,
            self.scheme,
            self.metrics_path,
            honor_labels=self.honor_labels,
            access=self.access,
            max_bytes=self.body_size_limit or limits.max_bytes,
            max_series=min(self.sample_limit or limits.max_series, 100_000),
            deadline_s=timeout_ms / 1000,
            period_ms=interval_ms,
            rules=tuple(one.build(f"{name}.metric[{at}]") for at, one in enumerate(self.metric_relabel_configs, 1)),
        )
        rules = tuple(one.build(f"{name}.relabel[{at}]") for at, one in enumerate(self.relabel_configs, 1))
        most = min(self.target_limit or MAX_TARGETS, MAX_TARGETS)
        found = tuple(self._discoveries())
        return DiscoveryJob(job, interval_ms, timeout_ms, self.params, rules, found, self.agents, most)

    def _discoveries(self) -> Iterator[DiscoveryConfig]:
        if self.static_configs:
            yield StaticConfig(tuple(one.build() for one in self.static_configs))
        for kind in _KINDS[1:]:
            yield from getattr(self, f"{kind}_sd_configs")


def _job(given: Any, info: ValidationInfo) -> DiscoveryJob:
    context = info.context or {}
    section = ScrapeSection.model_validate(given, context=info.context)
    return section.build(context.get("interval_ms", _INTERVAL_MS), context.get("timeout_ms", _TIMEOUT_MS))


Jobs = tuple[Annotated[DiscoveryJob, Conversion(_job)], ...]


def supported(data: Any) -> tuple[Any, list[tuple[Steps, str]]]:
    """Return the data of a file without the settings that are not supported, and their paths with the reasons."""
    return split_unsupported(data, _reason)


def _reason(keys: tuple[str, ...]) -> str | None:
    """Return why the last of the keys is left out, None for others."""
    key = keys[-1]
    if not _FREE.isdisjoint(keys[:-1]):
        return None
    if key.endswith("_sd_configs") and key.removesuffix("_sd_configs") not in _KINDS:
        return f"there is discovery by {', '.join(_KINDS)}"
    return "it is not about scraping" if key in _OUTER else UNSUPPORTED.get(key)


def notes_of(file: ConfigFile, left_out: Sequence[tuple[Steps, str]]) -> tuple[str, ...]:
    """Return messages with file and line."""
    texts = []
    for path, reason in left_out:
        line, column = file.position((*path, "[key]"))
        texts.append(f"{file.file}:{line}:{column}: `{path[-1]}:` is left out{f': {reason}' if reason else ''}")
    return tuple(texts)


class GlobalSection(Section):
    scrape_interval: Duration = _INTERVAL_MS
    scrape_timeout: Duration = _TIMEOUT_MS


class GlobalFile(Section):
    """File of Prometheus, as far as its jobs depend on it."""

    global_: GlobalSection = Field(default=GlobalSection(), alias="global")
    scrape_configs: Any = ()


class JobsFile(Section):
    scrape_configs: Jobs = ()


def read_prometheus_file(path: Path, agents: tuple[str, ...] = ()) -> tuple[DiscoveryJob, ...]:
    """Return the jobs of a file of Prometheus. Raises ConfigFileError."""
    file = read_config(path, form="yaml")
    data, left_out = supported(file.data)
    told = replace(file, data=data).validate(GlobalFile).global_
    jobs = replace(file, data={"scrape_configs": (data or {}).get("scrape_configs", ())}).validate(
        JobsFile, folder=path.parent, interval_ms=told.scrape_interval, timeout_ms=told.scrape_timeout
    )
    notes = notes_of(file, left_out)
    shared = [replace(job, agents=job.agents or agents) for job in jobs.scrape_configs]
    return tuple(replace(job, notes=notes if at == 0 else ()) for at, job in enumerate(shared))
