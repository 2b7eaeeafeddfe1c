"""Framed binary Thrift: the protocol of polls and of all calls between processes of the platform.

Read `thrift_messages` (bytes, checked before they are decoded), `framed_server` and `framed_client`, `security` with
`tls` and `tokens` (authentication), then `poll_service` (turns of pollers, the answer to a poll, bookkeeper.thrift).
May import `bookkeeper.variables` and `bookkeeper.runtime`.
"""
