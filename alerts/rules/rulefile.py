"""From the text of a rule file to rules, or to every mistake in it with its place. Docs: docs/alerts.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from alerts.receivers.kind import ReceiverKind, receiver_kinds
from alerts.rules.places import position_of
from alerts.rules.yamltree import Fields, Items, Node, Text, read_tree
from alerts.state.conditions import Condition, ConditionError, parse_condition
from alerts.state.errors import Problem, RuleFileError
from alerts.state.notification import target_of
from alerts.state.rule import Labels, Missing, Receiver, Rule, RuleFile, TemplateError, check_template
from artimon.model.labels import LabelError, validate_labels
from query_dsl import Expr, QueryError, parse
from query_dsl.tree.errors import near
from query_dsl.tree.nodes import At, Between, Range, walk
from query_dsl.tree.timing import Instant, parse_duration

MAX_RULES = 20_000
MAX_RECEIVERS = 1_000
MAX_ADDRESSES = 50
MAX_LABELS = 20
MAX_SUMMARY = 500
MAX_HOLD_MS = 30 * 86_400_000
MAX_PROBLEMS = 50
DEFAULT_RECEIVER = "default"

_TOP = ("receivers", "rules")
_NEEDED = ("name", "expr", "threshold", "missing")
_RULE = (*_NEEDED, "for", "resolve", "labels", "receivers", "summary")
_NAME = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9_.:/\-]{0,99}")
_NO_TIME = re.compile(r"0(?:ms|[smhdw])?")

T = TypeVar("T")


def parse_rules(text: str, file: str) -> RuleFile:
    """The rules of a file named `file`; RuleFileError holds every mistake (at most 50)."""
    return _Reader(file).read(text)


class _Stop(Exception):
    """A value that cannot be used; the problem is already noted."""


class _Reader:
    """Reads one file and goes on after a mistake, so that all of them are told at once."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.places: dict[str, dict[str, tuple[int, int]]] = {}

    def read(self, text: str) -> RuleFile:
        tree = read_tree(text, self.file)
        receivers: tuple[Receiver, ...] = ()
        rules: tuple[Rule, ...] = ()
        if tree is not None and (top := self._try(self._fields, tree, "the file", _TOP)) is not None:
            if "receivers" in top.values:
                receivers = tuple(self._try(self._receivers, top.values["receivers"]) or ())
            if "rules" in top.values:
                rules = tuple(self._try(self._rules, top.values["rules"]) or ())
        if self.problems:
            raise RuleFileError(sorted(self.problems)[:MAX_PROBLEMS])
        return RuleFile(self.file, text, receivers, rules, self.places)

    # ---- mistakes

    def _fail(self, node: Node, text: str) -> _Stop:
        return self._fail_at(node.line, node.column, text)

    def _fail_at(self, line: int, column: int, text: str) -> _Stop:
        self.problems.append(Problem(self.file, line, column, text))
        return _Stop()

    def _try(self, read: Callable[..., T], *args: object) -> T | None:
        try:
            return read(*args)
        except _Stop:
            return None

    # ---- shapes

    def _fields(self, node: Node, what: str, known: Iterable[str]) -> Fields:
        if not isinstance(node, Fields):
            raise self._fail(node, f"{what} must be a mapping with the keys {', '.join(known)}")
        for name, key in node.keys.items():
            if name not in known:
                hint = near(name, known) or f"; known are {', '.join(known)}"
                self._fail(key, f"unknown key {name!r} in {what}{hint}")
        return node

    def _items(self, node: Node, what: str, most: int) -> list[Node]:
        if not isinstance(node, Items):
            raise self._fail(node, f"{what} must be a list")
        if len(node.nodes) > most:
            raise self._fail(node.nodes[most], f"more than {most} entries in {what}: split it")
        return node.nodes

    def _text(self, node: Node, what: str) -> Text:
        if not isinstance(node, Text):
            kind = "a list" if isinstance(node, Items) else "a mapping"
            raise self._fail(node, f"{what} must be a text, not {kind}; put it in quotes if it holds {{ or [")
        if not node.value.strip():
            raise self._fail(node, f"{what} is empty")
        return node

    # ---- receivers

    def _receivers(self, node: Node) -> list[Receiver]:
        if not isinstance(node, Fields):
            raise self._fail(node, "receivers must be a mapping of names, as in {ops: {mail: [ops@example.org]}}")
        if len(node.keys) > MAX_RECEIVERS:
            raise self._fail(node, f"more than {MAX_RECEIVERS} receivers: split the file")
        found = [self._try(self._receiver, name, key, node.values[name]) for name, key in node.keys.items()]
        return [one for one in found if one is not None]

    def _receiver(self, name: str, key: Text, node: Node) -> Receiver:
        self._name(key, "a receiver")
        if name == DEFAULT_RECEIVER:
            raise self._fail(key, f"the receiver {DEFAULT_RECEIVER!r} is that of the command line: choose another name")
        kinds = receiver_kinds()
        fields = self._fields(node, f"receiver {name!r}", kinds)
        if not fields.values:
            ways = " or ".join(f"{kind.name}: [{kind.example}]" for kind in kinds.values())
            raise self._fail(node, f"receiver {name!r} has no {' or '.join(kinds)}: write {ways}")
        named = [(kinds[kind], node) for kind, node in fields.values.items() if kind in kinds]
        read = [self._try(self._targets, name, kind, addresses) or () for kind, addresses in named]
        return Receiver(name, tuple(dict.fromkeys(one for some in read for one in some)), key.line, key.column)

    def _targets(self, name: str, kind: ReceiverKind[Any], node: Node) -> list[str]:
        addresses = self._items(node, f"{kind.name} of {name!r}", MAX_ADDRESSES)
        if not addresses:
            raise self._fail(node, f"{kind.name} of {name!r} is empty: name an address at least")
        read = [self._try(self._address, kind, address) for address in addresses]
        return [target_of(kind.name, one) for one in read if one]

    def _address(self, kind: ReceiverKind[Any], node: Node) -> str:
        text = self._text(node, "an address")
        if not kind.accepts(text.value):
            raise self._fail(node, f"{text.value!r:.100} is no {kind.noun}: write {kind.example} in plain ASCII")
        return text.value

    def _name(self, text: Text, what: str) -> str:
        if not _NAME.fullmatch(text.value):
            raise self._fail(
                text,
                f"{text.value!r:.100} cannot name {what}: use letters, digits and _ . : / - only, at most 100",
            )
        return text.value

    # ---- rules

    def _rules(self, node: Node) -> list[Rule]:
        found = [self._try(self._rule, one) for one in self._items(node, "rules", MAX_RULES)]
        return [rule for rule in found if rule is not None]

    def _rule(self, node: Node) -> Rule:
        fields = self._fields(node, "a rule", _RULE)
        before = len(self.problems)
        for key in _NEEDED:
            if key not in fields.values:
                self._fail(node, f"the rule has no {key}{_WHY[key]}")
        name = self._try(self._rule_name, fields.values["name"]) if "name" in fields.values else None
        rule = self._parts(fields, name or "?", node.line)
        if rule is None or name is None or len(self.problems) > before:
            raise _Stop
        return rule

    def _rule_name(self, node: Node) -> str:
        name = self._name(self._text(node, "name"), "a rule")
        if name in self.places:
            raise self._fail(node, f"a rule {name!r} stands in line {self.places[name][''][0]} already")
        self.places[name] = {"": (node.line, node.column)}
        return name

    def _parts(self, fields: Fields, name: str, line: int) -> Rule | None:
        """Every part is read, so that each mistake is told, before the rule is given up."""

        def get(key: str, read: Callable[[Node], T]) -> T | None:
            return self._try(read, fields.values[key]) if key in fields.values else None

        query = get("expr", self._expr)
        threshold, resolve = get("threshold", self._condition), get("resolve", self._condition)
        hold, missing, labels = get("for", self._hold), get("missing", self._missing), get("labels", self._labels)
        receivers = get("receivers", lambda node: self._named(node, name))
        summary = get("summary", self._summary)
        if query is None or threshold is None or missing is None:
            return None
        return Rule(
            name, query.text or "", asked_now(query), threshold, resolve, hold or 0, missing, labels or (),
            receivers or (), summary or "{rule}: {value}, and the threshold is {threshold}", self.file, line,
        )  # fmt: skip

    def _expr(self, node: Node) -> Expr:
        text = self._text(node, "expr")
        try:
            query = parse(text.value)
        except QueryError as problem:
            line, column = position_of(text, problem.position or 0)
            raise self._fail_at(line, column, f"expr: {problem.message}") from None
        for inner in walk(query.node):
            if (fixed := _fixed_time(inner)) is not None:
                line, column = position_of(text, inner.span[0] if inner.span else 0)
                raise self._fail_at(
                    line, column, f"expr: {fixed} is always the same time: a rule asks about now, as in now-5m"
                )
        return query

    def _condition(self, node: Node) -> Condition:
        text = self._text(node, "the condition")
        try:
            return parse_condition(text.value)
        except ConditionError as problem:
            raise self._fail(node, str(problem)) from None

    def _hold(self, node: Node) -> int:
        text = self._text(node, "for").value
        if _NO_TIME.fullmatch(text):
            return 0
        try:
            found = parse_duration(text, "for")
        except QueryError as problem:
            hint = f', for example "{text}s"' if text.isdecimal() else ""
            raise self._fail(node, problem.message + hint) from None
        if found > MAX_HOLD_MS:
            raise self._fail(node, f"for {text} is too long: at most 30d")
        return found

    def _missing(self, node: Node) -> Missing:
        text = self._text(node, "missing").value
        if text not in Missing.__members__.values():
            raise self._fail(node, f"missing {text!r:.50} is unknown{near(text, list(Missing))}{_WHY['missing']}")
        return Missing(text)

    def _labels(self, node: Node) -> Labels:
        if not isinstance(node, Fields):
            raise self._fail(node, "labels must be a mapping, as in {severity: page}")
        if len(node.keys) > MAX_LABELS:
            raise self._fail(node, f"more than {MAX_LABELS} labels")
        pairs = []
        for name, key in node.keys.items():
            value = self._text(node.values[name], f"label {name!r}").value
            try:
                validate_labels({name: value})
            except LabelError as problem:
                raise self._fail(key, str(problem)) from None
            pairs.append((name, value))
        return tuple(sorted(pairs))

    def _named(self, node: Node, rule: str) -> tuple[str, ...]:
        names = []
        for one in self._items(node, "receivers", MAX_ADDRESSES):
            text = self._text(one, "a receiver")
            names.append(text.value)
            self.places.setdefault(rule, {"": (node.line, node.column)})[text.value] = (one.line, one.column)
        return tuple(dict.fromkeys(names))

    def _summary(self, node: Node) -> str:
        text = self._text(node, "summary")
        if len(text.value) > MAX_SUMMARY:
            raise self._fail(node, f"the summary has {len(text.value)} characters: use at most {MAX_SUMMARY}")
        try:
            check_template(text.value)
        except TemplateError as problem:
            line, column = position_of(text, problem.position)
            raise self._fail_at(line, column, f"summary: {problem}") from None
        return text.value


_WHY = {
    "name": ": give each rule one of its own",
    "expr": ": say what is asked, as in expr: fetch('NAME')",
    "threshold": ': say when it is bad, as in threshold: "> 5" or threshold: "== true"',
    "missing": ": say what missing data means: resolve (it is well), keep (stay as it is) or fire (it is bad)",
}


def _fixed_time(node: object) -> str | None:
    if isinstance(node, At) and not node.instant.relative:
        return f".at({node.instant})"
    if isinstance(node, Between) and not (node.end.relative and node.start.relative):
        return f".between({node.start}, {node.end})"
    return None


def asked_now(query: Expr) -> Expr:
    """The query of the newest bucket alone, where it does not say its time itself."""
    if any(isinstance(node, Range | Between | At) for node in walk(query.node)):
        return query
    return Expr(At(query.node, Instant(0, relative=True)), 1, query.text)
