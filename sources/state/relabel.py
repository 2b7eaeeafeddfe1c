"""Rules that keep, drop or rewrite series by their labels: the relabelling of Prometheus, with RE2, for every source.

A rule sees the final labels of a series, including automatic ones, and its name as `__name__`. Rules are applied once,
when the source first has the series, not at every poll. Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import re2

NAME = "__name__"
MAX_RULES = 1_000
MAX_REGEX = 1_000
_REGEX_MEMORY = 1 << 20
_TARGET = re.compile(r"(?:[a-zA-Z_]|\$(?:\w+|\{\w+\}))(?:\w|\$(?:\w+|\{\w+\}))*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_GROUP = re.compile(r"\$(?:(\$)|(\w+)|\{(\w+)\})")

Action = Literal[
    "replace", "keep", "drop", "keepequal", "dropequal", "hashmod", "labelmap", "labeldrop", "labelkeep", "lowercase",
    "uppercase",
]  # fmt: skip
ACTIONS: tuple[Action, ...] = get_args(Action)
_NEED_TARGET = frozenset({"replace", "hashmod", "keepequal", "dropequal", "lowercase", "uppercase"})
_EXPANDING = frozenset({"replace", "labelmap"})
_NEED_SOURCE = frozenset({"keep", "drop", "keepequal", "dropequal", "hashmod", "lowercase", "uppercase"})


class RelabelRuleError(ValueError):
    """A rule is invalid; the text gives the reason. `setting` is the invalid setting, "" for the whole rule."""

    def __init__(self, setting: str, text: str) -> None:
        super().__init__(setting, text)
        self.setting, self.text = setting, text

    def __str__(self) -> str:
        return self.text


def compile_regex(pattern: str, setting: str = "regex") -> re2._Regexp[str]:
    """Compile a pattern with RE2, which matches in linear time. Callers use `fullmatch`. Raises RelabelRuleError."""
    if len(pattern) > MAX_REGEX:
        raise RelabelRuleError(
            setting, f"the regular expression has {len(pattern)} characters: use at most {MAX_REGEX}"
        )
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _REGEX_MEMORY
    options.dot_nl = True
    try:
        return re2.compile(pattern, options)
    except re2.error as problem:
        detail = problem.args[0].decode() if isinstance(problem.args[0], bytes) else str(problem)
        raise RelabelRuleError(setting, f"the regular expression {pattern!r} is not valid RE2: {detail}") from None


@dataclass(frozen=True, slots=True)
class ReplacementTemplate:
    """Text with groups as `$1`, `${1}` or `${name}`, and `$$` for a dollar. Pieces: (text, group after it or -1)."""

    pieces: tuple[tuple[str, int], ...]

    def expand(self, groups: Sequence[str]) -> str:
        return "".join(text + (groups[group] if group >= 0 else "") for text, group in self.pieces)


def literal(text: str) -> ReplacementTemplate:
    """Return a template without groups."""
    return ReplacementTemplate(((text, -1),))


def parse_template(setting: str, text: str, pattern: re2._Regexp[str]) -> ReplacementTemplate:
    """Parse a template. Raises RelabelRuleError if it names a group that `pattern` lacks."""
    pieces: list[tuple[str, int]] = []
    before, at = "", 0
    for found in _GROUP.finditer(text):
        before += text[at : found.start()]
        at = found.end()
        if found[1]:
            before += "$"
            continue
        pieces.append((before, _group(setting, found[2] or found[3], pattern)))
        before = ""
    pieces.append((before + text[at:], -1))
    return ReplacementTemplate(tuple(pieces))


def _group(setting: str, name: str, pattern: re2._Regexp[str]) -> int:
    number = int(name) if name.isascii() and name.isdigit() and len(name) < 5 else pattern.groupindex.get(name, -1)
    if not 0 <= number <= pattern.groups:
        raise RelabelRuleError(
            setting, f"${{{name}}}: the regular expression has no such group; `$1_a` is written `${{1}}_a`"
        )
    return number


@dataclass(frozen=True, slots=True)
class RelabelRule:
    """Validated rule, created by `make_relabel_rule`. `name` is the key of its count. `sources`: pattern of the whole
    names of its sources, "" for all. Rules are equal if all their settings are."""

    name: str
    action: Action
    source_labels: tuple[str, ...]
    separator: str
    expression: str
    modulus: int
    target: ReplacementTemplate
    replacement: ReplacementTemplate
    sources: str
    regex: re2._Regexp[str] = field(compare=False, repr=False)
    _sources: re2._Regexp[str] = field(compare=False, repr=False)

    def is_for(self, source: str) -> bool:
        return not self.sources or self._sources.fullmatch(source) is not None


def make_relabel_rule(
    name: str,
    *,
    action: str = "replace",
    source_labels: Sequence[str] = (),
    separator: str = ";",
    regex: str = "(.*)",
    modulus: int = 0,
    target_label: str = "",
    replacement: str = "$1",
    sources: str = "",
) -> RelabelRule:
    """Create a rule with the settings and defaults of Prometheus. Raises RelabelRuleError with the invalid setting."""
    chosen = next((one for one in ACTIONS if one == action.lower()), None)
    if chosen is None:
        raise RelabelRuleError("action", f"unknown action {action!r}: use one of {', '.join(ACTIONS)}")
    for label in source_labels:
        if not _LABEL.fullmatch(label):
            raise RelabelRuleError("source_labels", f"{label!r} is not the name of a label")
    if chosen in _NEED_SOURCE and not source_labels:
        raise RelabelRuleError("", f"action {chosen} needs `source_labels:`")
    if chosen in _NEED_TARGET and not (_TARGET if chosen == "replace" else _LABEL).fullmatch(target_label):
        raise RelabelRuleError("target_label", f"action {chosen} needs a `target_label:`, {target_label!r} is none")
    if chosen not in _NEED_TARGET and target_label:
        raise RelabelRuleError("target_label", f"action {chosen} does not use `target_label:`: remove it")
    if (chosen == "hashmod") != (modulus > 0):
        raise RelabelRuleError("modulus", "a `modulus:` above 0 is required for action hashmod, and only there")
    pattern = compile_regex(regex)
    return RelabelRule(
        name,
        chosen,
        tuple(source_labels),
        separator,
        regex,
        modulus,
        parse_template("target_label", target_label, pattern) if chosen == "replace" else literal(target_label),
        parse_template("replacement", replacement, pattern) if chosen in _EXPANDING else literal(""),
        sources,
        pattern,
        compile_regex(sources, "sources"),
    )


class RelabelRules:
    """Ordered rules of one source."""

    def __init__(self, rules: Sequence[RelabelRule]) -> None:
        self.rules = tuple(rules)

    def __bool__(self) -> bool:
        return bool(self.rules)

    def apply(self, name: str, labels: Mapping[str, str], acted: Counter[str]) -> tuple[str, dict[str, str]] | None:
        """Return the new name and labels, None if the series is dropped. `acted` counts the rules that dropped or
        changed it. Labels that begin with `__` are removed at the end, so rules may use them as temporaries."""
        found = self._rewritten({NAME: name, **labels}, acted)
        if found is None:
            return None
        return found.get(NAME, ""), {label: value for label, value in found.items() if not label.startswith("__")}

    def rewrite(self, labels: Mapping[str, str]) -> dict[str, str] | None:
        """Return the new labels of a target, with those that begin with `__`; None if it is dropped."""
        return self._rewritten(labels, Counter())

    def _rewritten(self, labels: Mapping[str, str], acted: Counter[str]) -> dict[str, str] | None:
        found = {label: value for label, value in labels.items() if value}
        for rule in self.rules:
            changed = _apply(rule, found)
            if changed is None:
                acted[rule.name] += 1
                return None
            if changed != found:
                acted[rule.name] += 1
                found = changed
        return found


def _apply(rule: RelabelRule, labels: dict[str, str]) -> dict[str, str] | None:
    value = rule.separator.join(labels.get(label, "") for label in rule.source_labels)
    match rule.action:
        case "labelmap":
            return _mapped(rule, labels)
        case "labeldrop" | "labelkeep":
            kept = rule.action == "labelkeep"
            return {label: text for label, text in labels.items() if (rule.regex.fullmatch(label) is not None) == kept}
        case "keep" | "drop":
            return labels if (rule.regex.fullmatch(value) is not None) == (rule.action == "keep") else None
        case "keepequal" | "dropequal":
            equal = labels.get(_fixed(rule.target), "") == value
            return labels if equal == (rule.action == "keepequal") else None
        case "hashmod":
            return _with(labels, _fixed(rule.target), str(_hash(value) % rule.modulus))
        case "lowercase":
            return _with(labels, _fixed(rule.target), value.lower())
        case "uppercase":
            return _with(labels, _fixed(rule.target), value.upper())
    return _replaced(rule, labels, value)


def _replaced(rule: RelabelRule, labels: dict[str, str], value: str) -> dict[str, str]:
    found = rule.regex.fullmatch(value)
    if found is None:
        return labels
    groups = _groups(found)
    target = rule.target.expand(groups)
    if not _LABEL.fullmatch(target):
        return labels
    return _with(labels, target, rule.replacement.expand(groups))


def _mapped(rule: RelabelRule, labels: dict[str, str]) -> dict[str, str]:
    """Copy labels whose names match to the name given by the replacement."""
    copies = {
        target: value
        for label, value in labels.items()
        if (found := rule.regex.fullmatch(label)) is not None
        and _LABEL.fullmatch(target := rule.replacement.expand(_groups(found)))
    }
    return {**labels, **copies}


def _groups(found: re2._Match[str]) -> tuple[str, ...]:
    return (found.group(0), *(text or "" for text in found.groups()))


def _with(labels: dict[str, str], label: str, value: str) -> dict[str, str]:
    """Set a label; an empty value removes it."""
    if value:
        return {**labels, label: value}
    return {name: text for name, text in labels.items() if name != label}


def _fixed(template: ReplacementTemplate) -> str:
    return template.pieces[0][0]


def _hash(value: str) -> int:
    """Hash like Prometheus, so that `hashmod` gives the same result."""
    return int.from_bytes(hashlib.md5(value.encode(), usedforsecurity=False).digest()[8:], "big")


class RelabelRegistry:
    """Rules for all sources of an agent, and the number of series that each acts on now. Event loop only."""

    def __init__(self, rules: Sequence[RelabelRule] = ()) -> None:
        self._rules = tuple(rules)
        self._counts: dict[str, Counter[str]] = {}
        self._source_rules: dict[str, tuple[str, ...]] = {}

    def for_source(self, source: str, own: RelabelRules | None = None) -> RelabelRules | None:
        """Return the `own` rules of a source, then the common rules that apply to it; None if there are none."""
        rules = (*(own.rules if own else ()), *(rule for rule in self._rules if rule.is_for(source)))
        return RelabelRules(rules) if rules else None

    def set_counts(self, source: str, rules: RelabelRules | None, counts: Counter[str]) -> None:
        """Replace the counts of a source: series that each rule dropped or changed."""
        if rules is None:
            self.forget(source)
            return
        self._source_rules[source] = tuple(rule.name for rule in rules.rules)
        self._counts[source] = Counter(counts)

    def forget(self, source: str) -> None:
        """Remove the counts of a source."""
        self._counts.pop(source, None)
        self._source_rules.pop(source, None)

    def counts(self) -> dict[str, int]:
        """Return rule -> series that it dropped or changed, also for rules with 0."""
        names = {rule.name for rule in self._rules}.union(*self._source_rules.values())
        total: Counter[str] = sum(self._counts.values(), Counter())
        return {name: total[name] for name in sorted(names)}
