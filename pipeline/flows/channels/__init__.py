"""Channels: hold what sources put, in order and bounded, until every sink has it.

`branch_ledger` tracks which branches still want an item; `ledger_channel` adds a lock and the identities of accepted
event batches; `file_channel` (with disk failover), `memory`, `sql_channel` and `kafka_channel` declare the channels.
"""
