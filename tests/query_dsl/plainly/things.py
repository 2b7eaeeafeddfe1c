"""Inputs and outputs of the plain evaluator."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

Value = int | float | bool | str
Cell = Value | None
INT64 = 2**63


class Refused(Exception):
    """The query has no answer; the text says why, in words of its own."""


class Nothing(Refused):
    """No series fits a selector."""


class Sample(NamedTuple):
    time: int
    value: Value
    birth: int = 0


def in_succession(samples: list[Sample]) -> list[Sample]:
    """The samples in the order of time, with births of lives that come one after another."""
    told: dict[int, list[int]] = {}
    for s in sorted(samples, key=lambda s: s.time):
        told.setdefault(s.birth, []).append(s.time)
    born: dict[int, int] = {}
    life = over = -(2**62)  # birth and last sample of the newest life so far
    for birth, times in sorted(told.items(), key=lambda one: (one[1][0], one[0])):
        if times[0] >= over:
            life = birth if birth > life else max(life + 1, min(times[0], over + 1))
        over = max(over, times[-1])
        born[birth] = life
    return [s._replace(birth=born[s.birth]) for s in sorted(samples, key=lambda s: s.time)]


@dataclass(frozen=True)
class Raw:
    """A series as its source told it. `ended`: when it was said to be over, 0 where it goes on."""

    name: str
    labels: Mapping[str, str]
    type: str
    samples: tuple[Sample, ...]
    kind: str = "UNKNOWN"
    ended: int = 0


@dataclass(frozen=True)
class World:
    """All series, and which buckets the store keeps: (step, number) finest first. `spare`: rows kept before the range
    of the finest level, and of the others."""

    series: tuple[Raw, ...]
    levels: tuple[tuple[int, int], ...]
    spare: tuple[int, int] = (17, 2)


@dataclass(frozen=True)
class Grid:
    """n buckets (end - step, end], the last of which ends at `end`."""

    end: int
    step: int
    n: int

    def ends(self) -> list[int]:
        return [self.end - self.step * i for i in reversed(range(self.n))]

    def start(self) -> int:
        return self.end - self.step * self.n

    def earlier(self, by: int) -> Grid:
        return replace(self, end=self.end - by)


@dataclass(frozen=True)
class Row:
    """One series on a grid, one value a bucket."""

    name: str
    labels: dict[str, str]
    type: str
    values: list[Cell]
    newest: int = 0

    def text(self) -> str:
        return series_text(self.name, self.labels)


@dataclass(frozen=True)
class Table:
    """Series of a grid, in canonical order."""

    grid: Grid
    rows: list[Row]


@dataclass(frozen=True)
class Plain:
    """A plain value, or one that changes with time: goes with every series."""

    value: Value | None = None
    values: list[Cell] | None = None
    type: str = ""

    def at(self, i: int) -> Cell:
        return self.value if self.values is None else self.values[i]


@dataclass(frozen=True)
class Stream:
    """One irregular series."""

    name: str
    labels: dict[str, str]
    type: str
    points: list[tuple[int, Value]]

    def text(self) -> str:
        return series_text(self.name, self.labels)


@dataclass
class Answer:
    """Compared fields: series in order, their types, values by series; ends of the buckets, or times for samples."""

    series: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    values: list[list[Cell]] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    points: list[list[tuple[int, Value]]] = field(default_factory=list)


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r") + '"'


def series_text(name: str, labels: Mapping[str, str]) -> str:
    pairs = ",".join(f"{k}={quoted(labels[k])}" for k in sorted(labels))
    return f"{name}{{{pairs}}}" if pairs or not name else name


def order(series: Row | Stream) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Canonical order: name, then sorted labels, by UTF-8 bytes."""
    pairs = [(k.encode(), v.encode()) for k, v in series.labels.items()]
    return series.name.encode(), sorted(pairs)


def in_order(rows: list[Row]) -> list[Row]:
    """Rows in canonical order; two that are the same series are refused."""
    rows = sorted(rows, key=order)
    for a, b in itertools.pairwise(rows):
        if order(a) == order(b):
            raise Refused(f"two series are the same: {a.text()}")
    return rows


def type_of(value: Value) -> str:
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, int):
        return "INTEGER"
    return "DOUBLE" if isinstance(value, float) else "STRING"


def exact(value: int) -> int | None:
    """An INTEGER, missing if int64 cannot hold it."""
    return value if -INT64 <= value < INT64 else None


def number(value: Value) -> float:
    """A DOUBLE of a number or truth."""
    return float(value)


def is_nan(value: Cell) -> bool:
    return isinstance(value, float) and value != value
