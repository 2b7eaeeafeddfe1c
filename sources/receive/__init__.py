"""Receivers: programs send their samples to a listener of the agent.

Read `received_columns` (series and samples of a sender), `protobuf_messages`, `remote_write` and `otlp` (bytes to
columns), `received_source` (one sender), `protocol` with `remote_write_protocol` and `otlp_protocol` (HTTP), `receiver`
(the listener). May import `sources.dropin` and the layers below it.
"""
