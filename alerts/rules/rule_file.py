"""Rule files: YAML with receivers and rules. Every mistake of a file is reported with its position. docs/alerts.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, Self

from pydantic import Field, ValidationInfo, create_model, model_validator
from pydantic_core import InitErrorDetails

from alerts.receivers.receiver_kind import ReceiverKind, receiver_kinds
from alerts.rules.prometheus_rules import prometheus_rules
from alerts.rules.slo_file import MAX_SLOS, SloSection
from alerts.state.conditions import Condition, parse_condition
from alerts.state.notification import target_of
from alerts.state.rule import (
    MIN_INTERVAL_MS,
    MINUTE_MS,
    AcceptedAnswer,
    FlapLimit,
    Labels,
    MissingDataPolicy,
    ParsedRuleFile,
    Receiver,
    RecordingRule,
    Rule,
    check_template,
)
from alerts.templates.jinja_parser import is_template, parse_jinja
from alerts.templates.template_nodes import Template
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
from query_dsl.promql import PromqlError, Query
from query_dsl.promql import parse as parse_promql
from query_dsl.promql.tree import value_type
from query_dsl.tree.nodes import (
    Absent,
    At,
    Between,
    Binary,
    Fetch,
    Named,
    Node,
    Point,
    Range,
    Reduce,
    Scalar,
    Unary,
    walk,
)
from query_dsl.tree.times import Instant, parse_duration

MAX_RULES = 100_000
MAX_RECEIVERS = 1_000
MAX_ADDRESSES = 50
MAX_LABELS = 20
MAX_SUMMARY = 500
MAX_HOLD_MS = 30 * 86_400_000
MAX_INTERVAL_MS = 86_400_000
MAX_SEVERITIES = 10
MAX_FLAP_ENDS = 100
DEFAULT_RECEIVER = "default"
SEVERITY = "severity"
"""Label of the rules that one rule with several severities stands for."""
SUMMARY = "{rule}: {value}, and the threshold is {threshold}"
SUMMARY_OF_VALUE = "{rule}: {value}"
THRESHOLD_HINT = """give the condition, as in threshold: "> 5" or threshold: "== true\""""
NEEDS_THRESHOLD = {
    "missing": "missing data needs a threshold: without one the absence of a series resolves its alert",
    "resolve": "this recovery threshold needs a threshold: or give a recovery query by resolve_promql",
    "resolve_promql": "a recovery query is for promql without a threshold: give a recovery threshold by resolve",
}

NEWEST_ONLY = (
    "an interval below a minute reads the newest values only: leave out windows and times, ask by promql, or use an"
    " interval of a minute"
)
_NEWEST = (Absent, Binary, Fetch, Named, Point, Reduce, Scalar, Unary)
"""Nodes whose value at a time depends on the values of that time only."""

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


def _interval(text: str) -> int:
    found = _hold(text, "interval")
    if not MIN_INTERVAL_MS <= found <= MAX_INTERVAL_MS:
        raise ValueError(f"{text}: the interval is 5s to 1d")
    return found


def _summary(text: str) -> str:
    if len(text) > MAX_SUMMARY:
        raise ValueError(f"the summary has {len(text)} characters: use at most {MAX_SUMMARY}")
    check_template(text)
    return text


def _check_labels(labels: Mapping[str, str | Template]) -> None:
    validate_labels({name: text if isinstance(text, str) else "" for name, text in labels.items()})


def _promql(text: str) -> Query:
    found = parse_promql(text)
    if value_type(found.node) not in ("vector", "scalar"):
        raise PromqlError(f"a rule needs an instant vector, not a {value_type(found.node)}", 0, text)
    return found


Name = Annotated[Text, checked(_check_name)]
DslQuery = Annotated[Expr, parsed(_expr, blank=False)]
PromqlQuery = Annotated[Query, parsed(_promql, blank=False)]
Hold = Annotated[int, parsed(_hold, blank=False)]
KeepFiring = Annotated[int, parsed(lambda text: _hold(text, "keep_firing_for"), blank=False)]
Interval = Annotated[int, parsed(_interval, blank=False)]
Threshold = Annotated[Condition, parsed(parse_condition, blank=False)]
ReceiverName = Annotated[str, checked(_check_receiver)]
LabelValue = Annotated[
    str | Template, parsed(lambda text: parse_jinja(text) if is_template(text) else text, blank=False)
]
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


class SeveritySection(Section):
    """Condition of one severity of a rule; what it leaves out is that of the rule."""

    threshold: Threshold = Field(description=THRESHOLD_HINT)
    resolve: Threshold | None = None
    hold: Hold | None = Field(default=None, alias="for")
    keep: KeepFiring | None = Field(default=None, alias="keep_firing_for")


class FlapSection(Section):
    """Limit from which an alert flaps."""

    ends: int = Field(ge=1, le=MAX_FLAP_ENDS, description="write a number of ends, as in {ends: 4, within: 1h}")
    within: Annotated[int, parsed(lambda text: _hold(text, "within"), blank=False)] = Field(
        description="write a duration, as in {ends: 4, within: 1h}"
    )


class RuleSection(Section):
    """Rule as written in a file."""

    name: Name = Field(description="give each rule a unique name")
    expr: DslQuery | None = None
    promql: PromqlQuery | None = None
    threshold: Threshold | None = None
    severities: dict[Name, SeveritySection] = Field(
        default_factory=dict,
        max_length=MAX_SEVERITIES,
        description='write a threshold for each, as in {warning: {threshold: "> 5"}}',
    )
    missing: Annotated[MissingDataPolicy, choice({one.value: one for one in MissingDataPolicy})] | None = None
    hold: Hold = Field(default=0, alias="for")
    keep: KeepFiring = Field(default=0, alias="keep_firing_for")
    interval: Interval = MINUTE_MS
    flapping: FlapSection | None = None
    resolve: Threshold | None = None
    resolve_promql: PromqlQuery | None = None
    labels: Annotated[dict[LabelName, LabelValue], checked(_check_labels)] = Field(
        default_factory=dict, max_length=MAX_LABELS
    )
    receivers: tuple[Text, ...] = Field(default=(), max_length=MAX_ADDRESSES)
    accept: tuple[Annotated[AcceptedAnswer, choice({one.value: one for one in AcceptedAnswer})], ...] = ()
    summary: Annotated[str, parsed(_summary, blank=False)] = ""
    annotations: dict[LabelName, Annotated[Template, parsed(parse_jinja)]] = Field(
        default_factory=dict, max_length=MAX_LABELS
    )

    @classmethod
    def contradictions(cls, data: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
        if ("expr" in data) == ("promql" in data):
            yield fault("expr: missing: give the query, as in expr: fetch('NAME') or promql: up == 0, and only one")
        judged = "threshold" in data or "severities" in data
        if "promql" not in data and not judged:
            yield fault(f"threshold: missing: {THRESHOLD_HINT}")
        if "threshold" in data and "severities" in data:
            yield fault("each severity has a threshold of its own", "threshold", of_key=True)
        if "missing" not in data and (judged or "promql" not in data):
            yield fault(
                "missing: missing: choose the policy for missing data: resolve, keep (the alert stays as it is) or fire"
            )
        if not judged and "promql" in data:
            for key in {"missing", "resolve"} & data.keys():
                yield fault(NEEDS_THRESHOLD[key], key, of_key=True)
        elif "resolve_promql" in data:
            yield fault(NEEDS_THRESHOLD["resolve_promql"], "resolve_promql", of_key=True)

    @model_validator(mode="after")
    def _check_interval(self) -> Self:
        if self.interval < MINUTE_MS and self.expr is not None and not _reads_newest(self.expr.node):
            raise_faults([fault(NEWEST_ONLY, "interval")])
        return self

    def build(self, file: str, line: int) -> Iterator[Rule]:
        """Yield a rule for each severity, or the only one; `line` is the first line of the section."""
        rule = self._build(file, line)
        if not self.severities:
            yield rule
        for severity, own in self.severities.items():
            yield replace(
                rule,
                name=f"{self.name}/{severity}",
                alert_name=self.name,
                threshold=own.threshold,
                resolve=own.resolve or self.resolve,
                hold_ms=self.hold if own.hold is None else own.hold,
                keep_ms=self.keep if own.keep is None else own.keep,
                labels=tuple(sorted({**dict(rule.labels), SEVERITY: severity}.items())),
            )

    def records(self, file: str, line: int) -> Iterator[RecordingRule]:  # noqa: ARG002
        """Yield nothing: recording rules are in files of Prometheus and of objectives."""
        yield from ()

    def _build(self, file: str, line: int) -> Rule:
        asked = self.promql or self.expr
        assert asked is not None
        judged = self.threshold is not None or bool(self.severities)
        return Rule(
            self.name, asked.text or "", asked if isinstance(asked, Query) else tree_at_now(asked), self.threshold,
            self.resolve, self.hold, self.missing or MissingDataPolicy.RESOLVE, split_labels(self.labels)[0],
            tuple(dict.fromkeys(self.receivers)), self.summary or (SUMMARY if judged else SUMMARY_OF_VALUE), file, line,
            self.accept, self.keep, self.resolve_promql, label_templates=split_labels(self.labels)[1],
            annotations=tuple(self.annotations.items()), interval_ms=self.interval,
            flaps=None if self.flapping is None else FlapLimit(self.flapping.ends, self.flapping.within),
        )  # fmt: skip


class _RuleDocument(Section):
    receivers: dict[ReceiverName, Annotated[tuple[str, ...], Conversion(_receiver)]] = Field(
        default_factory=dict,
        max_length=MAX_RECEIVERS,
        description="names with addresses, as in {ops: {mail: [ops@example.org]}}",
    )
    rules: tuple[RuleSection, ...] = Field(default=(), max_length=MAX_RULES)
    slos: tuple[SloSection, ...] = Field(default=(), max_length=MAX_SLOS)

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        raise_faults(repeated((f"rule {rule.name!r}", ("rules", at, "name")) for at, rule in enumerate(self.rules)))
        raise_faults(repeated((f"objective {slo.name!r}", ("slos", at, "name")) for at, slo in enumerate(self.slos)))
        return self


def split_labels(labels: Mapping[str, str | Template]) -> tuple[Labels, tuple[tuple[str, Template], ...]]:
    """Return the labels with fixed values, and those with templates."""
    fixed = ((name, text) for name, text in labels.items() if isinstance(text, str))
    return tuple(sorted(fixed)), tuple((name, one) for name, one in labels.items() if isinstance(one, Template))


def parse_rules(text: str, file: str) -> ParsedRuleFile:
    """Return the rules of a file named `file`, of ours or of Prometheus. Raises ConfigFileError."""
    parsed_file = parse_config(text, file)
    if isinstance(parsed_file.data, dict) and "groups" in parsed_file.data:
        return prometheus_rules(parsed_file)
    document = parsed_file.validate(_RuleDocument)
    receivers = tuple(
        Receiver(name, one, *parsed_file.position(("receivers", name, "[key]")))
        for name, one in document.receivers.items()
    )
    rules: list[Rule] = []
    records: list[RecordingRule] = []
    places: dict[str, dict[str, tuple[int, int]]] = {}
    kinds: dict[str, Sequence[RuleSection | SloSection]] = {"rules": document.rules, "slos": document.slos}
    for kind, sections in kinds.items():
        for at, section in enumerate(sections):
            line = parsed_file.position((kind, at))[0]
            made = list(section.build(file, line))
            rules += made
            places |= dict.fromkeys((one.name for one in made), _places(parsed_file, kind, at, section.receivers))
            records += section.records(file, line)
    return ParsedRuleFile(file, text, receivers, tuple(rules), places, tuple(records))


def read_objectives(text: str, file: str) -> tuple[SloSection, ...]:
    """Return the service level objectives of a file. Raises ConfigFileError."""
    parsed_file = parse_config(text, file)
    if isinstance(parsed_file.data, dict) and "groups" in parsed_file.data:
        return ()
    return parsed_file.validate(_RuleDocument).slos


def _places(file: ConfigFile, kind: str, at: int, receivers: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Positions of the name of a section, and of the receivers that it names."""
    named = {name: file.position((kind, at, "receivers", i)) for i, name in enumerate(receivers)}
    return {"": file.position((kind, at, "name")), **named}


def _fixed_time(node: object) -> str | None:
    if isinstance(node, At) and not node.instant.relative:
        return f".at({node.instant})"
    if isinstance(node, Between) and not (node.end.relative and node.start.relative):
        return f".between({node.start}, {node.end})"
    return None


def _reads_newest(tree: Node) -> bool:
    """Return True if a query depends on the newest value of each series only."""
    return all(
        isinstance(node, _NEWEST) and not (isinstance(node, Fetch) and node.resolution is not None)
        for node in walk(tree)
    )


def tree_at_now(query: Expr) -> Expr:
    """Restrict the query to the newest bucket, unless it states its time itself."""
    if any(isinstance(node, Range | Between | At) for node in walk(query.node)):
        return query
    return Expr(At(query.node, Instant(0, relative=True)), 1, query.text)
