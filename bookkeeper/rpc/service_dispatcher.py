"""Dispatcher of Thrift calls: decodes a call, calls the handler, encodes the reply. Nothing touches a socket."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from thriftpy2.thrift import TApplicationException, TMessageType

from bookkeeper.rpc.thrift_messages import (
    HEADER,
    FrameError,
    MessageHead,
    decode_struct,
    encode_message,
    parse_message,
)

log = logging.getLogger("bookkeeper.framed")


class ServiceDispatcher:
    """Calls of `service` to `handler`, an object with its methods. Thread-safe if the handler is."""

    def __init__(self, service: Any, handler: object, max_reply: int, name: str) -> None:
        """`max_reply`: bytes of the longest reply. `name` is that of the server, for the log."""
        self.service, self.handler, self.max_reply, self.name = service, handler, max_reply, name

    def answer(self, frame: bytes) -> tuple[str, bytes | None]:
        """Handle a request; returns its method and the reply as a frame (None if one-way). FrameError if malformed."""
        message = parse_message(frame)
        del frame
        refusal, values = self.decode(message)
        if refusal is not None:
            return message.method, refusal
        try:
            value = self.call(message, values)
        except Exception as error:
            return message.method, self.error(message, error)
        return message.method, self.reply(message, value)

    def decode(self, message: MessageHead) -> tuple[bytes | None, Sequence[Any]]:
        """Return the arguments of a call, or the reply that refuses an unknown method. Raises FrameError."""
        if message.kind not in (TMessageType.CALL, TMessageType.ONEWAY):
            raise FrameError(f"message of kind {message.kind} instead of a call")
        if message.method not in self.service.thrift_services or not callable(self._method(message)):
            text = f"{self.service.__name__} has no method {message.method!r}"
            return failure(message, TApplicationException.UNKNOWN_METHOD, text), ()
        args = decode_struct(message, getattr(self.service, message.method + "_args")())
        message.frame = b""  # the arguments are copies: keep one copy of a call in memory while its handler runs
        return None, [getattr(args, spec[1]) for spec in args.thrift_spec.values()]

    def call(self, message: MessageHead, values: Sequence[Any]) -> Any:
        """Return what the handler returns; raises what it raises."""
        return self._method(message)(*values)

    def _method(self, message: MessageHead) -> Any:
        return getattr(self.handler, message.method, None)

    def reply(self, message: MessageHead, value: Any) -> bytes | None:
        """Encode the value of a call as a frame; None for a one-way call."""
        result = self._result(message)
        if result.oneway:
            return None
        if 0 in result.thrift_spec:
            result.success = value
        return self._encode(message, result)

    def error(self, message: MessageHead, error: BaseException) -> bytes | None:
        """Encode an error of the handler: the caller gets the reason, and all connections stay open."""
        result = self._result(message)
        for fid, spec in result.thrift_spec.items():
            if fid != 0 and isinstance(error, spec[2]):
                setattr(result, spec[1], error)
                return self._encode(message, result)
        if isinstance(error, TApplicationException):
            return failure(message, error.type, str(error))
        log.warning("%s.%s failed", self.name, message.method, exc_info=error)
        return failure(message, TApplicationException.INTERNAL_ERROR, f"{type(error).__name__}: {error}")

    def _result(self, message: MessageHead) -> Any:
        return getattr(self.service, message.method + "_result")()

    def _encode(self, message: MessageHead, result: Any) -> bytes | None:
        try:
            reply = encode_message(message.method, TMessageType.REPLY, message.seqid, result)
        except Exception as error:
            log.warning("%s.%s: a reply cannot be encoded", self.name, message.method, exc_info=True)
            return failure(message, TApplicationException.INTERNAL_ERROR, f"{type(error).__name__}: {error}")
        if len(reply) - HEADER.size > self.max_reply:
            text = f"reply of {len(reply)} bytes, at most {self.max_reply} are allowed: ask for less"
            return failure(message, TApplicationException.INTERNAL_ERROR, text)
        return reply


def failure(message: MessageHead, code: int, text: str) -> bytes | None:
    """Encode a TApplicationException as the reply to a call; None for a one-way call."""
    if message.kind == TMessageType.ONEWAY:
        return None
    error = TApplicationException(code, text)
    return encode_message(message.method, TMessageType.EXCEPTION, message.seqid, error)
