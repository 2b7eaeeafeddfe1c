"""Mapping rules from attributes of beans to variables. File format: docs/sources.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from artimon.model.values import Kind, ValueType
from sources.scrape.jmx.name_patterns import BeanPattern, LabelTemplate, Pattern

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
