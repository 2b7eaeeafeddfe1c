"""Limits of one API process, named in the errors that enforce them, and its other settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated

from artimon.runtime.http.http_limits import HttpLimits, KiB
from artimon.runtime.machine_memory import QUERY_SHARE, SAMPLE_BYTES, SERIES_BYTES, query_memory
from artimon.runtime.process_options import (
    AccessFile,
    Health,
    Insecure,
    ListenHost,
    Option,
    StackData,
    Zookeeper,
    process_name,
)
from artimon.runtime.self_metrics_endpoint import instance_of
from query_dsl.promql.promql_settings import PromqlSettings

MiB = 1024 * KiB


HARD_FACTORS = {
    "series": 5,
    "cells_read": 2,
    "cells_reduced": 2,
    "samples_read": 2,
    "cells_answered": 2,
    "found": 5,
    "query_s": 6,
}
"""Factors between a limit and the hard one, up to which a request may ask for more; other limits are hard."""
REDUCED_CELL_BYTES, READ_CELL_BYTES = 32, 128
"""Bytes of a cell that is reduced, and of a cell that is read, with the arrays of their evaluation."""
ANSWERED_CELL_BYTES, ENDPOINT_BYTES = 1_024, 2_048
"""Bytes of a cell of an answer, with its text before and after compression and what it was evaluated from, and of an
endpoint of the list."""
ANSWER_SHARE = 10
"""Part of the memory of a query that the text of its answer may fill; answers not read yet may fill twice that."""


class LimitError(ValueError):
    """A limit has an invalid name or value."""


@dataclass(frozen=True, slots=True)
class ApiLimits(HttpLimits):
    """Limits; sizes in bytes, times in seconds."""

    query_bytes: int = 16 * KiB
    series: int = 20_000
    """Series that one selector of a query may match."""
    cells_read: int = 2_000_000
    """Series times buckets that one fetch may allocate, windows included."""
    cells_reduced: int = 30_000_000
    """Series times buckets of a fetch that the memory store reduces by classes itself, so that no series leaves it."""
    samples_read: int = 50_000_000
    """Raw samples that a query may read from the history."""
    cells_answered: int = 1_000_000
    """Series times buckets of an answer."""
    answer_bytes: int = 96 * MiB
    """Size of an answer before compression."""
    unsent_bytes: int = 192 * MiB
    """Total size of the answers that clients have not read yet, after compression."""
    shared_bytes: int = 64 * MiB
    """Total size of the answers that equal requests share, after compression."""
    found: int = 10_000
    """Entries in a list of series, names, values or endpoints."""
    endpoints: int = 200_000
    """Endpoints that are read for the list of them, whose pages show them."""
    query_s: float = 20.0
    """Timeout of an evaluation (504)."""
    running: int = 4
    """Concurrent evaluations; one that has timed out counts until its thread ends."""
    waiting: int = 64
    wait_s: float = 5.0
    """Timeout in the queue (503)."""
    connections: int = 512
    """HTTP connections: a browser keeps six."""
    thrift_connections: int = 64
    thrift_idle_s: float = 300.0
    thrift_request_bytes: int = 64 * KiB
    thrift_answer_bytes: int = 16_000_000
    """Size of a reply of the Thrift service; Apache's clients refuse frames over 16,384,000 bytes."""

    @classmethod
    def of_machine(cls, memory_bytes: int = 0) -> ApiLimits:
        """Return the limits of a machine, at least the defaults. `memory_bytes`: memory of a process; 0: measured."""
        least, share = cls(), query_memory(QUERY_SHARE, memory_bytes)
        return replace(
            least,
            series=max(least.series, share // SERIES_BYTES),
            cells_read=max(least.cells_read, share // READ_CELL_BYTES),
            cells_reduced=max(least.cells_reduced, share // REDUCED_CELL_BYTES),
            samples_read=max(least.samples_read, share // SAMPLE_BYTES),
            cells_answered=max(least.cells_answered, share // ANSWERED_CELL_BYTES),
            answer_bytes=max(least.answer_bytes, share // ANSWER_SHARE),
            unsent_bytes=max(least.unsent_bytes, 2 * share // ANSWER_SHARE),
            endpoints=max(least.endpoints, share // ENDPOINT_BYTES),
        )

    def hard(self) -> ApiLimits:
        """Return the default hard limits beside these."""
        return replace(self, **{name: getattr(self, name) * factor for name, factor in HARD_FACTORS.items()})

    def changed(self, changes: Iterable[str]) -> ApiLimits:
        """Return limits with the changes "name=value". Raises LimitError."""
        types = {one.name: type(getattr(self, one.name)) for one in fields(self)}
        found: dict[str, float] = {}
        for change in changes:
            name, _, text = change.partition("=")
            if name not in types:
                raise LimitError(f"unknown limit {name!r}: known limits are {', '.join(types)}")
            try:
                value = types[name](text)
            except ValueError:
                raise LimitError(f"{name} is {text!r}: write {name}=NUMBER") from None
            if not 0 < value <= 1 << 40:
                raise LimitError(f"{name} is {text}: it must be more than 0 and at most {1 << 40}")
            found[name] = value
        return replace(self, **found)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """Settings of the process. `data`: folder of the stack for the status. `hdfs`: URI of the history, None: none."""

    zookeeper: Zookeeper
    data: StackData
    port: Annotated[int, Option("Port of HTTP, 0 for any.", min=0, max=65_535)] = 8780
    thrift_port: Annotated[int, Option("Port of Thrift, 0 for any.", min=0, max=65_535)] = 8781
    limits: Annotated[
        ApiLimits,
        Option(
            "NAME=NUMBER: another limit, see docs/api.md.",
            "--limit",
            read=lambda changes: ApiLimits.of_machine().changed(changes),
            multiple=True,
        ),
    ] = field(default_factory=ApiLimits.of_machine)
    hard_limits: Annotated[
        tuple[str, ...],
        Option(
            "NAME=NUMBER: another hard limit, up to which a request may ask for more, see docs/api.md.",
            "--hard-limit",
            check=lambda changes: ApiLimits().changed(changes),
        ),
    ] = ()
    host: ListenHost = "127.0.0.1"
    names: Annotated[
        tuple[str, ...],
        Option("Further host name in URLs of the page, besides --host; may be repeated.", "--name"),
    ] = ()
    access: AccessFile = None
    insecure: Insecure = False
    alerts_token: Annotated[
        Path | None,
        Option("File with the token of the alert engine's API, for actions of the page."),
    ] = None
    health: Health = None
    id: Annotated[str | None, process_name("Name of this API; default: api-PORT.")] = None
    promql: PromqlSettings = field(default_factory=PromqlSettings)
    dashboards: Annotated[
        Path | None,
        Option(
            "Folder of dashboards, which editors change (docs/dashboards.md); without it only those of the package are "
            "shown, read-only."
        ),
    ] = None
    hdfs: str | None = None
    history_cache: Annotated[
        int, Option("MiB of disk for results of closed days of the history, 0: none.", min=0, unit=1 << 20)
    ] = 256 << 20

    @property
    def instance(self) -> str:
        """Instance in the self metrics. With any free port "api": a port that changes would begin new series."""
        return instance_of("api", self.id or str(self.port or "api"))

    @property
    def hard(self) -> ApiLimits:
        """Hard limits, at least the soft ones."""
        hard = self.limits.hard().changed(self.hard_limits)
        return replace(hard, **{name: max(getattr(hard, name), getattr(self.limits, name)) for name in HARD_FACTORS})
