"""Limits of one API process, each named by the answers that refuse, and its other settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Annotated

from artimon.runtime.process_options import Health, Insecure, ListenHost, Option, StackData, Zookeeper

KiB = 1024
MiB = 1024 * KiB


class BadLimit(ValueError):
    """A limit that is set to what it cannot be."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds."""

    query_bytes: int = 16 * KiB
    body_bytes: int = 64 * KiB
    header_bytes: int = 64 * KiB
    """Request line and headers together."""
    series: int = 20_000
    """Series that one selector of a query may match."""
    cells_read: int = 2_000_000
    """Series times buckets that one fetch may make room for, windows included."""
    cells_reduced: int = 30_000_000
    """The same for a fetch that the memory store reduces by classes itself: no series of it leaves the store."""
    samples_read: int = 50_000_000
    """Raw samples that the history may read for a query."""
    cells_answered: int = 1_000_000
    """Series times buckets of an answer."""
    answer_bytes: int = 96 * MiB
    """An answer as it is written, before it is packed."""
    unsent_bytes: int = 192 * MiB
    """All answers of the process that clients have not taken yet, packed where they are."""
    found: int = 10_000
    """Series, names, values or endpoints that a list holds."""
    query_s: float = 20.0
    """From the start of an evaluation to 504."""
    running: int = 4
    """Evaluations at once; one past its time counts until its thread is really free."""
    waiting: int = 64
    wait_s: float = 5.0
    """How long a request waits for its turn before 503."""
    body_s: float = 10.0
    header_s: float = 5.0
    """From the opening of a connection, or the first byte of its next request, to the end of the headers."""
    idle_s: float = 15.0
    """Between two requests of a connection."""
    write_s: float = 30.0
    """How long a client may leave an answer unread."""
    answer_s: float = 120.0
    """How long a client may take for a whole answer, once it is slower than we are."""
    connections: int = 256
    thrift_connections: int = 64
    thrift_idle_s: float = 300.0
    thrift_request_bytes: int = 64 * KiB
    thrift_answer_bytes: int = 16_000_000
    """A reply of the Thrift service; Apache's clients refuse frames of more than 16,384,000 bytes."""

    def changed(self, changes: Iterable[str]) -> Limits:
        """With "name=value" in place of the defaults. Raises BadLimit."""
        types = {one.name: type(getattr(self, one.name)) for one in fields(self)}
        found: dict[str, float] = {}
        for change in changes:
            name, _, text = change.partition("=")
            if name not in types:
                raise BadLimit(f"{name!r} is no limit: there are {', '.join(types)}")
            try:
                value = types[name](text)
            except ValueError:
                raise BadLimit(f"{name} is {text!r}: write {name}=NUMBER") from None
            if not 0 < value <= 1 << 40:
                raise BadLimit(f"{name} is {text}: it must be more than 0 and at most {1 << 40}")
            found[name] = value
        return replace(self, **found)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class ApiConfig:
    """`data`: folder of the stack whose status is shown. `hdfs`: where the history is; None: there is none."""

    zookeeper: Zookeeper
    data: StackData
    port: Annotated[int, Option("Port of HTTP, 0 for any.", least=0, most=65_535)] = 8780
    thrift_port: Annotated[int, Option("Port of Thrift, 0 for any.", least=0, most=65_535)] = 8781
    limits: Annotated[
        Limits,
        Option(
            "NAME=NUMBER: another limit, see docs/api.md.",
            "--limit",
            read=lambda changes: Limits().changed(changes),
            many=True,
        ),
    ] = field(default_factory=Limits)
    host: ListenHost = "127.0.0.1"
    names: Annotated[
        tuple[str, ...],
        Option("A name by which people reach the page, besides --host; may be repeated.", "--name"),
    ] = ()
    insecure: Insecure = False
    health: Health = None
    hdfs: str | None = None
