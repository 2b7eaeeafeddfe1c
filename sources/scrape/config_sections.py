"""Sections of the file of sources. Each builds the object it describes. Paths are relative to the file's folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, Field, ValidationInfo
from pydantic_core import InitErrorDetails

from artimon.model.labels import validate_labels
from artimon.runtime.config_model import (
    Conversion,
    Section,
    checked,
    choice,
    fault,
    parsed,
    text_of,
    validation_error,
    with_path,
)
from artimon.runtime.text import parse_duration, parse_size
from sources.base.source_errors import TargetError
from sources.scrape.jmx.mapping_file import RULE_SETS
from sources.state.relabel import MAX_RULES, RelabelRule, RelabelRuleError, make_relabel_rule
from sources.targets.bean_target import JmxTarget, JolokiaTarget, parse_target
from sources.targets.credentials import CredentialFiles
from sources.targets.prometheus_target import (
    PORTS,
    PrometheusTarget,
    ScrapeJob,
    check_job_name,
    parse_address,
    redact_url,
)
from sources.targets.script_target import Format, ScriptTarget

MAX_BYTES = 64 << 20
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _seconds(text: str) -> float:
    if not 100 <= (ms := parse_duration(text)) <= 86_400_000:
        raise ValueError(f"{text!r:.80}: want a time such as 500ms, 10s, 5m or 1h, 100ms to 24h")
    return ms / 1000


def _size(text: str) -> int:
    if not 0 < (size := parse_size(text)) <= MAX_BYTES:
        raise ValueError(f"{text!r:.80}: want bytes such as 1MiB, at most {MAX_BYTES >> 20}MiB")
    return size


def _page(path: str) -> None:
    if not path.startswith("/"):
        raise ValueError(f"{path!r:.200}: a path must begin with /")


def _in_folder(text: str, info: ValidationInfo) -> Path:
    return Path(info.context["folder"], text) if info.context else Path(text)


def _pattern(text: str, info: ValidationInfo) -> str:
    path = _in_folder(text, info)
    if "*" in str(path.parent) or not text:
        raise ValueError(f"{text!r:.200}: want a path; * is allowed only in its last part")
    return str(path)


def _command(words: tuple[str, ...]) -> None:
    if not words or not os.path.isabs(words[0]) or any("\0" in word for word in words):
        raise ValueError("want a list: the absolute path of a program, then its arguments")


def _variable(name: str) -> None:
    if not _VARIABLE.fullmatch(name):
        raise ValueError(f"{name!r:.80} is not the name of an environment variable: use letters, digits and _")


def _value(text: str) -> None:
    if "\0" in text:
        raise ValueError("contains a zero byte: remove it")


def _bean_url(url: str) -> SplitResult:
    parts = urlsplit(url)
    good = parts.scheme in PORTS and parts.hostname and url.isascii() and url.isprintable() and " " not in url
    if not good or parts.query or parts.fragment or parts.username is not None:
        raise TargetError(
            f"{redact_url(url)!r:.200}: want http(s)://HOST:PORT/jolokia, without user, query or fragment"
        )
    return parts


File = Annotated[Path, AfterValidator(_in_folder)]
JobName = Annotated[str, checked(check_job_name)]
Labels = Annotated[dict[str, str], checked(validate_labels)]
Seconds = Annotated[float, parsed(_seconds)]
Size = Annotated[int, parsed(_size)]
Truth = Annotated[bool, choice({"true": True, "false": False, "yes": True, "no": False})]
Variable = Annotated[str, checked(_variable)]
RuleSet = Annotated[str, choice({name: name for name in RULE_SETS})]


class AccessSection(Section):
    """Files and names that give access to a server."""

    ca: File | None = None
    cert: File | None = None
    key: File | None = None
    server_name: str = ""
    bearer_token_file: File | None = None
    username: str = ""
    password_file: File | None = None

    @property
    def access(self) -> CredentialFiles:
        return CredentialFiles(**{name: getattr(self, name) for name in AccessSection.model_fields})

    @classmethod
    def contradictions(cls, data: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
        if "key" in data and "cert" not in data:
            yield fault("a `key:` without its `cert:`: write both", "key")
        if ("username" in data) != ("password_file" in data):
            at_fault = "username" if "username" in data else "password_file"
            yield fault("`username:` and `password_file:` go together: write both", at_fault)


class RelabelSection(Section):
    """Rule for labels, with the settings of Prometheus."""

    name: str = ""
    sources: str = ""
    action: str = "replace"
    source_labels: tuple[str, ...] = ()
    separator: str = ";"
    regex: str = "(.*)"
    modulus: int = Field(default=0, gt=0, lt=1 << 62)
    target_label: str = ""
    replacement: str = "$1"

    def build(self, name: str = "") -> RelabelRule:
        """Return the rule; `name` is the default name."""
        try:
            return make_relabel_rule(self.name or name, **self.model_dump(exclude={"name"}))
        except RelabelRuleError as error:
            raise validation_error(fault(str(error), *filter(None, [error.setting]))) from None


CheckedRule = Annotated[RelabelSection, checked(RelabelSection.build)]
RelabelRuleList = Annotated[tuple[CheckedRule, ...], Field(max_length=MAX_RULES)]


@dataclass(frozen=True, slots=True)
class JobTargets:
    """Targets of a job: those listed in the file, and patterns of target files, which may change."""

    job: ScrapeJob
    targets: tuple[PrometheusTarget, ...]
    files: tuple[str, ...]
    """Patterns; the last part may have `*`."""


def _target(given: Any, info: ValidationInfo) -> PrometheusTarget:
    context: Mapping[str, Any] = info.context or {}
    return parse_address(context["job"], text_of(given), info.data.get("labels", {}))


class TargetGroup(Section):
    """Targets with additional labels, as in a target file. Read with the `job` as context."""

    labels: dict[str, str] = Field(default_factory=dict)
    targets: tuple[Annotated[PrometheusTarget, Conversion(_target)], ...]


class JobSection(AccessSection):
    """Job: Prometheus pages with equal settings."""

    job: JobName
    targets: tuple[str, ...] = ()
    files: tuple[Annotated[str, AfterValidator(_pattern)], ...] = ()
    scheme: Annotated[str, choice({"http": "http", "https": "https"})] = "http"
    path: Annotated[str, checked(_page)] = "/metrics"
    labels: Labels = Field(default_factory=dict)
    honor_labels: Truth = False
    proxy: Truth = False
    max_bytes: Size = 16 << 20
    max_series: int = Field(default=50_000, gt=0, le=100_000)
    deadline: Seconds | None = None
    rules: RelabelRuleList = ()

    @classmethod
    def contradictions(cls, data: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
        yield from super().contradictions(data)
        if not data.get("targets") and not data.get("files"):
            yield fault("want `targets:` or `files:`")

    def build(self) -> JobTargets:
        same = {"scheme", "path", "labels", "honor_labels", "proxy", "max_bytes", "max_series"}
        job = ScrapeJob(
            self.job,
            access=self.access,
            deadline_s=self.deadline,
            rules=tuple(rule.build(f"{self.job}.rules[{number}]") for number, rule in enumerate(self.rules, 1)),
            **self.model_dump(include=same),
        )
        group = TargetGroup.model_validate({"targets": self.targets}, context={"job": job})
        return JobTargets(job, group.targets, self.files)


class BeanServerSection(Section):
    """Common settings of both kinds of bean servers."""

    context: str
    instance: str = "0"
    url: str

    def target(self, url: str) -> JmxTarget:
        """Return the target of a URL. Errors point to the key at fault."""
        name = f"{self.context}/{self.instance}"
        with with_path("context"):
            parse_target(f"{name}=http://x/")
        with with_path("url"):
            return parse_target(f"{name}={url}")


class JmxSection(BeanServerSection):
    """Bean server with a `/jmx` page as in Hadoop."""

    rules: tuple[RuleSet, ...] = JmxTarget("", "", 0).rule_sets

    def build(self) -> JmxTarget:
        return replace(self.target(self.url), rule_sets=self.rules)


class JolokiaSection(AccessSection, BeanServerSection):
    """Bean server with a Jolokia agent."""

    rules: tuple[RuleSet, ...] = JolokiaTarget("", "", 0).rule_sets
    method: Annotated[bool, choice({"post": True, "get": False})] = True

    def build(self) -> JolokiaTarget:
        with with_path("url"):
            parts = _bean_url(self.url)
            port = parts.port or PORTS[parts.scheme]
        target = self.target(f"http://{parts.netloc}/")
        path = parts.path.rstrip("/") or "/jolokia"
        return JolokiaTarget(
            target.context, target.host, port, path, target.instance, self.rules, parts.scheme, self.access, self.method
        )


class ScriptSection(Section):
    """Program that is run periodically."""

    name: JobName
    command: Annotated[tuple[str, ...], checked(_command)]
    format: Annotated[Format, choice({"lines": "lines", "prometheus": "prometheus"})] = "lines"
    period: Seconds | None = None
    deadline: Seconds = 10.0
    max_bytes: Size = 1 << 20
    labels: Labels = Field(default_factory=dict)
    environment: dict[Variable, Annotated[str, checked(_value)]] = Field(default_factory=dict)

    def build(self) -> ScriptTarget:
        return ScriptTarget(
            self.name,
            self.command,
            self.format,
            period_ms=None if self.period is None else round(self.period * 1000),
            deadline_s=self.deadline,
            max_bytes=self.max_bytes,
            given=self.labels,
            environment=self.environment,
        )
