"""Helpers for tests of applications: counted values, and their changes during a block. No network, no plugin.

    from bookkeeper import testing

    def test_counts() -> None:
        with testing.changes() as seen:
            shop.sell("book")
        assert seen.added("shop.sales", {"item": "book"}) == 1

`changes` compares two snapshots of the current book, so it covers handles made earlier. `isolated` gives the functions
of the module an empty book, in which refused calls raise. With pytest, in conftest.py:
`variables = pytest.fixture(testing.variables)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import bookkeeper
from bookkeeper.variables.canonical import canonical

if TYPE_CHECKING:
    Value = int | float | bool | str
Labels = Mapping[str, str]


class Snapshot(dict[str, "Value"]):
    """Values at one moment, by canonical text (`name{label="value"}`)."""

    def __init__(self, values: Mapping[str, tuple[str, dict[str, str], Value]]) -> None:
        super().__init__({text: value for text, (_, _, value) in values.items()})
        self._values = dict(values)

    def __repr__(self) -> str:
        return f"Snapshot({dict(self)})"

    def value(self, name: str, labels: Labels | None = None) -> Value | None:
        """Value of the variable with exactly these labels; None if it does not exist."""
        return self.get(canonical(name, labels or {}))

    def series(self, name: str, **labels: str) -> list[tuple[dict[str, str], Value]]:
        """Labels and values of all variables of a name whose labels include `labels`."""
        return [
            (dict(found), value)
            for its_name, found, value in self._values.values()
            if its_name == name and labels.items() <= found.items()
        ]

    def total(self, name: str, **labels: str) -> float:
        """Sum of all variables of a name with `labels`; booleans count as 0 and 1, strings are left out."""
        return sum(value for _, value in self.series(name, **labels) if not isinstance(value, str))


class Changes:
    """Changes between the snapshots `before` and `after`."""

    def __init__(self, before: Snapshot) -> None:
        self.before = self.after = before

    def added(self, name: str, labels: Labels | None = None) -> float:
        """Increase of a number; a variable that does not exist counts as 0, before and after."""
        return _number(self.after.value(name, labels)) - _number(self.before.value(name, labels))

    def total(self, name: str, **labels: str) -> float:
        """Increase of the sum over all variables of a name with `labels`."""
        return self.after.total(name, **labels) - self.before.total(name, **labels)

    def all(self) -> dict[str, tuple[Value | None, Value | None]]:
        """Canonical text -> values before and after, of all variables that changed; None for an absent value."""
        texts = {*self.before, *self.after}
        pairs = {text: (self.before.get(text), self.after.get(text)) for text in sorted(texts)}
        return {text: (old, new) for text, (old, new) in pairs.items() if not _same(old, new)}

    def __repr__(self) -> str:
        return f"Changes({self.all()})"


def snapshot(book: bookkeeper.Bookkeeper | None = None) -> Snapshot:
    """Take a snapshot of the current values. Callbacks run, as at a poll."""
    entries = (book or bookkeeper.default()).collect()
    return Snapshot({canonical(one.name, one.labels): (one.name, dict(one.labels), one.value) for one in entries})


@contextmanager
def changes(book: bookkeeper.Bookkeeper | None = None) -> Iterator[Changes]:
    """Changes made by the `with` block; complete once the block ends, also by an exception."""
    found = Changes(snapshot(book))
    try:
        yield found
    finally:
        found.after = snapshot(book)


@contextmanager
def isolated(*, strict: bool = True) -> Iterator[bookkeeper.Bookkeeper]:
    """Empty book without network; inside the block all functions of `bookkeeper` use it.

    `strict`: refused calls raise VariableRefused. Handles made outside the block keep writing to their own book."""
    book = bookkeeper.Bookkeeper(online=False, strict=strict)
    before = bookkeeper.use(book)
    try:
        yield book
    finally:
        bookkeeper.use(before)


def variables() -> Iterator[bookkeeper.Bookkeeper]:
    """`isolated` as a pytest fixture: `variables = pytest.fixture(testing.variables)`."""
    with isolated() as book:
        yield book


def _number(value: Value | None) -> float:
    if isinstance(value, str):
        raise TypeError(f"{value!r:.80} is a text, and texts have no change: compare values instead")
    return value or 0


def _same(old: Value | None, new: Value | None) -> bool:
    return old == new or (old != old and new != new)
