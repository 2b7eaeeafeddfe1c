"""Channels: hold what sources put, in order and bounded, until every sink has it.

`ledger` tracks which branches still want an item; `base` adds a lock and the identities of accepted parcels; `file`
(with disk failover), `memory`, `sql` and `kafka` declare the channels.
"""
