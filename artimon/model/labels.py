"""Names, labels and the canonical text of a variable: the rules live in `bookkeeper.variables.canonical`, where
applications meet them."""

from __future__ import annotations

from bookkeeper.variables.canonical import LabelError, canonical, parse_canonical, validate_labels, validate_name

__all__ = ["LabelError", "canonical", "parse_canonical", "validate_labels", "validate_name"]
