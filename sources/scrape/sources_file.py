"""Reads the file that names foreign sources: Prometheus pages, bean servers, scripts, and rules for all series.

YAML; every error says file, line and column. The format: docs/sources.md.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import yaml

from sources.base.errors import SourcesFileError, TargetError
from sources.base.yaml_nodes import compose, read_text
from sources.scrape.jmx.mapping_file import RULE_SETS
from sources.scrape.settings import SettingsReader
from sources.state.relabel import MAX_RULES, RelabelRule, RuleError, make_rule
from sources.targets.bean_target import JmxTarget, JolokiaTarget, parse_target
from sources.targets.page_target import Job, PrometheusTarget, check_job_name, hidden, parse_address
from sources.targets.script_target import Format, Script

MAX_TARGETS = 2_000
MAX_SCRIPTS = 100
_ACCESS = ("ca", "cert", "key", "server_name", "bearer_token_file", "username", "password_file")
JOB = ("job", "targets", "files", "scheme", "path", "labels", "honor_labels", "proxy", "max_bytes", "max_series",
        "deadline", "rules", *_ACCESS)  # fmt: skip
RULE = ("name", "sources", "action", "source_labels", "separator", "regex", "modulus", "target_label", "replacement")
SCRIPT = ("name", "command", "format", "period", "deadline", "max_bytes", "labels", "environment")
_TRUTH = {"true": True, "false": False, "yes": True, "no": False}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Pages:
    """The targets of a job: named in the file, and those of other files, which may change."""

    job: Job
    targets: tuple[PrometheusTarget, ...]
    files: tuple[str, ...]
    """Patterns; the last part may have `*`."""


@dataclass(frozen=True, slots=True)
class SourcesFile:
    """What one file names."""

    pages: tuple[Pages, ...] = ()
    jmx: tuple[JmxTarget, ...] = ()
    jolokia: tuple[JolokiaTarget, ...] = ()
    scripts: tuple[Script, ...] = ()
    rules: tuple[RelabelRule, ...] = ()


def read_sources(path: Path) -> SourcesFile:
    """What a file names. FileNotFoundError if there is none, SourcesFileError if it cannot be used.

    A file that others than its owner and group may write names no scripts: they would run as the agent."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SourcesFileError(str(path), 1, 1, f"{error.strerror}: let the agent read it") from error
    found = parse_sources(read_text(path, str(path), SourcesFileError), str(path), path.parent)
    if found.scripts and mode & stat.S_IWOTH:
        raise SourcesFileError(str(path), 1, 1, "everybody may write it, so its scripts are not run: `chmod o-w` it")
    return found


def parse_sources(text: str, shown: str, folder: Path) -> SourcesFile:
    """As `read_sources`, of a text; paths in it are relative to `folder`."""
    root = compose(text, shown, SourcesFileError)
    return SourcesFile() if root is None else _Reader(shown, folder).file(root)


def parse_targets(text: str, shown: str, job: Job) -> tuple[PrometheusTarget, ...]:
    """The targets of a file as Prometheus has them: a list of `targets:` and `labels:`, JSON or YAML.

    Raises SourcesFileError."""
    root = compose(text, shown, SourcesFileError)
    if root is None:
        raise SourcesFileError(shown, 1, 1, "empty: want a list, [] for no targets")
    return _Reader(shown, Path()).groups(root, job)


class _Reader(SettingsReader):
    """Walks the nodes of one file."""

    def __init__(self, shown: str, folder: Path) -> None:
        super().__init__(shown, folder)
        self._targets = 0
        self._names: set[str] = set()

    def file(self, root: yaml.Node) -> SourcesFile:
        self._refuse_aliases(root)
        keys = self._mapping(root, ("prometheus", "jmx", "jolokia", "scripts", "relabel"), ())
        return SourcesFile(
            tuple(self._pages(node) for node in self._list(keys.get("prometheus"))),
            tuple(self._jmx(node) for node in self._list(keys.get("jmx"))),
            tuple(self._jolokia(node) for node in self._list(keys.get("jolokia"))),
            tuple(self._script(node) for node in self._limited(keys.get("scripts"), MAX_SCRIPTS, "scripts")),
            self._rules(keys.get("relabel"), "relabel"),
        )

    def _unique(self, node: yaml.Node, name: str) -> None:
        if name in self._names:
            self._fail(node, f"{name} stands here twice")
        self._names.add(name)

    # --- Prometheus

    def _pages(self, node: yaml.Node) -> Pages:
        keys = self._mapping(node, JOB, ("job",))
        name = self._checked(keys["job"], check_job_name)
        self._unique(keys["job"], f"job {name}")
        job = Job(
            name,
            scheme=self._choice(keys.get("scheme"), {"http": "http", "https": "https"}, "http"),
            path=self._path(keys.get("path"), "/metrics"),
            labels=self._labels(keys.get("labels")),
            honor_labels=self._choice(keys.get("honor_labels"), _TRUTH, False),
            proxy=self._choice(keys.get("proxy"), _TRUTH, False),
            access=self._access(keys),
            max_bytes=self._size(keys.get("max_bytes"), 16 << 20),
            max_series=self._at_most(keys.get("max_series"), 100_000, 50_000),
            deadline_s=self._seconds(keys["deadline"]) if "deadline" in keys else None,
            rules=self._rules(keys.get("rules"), f"{name}.rules"),
        )
        targets = tuple(self._target(one, job, {}) for one in self._list(keys.get("targets")))
        files = tuple(self._checked(one, self._file_pattern) for one in self._list(keys.get("files")))
        if not targets and not files:
            self._fail(node, "want `targets:` or `files:`")
        return Pages(job, targets, files)

    def _target(self, node: yaml.Node, job: Job, labels: Mapping[str, str]) -> PrometheusTarget:
        self._targets += 1
        if self._targets > MAX_TARGETS:
            self._fail(node, f"more than {MAX_TARGETS} targets: give some of them to another agent")
        target = self._checked(node, lambda text: parse_address(job, text, labels))
        self._unique(node, f"instance {target.instance} of job {job.name}")
        return target

    def groups(self, root: yaml.Node, job: Job) -> tuple[PrometheusTarget, ...]:
        """The targets of a file of targets."""
        self._refuse_aliases(root)
        found: list[PrometheusTarget] = []
        if not isinstance(root, yaml.SequenceNode):
            self._fail(root, "want a list of `targets:` and `labels:`")
        for node in self._list(root):
            keys = self._mapping(node, ("targets", "labels"), ("targets",))
            labels = {self._text(k): self._text(v) for k, v in self._pairs(keys["labels"])} if "labels" in keys else {}
            found += [self._target(one, job, labels) for one in self._list(keys["targets"])]
        return tuple(found)

    def _file_pattern(self, text: str) -> str:
        path = self._folder / text
        if "*" in str(path.parent) or not text:
            raise ValueError(f"{text!r}: want a path; a * may stand in its last part only")
        return str(path)

    # --- bean servers

    def _jmx(self, node: yaml.Node) -> JmxTarget:
        keys = self._mapping(node, ("context", "instance", "url", "rules"), ("context", "url"))
        name = self._named(keys)
        target = self._checked(keys["url"], lambda url: parse_target(f"{name}={url}"))
        self._unique(node, f"bean server {name}")
        sets = self._rule_sets(keys.get("rules"), target.rule_sets)
        return JmxTarget(target.context, target.host, target.port, target.path, target.instance, sets)

    def _jolokia(self, node: yaml.Node) -> JolokiaTarget:
        keys = self._mapping(node, ("context", "instance", "url", "rules", "method", *_ACCESS), ("context", "url"))
        name = self._named(keys)
        self._unique(node, f"bean server {name}")
        parts = self._checked(keys["url"], _bean_url)
        target = self._checked(keys["url"], lambda url: parse_target(f"{name}=http://{urlsplit(url).netloc}/"))
        return JolokiaTarget(
            target.context,
            target.host,
            parts.port or (443 if parts.scheme == "https" else 80),
            parts.path.rstrip("/") or "/jolokia",
            target.instance,
            self._rule_sets(keys.get("rules"), JolokiaTarget("", "", 0).rule_sets),
            parts.scheme,
            self._access(keys),
            self._choice(keys.get("method"), {"post": True, "get": False}, True),
        )

    def _named(self, keys: Mapping[str, yaml.Node]) -> str:
        instance = self._text(keys["instance"]) if "instance" in keys else "0"
        name = f"{self._text(keys['context'])}/{instance}"
        self._checked(keys["context"], lambda _: parse_target(f"{name}=http://x/"))
        return name

    def _rule_sets(self, node: yaml.Node | None, default: tuple[str, ...]) -> tuple[str, ...]:
        choices = {name: name for name in RULE_SETS}
        return tuple(self._choice(one, choices, "") for one in self._list(node)) if node is not None else default

    # --- scripts

    def _script(self, node: yaml.Node) -> Script:
        keys = self._mapping(node, SCRIPT, ("name", "command"))
        name = self._checked(keys["name"], check_job_name)
        self._unique(keys["name"], f"script {name}")
        command = tuple(self._text(one) for one in self._list(keys["command"]))
        if not command or not os.path.isabs(command[0]) or any("\0" in word for word in command):
            self._fail(keys["command"], "want a list: the absolute path of a program, then its arguments")
        formats: dict[str, Format] = {"lines": "lines", "prometheus": "prometheus"}
        return Script(
            name,
            command,
            self._choice(keys.get("format"), formats, "lines"),
            round(self._seconds(keys["period"]) * 1000) if "period" in keys else None,
            self._seconds(keys["deadline"]) if "deadline" in keys else 10.0,
            self._size(keys.get("max_bytes"), 1 << 20),
            self._labels(keys.get("labels")),
            self._environment(keys.get("environment")),
        )

    def _environment(self, node: yaml.Node | None) -> dict[str, str]:
        pairs = self._pairs(node) if node is not None else []
        return {self._checked(key, _variable): self._checked(value, _no_zero) for key, value in pairs}

    # --- rules

    def _rules(self, node: yaml.Node | None, where: str) -> tuple[RelabelRule, ...]:
        return tuple(
            self._rule(one, f"{where}[{i}]") for i, one in enumerate(self._limited(node, MAX_RULES, "rules"), 1)
        )

    def _rule(self, node: yaml.Node, name: str) -> RelabelRule:
        keys = self._mapping(node, RULE, ())
        name = self._text(keys["name"]) if "name" in keys else name
        self._unique(keys.get("name", node), f"rule {name}")
        words = ("action", "separator", "regex", "target_label", "replacement", "sources")
        given = {key: self._text(keys[key]) for key in words if key in keys}
        labels = tuple(self._text(one) for one in self._list(keys.get("source_labels")))
        modulus = self._positive(keys["modulus"]) if "modulus" in keys else 0
        try:
            return make_rule(name, source_labels=labels, modulus=modulus, **given)
        except RuleError as error:
            self._fail(keys.get(error.setting, node), str(error))


def _bean_url(url: str) -> SplitResult:
    parts = urlsplit(url)
    good = (
        parts.scheme in ("http", "https") and parts.hostname and url.isascii() and url.isprintable() and " " not in url
    )
    if not good or parts.query or parts.fragment or parts.username is not None:
        raise TargetError(f"{hidden(url)!r:.200}: want http(s)://HOST:PORT/jolokia, without user, query or fragment")
    return parts


def _variable(text: str) -> str:
    if not _VARIABLE.fullmatch(text):
        raise ValueError(f"{text!r:.80} is no name of a variable of the environment")
    return text


def _no_zero(text: str) -> str:
    if "\0" in text:
        raise ValueError("a zero byte")
    return text
