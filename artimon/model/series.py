"""Description of a series: identity, labels, type and kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from artimon.model.values import Kind, ValueType

NAME = "__name__"


@dataclass(frozen=True, slots=True)
class Series:
    """A selected series."""

    fingerprint: int
    name: str
    labels: Mapping[str, str]
    type: ValueType
    kind: Kind
