"""Rule files: YAML with receivers and rules. Every mistake of a file is reported with its position. docs/alerts.md."""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated, Any, Self

from pydantic import Field, ValidationInfo, create_model, model_validator

from alerts.receivers.receiver_kind import ReceiverKind, receiver_kinds
from alerts.state.conditions import Condition, parse_condition
from alerts.state.notification import target_of
from alerts.state.rule import AcceptedAnswer, MissingDataPolicy, ParsedRuleFile, Receiver, Rule, check_template
from artimon.model.labels import validate_labels
from artimon.runtime.config_file import ConfigFile, parse_config
from artimon.runtime.config_model import (
    Conversion,
    Section,
    Text,
    checked,
    choice,
    fault,
    parsed,
    raise_faults,
    repeated,
)
from query_dsl import Expr, QueryError, parse
from query_dsl.tree.nodes import At, Between, Range, walk
from query_dsl.tree.times import Instant, parse_duration

MAX_RULES = 100_000
MAX_RECEIVERS = 1_000
MAX_ADDRESSES = 50
MAX_LABELS = 20
MAX_SUMMARY = 500
MAX_HOLD_MS = 30 * 86_400_000
DEFAULT_RECEIVER = "default"

_NAME = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9_.:/\-]{0,99}")
_NO_TIME = re.compile(r"0(?:ms|[smhdw])?")


def _check_name(text: str) -> None:
    if not _NAME.fullmatch(text):
        raise ValueError(f"{text!r:.100} cannot be a name: use letters, digits and _ . : / - only, at most 100")


def _check_receiver(name: str) -> None:
    _check_name(name)
    if name == DEFAULT_RECEIVER:
        raise ValueError(f"receiver {name!r} is reserved for the command line: choose another name")


def _expr(text: str) -> Expr:
    query = parse(text)
    for inner in walk(query.node):
        if (fixed := _fixed_time(inner)) is not None:
            problem = f"{fixed} is a fixed time: a rule asks about now, as in now-5m"
            raise QueryError(problem, inner.span[0] if inner.span else 0)
    return query


def _hold(text: str, key: str = "for") -> int:
    if _NO_TIME.fullmatch(text):
        return 0
    try:
        found = parse_duration(text, key)
    except QueryError as problem:
        hint = f', for example "{text}s"' if text.isdecimal() else ""
        raise ValueError(problem.message + hint) from None
    if found > MAX_HOLD_MS:
        raise ValueError(f"{text} is too long: at most 30d")
    return found


def _summary(text: str) -> str:
    if len(text) > MAX_SUMMARY:
        raise ValueError(f"the summary has {len(text)} characters: use at most {MAX_SUMMARY}")
    check_template(text)
    return text


Name = Annotated[Text, checked(_check_name)]
Query = Annotated[Expr, parsed(_expr, blank=False)]
Threshold = Annotated[Condition, parsed(parse_condition, blank=False)]
ReceiverName = Annotated[str, checked(_check_receiver)]
LabelName = Annotated[str, checked(lambda name: validate_labels({name: ""}))]


class _Targets(Section):
    """Receiver of alerts: addresses by kind of receiver."""

    @model_validator(mode="after")
    def _check_any(self) -> Self:
        if not any(getattr(self, kind) for kind in receiver_kinds()):
            ways = " or ".join(f"{kind.name}: [{kind.example}]" for kind in receiver_kinds().values())
            raise_faults([fault(f"{' or '.join(receiver_kinds())}: missing: write {ways}")])
        return self

    def build(self) -> tuple[str, ...]:
        """Return the targets in the form of notifications, see target_of."""
        return tuple(target_of(kind, one) for kind in receiver_kinds() for one in dict.fromkeys(getattr(self, kind)))


def _addresses(kind: ReceiverKind[Any]) -> tuple[Any, Any]:
    def check(text: str) -> None:
        if not kind.accepts(text):
            raise ValueError(f"{text!r:.100} is not a {kind.noun}: write {kind.example} in plain ASCII")

    type_: Any = tuple[Annotated[Text, checked(check)], ...]
    return type_, Field(
        default=(), min_length=1, max_length=MAX_ADDRESSES, description=f"write {kind.name}: [{kind.example}]"
    )


@cache
def _section_of(kinds: tuple[ReceiverKind[Any], ...]) -> type[_Targets]:
    fields: dict[str, Any] = {kind.name: _addresses(kind) for kind in kinds}
    return create_model("ReceiverSection", __base__=_Targets, **fields)


def _receiver(data: Any, info: ValidationInfo) -> tuple[str, ...]:
    section = _section_of(tuple(receiver_kinds().values()))
    return section.model_validate(data, context=info.context).build()


class RuleSection(Section):
    """Rule as written in a file."""

    name: Name = Field(description="give each rule a unique name")
    expr: Query = Field(description="give the query, as in expr: fetch('NAME')")
    threshold: Threshold = Field(description="""give the condition, as in threshold: "> 5" or threshold: "== true\"""")
    missing: Annotated[MissingDataPolicy, choice({one.value: one for one in MissingDataPolicy})] = Field(
        description="choose the policy for missing data: resolve, keep (the alert stays as it is) or fire"
    )
    hold: Annotated[int, parsed(_hold, blank=False)] = Field(default=0, alias="for")
    keep: Annotated[int, parsed(lambda text: _hold(text, "keep_firing_for"), blank=False)] = Field(
        default=0, alias="keep_firing_for"
    )
    resolve: Threshold | None = None
    labels: Annotated[dict[LabelName, Text], checked(validate_labels)] = Field(
        default_factory=dict, max_length=MAX_LABELS
    )
    receivers: tuple[Text, ...] = Field(default=(), max_length=MAX_ADDRESSES)
    accept: tuple[Annotated[AcceptedAnswer, choice({one.value: one for one in AcceptedAnswer})], ...] = ()
    summary: Annotated[str, parsed(_summary, blank=False)] = "{rule}: {value}, and the threshold is {threshold}"

    def build(self, file: str, line: int) -> Rule:
        """Return the rule; `line` is the first line of its section."""
        return Rule(
            self.name, self.expr.text or "", tree_at_now(self.expr), self.threshold, self.resolve, self.hold,
            self.missing, tuple(sorted(self.labels.items())), tuple(dict.fromkeys(self.receivers)), self.summary,
            file, line, self.accept, self.keep,
        )  # fmt: skip


class _RuleDocument(Section):
    receivers: dict[ReceiverName, Annotated[tuple[str, ...], Conversion(_receiver)]] = Field(
        default_factory=dict,
        max_length=MAX_RECEIVERS,
        description="names with addresses, as in {ops: {mail: [ops@example.org]}}",
    )
    rules: tuple[RuleSection, ...] = Field(default=(), max_length=MAX_RULES)

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        raise_faults(repeated((f"rule {rule.name!r}", ("rules", at, "name")) for at, rule in enumerate(self.rules)))
        return self


def parse_rules(text: str, file: str) -> ParsedRuleFile:
    """Return the rules of a file named `file`. Raises ConfigFileError."""
    parsed_file = parse_config(text, file)
    document = parsed_file.validate(_RuleDocument)
    receivers = tuple(
        Receiver(name, one, *parsed_file.position(("receivers", name, "[key]")))
        for name, one in document.receivers.items()
    )
    rules = tuple(rule.build(file, parsed_file.position(("rules", at))[0]) for at, rule in enumerate(document.rules))
    return ParsedRuleFile(file, text, receivers, rules, _places(parsed_file, document))


def _places(file: ConfigFile, document: _RuleDocument) -> dict[str, dict[str, tuple[int, int]]]:
    """Positions of the rules' names, and of the receivers that they name."""
    places = {}
    for at, rule in enumerate(document.rules):
        named = {name: file.position(("rules", at, "receivers", i)) for i, name in enumerate(rule.receivers)}
        places[rule.name] = {"": file.position(("rules", at, "name")), **named}
    return places


def _fixed_time(node: object) -> str | None:
    if isinstance(node, At) and not node.instant.relative:
        return f".at({node.instant})"
    if isinstance(node, Between) and not (node.end.relative and node.start.relative):
        return f".between({node.start}, {node.end})"
    return None


def tree_at_now(query: Expr) -> Expr:
    """Restrict the query to the newest bucket, unless it states its time itself."""
    if any(isinstance(node, Range | Between | At) for node in walk(query.node)):
        return query
    return Expr(At(query.node, Instant(0, relative=True)), 1, query.text)
