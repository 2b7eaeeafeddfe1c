"""Codec of the call `getColumns` and its answer. Everything that a process sends is validated."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from thriftpy2.thrift import TApplicationException

from artimon.model.values import CONTENTS, ValueType
from bookkeeper.rpc.framed_server import FrameError, decode_reply, encode_call
from bookkeeper.rpc.poll_service import idl
from sources.base.source_errors import PolledElsewhereError, PollError
from sources.state.source_reading import Reading, SourceSchema

UUID_BYTES = 16
METHOD = "getColumns"
_I32 = struct.Struct(">i")
_SEQID_AT = 4 + 4 + 4 + len(METHOD)
"""Offset of the sequence number: after the frame length, the version, and the method with its length."""


@dataclass(frozen=True, slots=True)
class PollAnswer:
    """Validated answer. The time of the reading is that of the process's clock."""

    reading: Reading
    memo: bytes | None
    """Memo of the previous poller, if it was another one."""


def encode_poll_request(
    known_schema: bytes, name: str, patience_ms: int, memo: bytes | None, kept_ms: int | None = None
) -> bytearray:
    """Encode the call of the agent `name` including the frame length; call `set_sequence_id` on it before sending."""
    poller = idl().Poller(name, patience_ms, memo, True, kept_ms)
    return bytearray(encode_call(idl().Bookkeeper, METHOD, (known_schema, poller), 0))


def set_sequence_id(question: bytearray, seqid: int) -> bytes:
    """Set the sequence number of a question and return its bytes."""
    _I32.pack_into(question, _SEQID_AT, seqid)
    return bytes(question)


def decode_answer(frame: bytes, seqid: int, known: SourceSchema | None, max_series: int, name: str = "") -> PollAnswer:
    """Decode the answer in `frame` (without its length) to the agent `name`. Raises PolledElsewhereError, or PollError
    `garbage`, `crc`, `application` or `too many series`."""
    try:
        columns = decode_reply(idl().Bookkeeper, METHOD, frame, seqid)
    except FrameError as error:
        raise PollError("garbage", str(error)) from error
    except TApplicationException as error:
        raise PollError("application", str(error)) from error
    try:
        if columns.poller is not None and columns.poller != name:
            raise PolledElsewhereError(columns.endpoint.uuid, columns.poller)
        return check_columns(columns, known, max_series)
    except (TypeError, ValueError, AttributeError, struct.error) as error:
        raise PollError("garbage", f"{type(error).__name__}: {error}") from error


def check_columns(columns: Any, known: SourceSchema | None, max_series: int) -> PollAnswer:
    """Validate a struct `Columns` and return the answer. Raises TypeError, ValueError, AttributeError or PollError."""
    endpoint = columns.endpoint
    if len(endpoint.uuid) != UUID_BYTES:
        raise ValueError(f"a uuid of {len(endpoint.uuid)} bytes")
    values, crc = columns.values or b"", struct.pack("<I", zlib.crc32(columns.values or b""))
    if columns.crc != crc:
        raise PollError("crc", f"CRC-32 of the values is {crc.hex()}, the answer says {bytes(columns.crc).hex()}")
    fresh = None if columns.schema is None else _schema(columns.schema_id, columns.schema, max_series)
    schema = fresh or known
    if schema is None or schema.id != columns.schema_id:
        raise ValueError("the answer has no schema, but its schema id is not that of the request")
    if len(values) != 8 * len(schema):
        raise ValueError(f"{len(values)} bytes of values for {len(schema)} variables: expected 8 each")
    cells = np.frombuffer(values, "<i8").astype(np.int64, copy=False)
    strings = tuple(columns.strings or ())
    _check_cells(schema, cells, strings)
    birth_ms, time_ms = _int(endpoint.birth_ms), endpoint.time_ms or 0
    context, instance = endpoint.context, endpoint.instance
    reading = Reading(endpoint.uuid, birth_ms, time_ms, schema, cells, strings, context, instance, uid=endpoint.uid)
    return PollAnswer(reading, columns.memo)


def _schema(schema_id: bytes, schema: Any, max_series: int) -> SourceSchema:
    n = len(schema.names)
    if n > max_series:
        raise PollError("too many series", f"{n} variables: at most {max_series} a process")
    types, kinds = np.frombuffer(schema.types, np.uint8), np.frombuffer(schema.kinds, np.uint8)
    if not (len(schema.labels) == len(types) == len(kinds) == n):
        raise ValueError(f"{n} names, {len(schema.labels)} labels, {len(types)} types, {len(kinds)} kinds")
    if n and (types.max() > max(CONTENTS) or kinds.max() > 2):
        raise ValueError("unknown type or kind of a variable")
    return SourceSchema(schema_id, schema.names, schema.labels, types, kinds, schema.help or {}, schema.units or {})


def _check_cells(schema: SourceSchema, cells: npt.NDArray[np.int64], strings: tuple[str, ...]) -> None:
    """Raise ValueError unless string cells index `strings` and boolean cells are 0 or 1."""
    text = cells[schema.types == ValueType.STRING]
    if len(text) and (text.min() < 0 or text.max() >= len(strings)):
        raise ValueError(f"a string cell points outside the {len(strings)} strings")
    flag = cells[schema.types == ValueType.BOOLEAN]
    if len(flag) and (flag.min() < 0 or flag.max() > 1):
        raise ValueError("a boolean cell that is neither 0 nor 1")


def _int(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"invalid start time of the process: {value!r} ms")
    return value
