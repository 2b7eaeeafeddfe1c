"""Messages of Prometheus remote write and the status of OTLP, made from descriptors.

https://prometheus.io/docs/specs/prw/remote_write_spec/ and .../remote_write_spec_2_0/ define the fields. Messages that
are counted or compared before they are parsed are declared as bytes, which have the same form.
"""

from __future__ import annotations

from artimon.runtime.protobuf_classes import MessageField as _Field
from artimon.runtime.protobuf_classes import message_classes

_MESSAGES = {
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
    "Status": (_Field(1, "code", "uint32"), _Field(2, "message", "string"), _Field(3, "details", "Any", True)),
    "Any": (_Field(1, "type_url", "string"), _Field(2, "value", "bytes")),
    "RetryInfo": (_Field(1, "retry_delay", "Duration"),),
    "Duration": (_Field(1, "seconds", "int64"),),
    "Request2": (_Field(4, "symbols", "string", True), _Field(5, "series", "bytes", True)),
}

MESSAGES = message_classes("remote_write.proto", _MESSAGES)
"""Message class by name; 1 and 2 are those of the two versions."""
FAMILY_TYPES = ("unknown", "counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset")
"""Type of a metric by its number, the same in both versions."""
