"""Mapping rules: which attribute of which bean becomes which variable. The file format: docs/sources.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from artimon.model.values import Kind, ValueType
from sources.scrape.jmx.name_patterns import BeanPattern, Pattern, Template

WHOLE = "*:*"
_MAX_QUERIES = 8
RUNTIME = "java.lang"
"""The domain of the bean that says when the JVM started; it is asked first (see `queries`)."""


@dataclass(frozen=True, slots=True)
class VariableRule:
    """One variable of a bean; `path` leads to its number, a step may have places that match several."""

    name: str
    labels: Mapping[str, Template]
    path: tuple[Pattern, ...]
    type: ValueType = ValueType.INTEGER
    kind: Kind = Kind.GAUGE
    unit: str = ""
    help: str = ""
    multiply: int = 1
    divide: int = 1
    missing: tuple[float, ...] = ()
    """Numbers that say that there is no value, such as the -1 of a memory pool without limit."""
    values: Mapping[str, int] = field(default_factory=dict)
    """Text -> number; `else` is any other text."""
    except_: tuple[Pattern, ...] = ()
    """Attributes that the first step of the path matches, but that are not meant."""


@dataclass(frozen=True, slots=True)
class BeanRule:
    """The variables of the beans that fit a pattern."""

    pattern: BeanPattern
    variables: tuple[VariableRule, ...]
    tags: frozenset[str]
    """Attributes `tag.…` whose text stands in labels."""


def queries(rules: Sequence[BeanRule]) -> tuple[str, ...]:
    """What to ask a bean server for: its domains that have rules, so that it need not read what nobody wants.

    The start of the process is asked first: were the server to restart between two answers, its new, smaller counters
    would be taken for ones that fell, and never an old one for a new process's."""
    domains = sorted({rule.pattern.domain.text for rule in rules if rule.pattern.domain.literal} - {RUNTIME})
    if len(domains) >= _MAX_QUERIES or not all(rule.pattern.domain.literal for rule in rules):
        return (WHOLE,)
    return (f"{RUNTIME}:*", *(f"{domain}:*" for domain in domains))
