"""Reading of one poll of any source: a process, the host, the agent itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from artimon.model.values import Kind, Value, ValueType, double_to_cell, type_of

NO_PROCESS = bytes(16)
"""Process id of sources without a process, such as a file."""


@dataclass(frozen=True, slots=True)
class SourceSchema:
    """Schema of the n columns of a reading; `help` and `units` are by name."""

    id: bytes
    names: Sequence[str]
    labels: Sequence[Mapping[str, str]]
    types: npt.NDArray[np.uint8]
    kinds: npt.NDArray[np.uint8]
    help: Mapping[str, str]
    units: Mapping[str, str]

    def __len__(self) -> int:
        return len(self.types)

    @property
    def is_whole(self) -> bool:
        """True if names and labels are present."""
        return len(self.names) == len(self.types)

    def slim(self) -> SourceSchema:
        """Return the same columns without names and labels, which are not needed once they are bound to series."""
        return replace(self, names=(), labels=(), help={}, units={})


@dataclass(frozen=True, slots=True)
class Reading:
    """Content of one poll: one cell per column (64 bits, as in `Samples`), read at `time_ms` of the poller's clock."""

    uuid: bytes
    """Process that answered, 16 bytes."""
    birth_ms: int
    time_ms: int
    schema: SourceSchema
    cells: npt.NDArray[np.int64]
    strings: tuple[str, ...] = ()
    context: str = ""
    instance: str = ""
    resumes: bool = False
    """True if counting continues while a series is absent: one that returns in the same process keeps its birth."""
    appeared_ms: int | None = None
    """Birth of a series that is new in the process; None: the time of the poll before."""
    created_ms: npt.NDArray[np.int64] | None = None
    """Birth of each column as reported by the process; 0 if it reports none."""
    uid: int | None = None
    """User id of the process, None if it reports none."""


@dataclass(frozen=True, slots=True)
class SourceVariable:
    """Variable of the host or of the agent, with its value."""

    name: str
    labels: Mapping[str, str]
    value: Value
    kind: Kind = Kind.GAUGE
    unit: str = ""
    help: str = ""


class ReadingBuilder:
    """Converts variables to readings. The schema object stays the same while only values change."""

    def __init__(self, uuid: bytes, birth_ms: int) -> None:
        self._uuid, self._birth_ms = uuid, birth_ms
        self._shape: object = None
        self._schema: SourceSchema | None = None
        self._made = 0

    def make(self, variables: Sequence[SourceVariable], time_ms: int) -> Reading:
        """Return a reading of numbers and booleans. Strings are not supported: the host and the agent have none."""
        types = [type_of(v.value) for v in variables]
        shape = [
            (v.name, tuple(v.labels.items()), t, v.kind, v.unit, v.help) for v, t in zip(variables, types, strict=True)
        ]
        if self._schema is None or shape != self._shape:
            self._shape, self._schema = shape, self._describe(variables, types)
        cells = [_cell(v.value) for v in variables]
        return Reading(self._uuid, self._birth_ms, time_ms, self._schema, np.array(cells, np.int64))

    def _describe(self, variables: Sequence[SourceVariable], types: Sequence[ValueType]) -> SourceSchema:
        self._made += 1
        return SourceSchema(
            self._made.to_bytes(16, "big"),
            [v.name for v in variables],
            [v.labels for v in variables],
            np.array(types, np.uint8),
            np.array([v.kind for v in variables], np.uint8),
            {v.name: v.help for v in variables if v.help},
            {v.name: v.unit for v in variables if v.unit},
        )


def _cell(value: Value) -> int:
    if isinstance(value, float):
        return double_to_cell(value)
    if isinstance(value, str):
        raise TypeError(f"{value!r}: a string needs a string table")
    return int(value)
