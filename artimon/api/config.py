"""Settings of the API's process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from artimon.api.limits import Limits
from artimon.runtime.options import Health, Insecure, ListenHost, Option, StackData, Zookeeper


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
