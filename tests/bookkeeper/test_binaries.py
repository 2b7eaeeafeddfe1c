"""Calls with one list of bytes are encoded by a shorter way: the bytes are those of the general one."""

from __future__ import annotations

import io
from typing import Any

import pytest
import thriftpy2
from thriftpy2.thrift import TMessageType

from bookkeeper.rpc.thrift_messages import decode_struct, encode_call, encode_message, parse_message


@pytest.fixture(scope="module")
def idl() -> Any:
    text = (
        "service Way { i32 send(7: list<binary> messages); i32 one(1: binary message); i32 texts(1: list<string> t) }"
    )
    return thriftpy2.load_fp(io.StringIO(text), "binaries_thrift")


@pytest.mark.parametrize("messages", [[], [b""], [b"a" * 70_000, b"b"], (b"tuple",), [bytes(range(256))] * 300])
def test_the_short_way_makes_the_same_bytes(idl: Any, messages: list[bytes]) -> None:
    payload = idl.Way.send_args()
    payload.messages = messages
    frame = encode_call(idl.Way, "send", [messages], 77)
    assert frame == encode_message("send", TMessageType.CALL, 77, payload)
    args = decode_struct(parse_message(frame[4:]), idl.Way.send_args())
    assert args.messages == list(messages)


@pytest.mark.parametrize(
    ("method", "value"), [("send", None), ("send", [bytearray(b"x")]), ("one", b"x"), ("texts", ["x"])]
)
def test_whatever_else_goes_the_general_way(idl: Any, method: str, value: Any) -> None:
    payload = getattr(idl.Way, f"{method}_args")()
    setattr(payload, next(iter(payload.thrift_spec.values()))[1], value)
    try:
        expected = encode_message(method, TMessageType.CALL, 1, payload)
    except Exception as error:
        with pytest.raises(type(error)):
            encode_call(idl.Way, method, [value], 1)
        return
    assert encode_call(idl.Way, method, [value], 1) == expected
