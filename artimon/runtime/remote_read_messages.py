"""Messages of Prometheus' remote read, for its server and its client.

https://prometheus.io/docs/prometheus/latest/querying/remote_read_api/ defines them."""

from __future__ import annotations

from artimon.runtime.protobuf_classes import MessageField as _Field
from artimon.runtime.protobuf_classes import message_classes

MESSAGES = message_classes(
    "remote_read.proto",
    {
        "ReadLabel": (_Field(1, "name", "string"), _Field(2, "value", "string")),
        "ReadSample": (_Field(1, "value", "double"), _Field(2, "timestamp", "int64")),
        "ReadMatcher": (_Field(1, "type", "uint32"), _Field(2, "name", "string"), _Field(3, "value", "string")),
        "ReadQuery": (
            _Field(1, "start_timestamp_ms", "int64"),
            _Field(2, "end_timestamp_ms", "int64"),
            _Field(3, "matchers", "ReadMatcher", True),
        ),
        "ReadRequest": (_Field(1, "queries", "bytes", True), _Field(2, "accepted_response_types", "uint32", True)),
        "ReadSeries": (_Field(1, "labels", "ReadLabel", True), _Field(2, "samples", "ReadSample", True)),
        "ReadResult": (_Field(1, "timeseries", "ReadSeries", True),),
        "ReadResponse": (_Field(1, "results", "ReadResult", True),),
        "Chunk": (
            _Field(1, "min_time_ms", "int64"),
            _Field(2, "max_time_ms", "int64"),
            _Field(3, "type", "uint32"),
            _Field(4, "data", "bytes"),
        ),
        "ChunkedSeries": (_Field(1, "labels", "ReadLabel", True), _Field(2, "chunks", "Chunk", True)),
        "ChunkedResponse": (_Field(1, "series", "ChunkedSeries", True), _Field(2, "query_index", "int64")),
    },
)
