"""Names and labels to slots: postings for each (label, value), matchers over them."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import re2

from artimon.model.select import NAME, Matcher, SelectError
from artimon.model.values import Kind, ValueType
from varstore.slots import Slots

PATTERN_BYTES = 4_096
_PATTERN_MEMORY = 8 * 1024 * 1024

Mask = npt.NDArray[np.bool_]
Test = Callable[[str], bool]


class Entry(NamedTuple):
    """What is announced of one series; `pairs` begin with the name, each is shared by all series that have it.

    Sorting by `pairs` gives the canonical order."""

    pairs: tuple[tuple[str, str], ...]
    type: ValueType
    kind: Kind
    version: int

    @property
    def name(self) -> str:
        return self.pairs[0][1]

    @property
    def labels(self) -> dict[str, str]:
        return dict(self.pairs[1:])


class Index:
    """An inverted index of the announced series. `_lock` guards everything here; nothing else is locked under it.

    Invariant: a slot stands once in the posting of each of its pairs, and nowhere once it was set aside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[Entry | None] = []
        self._announced = bytearray()  # 1 where `_entries` has something
        self._postings: dict[str, dict[str, array[int]]] = {}
        self._pairs: dict[tuple[str, str], tuple[str, str]] = {}
        self._clashing: set[int] = set()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, slot: int, name: str, labels: Mapping[str, str], type_: ValueType, kind: Kind, version: int) -> bool:
        """Note one series; False if its slot has another text already: then both are set aside, never merged."""
        with self._lock:
            if slot in self._clashing:
                return False
            pairs = tuple(self._shared(pair) for pair in [(NAME, name), *sorted(labels.items())])
            self._reserve(slot)
            held = self._entries[slot]
            if held is not None and held.pairs != pairs:
                self._set_aside(slot, held)
                return False
            if held is None:
                self._count += 1
                self._announced[slot] = 1
                for label, value in pairs:
                    self._postings.setdefault(label, {}).setdefault(value, array("i")).append(slot)
            if held is None or version >= held.version:
                self._entries[slot] = Entry(pairs, type_, kind, version)
            return True

    def _shared(self, pair: tuple[str, str]) -> tuple[str, str]:
        return self._pairs.setdefault(pair, pair)

    def _reserve(self, slot: int) -> None:
        missing = slot + 1 - len(self._entries)
        if missing > 0:
            self._entries.extend([None] * missing)
            self._announced.extend(bytes(missing))

    def _set_aside(self, slot: int, held: Entry) -> None:
        self._clashing.add(slot)
        self._entries[slot] = None
        self._announced[slot] = 0
        self._count -= 1
        for label, value in held.pairs:
            posting = self._postings[label][value]
            posting.remove(slot)
            if not posting:
                del self._postings[label][value]

    @property
    def clashes(self) -> int:
        """Fingerprints announced with two texts."""
        return len(self._clashing)

    def find(self, matchers: Collection[Matcher]) -> tuple[Slots, list[Entry]]:
        """Slots (ascending) and entries of every series that fits all matchers. Raises SelectError."""
        tests = [(matcher, compile_matcher(matcher)) for matcher in matchers]
        with self._lock:
            fits = np.frombuffer(self._announced, np.bool_).copy()
            for matcher, test in tests:
                if test(""):  # absent fits: leave out those that have a value that does not
                    fits &= ~self._having(matcher, _negated(test))
                else:
                    fits &= self._having(matcher, test)
            slots = np.flatnonzero(fits)
            entries = [entry for slot in slots.tolist() if (entry := self._entries[slot]) is not None]
            return slots, entries

    def _having(self, matcher: Matcher, test: Test) -> Mask:
        """Which slots carry the matcher's label with a value that passes `test`."""
        having = np.zeros(len(self._entries), np.bool_)
        held = self._postings.get(matcher.label, {})
        if matcher.op == "=" and matcher.value:  # one look-up, however many values there are
            held = {matcher.value: held[matcher.value]} if matcher.value in held else {}
        for value, posting in held.items():
            if test(value):
                having[np.array(posting, np.int32)] = True
        return having

    def names(self) -> list[str]:
        """Every name, sorted."""
        return self.values(NAME)

    def values(self, label: str | None) -> list[str]:
        """Values of a label, sorted; None: every label."""
        with self._lock:
            if label is None:
                return sorted(label for label, held in self._postings.items() if held and label != NAME)
            return sorted(self._postings.get(label, {}))


def compile_matcher(matcher: Matcher) -> Test:
    """Whether a value fits; an absent label has "". SelectError for an unknown operator or a bad pattern."""
    value = matcher.value
    match matcher.op:
        case "=":
            return value.__eq__
        case "!=":
            return value.__ne__
        case "=~":
            return _pattern(matcher)
        case "!~":
            return _negated(_pattern(matcher))
        case "prefix" if matcher.label == NAME:
            return lambda name: name.startswith(value)
        case "prefix":
            raise SelectError(f"prefix of label {matcher.label!r}: only names have prefixes, write =~ with a pattern")
        case _:
            raise SelectError(f"operator {matcher.op!r} of label {matcher.label!r}: use one of = != =~ !~")


def _negated(test: Test) -> Test:
    return lambda value: not test(value)


def _pattern(matcher: Matcher) -> Test:
    where = f"pattern {matcher.value[:200]!r} of label {matcher.label!r}"
    if len(matcher.value.encode()) > PATTERN_BYTES:
        raise SelectError(f"{where}: more than {PATTERN_BYTES} bytes")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_MEMORY
    try:
        compiled = re2.compile(matcher.value, options=options)
    except re2.error as error:
        text = error.args[0] if error.args else error
        raise SelectError(f"{where}: {text.decode() if isinstance(text, bytes) else text}") from error
    return lambda value: compiled.fullmatch(value) is not None
