"""Files of mapping rules: YAML with a list `beans` that maps attributes to variables. Format: docs/sources.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from pydantic_core import InitErrorDetails

from artimon.model.labels import validate_labels, validate_name
from artimon.model.values import Kind, ValueType
from artimon.runtime.config_file import ConfigFile, read_config
from artimon.runtime.config_model import Section, built, checked, choice, fault, parsed, validation_error
from sources.scrape.jmx.name_patterns import (
    BeanPattern,
    LabelTemplate,
    Pattern,
    PatternError,
    parse_bean_pattern,
    parse_pattern,
    parse_template,
)

MAX_RULES = 10_000
RULE_SETS = ("hbase", "hdfs", "jvm", "kafka", "spark", "zookeeper")
"""Rule sets of the package, by the names of their files."""
_TYPES = {"integer": ValueType.INTEGER, "double": ValueType.DOUBLE, "boolean": ValueType.BOOLEAN}
_KINDS = {"counter": Kind.COUNTER, "gauge": Kind.GAUGE}
_UNITS = ("bytes", "ms")
"""Units that are taken from the last word of a name."""
_EACH = "each"


def _path(text: str) -> tuple[Pattern, ...]:
    """Parse the steps between dots; `tag.Name` is one attribute."""
    steps = [text] if text.startswith("tag.") else text.split(".")
    if not all(steps):
        raise PatternError(f"{text!r}: want Attribute or Attribute.part.part")
    return tuple(parse_pattern(step) for step in steps)


LabelName = Annotated[str, checked(lambda label: validate_labels({label: ""}))]
Labels = dict[LabelName, Annotated[LabelTemplate, parsed(parse_template)]]
Positive = Annotated[int, Field(gt=0, lt=1 << 62)]


ALL_BEANS = "*:*"
_MAX_QUERIES = 8
RUNTIME = "java.lang"
"""Domain of the bean with the start time of the JVM; it is requested first (see `queries`)."""


@dataclass(frozen=True, slots=True)
class VariableRule:
    """Variable of a bean; `path` leads to its value, and a step with places may match several."""

    name: str
    labels: Mapping[str, LabelTemplate]
    path: tuple[Pattern, ...]
    type: ValueType = ValueType.INTEGER
    kind: Kind = Kind.GAUGE
    unit: str = ""
    help: str = ""
    multiply: int = 1
    divide: int = 1
    missing: tuple[float, ...] = ()
    """Numbers that mean "no value", such as the -1 of a memory pool without limit."""
    values: Mapping[str, int] = field(default_factory=dict)
    """Text -> number; `else` is any other text."""
    except_: tuple[Pattern, ...] = ()
    """Exclusions: attributes that the first step of the path matches, but that are skipped."""


@dataclass(frozen=True, slots=True)
class BeanRule:
    """Variables of the beans that match a pattern."""

    pattern: BeanPattern
    variables: tuple[VariableRule, ...]
    tags: frozenset[str]
    """Attributes `tag.…` whose text is used in labels."""


def queries(rules: Sequence[BeanRule]) -> tuple[str, ...]:
    """Return the queries for a bean server: only the domains that have rules, to spare it unused beans.

    The start time of the process is requested first. If the server restarts between two answers, its new, smaller
    counters then look like resets, and old counters are never attributed to the new process."""
    domains = sorted({rule.pattern.domain.text for rule in rules if rule.pattern.domain.literal} - {RUNTIME})
    if len(domains) >= _MAX_QUERIES or not all(rule.pattern.domain.literal for rule in rules):
        return (ALL_BEANS,)
    return (f"{RUNTIME}:*", *(f"{domain}:*" for domain in domains))


class VariableSection(Section):
    """Variable of an attribute, or of each of `attributes`, whose right side is `<each>` in the labels."""

    name: Annotated[str, checked(validate_name)]
    attribute: Annotated[str, checked(_path)] = ""
    attributes: dict[Annotated[str, checked(_path)], str] = Field(default_factory=dict)
    labels: Labels = Field(default_factory=dict)
    type: Annotated[ValueType, choice(_TYPES)] = ValueType.INTEGER
    kind: Annotated[Kind, choice(_KINDS)] = Kind.GAUGE
    unit: str | None = None
    help: str = ""
    multiply: Positive = 1
    divide: Positive = 1
    missing: tuple[float, ...] = ()
    values: dict[str, int] = Field(default_factory=dict)
    except_: tuple[Annotated[Pattern, parsed(parse_pattern)], ...] = Field(default=(), alias="except")

    @classmethod
    def contradictions(cls, data: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
        if ("attribute" in data) == ("attributes" in data):
            yield fault("want `attribute:` or `attributes:`, one of the two")

    def rules(self, places: frozenset[str], common: Mapping[str, LabelTemplate]) -> Iterator[VariableRule]:
        """Yield the rules. `places` and `common`: named places and labels of the bean. Raises PatternError."""
        for attribute, each in self.attributes.items() or [(self.attribute, "")]:
            path = _path(attribute)
            known = places | {place for step in path for place in step.places} | ({_EACH} if each else frozenset())
            labels = {**common, **self.labels}
            for label, template in labels.items():
                lost = {use for use in template.uses if not use.startswith("tag.")} - known
                if lost:
                    raise PatternError(f"label {label}: no place is named <{min(lost)}>")
            filled = {label: _filled(one, each) if each else one for label, one in labels.items()}
            yield self._rule(path, filled)

    def _rule(self, path: tuple[Pattern, ...], labels: Mapping[str, LabelTemplate]) -> VariableRule:
        last = self.name.rpartition(".")[2]
        unit = self.unit if self.unit is not None else last if last in _UNITS else ""
        same = {"type", "kind", "help", "multiply", "divide", "missing", "values"}
        return VariableRule(
            self.name, labels, path, unit=unit, except_=self.except_, **{name: getattr(self, name) for name in same}
        )


class BeanSection(Section):
    """Variables of the beans that match a pattern."""

    bean: Annotated[BeanPattern, parsed(parse_bean_pattern)]
    labels: Labels = Field(default_factory=dict)
    variables: tuple[VariableSection, ...]

    def build(self) -> BeanRule:
        rules: list[VariableRule] = []
        for number, variable in enumerate(self.variables):
            try:
                rules.extend(variable.rules(self.bean.places, self.labels))
            except PatternError as error:
                raise validation_error(fault(str(error), "variables", number)) from None
        uses = {use for rule in rules for template in rule.labels.values() for use in template.uses}
        return BeanRule(self.bean, tuple(rules), frozenset(use for use in uses if use.startswith("tag.")))


class _RuleFile(Section):
    beans: tuple[Annotated[BeanRule, built(BeanSection)], ...] = Field(description="write `beans:` and a list")


@cache
def rule_set(name: str) -> tuple[BeanRule, ...]:
    return rules_of(read_config(resources.files("sources.scrape.jmx") / "rule_sets" / f"{name}.yaml", f"{name}.yaml"))


def read_rules(path: Path) -> tuple[BeanRule, ...]:
    """Return the rules of a file. Raises ConfigFileError."""
    return rules_of(read_config(path, form="yaml"))


def rules_of(file: ConfigFile) -> tuple[BeanRule, ...]:
    """Return the rules of a parsed file. Raises ConfigFileError."""
    beans = file.validate(_RuleFile).beans
    if sum(len(bean.variables) for bean in beans) > MAX_RULES:
        raise file.error(f"more than {MAX_RULES} variables: split the file", "beans")
    return beans


def _filled(template: LabelTemplate, each: str) -> LabelTemplate:
    """Replace `<each>` by its text."""
    return LabelTemplate(tuple((b + each, "", "") if n == _EACH else (b, n, f) for b, n, f in template.pieces))
