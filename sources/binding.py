"""From the columns of a schema to series: labels of the application and automatic ones, text, fingerprint. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from artimon.model.fingerprint import fingerprint
from artimon.model.labels import LabelError, canonical
from artimon.model.values import Kind, ValueType
from bookkeeper.labels import LABELS
from sources.reading import Schema


@dataclass(frozen=True, slots=True)
class Column:
    """One usable column of a schema: which series it is, and what an announcement says of it."""

    at: int
    text: str
    fingerprint: int
    type: ValueType
    kind: Kind
    help: str
    unit: str


@dataclass(frozen=True, slots=True)
class Bound:
    """A schema whose columns have become series; what is left out is counted by reason, with an example of each."""

    schema: Schema
    columns: tuple[Column, ...]
    refused: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)


def bind(schema: Schema, automatic: Mapping[str, str]) -> Bound:
    """The series of a schema; `automatic` labels (context, instance, placement) give way to the application's."""
    columns: list[Column] = []
    refused: Counter[str] = Counter()
    examples: dict[str, str] = {}
    seen: set[str] = set()
    for at, (name, labels) in enumerate(zip(schema.names, schema.labels, strict=True)):
        try:
            text = text_of(name, labels, automatic)
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
    return Bound(schema, tuple(columns), dict(refused), examples)


def text_of(name: str, labels: Mapping[str, str], automatic: Mapping[str, str]) -> str:
    """The canonical text of a series: `labels` are its own, `automatic` ones give way to them. LabelError."""
    both = {**automatic, **labels}
    if len(both) > LABELS:
        _validate_count(labels, both)
    return canonical(name, both)


def _validate_count(labels: Mapping[str, str], both: Mapping[str, str]) -> None:
    own, total = (sum(value != "" for value in some.values()) for some in (labels, both))
    if own < total > LABELS:
        raise LabelError(f"{own} labels and {total - own} added: at most {LABELS} in all")


def fingerprints(columns: tuple[Column, ...]) -> npt.NDArray[np.uint64]:
    return np.array([column.fingerprint for column in columns], np.uint64)


def _column(schema: Schema, at: int, name: str, text: str) -> Column:
    value_type, kind = ValueType(int(schema.types[at])), Kind(int(schema.kinds[at]))
    if value_type == ValueType.ENDED:
        raise ValueError(f"{name}: {int(value_type)} is no type of a variable")
    help_, unit = schema.help.get(name, ""), schema.units.get(name, "")
    return Column(at, text, fingerprint(text), value_type, kind, help_, unit)
