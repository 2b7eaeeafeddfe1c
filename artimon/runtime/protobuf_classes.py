"""Message classes of protobuf, made from descriptors at import, not generated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_TYPES = {
    "bytes": _FIELD.TYPE_BYTES,
    "string": _FIELD.TYPE_STRING,
    "double": _FIELD.TYPE_DOUBLE,
    "int64": _FIELD.TYPE_INT64,
    "uint32": _FIELD.TYPE_UINT32,
}


class MessageField(NamedTuple):
    """`type`: a name of _TYPES, or that of a message."""

    number: int
    name: str
    type: str
    repeated: bool = False


def message_classes(file: str, messages: Mapping[str, Sequence[MessageField]]) -> dict[str, Any]:
    """Return a class for each message, by name; `file` names their descriptor."""
    described = descriptor_pb2.FileDescriptorProto(name=file, package="artimon", syntax="proto3")
    for name, fields in messages.items():
        message = described.message_type.add(name=name)
        for field in fields:
            made = message.field.add(name=field.name, number=field.number)
            made.label = _FIELD.LABEL_REPEATED if field.repeated else _FIELD.LABEL_OPTIONAL
            if field.type in _TYPES:
                made.type = _TYPES[field.type]
            else:
                made.type, made.type_name = _FIELD.TYPE_MESSAGE, f".artimon.{field.type}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(described)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"artimon.{name}")) for name in messages}
