"""Names, labels and the canonical text of a variable, implemented in `bookkeeper.variables.canonical` because
applications need them, too."""

from __future__ import annotations

from bookkeeper.variables.canonical import LabelError, canonical, parse_canonical, validate_labels, validate_name

__all__ = ["LabelError", "canonical", "parse_canonical", "validate_labels", "validate_name"]
