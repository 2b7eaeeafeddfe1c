"""Receivers: programs send their samples to listeners of the agent.

Read `received_columns` (series and samples of a sender), `protocol` (a form of HTTP), the protocols with their readers
of bytes (`remote_write` with `protobuf_messages`, `otlp`, `graphite`, `influx`, `statsd` with `statsd_aggregates`),
their look-ups of known series (`key_table`, `known_series`, `known_points`, each with its functions in C),
`received_source` (one sender) and `senders`, the listeners (`http_listener`, `grpc_listener`, `line_listener`),
`receiver` (all of an agent). May import `sources.dropin` and the layers below it.
"""
