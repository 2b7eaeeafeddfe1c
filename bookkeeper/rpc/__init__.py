"""Framed binary Thrift: how processes are polled, and how every part of the platform talks to another.

Read `thrift_messages` (bytes, checked before they are decoded), `framed_server` and `framed_client`, `security` with
`tls` and `tokens` (who may connect), then `poll_service` with `turns` (the answer to a poll, bookkeeper.thrift).
May import `bookkeeper.variables` and `bookkeeper.runtime`.
"""
