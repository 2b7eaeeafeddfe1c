"""Columns of a table and their meaning: time, value, name, labels. A file of YAML, TOML or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field
from pydantic_core import InitErrorDetails

from artimon.runtime.config_model import Section, fault

TimeUnit = Literal["s", "ms", "us", "ns", "iso"]


class TimeColumn(Section):
    """Column of times. Its unit counts unless the file has times of its own type."""

    column: str = Field(description="name of a column, such as time: {column: ts, unit: s}")
    unit: TimeUnit = "ms"


class ValueColumn(Section):
    """Column of values, all of one type."""

    column: str = Field(description="name of a column, such as value: {column: v, type: double}")
    type: Literal["integer", "double", "boolean", "string"] = "double"


class ColumnMapping(Section):
    """One of `name` and `name_column`. `labels`: column by label; an empty cell gives no label."""

    time: TimeColumn = Field(description="the column of the times, such as time: {column: ts, unit: s}")
    value: ValueColumn = Field(description="the column of the values, such as value: {column: v, type: double}")
    name: str = ""
    name_column: str = ""
    labels: dict[str, str] = Field(default_factory=dict, description="a mapping of labels to columns")
    source_column: str = ""
    birth: TimeColumn | None = None
    kind: Literal["unknown", "counter", "gauge"] = "unknown"
    unit: str = ""
    help: str = ""

    @classmethod
    def contradictions(cls, data: Mapping[str, Any]) -> Iterator[InitErrorDetails]:
        if bool(data.get("name")) == bool(data.get("name_column")):
            yield fault("write one of name and name_column")

    def key_columns(self) -> list[str]:
        """Return the columns that tell the series of a row."""
        return [*filter(None, (self.name_column, self.source_column)), *self.labels.values()]

    def columns(self) -> list[str]:
        """Return all columns, each once."""
        births = [self.birth.column] if self.birth else []
        return list(dict.fromkeys([self.time.column, self.value.column, *births, *self.key_columns()]))
