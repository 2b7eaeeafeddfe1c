"""The arithmetic of docs/scaling.md follows from its first table and the formulas that it names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest

from benchmarks.suite.results import read
from tests.docs.test_architecture import ROOT

SIZES = (1.5e6, 15e6, 150e6, 1e9)
TEXT = (ROOT / "docs" / "scaling.md").read_text()
UNITS = {
    "": 1.0, "$": 1.0, "s": 1.0, "min": 60.0, "h": 3600.0, "M": 1e6, "G": 1e9, "kB": 1e3, "MB": 1e6, "GB": 1e9,
    "TB": 1e12, "PB": 1e15, "MB/s": 1e6, "GiB": 2.0**30, "TiB": 2.0**40,
}  # fmt: skip
NUMBER = re.compile(r"([\d.,]+) ?([a-zA-Z$/]*)")
YEAR_S, GIB = 365 * 86_400.0, 2.0**30


def scaling_rows() -> dict[str, list[str]]:
    """First cell -> all others, of every table; the words in bold are only heads."""
    found = [line.strip().strip("|").split("|") for line in TEXT.splitlines() if line.startswith("| ")]
    return {cells[0].replace("**", "").strip(): [cell.strip() for cell in cells[1:]] for cells in found}


def value(cell: str) -> float:
    """With its unit."""
    match = NUMBER.match(cell)
    assert match, cell
    return float(match[1].replace(",", "")) * UNITS[match[2]]


TOLD = scaling_rows()


def figures(symbol: str) -> list[float]:
    """Of a row of the first table, the third cell: one figure or several."""
    (cell,) = (cells[1] for symbols, cells in TOLD.items() if symbols == symbol)
    return [float(text.replace(",", "")) for text in re.findall(r"(?<![\w.])\d[\d,.]*", cell)]


k, g, v = (figures(symbol)[0] for symbol in "kgv")
p, t, s = (figures(symbol)[0] * 1e-6 for symbol in "pts")
c = figures("c")[0] * figures("c")[1] * 1e-6
appended, _, daily = figures("a, h, d")
m = figures("m")[1]
LANE, PLAIN = 11.3, 1.5


def blocks(n: float) -> float:
    return n / 60 * daily * YEAR_S / (128 * 2**20) + 8 * 365


def memory_gib(n: float) -> float:
    return n / m + 2 * math.ceil(n / 4e6)


def cores(n: float) -> float:
    return 2 * (p + t + s + c) * n / 60


def disks(n: float) -> float:
    return n / 60 * 3 * (k * 273_600 + daily * YEAR_S) + n * v


def money(n: float) -> float:
    return cores(n) * 29.8 + memory_gib(n) * 7.4 + disks(n) / 1e12 * 45


FORMULAS: dict[str, Callable[[float], float]] = {
    "R = N / 60": lambda n: n / 60,
    "batches/s": lambda n: n / 60 / 1500,
    "Kafka in": lambda n: n / 60 * k,
    "written to its disks": lambda n: n / 60 * 3 * k,
    "disk for 76 h": lambda n: n / 60 * 3 * k * 273_600,
    "disk for 24 h": lambda n: n / 60 * 3 * k * 86_400,
    "the default quota": lambda n: 20 * GIB / (n / 60 * k),
    "brokers": lambda n: max(3.0, -(-(n / 60 * 3 * k) // 60e6)),
    "cores polling": lambda n: n / 60 * p,
    "agent, collector, broker": lambda n: n / 60 * t,
    "Spark and shards": lambda n: n / 60 * s,
    "compaction": lambda n: n / 60 * c,
    "all, twice": cores,
    "memory of the shards": lambda n: memory_gib(n) * GIB,
    "local disk of the shards": lambda n: n * v,
    "shard processes": lambda n: max(1.0, -(-n // 4e6)),
    "HDFS open hour": lambda n: 3 * 7200 * n / 60 * appended,
    "a day": lambda n: 86_400 * n / 60 * daily,
    "a year, three copies, at 1.5 B": lambda n: 3 * YEAR_S * n / 60 * PLAIN,
    "a year, three copies": lambda n: 3 * YEAR_S * n / 60 * daily,
    "table of series = N g": lambda n: n * g,
    "files of an hour": lambda n: max(120.0, n * 60 / 4.5e6),
    "rows of an hour": lambda n: 3600 * n / 60,
    "local disk of the compactor": lambda n: 20 * 3600 * n / 60,
    "blocks of 128 MiB": blocks,
    "NameNode": lambda n: 150 * blocks(n),
    "ZooKeeper: sessions": lambda n: 11 * n / 15_000,
    "ensembles of 30,000": lambda n: max(1.0, math.ceil(11 * n / 15_000 / 30_000)),
    "agents of one host each": lambda n: 4 * n / 15_000,
    "their state in every commit": lambda n: LANE * 4 * n / 15_000,
    "cores, twice what is needed": lambda n: cores(n) * 29.8,
    "memory, one copy": lambda n: memory_gib(n) * 7.4,
    "disks: 76 h of Kafka": lambda n: disks(n) / 1e12 * 45,
    "together, a month": money,
    "a million series and month": lambda n: money(n) / (n / 1e6),
}


def row_of(beginning: str) -> list[str]:
    """The row whose first cell begins so; where one beginning is that of another too, the other is left out."""
    longer = [one for one in FORMULAS if one != beginning and one.startswith(beginning)]
    found = [cells for name, cells in TOLD.items() if name.startswith(beginning) and not name.startswith(tuple(longer))]
    assert len(found) == 1, (beginning, found)
    return found[0]


@pytest.mark.parametrize("name", FORMULAS)
def test_a_row_is_what_its_formula_gives(name: str) -> None:
    """As exact as a figure of two digits can be; what is rounded to one digit, half of that digit."""
    for size, cell in zip(SIZES, row_of(name), strict=True):
        expected, told = FORMULAS[name](size), value(cell)
        digits = len(cell.split()[0].replace(".", "").replace(",", "").strip("0"))
        assert told == pytest.approx(expected, rel=0.06 if digits > 1 else 0.5), (cell, expected)


def test_every_row_of_four_sizes_is_checked() -> None:
    checked = [row_of(name) for name in FORMULAS]
    sized = {name: cells for name, cells in TOLD.items() if len(cells) == 4 and name != "N" and "$" not in name}
    left = [name for name, cells in sized.items() if cells not in checked and not set(cells[0]) <= set("- ")]
    assert left == []


def test_polling_costs_what_is_measured() -> None:
    """Within the factor of two of machines; tests/cli/test_size.py compares the other figures of the first table."""
    (polled,) = (
        line["value"] for line in read(ROOT / "docs" / "benchmarks.jsonl") if line["name"] == "poll.1000x1500@cpu"
    )
    assert 0.5 <= p / (polled / 1.5e6) <= 2.0
