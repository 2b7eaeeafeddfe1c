"""Messages of Prometheus remote write and the status of OTLP, made from descriptors at import, not generated.

https://prometheus.io/docs/specs/prw/remote_write_spec/ and .../remote_write_spec_2_0/ define the fields. Messages that
are counted or compared before they are parsed are declared as bytes, which have the same form.
"""

from __future__ import annotations

from collections.abc import Sequence
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


class _Field(NamedTuple):
    """`type`: a name of _TYPES, or that of a message."""

    number: int
    name: str
    type: str
    repeated: bool = False


_MESSAGES: dict[str, Sequence[_Field]] = {
    "Label": (_Field(1, "name", "string"), _Field(2, "value", "string")),
    "Sample": (_Field(1, "value", "double"), _Field(2, "timestamp", "int64"), _Field(3, "start_timestamp", "int64")),
    "Metadata1": (
        _Field(1, "type", "uint32"),
        _Field(2, "name", "string"),
        _Field(4, "help", "string"),
        _Field(5, "unit", "string"),
    ),
    "Series1": (
        _Field(1, "labels", "bytes", True),
        _Field(2, "samples", "Sample", True),
        _Field(4, "histograms", "bytes", True),
    ),
    "Request1": (_Field(1, "series", "bytes", True), _Field(3, "metadata", "bytes", True)),
    "Metadata2": (_Field(1, "type", "uint32"), _Field(3, "help", "uint32"), _Field(4, "unit", "uint32")),
    "Series2": (
        _Field(1, "labels", "uint32", True),
        _Field(2, "samples", "Sample", True),
        _Field(3, "histograms", "bytes", True),
        _Field(5, "metadata", "Metadata2"),
        _Field(6, "created_timestamp", "int64"),
    ),
    "Status": (_Field(1, "code", "uint32"), _Field(2, "message", "string")),
    "Request2": (_Field(4, "symbols", "string", True), _Field(5, "series", "bytes", True)),
}


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="remote_write.proto", package="artimon", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields:
            made = message.field.add(name=field.name, number=field.number)
            made.label = _FIELD.LABEL_REPEATED if field.repeated else _FIELD.LABEL_OPTIONAL
            if field.type in _TYPES:
                made.type = _TYPES[field.type]
            else:
                made.type, made.type_name = _FIELD.TYPE_MESSAGE, f".artimon.{field.type}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"artimon.{name}")) for name in _MESSAGES}


MESSAGES = _classes()
"""Message class by name; 1 and 2 are those of the two versions."""
FAMILY_TYPES = ("unknown", "counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset")
"""Type of a metric by its number, the same in both versions."""
