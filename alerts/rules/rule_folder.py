"""Rule files of a folder: the version of each file in force, and the problems of invalid files.

An invalid file never affects another one: its last good version stays in force until the file is fixed or deleted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path

from alerts.rules.rule_file import DEFAULT_RECEIVER, MAX_RULES, parse_rules
from alerts.state.rule import ParsedRuleFile, Receiver, RecordingRule, Rule
from artimon.runtime.config_file import MAX_PROBLEMS, ConfigFileError, ConfigProblem, read_config_text
from query_dsl import Expr
from query_dsl.lint import Finding
from query_dsl.lint import lint as lint_text
from query_dsl.promql import Query
from query_dsl.tree.query_errors import similar_hint

SUFFIXES = (".yaml", ".yml")
MAX_FILES = 500
MIN_FILE_AGE_MS = 1_000
"""A file younger than this may be half written: its version in force stays for one evaluation."""

Signature = tuple[int, int, int]
Lint = Callable[[Expr | Query], list[Finding]]


@dataclass(slots=True)
class _ReadFile:
    """Result of the last read of a file."""

    signature: Signature
    parsed: ParsedRuleFile | None
    problems: list[ConfigProblem]


@dataclass(frozen=True)
class ActiveRules:
    """Rules by name, targets by receiver, problems of files, and the text of each file in force."""

    rules: Mapping[str, Rule] = field(default_factory=dict)
    receivers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    records: tuple[RecordingRule, ...] = ()

    @cached_property
    def prompt_intervals(self) -> frozenset[int]:
        """Intervals below a minute, in ms."""
        both: tuple[Rule | RecordingRule, ...] = (*self.rules.values(), *self.records)
        return frozenset(one.interval_ms for one in both if one.is_prompt)


@dataclass(frozen=True, slots=True)
class _FolderState:
    """Files as read, valid versions and problems of the folder."""

    read: Mapping[str, _ReadFile]
    valid: Mapping[str, ParsedRuleFile]
    problems: list[ConfigProblem]

    def is_same(self, other: _FolderState) -> bool:
        """True if both have the same objects."""
        return (
            self.problems == other.problems
            and self.read.keys() == other.read.keys()
            and self.valid.keys() == other.valid.keys()
            and all(one is other.read[name] for name, one in self.read.items())
            and all(one is other.valid[name] for name, one in self.valid.items())
        )


class RuleFolder:
    """Reads the folder again whenever `read` is called; belongs to one thread."""

    def __init__(self, folder: Path, default: Iterable[str], remembered: Mapping[str, str]) -> None:
        self._folder, self._default = folder, tuple(default)
        self._read_files: dict[str, _ReadFile] = {}
        self._valid: dict[str, ParsedRuleFile] = {}
        self._missing: set[str] = set()
        self._last: tuple[_FolderState, ActiveRules] | None = None
        """Last input of the checks, and the rules that they gave."""
        for name, text in remembered.items():
            try:
                self._valid[name] = parse_rules(text, name)
            except ConfigFileError:  # valid for an older version of the program only: dropped until it is fixed
                continue

    def read(self, now_ms: int) -> ActiveRules:
        """Read changed files and return the rules now in force; the same object while nothing changes."""
        problems = self._read_folder(now_ms)
        given = _FolderState(dict(self._read_files), dict(self._valid), problems)
        if self._last is None or not self._last[0].is_same(given):
            self._last = given, self._check(list(problems))
        return self._last[1]

    def _check(self, problems: list[ConfigProblem]) -> ActiveRules:
        """Check all files together, beside the problems of the folder."""
        chosen, found = choose_versions({name: self._read_files[name].parsed for name in self._read_files}, self._valid)
        pruned, _ = check_together(chosen)
        for seen in self._read_files.values():
            problems += seen.problems
        kept = {
            name for name in self._valid if name not in self._read_files
        }  # absent once, or the folder is unreadable
        chosen += [self._valid[name] for name in sorted(kept)]
        pruned += [self._valid[name] for name in sorted(kept)]
        self._valid = {file.name: file for file in chosen}
        receivers = {one.name: one.targets for file in pruned for one in file.receivers}
        rules: dict[str, Rule] = {}
        for file in pruned:
            for rule in file.rules:
                rules.setdefault(rule.name, rule)
        texts = [str(problem) for problem in sorted([*problems, *found])[:MAX_PROBLEMS]]
        files = {file.name: file.text for file in chosen}
        records = tuple(record for file in pruned for record in file.records)
        return ActiveRules(rules, {DEFAULT_RECEIVER: self._default, **receivers}, tuple(texts), files, records)

    def _read_folder(self, now_ms: int) -> list[ConfigProblem]:
        """Read changed files; returns the problems of the folder itself."""
        try:
            entries = sorted(e.name for e in os.scandir(self._folder) if e.name.endswith(SUFFIXES) and e.is_file())
        except OSError as error:
            return [
                ConfigProblem(str(self._folder), 0, 0, f"cannot be read: {error.strerror}; the old rules stay in force")
            ]
        problems = []
        entries = [name for name in entries if not name.startswith(".")]
        if len(entries) > MAX_FILES:
            problems.append(ConfigProblem(str(self._folder), 0, 0, f"more than {MAX_FILES} files: the rest is ignored"))
            entries = entries[:MAX_FILES]
        for name in entries:
            self._read_file(name, now_ms)
        # an editor may remove a file for a moment: a file counts as deleted only if it is absent twice
        for name in (set(self._valid) - set(entries)) & self._missing:
            del self._valid[name]
        self._read_files = {name: seen for name, seen in self._read_files.items() if name in entries}
        self._missing = set(self._valid) - set(entries)
        return problems

    def _read_file(self, name: str, now_ms: int) -> None:
        path = self._folder / name
        try:
            stat = path.stat()
            signature = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            known = self._read_files.get(name)
            if known and known.signature == signature:
                return
            if name in self._valid and 0 <= now_ms - stat.st_mtime_ns // 1_000_000 < MIN_FILE_AGE_MS:
                self._read_files.setdefault(name, _ReadFile((0, 0, 0), self._valid[name], []))
                return
            parsed = parse_rules(read_config_text(path, name), name)
        except OSError as error:
            problem = ConfigProblem(name, 0, 0, f"cannot be read: {error.strerror}")
            self._read_files[name] = _ReadFile((0, 0, 0), None, [problem])
        except ConfigFileError as error:
            self._read_files[name] = _ReadFile(signature, None, error.problems)
        else:
            self._read_files[name] = _ReadFile(signature, parsed, [])


# ---- checks across files


def choose_versions(
    current: Mapping[str, ParsedRuleFile | None], good: Mapping[str, ParsedRuleFile]
) -> tuple[list[ParsedRuleFile], list[ConfigProblem]]:
    """Choose the version of each file in force; also returns the conflicts between files.

    Versions in force go before new ones, so that a conflict is reported for the new file."""
    refused = {name for name, file in current.items() if file is None}
    told: dict[str, list[ConfigProblem]] = {}
    while True:
        pairs = [(name, good.get(name) if name in refused else file) for name, file in current.items()]
        files = [file for _, file in pairs if file is not None]
        files.sort(key=lambda f: (f.name not in good or f.text != good[f.name].text, f.name))
        _, wrong = check_together(files)
        fresh = {
            name for name in wrong if name not in refused and (name not in good or not _same(current[name], good[name]))
        }  # fall back to the good version of these, or drop them without one
        told |= {name: told.get(name, []) + wrong[name] for name in fresh}
        if not fresh:
            problems = [p for name, found in wrong.items() if name not in told for p in found]
            return files, [*problems, *(p for found in told.values() for p in found)]
        refused |= fresh


def _same(one: ParsedRuleFile | None, other: ParsedRuleFile) -> bool:
    return one is not None and one.text == other.text


def check_together(files: Iterable[ParsedRuleFile]) -> tuple[list[ParsedRuleFile], dict[str, list[ConfigProblem]]]:
    """Return the files without entries whose names are taken by earlier files, and the problems by file: duplicate
    names, undefined receivers, too many rules."""
    files = list(files)
    problems: dict[str, list[ConfigProblem]] = {}
    receivers: dict[str, tuple[str, Receiver]] = {}
    rules: dict[str, Rule] = {}
    kept = []

    def blame(file: ParsedRuleFile, line: int, column: int, text: str) -> None:
        problems.setdefault(file.name, []).append(ConfigProblem(file.name, line, column, text))

    for file in files:
        for one in file.receivers:
            first = receivers.setdefault(one.name, (file.name, one))
            if first[1] is not one:
                where = f"{first[0]}:{first[1].line}"
                blame(file, one.line, one.column, f"receiver {one.name!r} is already defined in {where}")
        own = []
        for rule in file.rules:
            taken = rules.get(rule.name)
            if taken is not None:
                text = f"rule {rule.name!r} is already defined in {taken.file}:{taken.line}"
                blame(file, *file.places[rule.name][""], text)
            elif len(rules) >= MAX_RULES:
                blame(file, rule.line, 1, f"more than {MAX_RULES} rules in all files: this one is ignored")
            else:
                rules[rule.name] = rule
                own.append(rule)
        mine = tuple(one for one in file.receivers if receivers[one.name][1] is one)
        kept.append(replace(file, rules=tuple(own), receivers=mine))
    for file in files:
        for rule in file.rules:
            for name in rule.receivers:
                if name != DEFAULT_RECEIVER and name not in receivers:
                    hint = similar_hint(name, receivers) or "; define it under receivers:"
                    place = file.places[rule.name].get(name, (rule.line, 1))
                    blame(file, *place, f"unknown receiver {name!r}{hint}")
    return kept, problems


def check_files(paths: Iterable[Path]) -> list[ConfigProblem]:
    """Return all problems of these files, alone and together. Raises OSError."""
    return examine_files(paths)[0]


def examine_files(paths: Iterable[Path], lint: Lint = lint_text) -> tuple[list[ConfigProblem], list[str]]:
    """Return all problems of these files, alone and together, and remarks on valid rules and their queries. `lint`: by
    the text alone, or that of a session, which knows series. Raises OSError, and what `lint` raises."""
    problems: list[ConfigProblem] = []
    files = []
    for path in paths:
        try:
            files.append(parse_rules(read_config_text(path), str(path)))
        except ConfigFileError as error:
            problems += error.problems
    _, found = check_together(files)
    warnings = [text for file in files for text in (*file.warnings, *_lint_rules(file, lint))]
    return sorted([*problems, *(one for wrong in found.values() for one in wrong)]), warnings


def _lint_rules(file: ParsedRuleFile, lint: Lint) -> Iterator[str]:
    """Yield what the lint finds in the queries of a file, for each query once."""
    asked: set[str] = set()
    rules: tuple[Rule | RecordingRule, ...] = (*file.rules, *file.records)
    for rule in rules:
        text = rule.question[0]
        if text in asked:
            continue
        asked.add(text)
        for one in lint(rule.query):
            where = "" if one.position is None else f", at {text[one.position :][: one.length]!r:.60}"
            yield f"{file.name}:{rule.line}: rule {rule.name!r:.100}: {one.message}{where}"


def read_files(paths: Iterable[Path], default: Iterable[str]) -> ActiveRules:
    """Return the rules of these files, with their paths as names. Raises ConfigFileError with all problems, OSError."""
    problems: list[ConfigProblem] = []
    files = []
    for path in paths:
        try:
            files.append(parse_rules(read_config_text(path, str(path)), str(path)))
        except ConfigFileError as error:
            problems += error.problems
    _, found = check_together(files)
    problems += [one for wrong in found.values() for one in wrong]
    if problems:
        raise ConfigFileError(sorted(problems))
    receivers = {one.name: one.targets for file in files for one in file.receivers}
    rules = {rule.name: rule for file in files for rule in file.rules}
    records = tuple(record for file in files for record in file.records)
    texts = {file.name: file.text for file in files}
    return ActiveRules(rules, {DEFAULT_RECEIVER: tuple(default), **receivers}, (), texts, records)


def seed_rules(folder: Path) -> bool:
    """Copy the shipped rule files into `folder` if it does not exist; return False if it does.

    An existing folder belongs to its owner: no file is ever added or restored."""
    if folder.exists():
        return False
    fresh = folder.with_name(folder.name + ".new")  # a crash between two files must not look like the owner's choice
    fresh.mkdir(parents=True, exist_ok=True)
    for source in files("alerts").joinpath("rules").iterdir():
        if source.name.endswith(".yaml"):
            (fresh / source.name).write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    fresh.replace(folder)
    return True
