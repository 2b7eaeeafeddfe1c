"""Names, labels and their values by prefix: what a box that completes asks while somebody types."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from artimon.model.select import NAME, Store

SCANNED = 100_000
"""So many values of a label are looked through; a store gives no more."""


def begin_with(texts: Iterable[str], prefix: str, limit: int) -> tuple[list[str], bool]:
    """The first `limit` texts that begin with `prefix`, in their order, and whether there are more."""
    found = list(islice((text for text in texts if text.startswith(prefix)), limit + 1))
    return found[:limit], len(found) > limit


def names(store: Store, prefix: str, limit: int) -> tuple[list[str], bool]:
    """Names of variables, sorted."""
    return begin_with(store.names(), prefix, limit)


def label_values(store: Store, label: str, prefix: str, limit: int) -> tuple[list[str], bool]:
    """Values of a label, sorted; of `__name__` the names."""
    if label == NAME:
        return names(store, prefix, limit)
    known = store.label_values(label, SCANNED)
    found, more = begin_with(known, prefix, limit)
    return found, more or len(known) >= SCANNED


def labels(store: Store, limit: int) -> tuple[list[str], bool]:
    """Names of labels, sorted."""
    return begin_with(store.label_values(None, limit + 1), "", limit)
