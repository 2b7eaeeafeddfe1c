"""What a series is called and what it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from artimon.model.values import Kind, ValueType

NAME = "__name__"


@dataclass(frozen=True, slots=True)
class Series:
    """One selected series."""

    fingerprint: int
    name: str
    labels: Mapping[str, str]
    type: ValueType
    kind: Kind
