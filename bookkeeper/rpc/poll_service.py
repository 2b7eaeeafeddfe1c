"""Answers polls: the Thrift service of bookkeeper.thrift over the variables of this process."""

from __future__ import annotations

import os
import threading
import zlib
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import thriftpy2

from bookkeeper.runtime.wall_clock import now_ms
from bookkeeper.variables.cell import VALUE_FIELDS
from bookkeeper.variables.snapshot import SnapshotReader, VariableLayout
from bookkeeper.variables.variable_registry import VariableRegistry

IDL = Path(__file__).parents[1] / "bookkeeper.thrift"


@dataclass(frozen=True)
class ProcessIdentity:
    """Identity of the polled process: `uuid` of 16 bytes, `birth_ms` its start time (ms since the epoch)."""

    uuid: bytes
    birth_ms: int
    context: str
    instance: str


def idl() -> Any:
    """Load bookkeeper.thrift as a module of thriftpy2: `idl().Bookkeeper` is the service, `idl().Columns` a struct."""
    return thriftpy2.load(str(IDL), module_name="bookkeeper_idl_thrift")


class PollHandler:
    """Handler of one endpoint. `last_poll` is set once a poll with values read after `close_soon` was answered, and
    confirmed if the agent confirms. `handed_over` is set if that poll came from an agent: a caller without a name does
    not store the values."""

    def __init__(self, variables: VariableRegistry, identity: ProcessIdentity) -> None:
        self._snapshots, self._identity, self._idl = SnapshotReader(variables), identity, idl()
        self._poll_turns = PollTurns()
        self._closing = threading.Event()
        self._read = threading.local()  # .final, .poller: state of this thread's answer until it is sent
        self.polled, self.last_poll = threading.Event(), threading.Event()
        self.handed_over = threading.Event()
        self._polled_ms = 0  # time_ms of the last answer to an agent
        self._final_ms = 0  # time_ms of the first answer to an agent after `close_soon`

    def close_soon(self) -> None:
        """Treat the next poll as the last one."""
        self._closing.set()

    def on_reply(self, _method: str) -> None:
        """Record that a reply was sent. Runs in the thread that handled the request."""
        final, self._read.final = getattr(self._read, "final", None), None
        if final is not None:
            self.polled.set()
        if final and self._read.poller is None:
            self.last_poll.set()
        elif final and not self._read.poller.confirms:
            self._hand_over()

    def _hand_over(self) -> None:
        self.handed_over.set()
        self.last_poll.set()

    def getVars(self) -> Any:
        """Return all variables as rows."""
        closing = self._closing.is_set()
        layout, values = self._snapshots.rows()
        variables = [self._variable(layout, i, value) for i, value in enumerate(values)]
        self._read.final, self._read.poller = closing, None
        return self._idl.Rows(self._endpoint(), variables)

    def getColumns(self, known_schema_id: bytes | None, poller: Any = None) -> Any:
        """Return all values as one column, and the schema unless the caller knows it; no values if another poller has
        the turn."""
        now, memo = self._turn(poller)
        if poller is not None and now != poller.name:
            return self._idl.Columns(self._endpoint(), known_schema_id, None, b"", [], bytes(4), now)
        if now is not None and poller.kept_ms is not None and 0 < self._final_ms <= poller.kept_ms:
            self._hand_over()
        closing = self._closing.is_set()
        answer = self._columns(known_schema_id, now, memo)
        self._read.final, self._read.poller = closing, None if now is None else poller
        if now is not None:
            if closing and not self._final_ms:
                # Later than all previous answers: a confirming agent names the answer that it has by its time.
                answer.endpoint.time_ms = self._final_ms = max(answer.endpoint.time_ms, self._polled_ms + 1)
            self._polled_ms = answer.endpoint.time_ms
        return answer

    def final(self, address: str) -> Any:
        """Final snapshot (docs/formats/final.md) of a process that advertised `address`; None without variables. Stop
        the server before: no later poll may have newer values."""
        poller, memo = self._poll_turns.last()
        columns = self._columns(b"", poller or None, memo)
        return self._idl.Final(columns, address, self._polled_ms) if columns.schema.names else None

    def _columns(self, known_schema_id: bytes | None, poller: str | None, memo: bytes | None) -> Any:
        layout, values, strings = self._snapshots.columns()
        schema = None if known_schema_id == layout.schema_id else self._schema(layout)
        crc = zlib.crc32(values).to_bytes(4, "little")
        return self._idl.Columns(self._endpoint(), layout.schema_id, schema, values, strings, crc, poller, memo)

    def _turn(self, poller: Any) -> tuple[str | None, bytes | None]:
        if poller is None or not poller.name:
            return None, None
        return self._poll_turns.take(poller.name, poller.patience_ms or 0, poller.memo)

    def _endpoint(self) -> Any:
        who = self._identity
        uid = os.geteuid() if hasattr(os, "geteuid") else None
        return self._idl.Endpoint(who.uuid, who.birth_ms, who.context, who.instance, now_ms(), 1, uid)

    def _schema(self, layout: VariableLayout) -> Any:
        cells = layout.cells
        return self._idl.Schema(
            [cell.name for cell in cells],
            [cell.labels for cell in cells],
            layout.types,
            layout.kinds,
            layout.help,
            layout.units,
        )

    def _variable(self, layout: VariableLayout, i: int, value: Any) -> Any:
        name, type_ = layout.cells[i].name, layout.types[i]
        return self._idl.Variable(
            name,
            layout.cells[i].labels,
            type_,
            layout.kinds[i],
            self._idl.Value(**{VALUE_FIELDS[type_]: value}),
            layout.help.get(name),
            layout.units.get(name),
        )


MAX_MEMO = 192 * 1024


class PollTurns:
    """Arbiter between pollers: keeps the name of the last poller and its memo for the next one.

    Agents assign processes by leases in ZooKeeper. An agent cut off from ZooKeeper cannot know whether another one has
    taken over. It sends its patience instead, and the process, which both can reach, decides.

    Locks: `_lock` guards all fields; nothing is called under it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._name = ""
        self._polled_at = 0.0
        self._memo = b""

    def take(self, name: str, patience_ms: int, memo: bytes | None) -> tuple[str, bytes | None]:
        """Return the poller that has the turn, and the previous poller's memo if `name` has just taken over.

        `name` gets the turn unless another one polled within the last `patience_ms`. `memo` replaces the stored one."""
        now = monotonic()
        with self._lock:
            other = self._name not in ("", name)
            if other and (now - self._polled_at) * 1000 < patience_ms:
                return self._name, None
            left = self._memo if other else None
            self._name, self._polled_at = name, now
            if memo is not None:
                self._memo = memo if len(memo) <= MAX_MEMO else b""
            return name, left

    def last(self) -> tuple[str, bytes]:
        """Name of the last poller ("" without one), and its memo."""
        with self._lock:
            return self._name, self._memo
