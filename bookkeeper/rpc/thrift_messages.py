"""Codec of Thrift messages: binary protocol, each in a frame of 4 bytes of length and the message.

Nothing here touches a socket. The fast decoder of thriftpy2 trusts every length and reads past the end of its input. So
`validate_struct` walks a message first: the decoder gets only structs that lie inside their frame and fill it exactly.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from thriftpy2.protocol import TBinaryProtocol
from thriftpy2.thrift import TApplicationException, TMessageType
from thriftpy2.transport import TMemoryBuffer

if TYPE_CHECKING:
    Frame = bytes | memoryview
    """A message as received, without the 4 bytes of length."""

HEADER = struct.Struct(">I")
MAX_ITEMS = 1_000_000
MAX_DEPTH = 32
MAX_METHOD_BYTES = 255

_VERSION = 0x80010000
_I32 = struct.Struct(">i")
_U32 = struct.Struct(">I")
_LIST_FIELD = struct.Struct(">BhBI")  # a field that is a list: its type and number, type and count of the items
_STOP, _STRING, _STRUCT, _MAP, _SET, _LIST, _BINARY = 0, 11, 12, 13, 14, 15, 18
_TEXT = (_STRING, _BINARY)
_WIDTH = {2: 1, 3: 1, 4: 8, 6: 2, 8: 4, 10: 8}


class FramedError(Exception):
    """Failed call or message; its connection is closed."""


class FrameError(FramedError):
    """Malformed message: cut off, too long, of another protocol, or with impossible lengths."""


class MessageHead:
    """Head of a message: `method`, `kind` (CALL, REPLY, EXCEPTION, ONEWAY), `seqid`, and the offset `start` of its
    struct in `frame`."""

    __slots__ = ("frame", "kind", "method", "seqid", "start")

    def __init__(self, frame: Frame, method: str, kind: int, seqid: int, start: int) -> None:
        self.frame, self.method, self.kind, self.seqid, self.start = frame, method, kind, seqid, start


def encode_call(service: Any, method: str, args: Sequence[object], seqid: int) -> bytes:
    """Encode a call as bytes ready to send, with the 4 bytes of length; `args` in the order of the IDL.

    Raises TypeError for an unknown method or a wrong number of arguments."""
    if method not in service.thrift_services:
        raise TypeError(f"{service.__name__} has no method {method!r}: one of {sorted(service.thrift_services)}")
    payload = getattr(service, method + "_args")()
    names = [spec[1] for spec in payload.thrift_spec.values()]
    if len(names) != len(args):
        raise TypeError(f"{service.__name__}.{method} takes {len(names)} arguments {names}, got {len(args)}")
    for i, name in enumerate(names):
        setattr(payload, name, args[i])
    oneway = getattr(service, method + "_result").oneway
    kind = TMessageType.ONEWAY if oneway else TMessageType.CALL
    only = next(iter(payload.thrift_spec.items())) if len(args) == 1 else None
    if only is not None and only[1][0] == _LIST and only[1][2] == _BINARY:
        items = args[0]
        if isinstance(items, (list, tuple)) and set(map(type, items)) <= {bytes}:
            return _encode_binaries(method, kind, seqid, only[0], items)
    return encode_message(method, kind, seqid, payload)


def _encode_binaries(method: str, kind: int, seqid: int, field: int, items: Sequence[bytes]) -> bytes:
    """Encode a call whose only argument is a list of bytes: as `encode_message`, but each item is copied only once."""
    name = method.encode("utf-8")
    head = (_U32.pack(_VERSION | kind), _U32.pack(len(name)), name, _I32.pack(seqid))
    parts = [b"", *head, _LIST_FIELD.pack(_LIST, field, _STRING, len(items))]
    for item in items:
        parts += (_U32.pack(len(item)), item)
    parts.append(b"\0")
    parts[0] = HEADER.pack(sum(map(len, parts)))
    return b"".join(parts)


def encode_message(method: str, kind: int, seqid: int, payload: Any) -> bytes:
    """Encode a message of any kind as a frame; `payload` is a struct of thriftpy2."""
    buffer = TMemoryBuffer()
    protocol = TBinaryProtocol(buffer)
    protocol.write_message_begin(method, kind, seqid)
    payload.write(protocol)
    protocol.write_message_end()
    body = buffer.getvalue()
    return HEADER.pack(len(body)) + bytes(body)


def decode_reply(service: Any, method: str, frame: Frame, seqid: int) -> Any:
    """Decode the result of a call; `frame` is the reply without its 4 bytes of length.

    Raises the exceptions that the IDL declares, TApplicationException as sent by the server, and FrameError for bytes
    that are not a reply to this call; then the connection must be closed."""
    message = parse_message(frame)
    if message.seqid != seqid or message.method != method:
        raise FrameError(f"reply to {message.method} {message.seqid} instead of {method} {seqid}: close the connection")
    if message.kind == TMessageType.EXCEPTION:
        raise decode_struct(message, TApplicationException())
    if message.kind != TMessageType.REPLY:
        raise FrameError(f"message of kind {message.kind} instead of a reply to {method}")
    return _unpack(service, method, decode_struct(message, getattr(service, method + "_result")()))


def _unpack(service: Any, method: str, result: Any) -> Any:
    for spec in result.thrift_spec.values():
        if spec[1] != "success" and getattr(result, spec[1]) is not None:
            raise getattr(result, spec[1])
    if 0 not in result.thrift_spec:
        return None
    if result.success is None:
        raise TApplicationException(
            TApplicationException.MISSING_RESULT, f"{service.__name__}.{method} returned nothing"
        )
    return result.success


def parse_message(frame: Frame) -> MessageHead:
    """Read the head of a message; its struct is not checked yet. FrameError unless it is strict binary protocol."""
    if len(frame) < 12:
        raise FrameError(f"a frame of {len(frame)} bytes holds no message")
    version = _U32.unpack_from(frame, 0)[0]
    if version & 0xFFFFFF00 != _VERSION:
        raise FrameError(f"frame begins with {bytes(frame[:4])!r}: use Thrift's strict binary protocol")
    size = _U32.unpack_from(frame, 4)[0]
    if size > MAX_METHOD_BYTES or 12 + size > len(frame):
        raise FrameError(f"a method name of {size} bytes in a frame of {len(frame)}")
    try:
        method = bytes(frame[8 : 8 + size]).decode("utf-8")
    except UnicodeDecodeError:
        raise FrameError("a method name that is not UTF-8") from None
    return MessageHead(frame, method, version & 0xFF, _I32.unpack_from(frame, 8 + size)[0], 12 + size)


def decode_struct(message: MessageHead, into: Any, max_items: int = MAX_ITEMS) -> Any:
    """Fill the struct `into` from a message and return it. FrameError unless the bytes are exactly one struct."""
    end = validate_struct(message.frame, message.start, into.thrift_spec, max_items)
    if end != len(message.frame):
        raise FrameError(f"{len(message.frame) - end} bytes too many after the arguments of {message.method}")
    buffer = TMemoryBuffer(bytes(message.frame[message.start :]))
    try:
        into.read(TBinaryProtocol(buffer, strict_decode=True))
    except Exception as error:  # the decoder raises many types: convert them all
        raise FrameError(f"{message.method}: {type(error).__name__}: {error}") from error
    return into


def validate_struct(
    data: Frame, start: int, spec: dict[int, tuple[Any, ...]] | None, max_items: int = MAX_ITEMS
) -> int:
    """Return the end of the struct that begins at `start`. FrameError if a length in it points outside `data`.

    `spec` is its `thrift_spec`, or None for a struct that is skipped. At most `max_items` values that are not plain
    numbers, nested at most 32 deep: so a small frame cannot expand to a large heap of objects."""
    return _StructValidator(data, max_items).struct(start, spec, 0)


class _StructValidator:
    """One pass over encoded values. Every method takes a position and returns the position after the value.

    Invariant: a returned position is <= len(data)."""

    __slots__ = ("data", "end", "items")

    def __init__(self, data: Frame, items: int) -> None:
        self.data, self.end, self.items = data, len(data), items

    def struct(self, at: int, spec: dict[int, tuple[Any, ...]] | None, depth: int) -> int:
        self._spend(1, depth)
        data, end = self.data, self.end
        while True:
            if at >= end:
                raise FrameError(f"struct cut off at byte {at}")
            ttype = data[at]
            if ttype == _STOP:
                return at + 1
            if at + 3 > end:
                raise FrameError(f"field cut off at byte {at}")
            inner = _field_spec(spec, int.from_bytes(data[at + 1 : at + 3], "big", signed=True), ttype)
            at = self.value(at + 3, ttype, inner, depth)

    def value(self, at: int, ttype: int, spec: Any, depth: int) -> int:
        width = _WIDTH.get(ttype)
        if width is not None:
            return self._within(at + width)
        if ttype == _STRING:
            return self._within(self._size(at) + at + 4)
        if ttype == _STRUCT:
            return self.struct(at, None if spec is None else spec.thrift_spec, depth + 1)
        if ttype in (_LIST, _SET):
            return self._list(at, spec, depth + 1)
        if ttype == _MAP:
            return self._map(at, spec, depth + 1)
        raise FrameError(f"unknown type {ttype} before byte {at}")

    def _list(self, at: int, spec: Any, depth: int) -> int:
        count = self._size(at + 1)
        ttype, at = self.data[at], at + 5
        width = _WIDTH.get(ttype)
        if width is not None:
            self._spend(1, depth)
            return self._within(at + width * count)
        self._bounded(count, at)
        self._spend(count, depth)
        if ttype == _STRING:
            return self._strings(at, count)
        expected, inner = _split(spec)
        inner = inner if expected == ttype else None
        for _ in range(count):
            at = self.value(at, ttype, inner, depth)
        return at

    def _strings(self, at: int, count: int) -> int:
        data, end, size_at = self.data, self.end, _U32.unpack_from
        for _ in range(count):
            if at + 4 > end:
                raise FrameError(f"string cut off at byte {at}")
            at += 4 + size_at(data, at)[0]
        return self._within(at)

    def _map(self, at: int, spec: Any, depth: int) -> int:
        count = self._size(at + 2)
        key, val, at = self.data[at], self.data[at + 1], at + 6
        if not count:
            return at
        self._bounded(2 * count, at)
        self._spend(2 * count, depth)
        key_spec, val_spec = _split(spec[0]) if spec else (None, None), _split(spec[1]) if spec else (None, None)
        if key == val == _STRING and (spec is None or (key_spec[0] in _TEXT and val_spec[0] in _TEXT)):
            return self._strings(at, 2 * count)
        if spec is not None:
            _refuse_text_as_number(key, key_spec[0], at)
            _refuse_text_as_number(val, val_spec[0], at)
        known = _same(key, key_spec[0]) and _same(val, val_spec[0])
        key_inner, val_inner = (key_spec[1], val_spec[1]) if known else (None, None)
        for _ in range(count):
            at = self.value(self.value(at, key, key_inner, depth), val, val_inner, depth)
        return at

    def _size(self, at: int) -> int:
        if at + 4 > self.end:
            raise FrameError(f"length cut off at byte {at}")
        return int(_U32.unpack_from(self.data, at)[0])

    def _within(self, at: int) -> int:
        if at > self.end:
            raise FrameError(f"a value ends {at - self.end} bytes after its frame")
        return at

    def _bounded(self, count: int, at: int) -> None:
        if count > self.end - at:
            raise FrameError(f"a container of {count} values with {self.end - at} bytes left")

    def _spend(self, count: int, depth: int) -> None:
        self.items -= count
        if self.items < 0:
            raise FrameError("too many values in one message: ask for less at a time")
        if depth > MAX_DEPTH:
            raise FrameError(f"values nested more than {MAX_DEPTH} deep")


def _field_spec(spec: dict[int, tuple[Any, ...]] | None, fid: int, ttype: int) -> Any:
    """Declared content of a field; None if the decoder will skip the field."""
    field = None if spec is None else spec.get(fid)
    if field is None or len(field) <= 3 or field[0] != ttype:
        return None
    return field[2]


def _split(spec: Any) -> tuple[Any, Any]:
    return (spec[0], spec[1]) if isinstance(spec, tuple) else (spec, None)


def _same(wire: int, declared: Any) -> bool:
    return wire == declared or (wire == _STRING and declared in _TEXT)


def _refuse_text_as_number(wire: int, declared: Any, at: int) -> None:
    """Raise FrameError: the decoder would read text in a map as the declared type, and lose its position."""
    if wire == _STRING and declared not in _TEXT:
        raise FrameError(f"text where the map before byte {at} has type {declared}")
