"""Names and labels of other systems in the form of ours."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

_NO_NAME = re.compile(r"[^a-zA-Z0-9_.:/\-]")
_NO_LABEL = re.compile(r"[^a-zA-Z0-9_]")


def clean_name(name: str) -> str:
    """Return a name with `_` for each character that a name cannot have."""
    found = _NO_NAME.sub("_", name)
    return f"_{found}" if found[:1].isdigit() or not found[:1].isidentifier() else found


def clean_label(name: str) -> str:
    """Return the name of a label with `_` for each character that it cannot have."""
    label = _NO_LABEL.sub("_", name)
    return f"key_{label}" if not label or label[0].isdigit() or label.startswith("__") else label


def clean_labels(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return labels of ours; values whose names become equal are joined."""
    labels: dict[str, str] = {}
    for name, value in pairs:
        label = clean_label(name)
        labels[label] = f"{labels[label]};{value}" if label in labels else value
    return labels


def rule_label(prefix: str, name: str) -> str:
    """Return a label that only relabel rules see."""
    return f"__{prefix}_{_NO_LABEL.sub('_', name)}"


def bound_text(value: float) -> str:
    """Return the text of a bound for the label `le` or `quantile`."""
    return "+Inf" if value == math.inf else repr(value).removesuffix(".0")
