"""Names, labels and label values by prefix, for completion in the web page; variables by words."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from artimon.model.select import NAME, Matcher, Store
from query_dsl.stores.engine_store import EngineStore

MAX_WORDS = 10
MAX_SCANNED = 100_000
"""Limit of the values of a label that the store returns for a search by prefix."""


def with_prefix(texts: Iterable[str], prefix: str, limit: int) -> tuple[list[str], bool]:
    """Return the first `limit` texts that begin with `prefix`, in order, and True if there are more."""
    found = list(islice((text for text in texts if text.startswith(prefix)), limit + 1))
    return found[:limit], len(found) > limit


def names(store: Store, prefix: str, limit: int) -> tuple[list[str], bool]:
    """Return names of variables, sorted."""
    return with_prefix(store.names(), prefix, limit)


def label_values(store: Store, label: str, prefix: str, limit: int) -> tuple[list[str], bool]:
    """Return values of a label, sorted; names of variables for `__name__`."""
    if label == NAME:
        return names(store, prefix, limit)
    known = store.label_values(label, MAX_SCANNED)
    found, more = with_prefix(known, prefix, limit)
    return found, more or len(known) >= MAX_SCANNED


def labels(store: Store, limit: int) -> tuple[list[str], bool]:
    """Return names of labels, sorted."""
    return with_prefix(store.label_values(None, limit + 1), "", limit)


def variables(store: EngineStore, text: str, limit: int) -> tuple[list[str], bool]:
    """Return names of variables that fit the first MAX_WORDS words of `text`, sorted. A word fits that is part of name,
    help or unit, in upper or lower case, or is the name of a label. `label=value` selects the variables with this
    value, `label=` those with the label."""
    found, texts = store.names(), store.metadata(None)
    labels = set(store.label_values(None, MAX_SCANNED))
    for word in text.split()[:MAX_WORDS]:
        label, equal, value = word.partition("=")
        selected: set[str] = set()
        if label in labels:
            matcher = Matcher(label, "=", value) if value else Matcher(label, "!=", "")
            selected.update(store.matching_values(NAME, (matcher,), MAX_SCANNED))
        if not equal or label not in labels:
            part = word.lower()
            selected.update(name for name in found if part in " ".join((name, *texts.get(name, ()))).lower())
        found = [name for name in found if name in selected]
    return with_prefix(found, "", limit)
