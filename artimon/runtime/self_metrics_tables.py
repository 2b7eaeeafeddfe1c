"""Tables of figures and their own variables, by process. docs/variables.md lists them; a test compares the two."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType

from artimon.runtime.self_metrics import FigureConversion, SelfMetric


@cache
def metrics_tables() -> Mapping[str, tuple[SelfMetric, ...]]:
    """Return the variables of self_metrics.csv by part, besides those of every process."""
    found: dict[str, tuple[SelfMetric, ...]] = {}
    with Path(__file__).with_name("self_metrics.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            metric = SelfMetric(
                row["name"],
                row["figure"],
                row["help"],
                row["unit"],
                row["kind"] == "counter",
                tuple(row["labels"].split()),
                FigureConversion(row["conversion"]),
            )
            found[row["part"]] = (*found.get(row["part"], ()), metric)
    return MappingProxyType(found)
