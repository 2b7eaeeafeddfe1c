"""Binding of schema columns to series: application and automatic labels, canonical text, fingerprint. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from artimon.model.fingerprint import fingerprint
from artimon.model.labels import LabelError, canonical, validate_name
from artimon.model.values import Kind, ValueType
from bookkeeper.variables.canonical import LABELS
from sources.state.relabel import RelabelRules
from sources.state.source_reading import SourceSchema


@dataclass(frozen=True, slots=True)
class BoundColumn:
    """Valid column of a schema, with its series and the description for announcements."""

    at: int
    text: str
    fingerprint: int
    type: ValueType
    kind: Kind
    help: str
    unit: str


@dataclass(frozen=True, slots=True)
class BoundSchema:
    """Schema with its columns bound to series. Refused columns are counted by reason, with one example of each."""

    schema: SourceSchema
    columns: tuple[BoundColumn, ...]
    refused: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)
    changed_by_rule: Mapping[str, int] = field(default_factory=dict)
    """Rule -> series that it dropped or changed."""


def bind_schema(schema: SourceSchema, automatic: Mapping[str, str], rules: RelabelRules | None = None) -> BoundSchema:
    """Bind the columns of a schema. Labels of the application override `automatic` ones (context, instance, placement).

    Series dropped by `rules` do not count as refused."""
    columns: list[BoundColumn] = []
    refused: Counter[str] = Counter()
    examples: dict[str, str] = {}
    acted: Counter[str] = Counter()
    seen: set[str] = set()
    texts = _TextCache(automatic)
    for at, (name, labels) in enumerate(zip(schema.names, schema.labels, strict=True)):
        try:
            text = texts.of(name, labels) if rules is None else relabel(name, labels, automatic, rules, acted)
            if text is None:
                continue
            column = _column(schema, at, name, text)
        except (LabelError, ValueError) as error:
            refused["bad name or label"] += 1
            examples.setdefault("bad name or label", str(error))
            continue
        if text in seen:
            refused["same series twice"] += 1
            examples.setdefault("same series twice", text)
            continue
        seen.add(text)
        columns.append(column)
    return BoundSchema(schema, tuple(columns), dict(refused), examples, acted)


def relabel(
    name: str, labels: Mapping[str, str], automatic: Mapping[str, str], rules: RelabelRules, acted: Counter[str]
) -> str | None:
    """Return the canonical text after the rules, None if they drop the series. `acted` counts the rules that act."""
    left = rules.apply(name, {**automatic, **labels}, acted)
    return None if left is None else canonical(*left)


def canonical_text(name: str, labels: Mapping[str, str], automatic: Mapping[str, str]) -> str:
    """Return the canonical text of a series; its own `labels` override `automatic` ones. Raises LabelError."""
    both = {**automatic, **labels}
    if len(both) > LABELS:
        own, total = (sum(value != "" for value in some.values()) for some in (labels, both))
        if own < total > LABELS:
            raise LabelError(f"{own} labels and {total - own} added: at most {LABELS} in all")
    return canonical(name, both)


class _TextCache:
    """Cache of `canonical_text`: most variables share their labels, which are validated and formatted once."""

    def __init__(self, automatic: Mapping[str, str]) -> None:
        self._automatic = automatic
        self._braces: dict[tuple[tuple[str, str], ...], str] = {}

    def of(self, name: str, labels: Mapping[str, str]) -> str:
        key = tuple(labels.items())
        braces = self._braces.get(key)
        if braces is None:
            braces = self._braces[key] = canonical_text("_", labels, self._automatic)[1:]
        return validate_name(name) + braces


def _column(schema: SourceSchema, at: int, name: str, text: str) -> BoundColumn:
    value_type, kind = ValueType(int(schema.types[at])), Kind(int(schema.kinds[at]))
    if value_type == ValueType.ENDED:
        raise ValueError(f"{name}: {int(value_type)} is not the type of a variable")
    help_, unit = schema.help.get(name, ""), schema.units.get(name, "")
    return BoundColumn(at, text, fingerprint(text), value_type, kind, help_, unit)
